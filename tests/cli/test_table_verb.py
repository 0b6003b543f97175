"""The verb table: which table, in which format, and where it goes; the tables themselves have tests of their own."""

from functools import partial
from pathlib import Path

import pytest

from calibrant.experiments.folder import ExperimentFolder
from made.cli import Run
from made.rows import curves_table, rows_table, run_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shown = [("none", metric) for metric in ("accuracy", "ece", "cece", "kse")]
    rows = []
    for loss, mean in (("cross_entropy", 0.25), ("maxent_mean", 0.125)):
        for seed in range(3):
            for calibrator, metric in [*shown, ("temperature", "ece")]:
                score = {"fog-3": mean + seed / 100 - 0.02 * (calibrator != "none")}
                rows += run_rows(score, seed=seed, loss=loss, metric=metric, calibrator=calibrator)
    ExperimentFolder(tmp_path).write_tables(rows_table(rows), curves_table([]))
    return tmp_path


@pytest.fixture
def table(calibrant: Run, folder: Path) -> Run:
    return partial(calibrant, "table", folder)


def test_options_choose_the_table(table: Run) -> None:
    lines = [line.split() for line in table().done().splitlines()]
    assert ["CE", "26.0±0.6•†", "26.0±0.6", "26.0±0.6", "26.0±0.6"] in lines
    assert "14.5±0.4" in table("--with-paper").done()
    wide = table("--name", "2").done()
    assert "MaxEnt w/ TS" in wide
    assert "11.5±0.6•‡" in wide
    assert "raw" in table("--name", "2", "--all-losses", "--data", "cifar10").done()
    relative = table("--relative", "--with-paper").done()
    assert "0.52 (0.48–0.57)" in relative
    assert "†" not in relative
    assert "MaxEnt M: lower ECE than CE" in table("--name", "claims").done()
    assert "MaxEnt M + temperature" in table("--name", "combinations").done()


def test_the_name_of_the_output_says_the_format_unless_it_is_told(table: Run, folder: Path) -> None:
    starts = {"a.csv": "table,data,", "a.md": "**Table 1", "a.tex": "% needs", "a.json": "{", "a": "Table 1"}
    for words, start in {**starts, "b.md --format latex": "% needs"}.items():
        name, *options = words.split()
        assert table("-o", folder / name, *options).done() == f"wrote {folder / name}\n"
        assert (folder / name).read_text(encoding="utf-8").startswith(start), words
    assert not list(folder.glob(".*"))


def test_refusals(table: Run, calibrant: Run, folder: Path) -> None:
    table("--format", "html").refused("unknown format 'html'")
    table("--all-losses").refused("all_losses belongs to table 2")
    table("--name", "claim").refused("unknown table 'claim'; did you mean 'claims'")
    table("--name", "claims", "--relative").refused("relative belong to tables 1, 2, appendix, got table claims")
    table("-o", folder / "none" / "a.md").refused("cannot be written")
    calibrant("table", folder / "none").refused("has no rows.parquet")
