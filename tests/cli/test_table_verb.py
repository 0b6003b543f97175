"""The verb table: which table, in which format, and where it goes; the tables themselves have tests of their own."""

from functools import partial
from pathlib import Path

import pytest

from calibrant.experiments.folder import ExperimentFolder
from made.cli import Run, in_this_process
from made.rows import curves_table, rows_table, run_rows


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    metrics = [("none", metric) for metric in ("accuracy", "ece", "cece", "kse")]
    runs = [(loss, seed) for loss in ("cross_entropy", "maxent_mean") for seed in range(3)]
    rows = [
        row
        for loss, seed in runs
        for calibrator, metric in [*metrics, ("temperature", "ece")]
        for row in run_rows(
            {"fog-3": {"cross_entropy": 0.25, "maxent_mean": 0.125}[loss] + seed / 100 - 0.02 * (calibrator != "none")},
            seed=seed,
            loss=loss,
            metric=metric,
            calibrator=calibrator,
        )
    ]
    ExperimentFolder(tmp_path).write_tables(rows_table(rows), curves_table([]))
    return tmp_path


@pytest.fixture
def table(calibrant: Run, folder: Path) -> Run:
    return partial(calibrant, "table", folder)


def test_options_choose_the_table(table: Run) -> None:
    lines = [line.split() for line in table().done().splitlines()]
    assert ["CE", "26.0±0.6•†", "26.0±0.6", "26.0±0.6", "26.0±0.6"] in lines
    assert "14.5±0.4" in table("--against", "paper").done()
    wide = table("--name", "2").done()
    assert "MaxEnt w/ TS" in wide
    assert "11.5±0.6•↓" in wide
    assert "raw" in table("--name", "2", "--all-losses", "--data", "cifar10").done()


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["a.csv"], "table,data,"),
        (["a.md"], "**Table 1"),
        (["a.tex"], "% needs"),
        (["a.json"], "{"),
        (["a"], "Table 1"),
        (["a.md", "--format", "latex"], "% needs"),
    ],
    ids=" ".join,
)
def test_the_name_of_the_output_says_the_format_unless_it_is_told(
    table: Run, folder: Path, words: list[str], start: str
) -> None:
    target = folder / words[0]
    assert table("-o", target, *words[1:]).done() == f"wrote {target}\n"
    assert target.read_text(encoding="utf-8").startswith(start)
    assert not list(folder.glob(".*"))


def test_refusals(table: Run, calibrant: Run, folder: Path) -> None:
    table("--format", "html").refused("unknown format 'html'")
    table("--all-losses").refused("all_losses belongs to table 2")
    table("-o", folder / "none" / "a.md").refused("cannot be written")
    calibrant("table", folder / "none").refused("has no rows.parquet")
