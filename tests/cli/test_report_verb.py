"""The verb report: the page and its figures as files, with images of the data sets; the page has tests of its own."""

from pathlib import Path

from made.cli import Run
from made.folder import write_folder
from made.rows import Experiment

TOML = 'figures = ["samples"]\n[settings]\ndata = "digits"\nmodel = "mlp"\nroot = "nowhere"\n[[grid]]\nloss = "focal"\n'


def test_the_page_and_its_figures_are_written(calibrant: Run, tmp_path: Path) -> None:
    made = Experiment(losses=("focal",), seeds=1, severities=(3,), metrics=("ece",))
    folder = write_folder(tmp_path / "out", made, toml=TOML)
    assert calibrant("report", folder.path, width=400).done() == f"open {folder.page_file}\n"
    assert [path.name for path in folder.figures_folder.iterdir()] == ["samples.svg"]
    assert "data:image/png" in folder.page_file.read_text(encoding="utf-8")
    assert "1 of 1 run is done." in folder.page_file.read_text(encoding="utf-8")


def test_refusals(calibrant: Run, tmp_path: Path) -> None:
    calibrant("report", tmp_path / "none").refused("has no rows.parquet")
    calibrant("report", tmp_path, "--watch").refused("Unknown option: --watch")
