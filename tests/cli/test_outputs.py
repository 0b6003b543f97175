"""Outputs of every verb: nothing that another program or verb wrote, and no input, is replaced."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from calibrant._files import check_output
from calibrant.audits import audit
from calibrant.calibrators import TemperatureScaling
from calibrant.corruptions.folders import corrupt_folder
from calibrant.corruptions.sheet import save_sheet
from calibrant.decisions import certify
from calibrant.errors import InvalidInputError
from calibrant.experiments import run_experiment
from calibrant.predictions import Predictions
from calibrant.training.run import train
from calibrant.training.settings import read_settings
from made.cli import Run
from made.folder import write_folder
from made.predictions import example
from made.rows import Experiment

RUN = "train --data digits --model mlp --epochs 1 --shifts none"
PREDICT = "predict torch.nn:Flatten --data digits"
REFUSED = {
    "fit x.parquet -o x.parquet": "x.parquet exists and is not a calibrator",
    "fit x.parquet -o settings.json": "settings.json exists and is not a calibrator",
    "fit x.parquet -o no/t.json": "no/t.json cannot be written: No such file or directory",
    "fit x.parquet -o folder": "folder cannot be written: Is a directory",
    f"fit x.parquet -o {'x' * 300}": "must be a path of names of at most 255 bytes",
    "apply t.json y.parquet -o y.parquet": "y.parquet must not be written: it is an input",
    "apply t.json ?.parquet -o y.parquet": "y.parquet must not be written: it is an input",
    "apply t.json y.parquet -o link.parquet": "link.parquet must not be written: it is an input",
    "apply t.json y.parquet -o x.parquet": "x.parquet exists, and is of another kind",
    "apply t.json y.parquet -o table.parquet": "table.parquet exists, and is of another kind",
    "apply t.json y.parquet --features calibrated.parquet -o calibrated.parquet": "it is an input",
    "apply t.json y.parquet -o t.json": "t.json must not be written: it is an input",
    "apply t.json y.parquet -o /dev/null": "must not be a device or a pipe",
    "certify x.parquet -o x.parquet": "x.parquet must not be written: it is an input",
    "certify x.parquet -o t.json": "t.json exists and is not a threshold",
    "certify --apply threshold.json y.parquet -o y.parquet": "y.parquet must not be written: it is an input",
    "certify --apply threshold.json y.parquet -o x.parquet": "x.parquet exists, and is of another kind",
    "certify --apply threshold.json y.parquet -o threshold.json": "threshold.json must not be written: it is an input",
    "certify --adapt threshold.json y.parquet --calibrator t.json -o threshold.json": "it is an input",
    "audit x.parquet --report notes.html": "notes.html exists and is not an HTML page",
    "detect x.parquet y.parquet --scores y.parquet": "y.parquet must not be written: it is an input",
    "detect x.parquet y.parquet --scores table.parquet": "table.parquet exists, and is of another kind",
    "monitor x.parquet --reference y.parquet --every 9 --report notes.html": "notes.html exists and is not an HTML",
    "estimate x.parquet --reference y.parquet --report notes.html": "notes.html exists and is not an HTML page",
    "export t.json -o t.json": "t.json exists and is not an ONNX file of calibrant",
    "average x.parquet same.parquet -o same.parquet": "same.parquet must not be written: it is an input",
    "average x.parquet same.parquet -o y.parquet": "y.parquet exists, and is of another kind",
    "average x.parquet same.parquet -o notes.html": "notes.html exists and is not a Parquet file",
    "average x.parquet same.parquet --calibrators t.json t.json -o t.json": "must not be written: it is an input",
    "convert x.parquet -o x.parquet": "x.parquet must not be written: it is an input",
    "convert x.parquet -o notes.html": "notes.html exists and is not a Parquet file",
    "convert x.parquet -o y.parquet": "y.parquet exists, and is of another kind",
    "label x.parquet labels.csv --id hospital -o x.parquet": "x.parquet must not be written: it is an input",
    "label x.parquet labels.csv --id hospital -o y.parquet": "y.parquet exists, and is of another kind",
    f"audit x.parquet --report {'x' * 300}.html": "must be a path of names of at most 255 bytes",
    "corrupt --sheet image.png -o image.png": "image.png must not be written: it is an input",
    "corrupt --sheet image.png -o x.parquet": "x.parquet exists and is not a PNG image",
    "corrupt photos fog 3 -o others": "others has other files, and no corruption.json",
    "corrupt photos fog 3 -o experiment": "experiment is the folder of an experiment",
    "corrupt images.npy --all --layout cifar-c -o .": ". has other files, and no corruption.json",
    "--install-completion --shell bash -o t.json": "t.json exists: choose another name, or remove it",
    "schema -o t.json": "t.json exists and is not a JSON schema",
    "table experiment -o notes.html": "notes.html exists and is not a table",
    "table experiment -o experiment/experiment.toml": "experiment.toml exists and is not a table",
    "figure gibbs -o settings.json": "settings.json exists and is not a Vega-Lite specification",
    "figure gibbs -o folder.svg": "folder.svg cannot be written: Is a directory",
    f"{RUN} -o experiment": "experiment is the folder of an experiment, as its experiment.toml says",
    f"{RUN} -o x.parquet": "the folder x.parquet cannot be made: File exists",
    f"{RUN} -o {'x' * 300}": "must be a path of names of at most 255 bytes",
    "run sweep.toml -o run": "run is the folder of a run, as its config.json says",
    "run sweep.toml -o run --dry-run": "run is the folder of a run, as its config.json says",
    f"run sweep.toml -o {'x' * 300}": "must be a path of names of at most 255 bytes",
    f"{PREDICT} -o experiment": "experiment is the folder of an experiment",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one of everything."""
    monkeypatch.chdir(tmp_path)
    example().save("x.parquet")
    example(1).save("y.parquet")
    example().save("same.parquet")
    Path("link.parquet").symlink_to("y.parquet")
    TemperatureScaling.fit(example()).save("t.json")
    certify(example()).save("threshold.json")
    pq.write_table(pa.table({"name": ["mine"]}), "table.parquet")
    TemperatureScaling.fit(example()).calibrate(example(1)).save("calibrated.parquet")
    Path("labels.csv").write_text("hospital,label\n")
    Path("settings.json").write_text('{"data": "digits"}')
    Path("notes.html").write_text("my notes")
    Path("sweep.toml").write_text('[settings]\ndata = "digits"\nmodel = "mlp"\n[[grid]]\nloss = "focal"\n')
    for name in ("folder", "folder.svg", "photos", "others", "run"):
        Path(name).mkdir()
    for name in ("image.png", "photos/a.png", "others/a.png"):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(name)
    np.save("images.npy", np.zeros((2, 32, 32, 3), np.uint8))
    Path("run/config.json").write_text('{"test_sample": null}')
    write_folder(Path("experiment"), Experiment(severities=(1,)), toml=Path("sweep.toml").read_text())
    return tmp_path


def contents(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        yield str(path), hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@pytest.mark.slow
def test_nothing_of_others_is_replaced(folder: Path, calibrant: Run) -> None:
    before = list(contents(folder))
    for line, message in REFUSED.items():
        calibrant(*line.split()).refused(message)
        assert list(contents(folder)) == before, line


@pytest.mark.slow
def test_what_the_same_verb_wrote_is_replaced(folder: Path, calibrant: Run) -> None:
    kinds = {
        "fit x.parquet -o t.json": "a calibrator",
        "apply t.json y.parquet -o new.parquet": "a Parquet file",
        "audit x.parquet --report audit.html": "an HTML page of calibrant",
        "average x.parquet same.parquet -o average.parquet": "a Parquet file",
        "export t.json -o t.onnx": "an ONNX file of calibrant",
        "monitor x.parquet --reference y.parquet --every 10 --report monitor.html": "an HTML page of calibrant",
        "convert x.parquet -o converted.parquet": "a Parquet file",
        "schema -o schema.json": "a JSON schema",
        "figure gibbs -o new.svg": "an SVG image",
        "figure gibbs -o vega.json": "a Vega-Lite specification",
        "figure gibbs -o new.png": "a PNG image of calibrant",
        "corrupt --sheet image.png -o sheet.png": "a PNG image of calibrant",
        **{f"table experiment -o new.{suffix}": "a table" for suffix in ("csv", "md", "tex", "txt", "json")},
    }
    for line, kind in kinds.items():
        ran = calibrant(*line.split())
        assert (line, ran.code, ran.err) == (line, 0, "")
        check_output(line.split()[-1], kind)
    Path("new.parquet").chmod(0o640)
    calibrant("apply", "t.json", "y.parquet", "-o", "new.parquet").done()
    assert Path("new.parquet").stat().st_mode & 0o777 == 0o640


def test_an_empty_path_is_refused_in_python(folder: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: example().save(""),
        lambda: TemperatureScaling.fit(example()).save(""),
        lambda: Predictions.scan(""),
        lambda: audit(example()).save_html(""),
        lambda: corrupt_folder("photos", "", "fog", 3),
        lambda: save_sheet("image.png", ""),
        lambda: train(read_settings(None), ""),
        lambda: run_experiment("sweep.toml", output=""),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="must be a path, got ''"):
            call()
