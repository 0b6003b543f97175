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
from torch import Tensor

import calibrant as cb
from calibrant.data import open_dataset
from calibrant.training import read_settings, train
from made.cli import Run

QUICK = ("--data", "digits", "--model", "mlp", "--epochs", "1")
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
    "lr_warmup": (["--lr-warmup", "0.5"], 0.5),
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; not to be changed."""
    return train(
        read_settings(data="digits", model="mlp", epochs=2, shifts=("fog-3",)), tmp_path_factory.mktemp("r") / "run"
    )


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
    run = tmp_path / "run"
    loss = ("--loss", "focal", "--loss-options.gamma", "3")
    out = calibrant("train", *QUICK, *tokens, *loss, "--shifts", "fog-3", "snow-1", "-o", run).done()
    assert "epoch 1/1" in out
    config = json.loads((run / "config.json").read_text())
    assert {name: config[name] for name in others} == {name: value for name, (_, value) in others.items()}
    assert (config["data"], config["model"], config["epochs"]) == ("digits", "mlp", 1)
    assert config["loss_options"] == {"gamma": 3}
    assert {file.stem for file in (run / "predictions").iterdir()} == {"val", "test", "fog-3", "snow-1"}


def test_a_file_and_flags_that_win(calibrant: Run, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        'data = "digits"\nmodel = "mlp"\nepochs = 9\nseed = 4\nflip = true\nshifts = ["none"]\n'
        'loss = "focal"\n[loss_options]\ngamma = 2.0\n'
    )
    calibrant("train", tmp_path / "x.toml", "--epochs", "1", "--no-flip", "-o", tmp_path / "run").done()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["epochs"], config["seed"], config["flip"]) == (1, 4, False)
    assert config["loss_options"] == {"gamma": 2.0}


def test_scores_and_the_folder_that_is_named_after_the_run(
    calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    record = calibrant("train", *QUICK, "--shifts", "none", "--loss", "poly", "--seed", "7", "--json").record
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


# Refusals: what is the library's is tested there

REFUSED: dict[str, tuple[list[str], str]] = {
    "flag": (["--epoch", "3"], "--epochs"),
    "text for a number": (["--epochs", "three"], "three"),
    "two folders": ([*QUICK, "--test-folders", "fog", "snow"], "got fog, snow"),
    "rounded epochs": ([*QUICK[:-1], "1.9"], "'1.9' is not a whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    tokens, message = REFUSED[case]
    calibrant("train", *tokens, "-o", "run").refused(message)
    assert not (tmp_path / "run" / "DONE").exists()


# Predict


def test_predict_a_run(calibrant: Run, trained: Path, tmp_path: Path) -> None:
    calibrant("predict", trained, "fog-3", "test", "-o", tmp_path / "out").done()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"fog-3.parquet", "test.parquet"}
    for name in ("fog-3.parquet", "test.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (trained / "predictions" / name).read_bytes()


def test_predict_your_own_model(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_model_of_a_user.py").write_text("def logits(images):\n    return images.flatten(1)[:, 10:20]\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = ("predict", "own_model_of_a_user:logits")
    assert calibrant(*own, "--data", "digits", "val", "-o", tmp_path / "out", "--json").record == [
        str(tmp_path / "out" / "val.parquet")
    ]
    predictions = cb.Predictions.load(tmp_path / "out" / "val.parquet")
    rows = open_dataset("digits").split("val")
    assert isinstance(rows.images, Tensor)
    torch.testing.assert_close(predictions.logits, ((rows.images.float() / 255 - 0.5) / 0.5).flatten(1)[:, 10:20])
    assert predictions.labels.tolist() == rows.labels.tolist()
    calibrant(*own, "val", "-o", tmp_path / "out").refused("your own model needs --data and --output")


def test_a_run_has_its_own_data(calibrant: Run, trained: Path) -> None:
    calibrant("predict", trained, "--data", "digits").refused("--data and --image-size are for your own models")


@pytest.mark.parametrize("arguments", [["train"], ["predict", "run"], ["run", "x.toml"]], ids=lambda a: a[0])
def test_a_missing_extra_is_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library as it is loaded where pydantic is missing."""
    for name in [name for name in sys.modules if name.split(".")[0] == "calibrant"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "calibrant.training.settings", None)
    cli, extras = importlib.import_module("calibrant.cli"), importlib.import_module("calibrant.cli.extras")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    app = cli.app
    monkeypatch.setattr(cli, "app", lambda **options: app(arguments, **options))
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(r"pip install 'calibrant\[(report,)?train\]'$", err)
