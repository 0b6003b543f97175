"""A GPU that is not here: the tables of the package on the stand-in of `made.gpu`, and training steps as one graph."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import config
from torch._subclasses import FakeTensorMode

import calibrant as cb
from calibrant.integrations.torchmetrics import CalibrationScore
from calibrant.losses import LOSSES, functional
from calibrant.models import MODELS, build_model
from calibrant.training import predict_run, train
from calibrant.training.callback import TrainingCallback
from calibrant.training.engine import new_fabric
from made.calibrator_check import fitted, fresh_rows, module_inputs
from made.gpu import FROM_HOST, GPU, TO_HOST, StandIn, values_on
from made.loss_check import IGNORED, build_of, random_batch, random_soft_labels, value_and_gradient
from made.training import quick, weights_of

PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"

# The stand-in itself

X = torch.tensor([0.5, 0.0, 2.0])
WAITS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "item": (lambda x: x[0].item(), "_local_scalar_dense"),
    "float": (lambda x: float(x[0]), "_local_scalar_dense"),
    "bool": (lambda x: bool(x.any()), "_local_scalar_dense"),
    "size": (lambda x: x[: x.argmax()], "_local_scalar_dense"),
    "equal": (lambda x: torch.equal(x, x), "equal"),
    "allclose": (lambda x: torch.allclose(x, x), "allclose"),
    "nonzero": (lambda x: x.nonzero(), "nonzero"),
    "where": (lambda x: torch.where(x > 0), "nonzero"),
    "mask": (lambda x: x[x > 0], "index"),
    "masked assignment": (lambda x: x.__setitem__(x > 0, x.new_ones(2)), "index_put_"),
    "masked_select": (lambda x: x.masked_select(x > 0), "masked_select"),
    "unique": (lambda x: x.unique(), "_unique2"),
    "bincount": (lambda x: x.long().bincount(), "bincount"),
    "repeat_interleave": (lambda x: x.repeat_interleave(x.long()), "repeat_interleave"),
    "one_hot": (lambda x: nn.functional.one_hot(x.long()), "_local_scalar_dense"),
    "tolist": (lambda x: x.tolist(), TO_HOST),
    "numpy": (lambda x: x.cpu().numpy(), TO_HOST),
    "copy_": (lambda x: torch.empty(3).copy_(x), TO_HOST),
    "tensor": (lambda x: torch.tensor([1.0], device=x.device), FROM_HOST),
    "to": (lambda x: torch.ones(1).to(x.device), FROM_HOST),
    "index on the host": (lambda x: x[torch.tensor([0])], FROM_HOST),
}


@pytest.mark.parametrize("look", WAITS)
def test_the_stand_in_notes_a_wait(look: str) -> None:
    function, noted = WAITS[look]
    with StandIn() as gpu:
        x = X.to(GPU, non_blocking=True)
        x.mul(2).add_(torch.ones(3, device=GPU)).cumsum(0).masked_fill(x > 1, 0.0).sort()
        nn.functional.one_hot(x.long(), 3).new_zeros(2)
        assert not gpu.waits
        function(x)
    assert gpu.waits == {noted: 1}


HOST = torch.arange(3)
# what torch built for the CPU alone can say of fake tensors on "cuda": nothing of copies and of indexing
MIXED: dict[str, Callable[[Tensor], Tensor]] = {
    "one device": lambda x: x + x,
    "number": lambda x: x * torch.tensor(2.0),
    "where": lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
    "add": lambda x: x + HOST,
    "in place": lambda x: x.add_(HOST),
    "out": lambda x: torch.add(x, x, out=torch.empty(3)),
    "gather": lambda x: x.gather(0, HOST),
    "index_select": lambda x: x.index_select(0, HOST),
    "scatter": lambda x: x.scatter(0, HOST, x),
    "index_add": lambda x: x.index_add(0, HOST, x),
    "searchsorted": lambda x: torch.searchsorted(HOST.float(), x),
    "dot": lambda x: x @ HOST.float(),
    "cat": lambda x: torch.cat([x, HOST]),
    "assignment": lambda x: x.index_put((HOST,), x),
    "type of the other": lambda x: HOST.to(x),
}


def is_refused(function: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    try:
        function(x)
    except RuntimeError as error:
        return "device" in str(error)
    return False


@pytest.mark.parametrize("name", MIXED)
def test_the_stand_in_refuses_what_fake_tensors_on_cuda_refuse(name: str) -> None:
    with StandIn():
        refused = is_refused(MIXED[name], X.to(GPU))
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        assert is_refused(MIXED[name], torch.ones(3, device="cuda")) == refused


# The tables


@pytest.mark.parametrize("soft", [False, True], ids=["integer labels", "soft labels"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, soft: bool) -> None:
    logits, labels = random_batch(dtype=torch.float32)
    labels[2] = IGNORED
    labels = random_soft_labels(dtype=torch.float32) if soft else labels
    options = {"label_smoothing": 0.1, "class_weights": [1.0, 1.1, 0.3, 1.7], "reduction": "none"} if soft else {}
    wanted = value_and_gradient(build_of(name)(4, **options, validate=False), logits, labels)
    with StandIn() as gpu:
        criterion = build_of(name)(4, **options).to(GPU)
        given = logits.to(GPU), labels.to(GPU)
        gpu.waits.clear()
        found = value_and_gradient(criterion, *given)
    assert not gpu.waits
    torch.testing.assert_close([values_on(GPU, each) for each in found], list(wanted))


@pytest.mark.parametrize("name", [name for name in ("margin_smoothing", *LOSSES) if hasattr(functional, name)])
def test_functional_losses(name: str) -> None:
    logits, labels = random_batch()
    function = getattr(functional, name)
    with StandIn() as gpu:
        given = logits.to(GPU), labels.to(GPU)
        gpu.waits.clear()
        found = function(*given)
    assert not gpu.waits
    torch.testing.assert_close(values_on(GPU, found), function(logits, labels))


METRICS = [
    value for name, value in vars(cb.metrics).items() if inspect.isfunction(value) and name in cb.metrics.__all__
]
OF_TENSORS = [
    function for function in METRICS if {"logits", "confidence", "probs"} & {*inspect.signature(function).parameters}
]


@pytest.mark.parametrize("function", OF_TENSORS, ids=lambda function: function.__name__)
def test_metrics_copy_their_arguments_to_the_host_and_nothing_else(function: Callable[..., object]) -> None:
    logits, labels = random_batch(60)
    confidence, correct = cb.metrics.top_label(logits.softmax(1), labels)
    if function is cb.metrics.score_multilabel:
        labels = (logits > 1).long()
    given = {"logits": logits, "labels": labels, "probs": logits.softmax(1), "weights": confidence.square()}
    given |= {"confidence": confidence, "correct": correct}
    given = {name: given[name] for name in inspect.signature(function).parameters if name in given}
    with StandIn() as gpu:
        moved = {name: tensor.to(GPU) for name, tensor in given.items()}
        gpu.waits.clear()
        found = function(**moved)
    assert gpu.waits == {TO_HOST: len(given)}
    torch.testing.assert_close(numbers_of(found), numbers_of(function(**given)), rtol=0, atol=0)


def numbers_of(found: object) -> Any:
    """The tensors of a metric, a pair or a curve; the values of groups of scorecards."""
    if isinstance(found, cb.metrics.Groups):
        return [card.ece for card in found.values()]
    return found if isinstance(found, Tensor | tuple) else list(vars(found).values())


@pytest.mark.parametrize("name", ["from_logits", "from_probs", "from_log_probs"])
def test_predictions(name: str) -> None:
    logits, labels = random_batch(60)
    numbers = {"from_logits": logits, "from_probs": logits.softmax(1), "from_log_probs": logits.log_softmax(1)}[name]
    features = logits.half()
    build = getattr(cb.Predictions, name)
    with StandIn():
        found = build(numbers.to(GPU), labels.to(GPU), features=features.to(GPU), columns={"x": labels.to(GPU)})
    wanted = build(numbers, labels, features=features, columns={"x": labels})
    assert found.fingerprint == wanted.fingerprint
    assert found.columns == wanted.columns
    assert torch.equal(found.features, wanted.features)


def test_metrics_of_torchmetrics_add_up_on_the_device() -> None:
    logits, labels = random_batch(60)
    wanted = CalibrationScore(4)
    wanted.update(logits, labels)
    with StandIn() as gpu:
        score = CalibrationScore(4).to(GPU)
        gpu.waits.clear()
        score.update(logits.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True))
        assert set(gpu.waits) == {TO_HOST}
        found = score.compute()
    assert {name: values_on(GPU, value) for name, value in found.items()} == wanted.compute()


@pytest.mark.parametrize("name", cb.CALIBRATORS)
def test_modules_of_calibrators(name: str) -> None:
    calibrator = fitted(name)
    given = module_inputs(calibrator, fresh_rows(name))
    with StandIn() as gpu:
        module = calibrator.module().to(GPU)
        moved = [tensor.to(GPU) for tensor in given]
        gpu.waits.clear()
        found = module(*moved)
    assert not gpu.waits
    torch.testing.assert_close(values_on(GPU, found), calibrator.module()(*given))


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    with StandIn() as gpu:
        model = build_model(name, 4, image_size=8).to(GPU)
        images = torch.rand(2, 3, 8, 8, device=GPU)
        gpu.waits.clear()
        logits = model(images)
        logits.sum().backward()
    assert not gpu.waits
    assert {logits.device, *(parameter.grad.device for parameter in model.parameters())} == {GPU}


READ_BY_DESIGN = {
    ("shot_noise", "nonzero"): "the few values in the tails of the distribution are searched one by one",
    ("glass_blur", "equal"): "chains of copied pixels are followed until nothing changes",
    ("spatter", "_local_scalar_dense"): "edges grow along weak ones until nothing changes",
    ("jpeg_compression", TO_HOST): "Pillow encodes and decodes",
}


@pytest.mark.parametrize("name", cb.CORRUPTIONS)
def test_corruptions(name: str) -> None:
    images = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with StandIn() as gpu:
        given = images.to(GPU)
        found = [cb.corrupt(given, name, severity) for severity in (1, 4)]  # the first time, tables are made
        gpu.waits.clear()
        found += [cb.corrupt(given, name, severity) for severity in (1, 4)]
    assert set(gpu.waits) == {wait for corruption, wait in READ_BY_DESIGN if corruption == name}
    for image, severity in zip(found, (1, 4, 1, 4), strict=True):
        assert torch.equal(values_on(GPU, image), cb.corrupt(images, name, severity))


def test_the_page_names_what_reads_by_design() -> None:
    [row] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "by design, see below" in line]
    assert re.findall(r"`(\w+)`", row) == [corruption for corruption, _ in READ_BY_DESIGN]


# Training


class Waits(TrainingCallback):
    """What the host waited for, from the start to the first log and from log to log."""

    def __init__(self, gpu: StandIn) -> None:
        self.gpu, self.logs = gpu, []

    def on_start(self, *_: object) -> None:
        self.gpu.waits.clear()

    def on_log(self, **_: object) -> None:
        self.logs.append(self.gpu.waits.copy())


RUNS: dict[str, dict[str, Any]] = {
    "clip, parts, mean of the weights": {"loss": "maxent_mean", "clip": 0.5, "accumulate": 2, "ema": 0.9},
    "dropped steps": {},
    "augmix, adam": {"augment": "augmix", "optimizer": "adam", "loss": "avuc"},
    "mixup, adamw": {"augment": "mixup", "optimizer": "adamw", "loss": "mmce", "label_smoothing": 0.1},
    "cutmix, flips": {"augment": "cutmix", "flip": True, "model": "small_convnet"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_waits_for_the_device_once_in_a_log(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = quick(epochs=1, batch_size=16, train_sample=64, test_sample=100, device="cpu", **RUNS[name])
    wanted = train(settings, tmp_path / "cpu", scored=False)
    for module in ("run", "predicting"):
        monkeypatch.setattr(f"calibrant.training.{module}.new_fabric", on_stand_in)
    with StandIn() as gpu:
        waits = Waits(gpu)
        found = train(settings, tmp_path / "gpu", scored=False, callback=waits)
        predict_run(found, ["test"], output=tmp_path / "views", views=("crop5",), device="cpu")
    assert waits.logs == [{TO_HOST: 1}]  # of four steps
    torch.testing.assert_close(weights_of(found), weights_of(wanted), rtol=1e-4, atol=1e-5)
    logits = [cb.Predictions.load(run / "predictions" / "fog-3.parquet").logits for run in (found, wanted)]
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


def on_stand_in(*_: object, **options: Any) -> Any:
    fabric = new_fabric("cpu", **options)
    fabric.strategy._root_device = GPU
    fabric._accelerator.setup_device = lambda device: None
    return fabric


def training_step(name: str, model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Forward, backward and a step of SGD by hand: torch's own optimizers end the graph."""
    criterion = build_of(name)(4, class_weights=[1.0, 2.0, 0.5, 1.5])
    parameters = list(model.parameters())

    def step(inputs: Tensor, labels: Tensor) -> Tensor:
        loss = criterion(model(inputs), labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(0.5 * gradient)
        return loss.detach()

    return step


def check_compiled_steps(name: str, **options: Any) -> None:
    """Two steps in one graph give the losses and the weights of two steps without a compiler."""
    inputs, labels = random_batch(8, 6, dtype=torch.float32)[0], torch.arange(8) % 4
    labels[5] = IGNORED
    found = []
    torch.compiler.reset()
    for compile_ in (partial(torch.compile, fullgraph=True, **options), lambda step: step):
        torch.manual_seed(0)
        model = nn.Linear(6, 4)
        with config.patch(trace_autograd_ops=True):
            step = compile_(training_step(name, model))
            found.append(
                [step(inputs, labels), step(inputs, labels), *(weight.detach() for weight in model.parameters())]
            )
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    assert found[0][1] < found[0][0]


can_trace = pytest.mark.skipif(not hasattr(config, "trace_autograd_ops"), reason="this torch cannot trace gradients")


@can_trace
@pytest.mark.parametrize("name", LOSSES)
def test_a_training_step_is_one_graph(name: str) -> None:
    check_compiled_steps(name, backend="aot_eager")


@can_trace
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="inductor needs a C++ compiler")
def test_a_training_step_by_inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # code kept for one processor fails on another
    check_compiled_steps("mmce", options={"compile_threads": 1})


# The benchmark that waits for a GPU

BENCHMARK = [sys.executable, Path(__file__).parents[1] / "benchmarks" / "gpu.py"]


@pytest.mark.slow
def test_the_benchmark_runs_without_a_gpu_and_is_refused_on_one_that_is_not_there() -> None:
    run = partial(subprocess.run, capture_output=True, text=True, timeout=600)
    refused = run([*BENCHMARK], env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert refused.stderr.startswith("there is no GPU")
    done = run([*BENCHMARK, "--device", "cpu", "--quick", "--rounds", "1"])
    assert done.returncode == 0, done.stderr
    operations = dict(re.findall(r"(\w+) \(64, 10\) .* (\d+) / 5 ", done.stdout))
    assert operations.keys() == LOSSES.keys()
    for what in re.findall(r"(\d+) (?:to 5 )?for `(\w+)`", PAGE.read_text(encoding="utf-8")):
        assert operations[what[1]] == what[0]
