"""The verb report: the page and its figures as files, what is missing, and what is refused."""

import sys
from pathlib import Path

import pytest

from made.cli import Run, in_this_process

sys.path.append(str(Path(__file__).parents[1] / "report"))
from made_folder import write_folder
from made_rows import Experiment

TOML = """
title = "A <small> sweep"
figures = ["risk_coverage", "calibrated"]

[settings]
data = "digits"
model = "mlp"

[[grid]]
loss = ["focal", "poly"]
seed = [0, 1]
"""


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Experiment(losses=("focal",), seeds=1, severities=(1,), metrics=("ece",))
    for row in (*made.rows, *made.curves):
        row["run"] = "digits-mlp-focal-0"
    write_folder(tmp_path / "out", made, toml=TOML)
    return tmp_path / "out"


def test_the_page_and_its_figures_are_written(calibrant: Run, folder: Path) -> None:
    assert calibrant("report", folder).done() == f"open {folder / 'report.html'}\n"
    assert [path.name for path in (folder / "figures").iterdir()] == ["risk_coverage.svg"]
    assert (folder / "figures" / "risk_coverage.svg").read_text().startswith("<svg")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<title>A &lt;small&gt; sweep</title>" in page
    assert "1 of 4 runs is done, 3 left." in page
    for name in ("digits-mlp-focal-1", "digits-mlp-poly-0", "digits-mlp-poly-1"):
        assert f"<li>{name}</li>" in page
    assert "Calibrators under shift: the figure calibrated needs calibrated rows" in page
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    "toml", ["title = ", "[[grid]]\nlos = 'focal'\nfigures = []", None], ids=["toml", "key", "none"]
)
def test_a_plan_that_cannot_be_read_is_left_out(
    calibrant: Run, folder: Path, toml: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "experiment.toml").unlink()
    if toml is not None:
        (folder / "experiment.toml").write_text(toml)
    monkeypatch.setattr("calibrant.report.experiment.drawings.FIGURES", {})  # none is drawn, which takes time
    calibrant("report", folder).done()
    assert "1 of 1 run is done." in (folder / "report.html").read_text(encoding="utf-8")


def test_without_curves_the_page_is_made_all_the_same(calibrant: Run, folder: Path) -> None:
    (folder / "curves.parquet").unlink()
    calibrant("report", folder).done()
    assert (
        "Risk against coverage: the figure risk_coverage needs curves.parquet" in (folder / "report.html").read_text()
    )


def test_refusals(calibrant: Run, folder: Path, tmp_path: Path) -> None:
    calibrant("report", tmp_path / "none").refused("has no rows.parquet")
    (folder / "experiment.toml").write_text('figures = ["severty"]')
    calibrant("report", folder).refused("unknown figure 'severty'; did you mean 'severity'?")
    (folder / "experiment.toml").write_text("figures = []")
    (folder / "rows.parquet").write_bytes(b"no parquet")
    calibrant("report", folder).refused("is not a Parquet file")
    assert not (folder / "report.html").exists()
