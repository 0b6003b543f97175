"""The verb figure: one figure or all, what is written where, and what is said of those that cannot be made."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from calibrant._parquet import write_table
from calibrant.cli.figure import figures_of, sample_pictures
from calibrant.data import open_dataset
from calibrant.errors import NoDataError, UnknownNameError
from calibrant.experiments.rows import CURVES, ROWS
from calibrant.report.figures import FIGURES
from made.cli import Run, in_this_process


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


def evaluated() -> Iterator[dict[str, Any]]:
    """The tests of two losses on digits: the unshifted one, and fog and snow at severities 1 and 3."""
    tests = [("test", "none", 0), *((f"{shift}-{n}", shift, n) for shift in ("fog", "snow") for n in (1, 3))]
    for loss in ("cross_entropy", "maxent_mean"):
        run = {"run": f"digits-mlp-{loss}-0", "data": "digits", "model": "mlp", "loss": loss, "variant": ""}
        for split, shift, severity in tests:
            test = {"split": split, "shift": shift, "severity": severity, "shifted": severity > 0}
            rest = {"label_smoothing": 0.0, "seed": 0, "origin": "generated", "calibrator": "none", "n_rows": 600}
            yield {**run, **test, **rest}


def table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def rows() -> pa.Table:
    metrics = {"accuracy": 0.8, "ece": 0.1, "kse": 0.1}
    return table([{**t, "metric": name, "value": value} for t in evaluated() for name, value in metrics.items()], ROWS)


def curves() -> pa.Table:
    kinds = (("reliability", 10), ("risk_coverage", 20))
    points = [(curve, at, (at + 0.5) / n) for curve, n in kinds for at in range(n)]
    found = [
        {**test, "curve": curve, "point": at, "x": x, "y": x, "weight": 30.0}
        for test in evaluated()
        for curve, at, x in points
    ]
    return table(found, CURVES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "demo"
    place.mkdir()
    write_table(place / "rows.parquet", rows())
    write_table(place / "curves.parquet", curves())
    return place


def test_one_figure_goes_into_the_folder(calibrant: Run, folder: Path) -> None:
    path = folder / "figures" / "risk_coverage.svg"
    assert calibrant("figure", "risk_coverage", folder).done().replace("\n", "") == str(path)
    assert path.read_text().startswith("<svg")


def test_that_options_reach_the_figure(calibrant: Run, folder: Path) -> None:
    path = folder.parent / "map.json"
    calibrant("figure", "heat_map", folder, "-o", path, "--severity", 1, "--losses", "maxent_mean").done()
    spec = path.read_text()
    assert "MaxEnt M" in spec
    assert 'CE"' not in spec
    assert not (folder / "figures").exists()


def test_all_figures_and_the_reasons_for_the_others(calibrant: Run, folder: Path) -> None:
    said = calibrant("figure", "all", folder, width=400).done().splitlines()
    made = {"gibbs", "severity", "samples", "reliability", "risk_coverage", "heat_map"}
    assert {path.stem for path in (folder / "figures").iterdir()} == made
    assert said[: len(made)] == [str(folder / "figures" / f"{name}.svg") for name in FIGURES if name in made]
    lacking = dict(line.removeprefix("not ").split(": ", 1) for line in said[len(made) :])
    assert set(lacking) == set(FIGURES) - made
    assert 'variant = "global"' in lacking["local_constraints"]
    assert "label_smoothing = [0.0, 0.01]" in lacking["label_smoothing"]
    assert "calibrators" in lacking["calibrated"]


def test_figures_for_the_report(folder: Path) -> None:
    told: list[str] = []
    made, reasons = figures_of(folder, report=told.append, losses=["focal"])
    assert told == list(FIGURES)
    assert [found.name for found in made] == ["gibbs", "samples"]
    assert made[0].caption == FIGURES["gibbs"].caption
    assert "unknown loss of the experiment 'focal'" in reasons["severity"]


def test_that_the_report_can_name_its_figures(folder: Path) -> None:
    made, reasons = figures_of(folder, names=["calibrated", "gibbs"])
    assert ([found.name for found in made], list(reasons)) == (["gibbs"], ["calibrated"])
    assert figures_of(folder, names=[]) == ([], {})
    with pytest.raises(UnknownNameError, match="unknown figure 'gibs'; did you mean 'gibbs'"):
        figures_of(folder, names=["gibs"])


def test_gibbs_needs_no_folder(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert calibrant("figure", "gibbs").done() == "gibbs.svg\n"
    assert "μ = 4.5" in (tmp_path / "gibbs.svg").read_text()


def test_that_samples_are_the_pictures_of_the_tests() -> None:
    pictures = sample_pictures(rows(), None)
    assert list(pictures) == ["digits 1", "digits 2"]
    assert list(pictures["digits 1"]) == ["clean", "fog 3", "snow 3"]
    digits = open_dataset("digits")
    for heading, split in (("clean", "test"), ("fog 3", "fog-3"), ("snow 3", "snow-3")):
        expected = digits.split(split).images[:2, 0].numpy()
        assert np.array_equal(pictures["digits 1"][heading], expected[0])
        assert np.array_equal(pictures["digits 2"][heading], expected[1])
    assert list(sample_pictures(rows(), None, severity=1)["digits 1"]) == ["clean", "fog 1", "snow 1"]
    with pytest.raises(NoDataError, match="no shifted test of severity 2 of digits"):
        sample_pictures(rows(), None, severity=2)


REFUSALS = {
    "unknown figure": (["severty", "FOLDER"], "unknown figure 'severty'; did you mean 'severity'?"),
    "no folder named": (["severity"], "the figure severity needs the folder of an experiment"),
    "all of no folder": (["all"], "all figures need the folder of an experiment"),
    "all into a file": (["all", "FOLDER", "-o", "x.svg"], "--output names the file of one figure"),
    "no such folder": (["severity", "nowhere"], "nowhere has no rows.parquet"),
    "all of no such folder": (["all", "nowhere"], "nowhere has no rows.parquet"),
    "suffix": (["gibbs", "-o", "x.gif"], "a figure is written to a file of .svg, .png, .pdf, .html, .json, got x.gif"),
    "option": (["severity", "FOLDER", "--severity", "3"], "--severity has no meaning for the figure severity"),
    "option of gibbs": (["gibbs", "--data", "digits"], "--data has no meaning for the figure gibbs"),
    "data": (["severity", "FOLDER", "--data", "cifar10"], "unknown data of the experiment 'cifar10'; known: digits"),
    "lacking": (["calibrated", "FOLDER"], "the figure calibrated needs calibrated rows"),
    "no place": (["gibbs", "-o", "nowhere/x.svg"], "nowhere/x.svg cannot be written: No such file or directory"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str, calibrant: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    words, message = REFUSALS[case]
    calibrant("figure", *(str(folder) if word == "FOLDER" else word for word in words)).refused(message)
    assert sorted(path.name for path in folder.iterdir()) == ["curves.parquet", "rows.parquet"]
    assert [path.name for path in folder.parent.iterdir()] == ["demo"]


def test_that_the_help_names_every_figure(calibrant: Run) -> None:
    said = re.sub(r"\W+", " ", calibrant("figure", "--help").done())
    assert [name for name in FIGURES if f" {name} " not in said] == []
