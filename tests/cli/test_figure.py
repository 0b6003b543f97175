"""The verb figure: one figure or all, where they are written, and the messages for those that cannot be drawn."""

import re
from pathlib import Path

import pytest

from calibrant.experiments.folder import ExperimentFolder
from calibrant.report.figures import FIGURES
from made.cli import Run
from made.rows import Experiment

MADE = Experiment(
    losses=("cross_entropy", "maxent_mean"), seeds=1, severities=(1, 3), metrics=("accuracy", "ece", "kse")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "demo"
    place.mkdir()
    ExperimentFolder(place).write_tables(*MADE.tables)
    return place


def test_one_figure_goes_into_the_folder_or_a_file(calibrant: Run, folder: Path) -> None:
    path = folder / "figures" / "risk_coverage.svg"
    assert calibrant("figure", "risk_coverage", folder, width=400).done() == f"{path}\n"
    assert path.read_text().startswith("<svg")
    path = folder.parent / "map.json"
    calibrant("figure", "heat_map", folder, "-o", path, "--severity", 1, "--losses", "maxent_mean").done()
    assert "MaxEnt M" in path.read_text()
    assert 'CE"' not in path.read_text()
    assert [found.name for found in (folder / "figures").iterdir()] == ["risk_coverage.svg"]


@pytest.mark.slow
def test_all_figures_and_the_reasons_for_the_others(calibrant: Run, folder: Path) -> None:
    printed = calibrant("figure", "all", folder, width=400).done().splitlines()
    made = {"gibbs", "severity", "samples", "reliability", "risk_coverage", "heat_map"}
    assert {path.stem for path in (folder / "figures").iterdir()} == made
    assert printed[: len(made)] == [str(folder / "figures" / f"{name}.svg") for name in FIGURES if name in made]
    lacking = dict(line.removeprefix("not drawn: ").split(": ", 1) for line in printed[len(made) :])
    assert set(lacking) == set(FIGURES) - made
    assert 'variant = "global"' in lacking["local_constraints"]


@pytest.mark.slow
def test_gibbs_needs_no_folder(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert calibrant("figure", "gibbs").done() == "gibbs.svg\n"
    assert "μ = 4.5" in (tmp_path / "gibbs.svg").read_text()


REFUSALS = {
    "severty demo": "unknown figure 'severty'; did you mean 'severity'?",
    "severity": "the figure severity needs the folder of an experiment",
    "all": "all figures need the folder of an experiment",
    "all demo -o x.svg": "--output names the file of one figure",
    "all nowhere": "nowhere has no rows.parquet",
    "calibrated demo -o x.gif": "a figure file must end in .svg, .png, .pdf, .html, .json; got",  # before all else
    "severity demo --severity 3": "the figure severity has no option severity",
    "calibrated demo": "cannot draw calibrated: the experiment has no calibrated rows",
    "heat_map demo -o nowhere/x.svg": "nowhere/x.svg cannot be written: No such file or directory",
}


def test_refusals(calibrant: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for words, message in REFUSALS.items():
        calibrant("figure", *words.split()).refused(message)
    assert sorted(path.name for path in folder.iterdir()) == ["curves.parquet", "rows.parquet"]
    assert [path.name for path in folder.parent.iterdir()] == ["demo"]


def test_the_help_names_every_figure(calibrant: Run) -> None:
    printed = re.sub(r"\W+", " ", calibrant("figure", "--help").done())
    assert [name for name in FIGURES if f" {name} " not in printed] == []
