"""The verb solve: tables and JSON of the multipliers, and the files that it refuses."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from calibrant import solve
from calibrant.cli.solve import Form
from calibrant.maxent import FORMS
from made.cli import MAX_SECONDS, Run


def test_choices_are_those_of_the_library() -> None:
    assert get_args(Form) == FORMS


def test_tables_json_and_counts(calibrant: Run, tmp_path: Path) -> None:
    prior, counts = tmp_path / "prior.json", tmp_path / "counts.json"
    prior.write_text('{"cat": 0.5, "dog": 0.3, "[red]fox": 0.2}')
    counts.write_text("[5, 3, 2]")
    out = calibrant("solve", "--prior", prior, "--form", "mean", "prior").done()
    for text in ("[red]fox", "form mean, gibbs paper", "form prior, gibbs normalized"):
        assert text in out
    options = ("--form", "mean_variance", "--gibbs", "normalized", "--json")
    record = calibrant("solve", "--prior", prior, *options).record["mean_variance"]
    assert record["classes"] == ["cat", "dog", "[red]fox"]
    expected = solve([0.5, 0.3, 0.2], "mean_variance", gibbs="normalized")
    assert record["multipliers"] == expected.multipliers.tolist()
    assert record["residual"] <= 1e-12
    by_counts = calibrant("solve", "--counts", counts, *options).record["mean_variance"]
    assert by_counts["multipliers"] == record["multipliers"]


REFUSALS: list[tuple[str | None, str, str]] = [  # what the file holds, more arguments, the message
    (None, "", "there is no file"),
    ("[0.5, 0.5", "", "is not a JSON file"),
    ('"abc"', "", "must hold a list or an object of numbers"),
    ('[0.5, "x"]', "", "must give each class a number, got 'x' for class 1"),
    ('{"cat": ' * 900 + "1" + 900 * "}", "", "must give each class a number, got a tuple for class cat"),
    ("[0.5, 0.4]", "", "prior must sum to 1, got a sum of 0.9"),
    ("[0.5, 0.5]", "--form men", 'Did you mean "mean"'),
    ("[0.5, 0.5]", "--form", "form"),
    ("[0.5, 0.5]", "--label-smoothing 2", "label_smoothing must lie in [0, 1), got 2.0"),
    ("[0.5, 0.5, 0.0]", "--form prior", "no multipliers for class 2: its prior is 0"),
    ("[0.5, 0.5]", "--counts x.json", "give either --prior or --counts"),
    ("[" * 100_000, "", "is not a JSON file"),
    (f"[{10**400}, 1]", "", "prior must be numbers"),
    ('{"cat": 0.5, "cat": 0.5}', "", "gives the class cat twice"),
]


def test_refusals(calibrant: Run, tmp_path: Path) -> None:
    path = tmp_path / "prior.json"
    for content, arguments, message in REFUSALS:
        if content is not None:
            path.write_text(content)
        calibrant("solve", "--prior", path, *arguments.split()).refused(message)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no bash")
def test_small_files_may_be_pipes(tmp_path: Path, calibrant: Run) -> None:
    (tmp_path / "p.json").write_text("[0.5, 0.5]")
    command = f"{sys.executable} -m calibrant solve --json --prior"
    line = f"{command} <(cat p.json) && cat p.json | {command} /dev/stdin"
    found = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=MAX_SECONDS)
    assert found.stdout == 2 * calibrant("solve", "--json", "--prior", tmp_path / "p.json").done()
    os.mkfifo(tmp_path / "fifo")
    calibrant("solve", "--prior", tmp_path / "fifo").refused("is not a JSON file")  # and does not wait for a writer
    for line in ("solve --prior", "solve --counts", "train"):
        calibrant(*line.split(), "/dev/zero").refused("/dev/zero must have at most 33,554,432 bytes")
    for line in ("run", "fit", "audit", "predict", "fit -o x.json x.parquet --target"):
        calibrant(*line.split(), "/dev/zero").refused("must not be a device or a pipe")
    calibrant("audit", "x.parquet", "--by", "/dev/zero").refused("x.parquet")  # not a file, but the name of a column
