"""Losses and metrics in the Trainer of transformers: accumulated steps, scores of the rows, padding."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calibrant
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.integrations.transformers import LOGGED_METRICS, compute_metrics, loss_func, predictions
from calibrant.losses import LOSSES, MaxEntLoss
from calibrant.losses.modules import AvUCLoss, CrossEntropyLoss
from calibrant.predictions import Predictions

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers", reason="transformers comes with the extra integrations")
pytest.importorskip("accelerate", reason="accelerate comes with the extra integrations")

N_CLASSES, LENGTH = 4, 6


def items(kind: str, n: int = 16, *, soft: bool = False) -> list[dict[str, Tensor]]:
    """Random token numbers, with a label for each sequence, or for each token but those labelled −100."""
    draw = torch.Generator().manual_seed(3)
    tokens = torch.randint(1, 30, (n, LENGTH), generator=draw)
    if kind == "sequence":
        labels = torch.randint(N_CLASSES, (n,), generator=draw)
        labels = nn.functional.one_hot(labels, N_CLASSES).float() if soft else labels
    else:
        labels = torch.randint(N_CLASSES, (n, LENGTH), generator=draw)
        kept = torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (n, 1), generator=draw)
        labels = torch.where(kept, labels, -100)
    return [{"input_ids": t, "labels": label} for t, label in zip(tokens, labels, strict=True)]


def labels_of(data: list[dict[str, Tensor]]) -> Tensor:
    return torch.stack([item["labels"] for item in data])


def model(kind: str, **settings: Any) -> nn.Module:
    """A BERT of a few hundred weights, the same on every call."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **({"num_labels": N_CLASSES} | settings),
    )
    names = {"sequence": "BertForSequenceClassification", "token": "BertForTokenClassification"}
    made: nn.Module = getattr(transformers, names[kind])(config)
    return made.double()  # in which the order of sums, another on every processor, does not show


def trainer(kind: str, folder: Path, data: list[dict[str, Tensor]], criterion: Any = None, **options: Any) -> Any:
    settings = {
        "output_dir": str(folder),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "max_steps": 2,
        "seed": 0,
    }
    about = {name: options.pop(name) for name in ("num_labels", "problem_type") if name in options}
    return transformers.Trainer(
        model=model(kind, **about),
        args=transformers.TrainingArguments(**(settings | options)),
        train_dataset=data,
        eval_dataset=data,
        compute_loss_func=None if criterion is None else loss_func(criterion),
        compute_metrics=compute_metrics(),
    )


def weights(trained: Any) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in trained.model.parameters()])


def outputs(logits: Tensor) -> SimpleNamespace:
    return SimpleNamespace(logits=logits)


# Training


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sequence", "token"])
def test_accumulated_steps_are_those_of_one_large_batch(kind: str, tmp_path: Path) -> None:
    data = items(kind)
    labels = labels_of(data).flatten()
    found = []
    for batch_size, steps in ((8, 1), (4, 2)):
        criterion = MaxEntLoss.from_labels(labels, N_CLASSES)
        options = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": steps}
        runner = trainer(kind, tmp_path, data, criterion, **options)
        start = weights(runner).clone()
        runner.train()
        found.append(weights(runner))
    assert (found[0] - start).abs().max() > 1e-3
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_cross_entropy_trains_as_that_of_the_model(soft: bool, tmp_path: Path) -> None:
    found = []
    for criterion, data in ((CrossEntropyLoss(), items("sequence", soft=soft)), (None, items("sequence"))):
        runner = trainer("sequence", tmp_path, data, criterion, per_device_train_batch_size=8)
        runner.train()
        found.append(weights(runner))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-9)


# The loss alone


@pytest.mark.parametrize("name", LOSSES)
def test_a_sum_over_its_count_is_the_mean(name: str) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(5, 3, N_CLASSES, generator=draw)
    labels = torch.randint(N_CLASSES, (5, 3), generator=draw)
    labels[1, 1:] = -100
    criterion = LOSSES[name]([0.25] * 4) if name.startswith("maxent") else LOSSES[name]()
    loss = loss_func(criterion)
    expected = criterion(logits[labels != -100], labels[labels != -100])
    torch.testing.assert_close(loss(outputs(logits), labels), expected)
    torch.testing.assert_close(loss({"logits": logits}, labels, num_items_in_batch=torch.tensor(13)), expected)
    assert criterion.reduction == "mean"


def test_devices_soft_tokens_steps_without_labels_and_later_settings() -> None:
    draw = torch.Generator().manual_seed(2)
    logits, labels = torch.randn(6, N_CLASSES, generator=draw), torch.arange(6) % 4
    loss = loss_func(CrossEntropyLoss())
    counted = torch.tensor(6).unsqueeze(0).expand(2, -1)  # as the Trainer hands it to DataParallel
    by_trainer = 2 * loss(outputs(logits), labels, num_items_in_batch=counted)
    torch.testing.assert_close(by_trainer, CrossEntropyLoss()(logits, labels))
    soft = nn.functional.one_hot(labels, N_CLASSES).float().reshape(2, 3, N_CLASSES)
    found = loss(outputs(logits.reshape(2, 3, N_CLASSES)), soft, num_items_in_batch=soft.ne(-100).sum())
    torch.testing.assert_close(found, loss(outputs(logits), labels))
    logits.requires_grad_()
    nothing = loss(outputs(logits), torch.full((6,), -100), num_items_in_batch=0)
    nothing.backward()
    assert nothing.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()
    criterion = AvUCLoss()
    loss = loss_func(criterion)
    before = loss(outputs(logits), labels, num_items_in_batch=6)
    criterion.beta = 0
    after = loss(outputs(logits), labels, num_items_in_batch=6)
    assert before != after
    torch.testing.assert_close(after, nn.functional.cross_entropy(logits, labels))


# Metrics and predictions


@pytest.mark.parametrize("kind", ["sequence", "token"])
def test_metrics_and_predictions_are_those_of_the_rows(kind: str, tmp_path: Path) -> None:
    data = items(kind, 14)
    runner = trainer(kind, tmp_path, data, CrossEntropyLoss(), per_device_eval_batch_size=4)
    reported = runner.evaluate()
    labels = labels_of(data).flatten()
    with torch.no_grad():
        logits = runner.model(input_ids=torch.stack([item["input_ids"] for item in data])).logits
    kept = labels != -100
    rows = Predictions.from_logits(logits.reshape(-1, N_CLASSES)[kept], labels[kept])
    expected = calibrant.score(rows, metrics=LOGGED_METRICS).values()
    assert {name: reported[f"eval_{name}"] for name in LOGGED_METRICS} == pytest.approx(expected, rel=1e-5)
    path = tmp_path / "test.parquet"
    predictions(runner.predict(data), class_names=list("abcd"), metadata={"seed": 0}).save(path)
    found = Predictions.load(path)
    torch.testing.assert_close(found.logits, rows.logits.float())
    assert torch.equal(found.labels, rows.labels)
    assert found.class_names == ("a", "b", "c", "d")


def output(logits: Any, labels: Any) -> Any:
    return transformers.EvalPrediction(predictions=logits, label_ids=labels)


def test_the_documentation_of_transformers_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```py\n(import torch\nfrom transformers.*?)```", page, re.DOTALL)
    exec(compile(block, "<documentation>", "exec"), {"__name__": "__documentation__"})
    assert len(Predictions.load(tmp_path / "test.parquet")) == 64


def test_metrics_and_rows_of_an_output() -> None:
    """Undefined metrics are left out; bins are those asked for; logits come first; labels may be missing."""
    certain = output(np.eye(3), np.arange(3))
    assert compute_metrics(["accuracy", "nll_on_errors"])(certain) == {"accuracy": 1.0}
    assert set(compute_metrics(None)(certain)) >= {"smece", "aurc"}
    labels = np.arange(200) % 3
    logits = np.random.default_rng(0).normal(size=(200, 3)) + np.eye(3)[labels]
    expected = calibrant.score(Predictions.from_logits(logits, labels), n_bins=4).ece
    assert compute_metrics("ece", n_bins=4)(output(logits, labels)) == {"ece": expected}
    rows = predictions(output((np.eye(3), np.zeros((3, 5, 8))), None))
    assert rows.logits.tolist() == np.eye(3).tolist()
    assert (rows.labels == -1).all()


# Refusals


def loss_of(given: Any, labels: Any) -> Tensor:
    return loss_func(CrossEntropyLoss())(given, labels)


def rows_of(logits: Any, labels: Any) -> Predictions:
    return predictions(output(logits, labels))


LABELS = torch.zeros(2).long()
REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (loss_func, (nn.CrossEntropyLoss(reduction="sum"),), "reduction 'mean' .* got 'sum'"),
    (loss_func, (nn.MSELoss(),), "ignore_index -100 .* got 'none'"),
    (loss_func, (CrossEntropyLoss(ignore_index=0),), "ignore_index -100 .* got 0"),
    (loss_of, ((torch.zeros(2, 4),), LABELS), "outputs must have logits, got tuple"),
    (loss_of, ({"loss": 0}, LABELS), "outputs must have logits, got dict"),
    (loss_of, (outputs(torch.zeros(2, 4)), None), "labels must be a tensor, got NoneType"),
    (loss_of, (outputs(torch.zeros(2, 4, 5, 6)), torch.zeros(2, 5, 6).long()), r"got \(2, 4, 5, 6\)"),
    (loss_of, (outputs(torch.zeros(2, 3, 4)), torch.zeros(2, 4).long()), r"of shape \(2, 3\)"),
    (rows_of, (np.zeros((2, 3, 4)), None), "label_ids must be given for tokens"),
    (rows_of, (np.zeros((2, 4)), (np.zeros(2), np.zeros(2))), "label_ids must be one array, got .* 2"),
    (rows_of, (np.zeros((2, 4, 5, 6)), np.zeros((2, 5, 6))), r"got \(2, 4, 5, 6\)"),
    (rows_of, (np.zeros((2, 4)), np.array([0, 4])), "labels must lie in"),
    (lambda: compute_metrics(["ecee"]), (), "unknown metric 'ecee'; did you mean 'ece'"),
    (lambda: compute_metrics(n_bins=0), (), "n_bins must be an integer from 1 to 10000, got 0"),
]


@pytest.mark.parametrize(("function", "given", "message"), REFUSED)
def test_refusals(function: Callable[..., Any], given: tuple[Any, ...], message: str) -> None:
    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        function(*given)


# One logit, regression, several labels


def one_logit_items(n: int = 16) -> list[dict[str, Tensor]]:
    """Labels are floats of shape (1,), as binary cross-entropy takes them."""
    return [item | {"labels": (item["labels"][None] % 2).double()} for item in items("sequence", n)]


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, CrossEntropyLoss()], ids=["the model's", "ours"])
def test_one_logit_of_binary_cross_entropy(loss: Any, tmp_path: Path) -> None:
    data = one_logit_items()
    settings = {"num_labels": 1, "problem_type": "multi_label_classification"}
    runner = trainer("sequence", tmp_path, data, loss, **settings)
    runner.train()
    wanted = trainer("sequence", tmp_path, data, **settings)
    wanted.train()
    torch.testing.assert_close(weights(runner), weights(wanted), rtol=0, atol=1e-9)
    runner.compute_metrics = None
    output = runner.predict(data)
    found = predictions(output, problem_type="multi_label_classification")
    labels = labels_of(data).flatten()
    torch.testing.assert_close(
        found.probs[:, 1], torch.from_numpy(output.predictions[:, 0]).sigmoid(), atol=1e-7, rtol=0
    )
    assert found.labels.tolist() == labels.tolist()
    scores = compute_metrics(problem_type="multi_label_classification")(output)
    assert scores == calibrant.score(found, metrics=LOGGED_METRICS).values()


def test_a_regression_is_refused(tmp_path: Path) -> None:
    data = one_logit_items()
    runner = trainer("sequence", tmp_path, data, num_labels=1)
    runner.compute_metrics = None
    output = runner.predict(data)
    for score in (predictions, compute_metrics()):
        with pytest.raises(InvalidInputError, match=r"regression \(num_labels=1\): if .* binary cross-entropy, say"):
            score(output)
    with pytest.raises(InvalidInputError, match="a regression has no probabilities"):
        predictions(output, problem_type="regression")
    with pytest.raises(UnknownNameError, match="problem_type"):
        compute_metrics(problem_type="binary")
    output.label_ids[3] = 0.5
    with pytest.raises(InvalidInputError, match=r"labels must be 0 or 1 for a model with one logit, got 0\.5"):
        predictions(output, problem_type="multi_label_classification")


def test_several_labels_for_a_row_are_refused(tmp_path: Path) -> None:
    data = items("sequence", soft=True)
    runner = trainer("sequence", tmp_path, data, problem_type="multi_label_classification")
    runner.compute_metrics = None
    output = runner.predict(data)
    for options in ({}, {"problem_type": "multi_label_classification"}):
        with pytest.raises(InvalidInputError, match=r"several labels for a row: .* calibrant.score_multilabel"):
            predictions(output, **options)
    calibrant.score_multilabel(torch.from_numpy(output.predictions), torch.from_numpy(output.label_ids).long())


def test_one_logit_for_each_token() -> None:
    logits = np.array([[[0.0], [1.0], [9.0]], [[-1.0], [2.0], [9.0]]])
    labels = np.array([[0.0, 1, -100], [1, 1, -100]])
    for shape in ((2, 3), (2, 3, 1)):
        output = SimpleNamespace(predictions=logits, label_ids=labels.reshape(shape))
        found = predictions(output, problem_type="multi_label_classification")
        assert found.labels.tolist() == [0, 1, 1, 1]
        assert found.logits.tolist() == [[0, 0], [0, 1], [0, -1], [0, 2]]
