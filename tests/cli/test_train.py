"""`calibrant train` and `calibrant predict`: every setting a flag, one line for what goes wrong."""

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

import calibrant as cb
from calibrant.data import open_dataset
from made.cli import Run, in_this_process, run_process

QUICK = ("--data", "digits", "--model", "mlp", "--shifts", "none", "--epochs", "1")
RUN = ("--data", "digits", "--model", "mlp", "--epochs", "2", "--shifts", "fog-3")
FLAGS: dict[str, tuple[list[str], Any]] = {
    "image_size": (["--image-size", "32"], 32),
    "label_smoothing": (["--label-smoothing", "0.1"], 0.1),
    "loss_warmup": (["--loss-warmup", "1"], 1),
    "seed": (["--seed", "3"], 3),
    "batch_size": (["--batch-size", "128"], 128),
    "optimizer": (["--optimizer", "adamw"], "adamw"),
    "lr": (["--lr", "0.01"], 0.01),
    "momentum": (["--momentum", "0.5"], 0.5),
    "weight_decay": (["--weight-decay", "0"], 0.0),
    "schedule": (["--schedule", "constant"], "constant"),
    "crop_padding": (["--crop-padding", "0"], 0),
    "flip": (["--flip"], True),
    "accumulate": (["--accumulate", "2"], 2),
    "clip": (["--clip", "1"], 1.0),
    "precision": (["--precision", "bf16"], "bf16"),
    "ema": (["--ema", "0.5"], 0.5),
    "keep": (["--keep", "nll"], "nll"),
    "patience": (["--patience", "4"], 4),
    "features": (["--features"], True),
    "device": (["--device", "cpu"], "cpu"),
    "workers": (["--workers", "1"], 1),
    "checkpoint_minutes": (["--checkpoint-minutes", "3"], 3.0),
}


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    return in_this_process(monkeypatch, capsys)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a process of its own; not to be changed."""
    run = tmp_path_factory.mktemp("trained") / "run"
    out = run_process("train", *RUN, "-o", run, OMP_NUM_THREADS="1").done()
    assert "epoch 1/2" in out
    assert "epoch 2/2" in out
    assert str(run) in out
    return run


def times_of(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in sorted(folder.rglob("*")) if file.name != ".lock"}


def config_of(run: Path) -> Any:
    return json.loads((run / "config.json").read_text())


# Flags and files


def test_help_names_every_setting(calibrant: Run) -> None:
    text = calibrant("train", "--help").done()
    for name in (*FLAGS, "output", "data", "root", "model", "weights", "loss", "loss_options", "epochs", "shifts"):
        assert f"--{name.replace('_', '-')}" in text
    assert "--no-flip" in text
    assert "--json" in text


def test_every_setting_is_a_flag(calibrant: Run, tmp_path: Path) -> None:
    others = {name: flag for name, flag in FLAGS.items() if name != "image_size"}
    tokens = [token for flag, _ in others.values() for token in flag]
    calibrant("train", *QUICK, *tokens, "-o", tmp_path / "run").done()
    config = config_of(tmp_path / "run")
    assert {name: config[name] for name in others} == {name: value for name, (_, value) in others.items()}
    assert (config["data"], config["model"], config["epochs"]) == ("digits", "mlp", 1)


def test_shifts_and_options_of_the_loss(calibrant: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tokens = ("--data", "digits", "--model", "mlp", "--epochs", "1", "--shifts", "fog-3", "snow-1")
    calibrant("train", *tokens, "--loss", "focal", "--loss-options.gamma", "3", "-o", run).done()
    assert {file.stem for file in (run / "predictions").iterdir()} == {"val", "test", "fog-3", "snow-1"}
    assert config_of(run)["loss_options"] == {"gamma": 3}


def test_a_file_and_flags_that_win(calibrant: Run, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        'data = "digits"\nmodel = "mlp"\nepochs = 9\nseed = 4\nflip = true\nshifts = ["none"]\n'
        'loss = "focal"\n[loss_options]\ngamma = 2.0\n'
    )
    calibrant("train", tmp_path / "x.toml", "--epochs", "1", "--no-flip", "-o", tmp_path / "run").done()
    config = config_of(tmp_path / "run")
    assert (config["epochs"], config["seed"], config["flip"]) == (1, 4, False)
    assert config["loss_options"] == {"gamma": 2.0}


def test_scores_and_the_folder_that_is_named_after_the_run(
    calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    record = calibrant("train", *QUICK, "--loss", "poly", "--seed", "7", "--json").record
    assert record["folder"] == "runs/digits-mlp-poly-7"
    assert (tmp_path / record["folder"] / "DONE").exists()
    assert list(record["scores"]) == ["test", "val"]
    rows = pq.read_table(trained / "metrics.parquet").to_pylist()
    lines = {
        line.split("  ")[0].strip(): line.split()
        for line in calibrant("train", *RUN, "-o", trained).done().splitlines()
    }
    for name, split in (("test", "test"), ("severity 3", "fog-3"), ("val", "val")):
        values = {row["metric"]: row["value"] for row in rows if row["split"] == split}
        wanted = [f"{values[metric]:.4f}" for metric in ("accuracy", "ece", "kse", "nll", "brier")]
        assert lines[name][-6:] == ["1", *wanted]


def test_a_process_and_a_call_give_the_same_bytes(calibrant: Run, tmp_path: Path, trained: Path) -> None:
    calibrant("train", *RUN, "-o", tmp_path / "run").done()
    for name in ("weights.safetensors", "metrics.parquet", "predictions/test.parquet", "predictions/fog-3.parquet"):
        assert (tmp_path / "run" / name).read_bytes() == (trained / name).read_bytes()


# Refusals: what is the library's is tested there

REFUSED: dict[str, tuple[list[str], str]] = {
    "flag": (["--epoch", "3"], "--epochs"),
    "text for a number": (["--epochs", "three"], "three"),
    "a rounded seed": ([*QUICK, "--seed", "1.5"], "'1.5' is not a whole number"),
    "rounded epochs": ([*QUICK[:-1], "1.9"], "'1.9' is not a whole number"),
    "range": (["--ema", "2"], "ema must be less than 1, got 2.0"),
    "range of one of two types": (["--image-size", "4"], "image_size must be greater than or equal to 8, got 4"),
    "option of text": (["--loss", "focal", "--loss-options.gamma", "three"], "gamma must be a number, got 'three'"),
    "file": (["nowhere.toml"], "nowhere.toml"),
    "not finite": ([*QUICK, "--lr", "1e30"], "epoch 1, step "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    tokens, message = REFUSED[case]
    calibrant("train", *tokens, "-o", "run").refused(message)
    assert not (tmp_path / "run" / "DONE").exists()


def test_the_same_command_again_and_another_seed(calibrant: Run, trained: Path) -> None:
    before = times_of(trained)
    assert str(trained) in calibrant("train", *RUN, "-o", trained).done()
    calibrant("train", *RUN, "--seed", "1", "-o", trained).refused("seed = 0, not 1")
    assert times_of(trained) == before


# Predict


def test_predict_a_run(calibrant: Run, trained: Path, tmp_path: Path) -> None:
    before = times_of(trained)
    calibrant("predict", trained, "fog-3", "test", "-o", tmp_path / "out").done()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"fog-3.parquet", "test.parquet"}
    for name in ("fog-3.parquet", "test.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (trained / "predictions" / name).read_bytes()
    assert times_of(trained) == before


OWN = """
import torch
from torch import nn

class Sums(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, 10:20]

def build():
    return Sums()

ready = Sums()

def logits(images):
    return images.flatten(1)[:, 10:20]

number = 3

def broken():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the user's own, in the folder where the command is given."""
    name = "own_model_of_a_user"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return name


@pytest.mark.parametrize("kind", ["build", "ready", "Sums", "logits"])
def test_predict_a_model_of_your_own(calibrant: Run, own: str, tmp_path: Path, kind: str) -> None:
    calibrant("predict", f"{own}:{kind}", "--data", "digits", "val", "-o", tmp_path / "out").done()
    predictions = cb.Predictions.load(tmp_path / "out" / "val.parquet")
    rows = open_dataset("digits").split("val")
    assert isinstance(rows.images, Tensor)
    images = (rows.images.float() / 255 - 0.5) / 0.5
    torch.testing.assert_close(predictions.logits, nn.Flatten()(images)[:, 10:20])
    assert predictions.labels.tolist() == rows.labels.tolist()


PREDICT_REFUSED: dict[str, tuple[list[str], str]] = {
    "no run": (["nowhere", "test"], "nowhere"),
    "no module": (["nowhere_at_all:build", "--data", "digits", "val"], "nowhere_at_all"),
    "no name": (["{own}:biuld", "--data", "digits", "val"], "biuld"),
    "no model": (["{own}:number", "--data", "digits", "val"], "number"),
    "no data": (["{own}:build", "val"], "data"),
    "unknown data": (["{own}:build", "--data", "digit", "val"], "did you mean 'digits'"),
    "unknown split": (["{own}:build", "--data", "digits", "fogg-3"], "did you mean 'fog-3'"),
}


@pytest.mark.parametrize("case", PREDICT_REFUSED)
def test_predict_refused_in_one_line(calibrant: Run, own: str, tmp_path: Path, case: str) -> None:
    tokens, message = PREDICT_REFUSED[case]
    calibrant("predict", *(token.format(own=own) for token in tokens), "-o", tmp_path / "out").refused(message)


@pytest.mark.parametrize(
    "arguments", [["train"], ["predict", "run"], ["run", "x.toml"], ["schema"]], ids=lambda a: a[0]
)
def test_a_missing_extra_is_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library as it is loaded where pydantic is missing."""
    for name in [name for name in sys.modules if name.split(".")[0] == "calibrant"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "calibrant.training.settings", None)
    cli = importlib.import_module("calibrant.cli")
    app = cli.app
    monkeypatch.setattr(cli, "app", lambda **options: app(arguments, **options))
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(r"pip install 'calibrant\[(report,)?train\]'$", err)
