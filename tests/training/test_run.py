"""Runs of training: a plain loop as their oracle, what they leave behind, and what each setting changes."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import calibrant as cb
from calibrant import metrics
from calibrant.data import open_dataset
from calibrant.errors import CalibrantError, InvalidInputError, NotConvergedError
from calibrant.losses import LOSSES
from calibrant.models import build_model
from calibrant.runs import RunFolder
from calibrant.training import train
from calibrant.training.results import chance_warning
from made.training import log_of, quick, results_of, timeless, times_of, weights_of

N_TRAIN, N_VAL, N_TEST = 997, 200, 600


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights to start from."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("start") / "weights.safetensors"
    save_file(build_model("mlp", 10, image_size=8, channels=1).double().state_dict(), path)
    return path


def assert_same_weights(run: Path, expected: dict[str, Tensor]) -> None:
    found = weights_of(run)
    assert found.keys() == expected.keys()
    for layer, tensor in expected.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(found[layer], tensor, atol=1e-9, rtol=0)


# Oracle: gradient descent on all images at once, in which the order of the images has no say


def descent(
    start: Path,
    *,
    epochs: int = 3,
    optimizer: Callable[..., torch.optim.Optimizer],
    criteria: list[Callable[[Tensor, Tensor], Tensor]],
    cosine: bool,
    warmup: int = 0,
    clip: float | None = None,
) -> tuple[list[dict[str, Tensor]], list[float]]:
    """The weights after every step, and the loss before it."""
    split = open_dataset("digits").split("train")
    assert isinstance(split.images, Tensor)
    images = (split.images.double() / 255 - 0.5) / 0.5
    model = build_model("mlp", 10, image_size=8, channels=1)
    model.load_state_dict(load_file(start))
    steps = optimizer(model.parameters())
    highest = steps.param_groups[0]["lr"]
    weights, losses = [], []
    for epoch in range(epochs):
        rate = 0.5 * highest * (1 + math.cos(math.pi * epoch / epochs)) if cosine else highest
        steps.param_groups[0]["lr"] = rate * min(1, epoch / warmup) if warmup else rate
        loss = criteria[min(epoch, len(criteria) - 1)](model(images), split.labels)
        steps.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        steps.step()
        losses.append(loss.item())
        weights.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    return weights, losses


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.8, weight_decay=0.01)


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    """A tenth of each label spread over all ten classes."""
    shares = nn.functional.one_hot(labels, 10) * 0.9 + 0.1 / 10
    return -(shares * logits.log_softmax(1)).sum(1).mean()


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    log_prob = logits.log_softmax(1).gather(1, labels[:, None])
    return -((1 - log_prob.exp()) ** 2 * log_prob).mean()


def maxent(logits: Tensor, labels: Tensor) -> Tensor:
    return LOSSES["maxent_mean"](open_dataset("digits").prior)(logits, labels)


cross_entropy = nn.functional.cross_entropy
SGD = {"optimizer": "sgd", "lr": 0.5, "momentum": 0.8, "weight_decay": 0.01}
ORACLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd cosine": ({**SGD, "schedule": "cosine"}, {"optimizer": sgd, "cosine": True}),
    "sgd constant": ({**SGD, "schedule": "constant"}, {"optimizer": sgd, "cosine": False}),
    "clip": ({**SGD, "schedule": "constant", "clip": 0.05}, {"optimizer": sgd, "cosine": False, "clip": 0.05}),
    "adam": (
        {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1, "schedule": "constant"},
        {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1), "cosine": False},
    ),
    "adamw": (
        {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1, "schedule": "cosine"},
        {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), "cosine": True},
    ),
    "label_smoothing": (
        {**SGD, "schedule": "constant", "label_smoothing": 0.1},
        {"optimizer": sgd, "cosine": False, "criteria": [smoothed]},
    ),
    "focal": (
        {**SGD, "schedule": "constant", "loss": "focal", "loss_options": {"gamma": 2.0}},
        {"optimizer": sgd, "cosine": False, "criteria": [focal]},
    ),
    "maxent_mean": (
        {**SGD, "schedule": "constant", "loss": "maxent_mean"},
        {"optimizer": sgd, "cosine": False, "criteria": [maxent]},
    ),
    "loss_warmup": (
        {**SGD, "schedule": "constant", "loss": "focal", "loss_options": {"gamma": 2.0}, "loss_warmup": 2},
        {"optimizer": sgd, "cosine": False, "criteria": [cross_entropy, cross_entropy, focal]},
    ),
    "lr_warmup": (
        {**SGD, "schedule": "cosine", "lr_warmup": 2.0},
        {"optimizer": sgd, "cosine": True, "warmup": 2},
    ),
}
AT_ONCE: dict[str, Any] = {"epochs": 3, "batch_size": N_TRAIN, "crop_padding": 0, "flip": False}


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", ORACLES)
def test_agrees_with_a_plain_loop(tmp_path: Path, start: Path, name: str) -> None:
    settings, plain_settings = ORACLES[name]
    run = train(quick(**AT_ONCE, weights=str(start), **settings), tmp_path / "run")
    weights, losses = descent(start, **{"criteria": [cross_entropy], **plain_settings})
    assert_same_weights(run, weights[-1])
    log = log_of(run)
    assert [line["train_loss"] for line in log] == pytest.approx(losses, rel=1e-9)
    lr, is_cosine = settings["lr"], settings["schedule"] == "cosine"
    cosine = [lr * 0.5 * (1 + math.cos(math.pi * epoch / 3)) for epoch in range(3)]
    if "lr_warmup" in settings:
        cosine = [0, cosine[1] / 2, cosine[2]]
    assert [line["lr"] for line in log] == pytest.approx(cosine if is_cosine else [lr] * 3)


@pytest.mark.usefixtures("in_float64")
def test_ema_is_an_average_over_steps(tmp_path: Path, start: Path) -> None:
    run = train(quick(**AT_ONCE, weights=str(start), **SGD, schedule="constant", ema=0.7), tmp_path / "run")
    weights, _ = descent(start, optimizer=sgd, criteria=[cross_entropy], cosine=False)
    average = load_file(start)
    for after_step in weights:
        average = {layer: 0.7 * average[layer] + 0.3 * tensor for layer, tensor in after_step.items()}
    assert_same_weights(run, average)


# The folder


def test_the_folder_is_whole(plain: Path) -> None:
    names = {str(file.relative_to(plain)) for file in plain.rglob("*") if file.is_file()}
    assert names - {".lock"} == {
        "DONE",
        "config.json",
        "environment.json",
        "log.jsonl",
        "checkpoint/last.safetensors",
        "weights.safetensors",
        "predictions/val.parquet",
        "predictions/test.parquet",
        "predictions/fog-3.parquet",
        "metrics.parquet",
    }

    config = json.loads((plain / "config.json").read_text())
    assert config | {"digest": ""} == json.loads(quick().model_dump_json()) | {"digest": ""}
    environment = json.loads((plain / "environment.json").read_text())
    assert (environment["calibrant"], environment["torch"]) == (cb.__version__, torch.__version__)
    assert environment["data_as_published"] is True
    times = times_of(plain)
    assert max(times[str(plain / name)] for name in results_of(plain)) <= times[str(plain / "DONE")]


def test_log(plain: Path) -> None:
    log = log_of(plain)
    assert [line["epoch"] for line in log] == [1, 2]
    for line in log:
        assert 0 <= line["train_accuracy"] <= 1
        assert 0 <= line["val_accuracy"] <= 1
        assert 0 <= line["val_ece"] <= 1
        assert 0 < line["val_nll"] < math.log(10) + 0.5
        assert line["train_loss"] > 0
        assert line["seconds"] > 0
        assert 0 <= line["waiting"] <= 1
        assert not any(name.startswith("constraint_") for name in line)
        # the rows that fill no batch are left out
        assert line["images_per_second"] * line["seconds"] == pytest.approx(N_TRAIN // 64 * 64, rel=1e-6)
    assert log[1]["val_nll"] < log[0]["val_nll"]


@pytest.mark.parametrize(("split", "n"), [("val", N_VAL), ("test", N_TEST), ("fog-3", N_TEST)])
def test_predictions_are_the_rows_of_the_split(plain: Path, split: str, n: int) -> None:
    predictions = cb.Predictions.load(plain / "predictions" / f"{split}.parquet")
    rows = open_dataset("digits").split(split)
    assert isinstance(rows.images, Tensor)
    model = build_model("mlp", 10, image_size=8, channels=1)
    model.load_state_dict(weights_of(plain))
    with torch.no_grad():
        logits = model((rows.images.float() / 255 - 0.5) / 0.5)
    assert len(predictions) == n
    assert predictions.labels.tolist() == rows.labels.tolist()
    torch.testing.assert_close(predictions.logits, logits, atol=1e-5, rtol=1e-5)
    assert predictions.class_names == open_dataset("digits").class_names
    assert predictions.metadata == {"data": "digits", "model": "mlp", "loss": "cross_entropy", "seed": 0}
    assert set(predictions.column("split").to_pylist()) == {split}
    corruption, severity = ("fog", 3) if split == "fog-3" else ("none", 0)
    assert set(predictions.column("corruption").to_pylist()) == {corruption}
    assert set(predictions.column("severity").to_pylist()) == {severity}


def test_metrics_are_those_of_the_predictions(plain: Path) -> None:
    rows = pq.read_table(plain / "metrics.parquet").to_pylist()
    assert {row["split"] for row in rows} == {"val", "test", "fog-3"}
    shifted = {(row["corruption"], row["severity"], row["shifted"]) for row in rows if row["split"] == "fog-3"}
    clean = {(row["corruption"], row["severity"], row["shifted"]) for row in rows if row["split"] != "fog-3"}
    assert (clean, shifted) == ({("none", 0, False)}, {("fog", 3, True)})
    assert {(row["run"], row["calibrator"]) for row in rows} == {("digits-mlp-cross_entropy-0", "none")}
    for split in ("val", "test", "fog-3"):
        predictions = cb.Predictions.load(plain / "predictions" / f"{split}.parquet")
        values = {row["metric"]: row["value"] for row in rows if row["split"] == split}
        assert all(math.isfinite(value) for value in values.values())
        probs = predictions.probs.double()
        confidence, predicted = probs.max(1)
        correct = predicted == predictions.labels
        nll = -probs.gather(1, predictions.labels[:, None]).log().mean()
        assert values["accuracy"] == pytest.approx(float(correct.double().mean()), abs=1e-12)
        assert values["nll"] == pytest.approx(float(nll), rel=1e-6)
        assert values["kse"] == pytest.approx(float(metrics.ks_error(confidence, correct)), rel=1e-6)


def test_the_last_line_of_the_log_is_of_the_weights_that_are_kept(plain: Path) -> None:
    rows = pq.read_table(plain / "metrics.parquet").to_pylist()
    values = {row["metric"]: row["value"] for row in rows if row["split"] == "val"}
    last = log_of(plain)[-1]
    for name in ("accuracy", "ece", "nll"):
        assert last[f"val_{name}"] == pytest.approx(values[name], rel=1e-6)


# The same, and not the same


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"precision": "bf16"}, {"crop_padding": 0}, {"flip": True}, {"train_sample": 500}],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_does_something(tmp_path: Path, plain: Path, change: dict[str, Any]) -> None:
    run = train(quick(**change), tmp_path / "run")
    for layer, tensor in weights_of(plain).items():
        assert not torch.equal(tensor, weights_of(run)[layer])
    assert log_of(run)[-1]["val_nll"] < math.log(10)


def test_same_seed_same_bytes(tmp_path: Path, plain: Path) -> None:
    """Whatever ran before, and whatever is no part of the run's identity."""
    torch.manual_seed(99)
    torch.rand(3)
    again = train(quick(workers=2, checkpoint_minutes=0.0, device="cpu"), str(tmp_path / "deep" / "er"))
    assert again == tmp_path / "deep" / "er"
    assert results_of(again) == results_of(plain)
    assert timeless(log_of(again)) == timeless(log_of(plain))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(tmp_path: Path, loss: str) -> None:
    log = log_of(train(quick(loss=loss), tmp_path / "run"))
    assert log[-1]["val_accuracy"] > 0.3  # of ten classes
    telemetry = {name for name in log[-1] if name.startswith("constraint_")}
    wanted = {"constraint_active_fraction", "constraint_gradient_share", "constraint_moments"}
    assert wanted <= telemetry if loss.startswith("maxent") else not telemetry


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("loss", ["cross_entropy", "maxent_mean"])
def test_accumulating_changes_nothing(tmp_path: Path, loss: str) -> None:
    whole = train(quick(loss=loss), tmp_path / "whole")
    parts = train(quick(loss=loss, accumulate=4), tmp_path / "parts")
    if loss == "cross_entropy":
        assert_same_weights(parts, weights_of(whole))
    for name in ("train_loss", "val_nll"):
        assert log_of(parts)[-1][name] == pytest.approx(log_of(whole)[-1][name], rel=1e-6 if loss[0] == "c" else 0.05)


def test_a_network_that_dies_is_named(tmp_path: Path) -> None:
    """Weights of 0 have no gradient but that of the last bias: the features are 0, and all predictions the same."""
    save_file({name: torch.zeros_like(tensor) for name, tensor in weights_of(train(quick(), tmp_path / "a")).items()},
              tmp_path / "dead.safetensors")  # fmt: skip
    run = RunFolder(train(quick(weights=str(tmp_path / "dead.safetensors")), tmp_path / "dead"))
    last = log_of(run.path)[-1]
    assert (last["val_at_chance"], last["val_constant"]) == (True, True)
    warning = chance_warning(run, "last")
    assert warning is not None
    assert f"accuracy of {last['val_accuracy']:.4f} is at chance" in warning
    assert "all predictions are the same class" in warning
    assert chance_warning(RunFolder(tmp_path / "a"), "nll") is None


# Which epoch is kept

RESTLESS: dict[str, Any] = {"batch_size": 128, "lr": 0.8, "schedule": "constant", "momentum": 0.9, "seed": 0}


def validate_as(monkeypatch: pytest.MonkeyPatch, *epochs: tuple[float, float]) -> None:
    """Have the epochs of the next run validated with these accuracies and NLLs, whatever the processor computes."""
    scores = iter(epochs)

    def score(*_: object, **__: object) -> SimpleNamespace:
        accuracy, nll = next(scores)
        return SimpleNamespace(values=lambda: {"accuracy": accuracy, "ece": 0.1, "nll": nll})

    monkeypatch.setattr("calibrant.training.loop.score", score)


@pytest.mark.parametrize(("keep", "epoch"), [("accuracy", 2), ("nll", 3), ("last", 5)])
def test_the_best_epoch_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, epoch: int) -> None:
    with monkeypatch.context() as patched:
        validate_as(patched, (0.5, 0.9), (0.8, 0.7), (0.6, 0.4), (0.8, 0.5), (0.7, 0.4))
        run = train(quick(**RESTLESS, epochs=5, keep=keep), tmp_path / "run")
    until_then = train(quick(**RESTLESS, epochs=epoch), tmp_path / "until")
    for layer, tensor in weights_of(until_then).items():
        assert torch.equal(weights_of(run)[layer], tensor)
    kept, expected = (cb.Predictions.load(folder / "predictions" / "val.parquet") for folder in (run, until_then))
    assert torch.equal(kept.logits, expected.logits)
    assert (run / "checkpoint" / "best.safetensors").exists() == (keep != "last")


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (3, 6), (None, 6)])
def test_patience_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int | None, epochs: int
) -> None:
    nll = (0.5, 0.4, 0.6, 0.4, 0.3, 0.3)
    validate_as(monkeypatch, *((0.5, value) for value in nll))
    run = train(quick(**RESTLESS, epochs=6, patience=patience), tmp_path / "run")
    assert [line["val_nll"] for line in log_of(run)] == list(nll[:epochs])
    assert (run / "DONE").exists()


# Folders that are taken


def test_a_finished_run_stays_as_it_is(tmp_path: Path, plain: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(plain, run)
    before = times_of(run)
    train(quick(), run)
    train(quick(device="cpu", workers=1, checkpoint_minutes=1.0), run)  # no part of its identity
    assert times_of(run) == before


OTHERS: list[tuple[str, Any, str, str]] = [
    ("seed", 1, "0", "1"),
    ("lr", 0.25, "0.1", "0.25"),
    ("loss", "focal", "cross_entropy", "focal"),
    ("epochs", 3, "2", "3"),
    ("shifts", ("snow-1",), "fog-3", "snow-1"),
    ("features", True, "False", "True"),
    ("ema", 0.5, "None", "0.5"),
]


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
def test_another_setting_in_the_same_folder(tmp_path: Path, plain: Path, finished: bool) -> None:
    run = shutil.copytree(plain, tmp_path / "run")
    if not finished:
        (run / "DONE").unlink()
    before = times_of(run)
    for name, value, old, new in OTHERS:
        with pytest.raises(InvalidInputError) as refusal:
            train(quick(**{name: value}), run)
        message = str(refusal.value)
        assert "\n" not in message
        assert name in message
        assert str(run) in message
        assert message.index(name) < message.index(old, message.index(name)) < message.rindex(new)
    assert times_of(run) == before


# What cannot go on


def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(CalibrantError, match=r"epoch 1\b.*step \d+") as refusal:
        train(quick(lr=1e30, checkpoint_minutes=0.0), run)
    assert "\n" not in str(refusal.value)
    assert not (run / "DONE").exists()
    assert not (run / "weights.safetensors").exists()
    kept = load_file(run / "checkpoint" / "last.safetensors")
    assert kept
    with pytest.raises(CalibrantError, match=r"epoch 1\b.*step \d+"):  # and again, from that checkpoint
        train(quick(lr=1e30, checkpoint_minutes=0.0), run)


def test_a_loss_that_is_not_finite_later_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in the third epoch: the log of the first two and their checkpoint stay."""
    count = 0
    forward = nn.functional.relu

    def relu(*arguments: Any, **options: Any) -> Tensor:
        nonlocal count
        outputs = forward(*arguments, **options)
        if outputs.requires_grad:
            count += 1
        return outputs * math.nan if count == 2 * (7 * 2 + 4) else outputs

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(nn.functional, "relu", relu)
        with pytest.raises(CalibrantError, match=r"nan.*epoch 3\b.*step 4\b"):
            train(quick(epochs=4, batch_size=128), run)
    assert [line["epoch"] for line in log_of(run)] == [1, 2]
    assert not (run / "DONE").exists()
    whole = train(quick(epochs=4, batch_size=128), tmp_path / "whole")
    assert results_of(train(quick(epochs=4, batch_size=128), run)) == results_of(whole)


# Refusals: one line, and a folder that stays free

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "parts that do not divide": ({"batch_size": 63, "accumulate": 2}, "batch_size must be a multiple of 2 .*, got 63"),
    "a batch too large": ({"batch_size": 998}, "batch_size must be at most the 997 training images, got 998"),
    "a single image": ({"model": "small_resnet", "batch_size": 1}, "at least 2 images"),
    "parts of one image": ({"model": "small_resnet", "accumulate": 64}, "at least 2 images"),
    "an option": ({"loss": "focal", "loss_options": {"gamma": -1.0}}, r"loss_options\.gamma must be"),
    "no data": ({"data": "cifar10", "root": "nowhere"}, "no train images of CIFAR in nowhere"),
    "no weights": ({"weights": "nowhere.safetensors"}, r"nowhere\.safetensors"),
    "a shift": ({"shifts": ("fogg-3",)}, "unknown shift 'fogg-3'; did you mean 'fog-3'"),
    "no such severity": ({"shifts": ("fog-9",)}, "fog-9"),
}


def check_refused(run: Path, message: str, **changes: Any) -> None:
    with pytest.raises(CalibrantError, match=message) as refusal:
        train(quick(**changes), run)
    assert "\n" not in str(refusal.value)
    assert not (run / "DONE").exists()


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(tmp_path: Path, case: str) -> None:
    changes, message = REFUSED[case]
    check_refused(tmp_path / "run", message, **changes)
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_refusal_leaves_the_folder_free(tmp_path: Path) -> None:
    check_refused(tmp_path / "run", "batch_size", batch_size=998)
    assert (train(quick(), tmp_path / "run") / "DONE").exists()


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(CalibrantError, match=str(path)) as refusal:
            train(quick(), path)
        assert "\n" not in str(refusal.value)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_parent_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "mkdir", refuse)  # the superuser may write into any folder
    check_refused(tmp_path / "run", r"run.*Permission denied")


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_run_that_diverges_is_refused_in_one_line(tmp_path: Path, clip: float | None) -> None:
    with pytest.raises(NotConvergedError, match=r"^the loss is .* in epoch 1, step 2: try a smaller lr$"):
        train(quick(lr=1e30, clip=clip, device="cpu"), tmp_path / "run")
