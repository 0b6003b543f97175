"""`calibrant table` and `calibrant rows`, through `main` in this process."""

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cyclopts import App

from calibrant import cli
from calibrant._parquet import write_table
from calibrant.cli.rows import rows as rows_verb
from calibrant.cli.table import table as table_verb
from calibrant.experiments.rows import ROWS
from made.cli import Run, in_this_process

METRICS = ("accuracy", "ece", "cece", "kse")


def row(loss: str, seed: int, metric: str, value: float | None, **about: Any) -> dict[str, Any]:
    run = {"run": f"cifar10-resnet18-{loss}-{seed}", "data": "cifar10", "model": "resnet18", "loss": loss, "seed": seed}
    test = {"split": "fog-3", "shift": "fog", "severity": 3, "shifted": True, "origin": "published", "n_rows": 10}
    score = {"calibrator": "none", "metric": metric, "value": value, "low": None, "high": None}
    return {"variant": "", "label_smoothing": 0.0} | run | test | score | about


def rows_of(loss: str, value: float) -> list[dict[str, Any]]:
    scores = [(seed, metric) for seed in range(3) for metric in METRICS]
    return [row(loss, seed, metric, value + seed / 100) for seed, metric in scores]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = [
        *rows_of("cross_entropy", 0.25),
        *rows_of("maxent_mean", 0.125),
        row("maxent_mean", 0, "ece", 0.1, calibrator="temperature"),
        row("cross_entropy", 0, "ece", 0.2, calibrator="temperature"),
        row("cross_entropy", 0, "nll", None),
        row("cross_entropy", 1, "nll", float("inf")),
    ]
    write_table(tmp_path / "rows.parquet", pa.Table.from_pylist(found, ROWS))
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    app = App(name="calibrant")  # of these verbs alone, whether or not the command line has them
    app.command(table_verb)
    app.command(rows_verb)
    monkeypatch.setattr(cli, "app", app)
    return in_this_process(monkeypatch, capsys)


@pytest.fixture
def table(run: Run, folder: Path) -> Run:
    return partial(run, "table", folder)


@pytest.fixture
def rows(run: Run, folder: Path) -> Run:
    return partial(run, "rows", folder)


def test_the_first_table_is_printed_as_text(table: Run) -> None:
    out = table().done()
    assert "CIFAR10-C" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["CE", "26.0±0.6•†", "26.0±0.6", "26.0±0.6", "26.0±0.6"] in lines
    assert ["MaxEnt", "M", "13.5±0.6", "13.5±0.6•†", "13.5±0.6•†", "13.5±0.6•†"] in lines


def test_options_choose_the_table(table: Run) -> None:
    assert "14.5±0.4" in table("--against", "paper").done()
    wide = table("--name", "2").done()
    assert "MaxEnt w/ TS" in wide
    assert "↓10.0" in wide
    long = table("--name", "2", "--all-losses", "--data", "cifar10").done()
    assert "↓20.0" in long
    assert "raw" in long


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.csv", "table,data,"), ("a.md", "**Table 1"), ("a.tex", "% needs"), ("a.html", "<section"), ("a", "Table 1")],
)
def test_the_name_of_the_output_says_the_format(table: Run, folder: Path, name: str, start: str) -> None:
    target = folder / name
    assert table("-o", target).done() == f"wrote {target}\n"
    assert target.read_text(encoding="utf-8").startswith(start)
    assert not list(folder.glob(".*"))


def test_the_format_can_be_told(table: Run, folder: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(table("--format", "csv").done())))
    assert [line["best"] for line in lines] == ["True", "False", "False", "False", "False", "True", "True", "True"]
    table("--format", "latex", "-o", folder / "a.md").done()
    assert (folder / "a.md").read_text(encoding="utf-8").startswith("% needs")


def test_what_table_refuses(table: Run, run: Run, folder: Path) -> None:
    table("--name", "3").refused("unknown table '3'")
    table("--format", "markdwn").refused("did you mean 'markdown'?")
    table("--against", "us").refused("unknown against 'us'")
    table("--data", "cifar").refused("did you mean 'cifar10'?")
    table("--name", "appendix").refused("rows have no mce, adaece")
    table("--all-losses").refused("all_losses belongs to table 2")
    table("-o", folder / "none" / "a.md").refused("cannot be written")
    run("table", folder / "none").refused("has no rows.parquet")


def test_rows_as_a_table(rows: Run) -> None:
    out = rows("--where", "loss = 'cross_entropy' and metric = 'nll'").done()
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert lines[0] == ["2", "rows"]
    assert lines[1] == ["run", "split", "calibrator", "metric", "value"]
    assert ["cifar10-resnet18-cross_entropy-0", "fog-3", "none", "nll", "–"] in lines
    short = rows("--limit", 3, "--columns", "seed", "value").done()
    assert "28 rows" in short
    assert "the first 3" in short
    assert "0.25" in short


def test_rows_as_csv_and_json(rows: Run) -> None:
    lines = list(csv.reader(io.StringIO(rows("--format", "csv", "--columns", "loss", "metric", "value").done())))
    assert lines[0] == ["loss", "metric", "value"]
    assert len(lines) == 1 + 28
    assert lines[-2:] == [["cross_entropy", "nll", ""], ["cross_entropy", "nll", "inf"]]
    records = rows("--format", "json", "--where", "metric = 'nll'").record
    assert [list(record) for record in records] == [ROWS.names] * 2
    assert [record["value"] for record in records] == [None, "inf"]
    assert json.loads(rows("--format", "json", "--limit", 0).done()) == []


def test_what_rows_refuses(rows: Run, run: Run, folder: Path) -> None:
    rows("--where", "loss = ").refused("where must be a condition on run, data")
    rows("--where", "los = 'focal'").refused("no such column: los")
    rows("--where", "1); drop table rows; --").refused("where must be a condition")
    rows("--columns", "sed").refused("unknown column 'sed'; did you mean 'seed'?")
    rows("--columns", "seed", "seed").refused("columns must be named once each")
    rows("--format", "jsn").refused("did you mean 'json'?")
    rows("--limit", -1).refused("limit must be an integer of at least 0")
    run("rows", folder / "none").refused("has no rows.parquet")
    (folder / "rows.parquet").write_bytes(b"no parquet")
    rows().refused("is not a Parquet file")
