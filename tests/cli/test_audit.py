"""`calibrant audit`: its output, options and exit codes."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant as cb
from calibrant.audits import Audit, audit
from calibrant.predictions import Predictions
from made.audits import make_rows
from made.cli import MAX_SECONDS, Run

OPTIONS = ("by", "compare", "cluster", "metrics", "n-bins", "weights", "level", "seed", "fail-if", "jobs", "ray",
           "match-names", "report", "json")  # fmt: skip
HOSTILE = ("[red]x", "[/]", "[link=https://example.org]y[/link]", ":smile:", "\x1b[31mred", "a\rb", "a\x08b", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of an overconfident model."""
    target = tmp_path / "model.parquet"
    make_rows(n=120, n_classes=3, half=["x", "y"] * 60).save(target)
    return target


@pytest.fixture
def other(path: Path) -> Path:
    """A file of another model for the same rows."""
    rows = Predictions.load(path)
    target = path.parent / "other" / "model.parquet"
    target.parent.mkdir()
    Predictions.from_logits(rows.logits / 3, rows.labels, columns=rows.columns).save(target)
    return target


def foreign(path: Path, logits: Sequence[Sequence[float]], labels: Sequence[int], **columns: Sequence[object]) -> Path:
    """A file from another framework."""
    pq.write_table(pa.table({"label": labels, "logits": pa.array(logits, pa.list_(pa.float32())), **columns}), path)
    return path


def first_words(text: str, names: Sequence[str]) -> list[str]:
    """The first words of lines that are among these names, in order."""
    return [words[0] for line in text.splitlines() if (words := line.split()) and words[0] in names]


def in_process(*arguments: str, without: set[str]) -> "subprocess.CompletedProcess[str]":
    """A process that must not import these modules."""
    code = f"""
import sys
from calibrant.cli import main
try:
    main()
finally:
    assert not {without!r} & set(sys.modules), set(sys.modules)
"""
    command = [sys.executable, "-c", code, "audit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS)


# Output


def test_help_names_every_option_and_does_not_import_torch() -> None:
    found = in_process("--help", without={"torch", "pyarrow"})
    assert found.returncode == 0, found.stderr
    assert all(f"--{option}" in found.stdout for option in OPTIONS)
    assert "exit code is 3" in " ".join(found.stdout.split())


@pytest.mark.slow
def test_a_process_exits_3_if_a_gate_fails_and_does_not_import_altair(path: Path) -> None:
    gates = ("--fail-if", "ece > 0.0", "accuracy < 0.1")
    found = in_process(str(path), "--json", "--by", "site", *gates, without={"altair", "jinja2"})
    card = cb.score(Predictions.load(path))
    record = json.loads(found.stdout)
    assert found.returncode == 3
    assert {name: metric["value"] for name, metric in record["metrics"].items()} == card.values()
    assert record["failed"] == [f"ece > 0 (ece = {card.ece:.6g})"]
    assert found.stderr == f"failed: ece > 0 (ece = {card.ece:.6g})\n"


@pytest.mark.slow
def test_json_is_the_record_of_the_audit_with_its_sentences(path: Path, other: Path, calibrant: Run) -> None:
    options = ("--level", 0.9, "--seed", 3, "--n-bins", 10, "--by", "site", "half", "--weights", "w")
    more = ("--compare", other, "--cluster", "site", "--metrics", "ece", "nll", "--fail-if", "brier > 99")
    record = calibrant("audit", path, "--json", *options, *more).record
    wanted = audit(
        path, level=0.9, seed=3, n_bins=10, by=["site", "half"], weights="w", other=other, cluster="site",
        compare_metrics=["ece", "nll"], gates=["brier > 99"],
    )  # fmt: skip
    words = record.pop("words")
    assert record == wanted.to_dict(["ece", "nll", "brier"])
    assert list(record["metrics"]) == ["ece", "nll", "brier"]
    assert (len(words["summary"]), len(words["advice"])) == (8, len(wanted.advice))


def test_text_has_the_verdict_the_advice_and_the_tables(path: Path, other: Path, calibrant: Run) -> None:
    out = calibrant("audit", path, "--by", "site", "--compare", other, "--metrics", "nll", "brier").done()
    found = audit(path, by=["site"])
    for part in (
        f"Overconfident: mean confidence exceeds accuracy by {100 * found.verdict.gap:.1f} percentage points (",
        "Recommendations:\n- ",
        "Groups by site, worst first",
        "Difference between this model and the other, all rows",
        "Difference between this model and the other, by site",
    ):
        assert out.count(part) == 1
    groups = out.partition("Groups by site")[2].partition("Difference between")[0]
    assert first_words(groups, ["A", "B", "C"]) == [group.value for group in found.groups["site"].worst_first]
    for card in found.groups["site"].cards.values():
        assert f"{card.brier:.4f}" in groups
    metrics = out.partition("noise floors")[2].partition("Groups")[0]
    assert first_words(metrics, list(cb.METRICS)) == ["nll", "brier"]


@pytest.mark.slow
def test_a_narrow_terminal_still_shows_the_numbers(path: Path, calibrant: Run) -> None:
    cards = cb.score(Predictions.load(path), by="site")
    low, high = cards.overall.interval("ece")
    for width in (60, 100):
        out = calibrant("audit", path, "--by", "site", width=width).done()
        assert max(map(len, out.splitlines())) <= width
        metrics, _, groups = out.partition("noise floors")[2].partition("Groups by site")
        assert set(first_words(metrics, list(cb.METRICS))) == set(cards.overall.names)
        assert f"{low:.4f} to {high:.4f}" in metrics
        assert set(first_words(groups, ["A", "B", "C"])) == {"A", "B", "C"}
        for card in cards.values():
            assert f"{100 * card.ece:.1f} (" in groups


def test_infinite_and_undefined_metrics(tmp_path: Path, calibrant: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, -math.inf], [0.0, 1.0]], [1, 1])
    found = calibrant("audit", path, "--fail-if", "nll > 5")
    assert (found.code, found.errors) == (3, ["failed: nll > 5 (nll = inf)"])
    assert " ∞ " in found.out
    path = foreign(tmp_path / "y.parquet", [[3.0, 0.0], [0.0, 1.0]], [0, 1])
    [line] = [x for x in calibrant("audit", path).done().splitlines() if x.split()[:1] == ["nll_on_errors"]]
    assert line.count("–") == 3


def test_user_text_is_shown_as_text(tmp_path: Path, calibrant: Run) -> None:
    path = foreign(tmp_path / "x.parquet", [[0.0, 1.0]] * 8, [0, 1] * 4, **{"[red]site": HOSTILE})
    out = calibrant("audit", path, "--by", "[red]site", "--compare", path, "--metrics", "ece").done()
    for name in (*HOSTILE[:4], "(no value)"):
        assert out.count(str(name)) >= 2  # in the table of groups and in that of differences
    assert "Groups by [red]site" in out
    assert not [character for character in out if ord(character) < 32 and character != "\n"]
    assert "\x1b" not in calibrant("audit", "no\x1b[31mfile.parquet").err


def test_files_jobs_and_ray_reach_the_audit(path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str | None]] = []

    def fake(source: Any, *, jobs: int, ray: str | None, **options: Any) -> Audit:
        asked.append((jobs, ray))
        return audit(source, **options)

    monkeypatch.setattr("calibrant.audits.audit", fake)
    make_rows(n=40, n_classes=3).save(path.parent / "more.parquet")
    for arguments in ((), ("--jobs", 7), ("--ray", "auto")):
        out = calibrant("audit", path, path.parent, "--metrics", "ece", *arguments).done()
        assert "2 files: 160 rows" in out
    assert asked == [(1, None), (7, None), (1, "auto")]


def test_the_page_is_written_even_if_a_gate_fails(
    path: Path, other: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["calibrant", "audit", "a b.parquet", "--by", "site"])
    page = path.parent / "audit.html"
    found = calibrant("audit", path, "--report", page, "--compare", other, "--metrics", "nll", "--fail-if", "ece > 0")
    assert found.code == 3
    assert found.out.splitlines()[-1] == f"open {page}"
    assert found.err.startswith("failed: ece > 0 (ece = ")
    text = page.read_text(encoding="utf-8")
    assert "<strong>Failed</strong>: ece &gt; 0 (ece = " in text
    assert "calibrant audit &#39;a b.parquet&#39; --by site" in text
    assert str(other) in text
    page.unlink()
    found = calibrant("audit", path, "--json", "--report", page, "--metrics", "ece")
    assert found.record["n_rows"] == 120
    assert found.err == f"open {page}\n"
    assert page.exists()


def test_passwords_of_urls_are_not_shown(path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.scan.Scan.files", property(lambda _: ["s3://KEY:sec/ret@bucket/a?sig=1"]))
    assert "s3://…@bucket/a?…: 120 rows" in calibrant("audit", path, "--metrics", "ece").done()


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "sites"), "unknown column 'sites'; did you mean 'site'?"),
        (("--fail-if", "ece"), "must be a condition such as \"ece > 0.05\", got 'ece'"),
        (("--jobs", "many"), "--jobs"),
        (("--compare", "none.parquet"), "there is no file none.parquet"),
        (("--report", "model.parquet"), "report must be a file ending in .html or .htm, got"),
        (("--sead", "1"), "--sead"),
    ],
)
def test_invalid_options(
    path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(path.parent)
    before = path.read_bytes()
    calibrant("audit", path, *arguments).refused(message)
    assert path.read_bytes() == before


def test_missing_files_and_extras(path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calibrant("audit").refused("give at least one file, folder or glob of predictions")
    calibrant("audit", path.parent / "none.parquet").refused(f"there is no file {path.parent / 'none.parquet'}")
    monkeypatch.setitem(sys.modules, "ray", None)
    calibrant("audit", path, "--ray", "local").refused("running on Ray needs the extra ray: pip install")
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setattr(Predictions, "scan", lambda *_: 1 // 0)  # the check comes before anything is read
    calibrant("audit", path, "--report", path.parent / "audit.html").refused("pip install 'calibrant[report]'")
