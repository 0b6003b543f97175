"""Losses, metrics and predictions for the Trainer of Hugging Face transformers, which is not imported here."""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, Protocol, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from calibrant._arrays import floats
from calibrant._checks import check_n_bins, check_tensor
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError
from calibrant.integrations._one_logit import class_labels, is_one_logit, two_logits
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions, PredictionsOptions

__all__ = ["compute_metrics", "loss_func", "predictions"]

LOGGED_METRICS = ("accuracy", "ece", "kse", "nll", "brier")  # of a training loop, by default
SINGLE_LABEL, MULTI_LABEL = "single_label_classification", "multi_label_classification"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, "regression")  # of the configuration of a model
PADDING_LABEL = -100  # which the Trainer pads with and does not count


class TrainerOutput(Protocol):
    """What `Trainer.predict` returns and ``compute_metrics`` receives."""

    @property
    def predictions(self) -> Any: ...  # logits (n, k) or (n, t, k), or a tuple that begins with them

    @property
    def label_ids(self) -> Any: ...  # (n,) or (n, t), or None


@checked
def loss_func(criterion: nn.Module) -> Callable[..., Tensor]:
    """A criterion as ``Trainer(compute_loss_func=…)``.

    For sequence and image classification, logits (n, k), and token classification, (n, t, k). One logit (n, 1) is
    that of two classes, with labels 0 and 1. Labels are not shifted, so it is not for causal language models. The
    Trainer passes the number of labels of a step, over all micro-batches and processes: losses are summed and
    divided by it, and accumulated gradients are those of one large batch. There are two exceptions: the terms of a
    batch, such as AvUC's, are those of the micro-batch, weighted by its size; and with ``class_weights`` the sum is
    divided by the number of labels, not by their weights. The criterion moves to the device of the logits;
    attributes that are set on it later, such as ``criterion.beta = 0``, take effect.

    Args:
        criterion: A loss with the interface of :class:`calibrant.losses.Loss`, reduction "mean" and ignore_index −100.

    Returns:
        A function of a model's outputs, labels and the number of labels in the step.

    Raises:
        InvalidInputError: The criterion has another reduction or ignore_index.

    >>> from types import SimpleNamespace
    >>> halves = SimpleNamespace(logits=torch.zeros(2, 2))
    >>> loss_func(nn.CrossEntropyLoss())(halves, torch.tensor([0, -100]), num_items_in_batch=2)  # log 2, of two
    tensor(0.3466)
    """
    for name, rule in (("reduction", "mean"), ("ignore_index", PADDING_LABEL)):
        if getattr(criterion, name, None) != rule:
            got = getattr(criterion, name, "none")
            raise InvalidInputError(f"criterion must have {name} {rule!r} for the Trainer, got {got!r}")

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = _classes_second(_logits(outputs))
        check_tensor("labels", labels)
        if labels.ndim == 3:  # soft labels of tokens
            labels = _classes_second(labels)
        if is_one_logit(logits):
            logits, labels = two_logits(logits), class_labels(labels, logits, PADDING_LABEL)
        mean = criterion.to(logits.device)
        if num_items_in_batch is None:
            return mean(logits, labels)  # type: ignore[no-any-return]
        summed = copy(mean)
        summed.reduction = "sum"  # type: ignore[assignment]
        return summed(logits, labels) / _n_labels(num_items_in_batch, labels, logits.shape[1])  # type: ignore[no-any-return]

    return loss


def _n_labels(counted: Tensor | int, labels: Tensor, n_classes: int) -> Tensor:
    """The number of labels of a step, from the Trainer's count; at least 1.

    The Trainer counts every entry of a soft label. With several devices in one process (DataParallel) it passes one
    count for each, and multiplies a loss that it takes to be of one device; the sum of the counts undoes that.
    """
    total = torch.as_tensor(counted).sum()
    if labels.is_floating_point():
        total = total / n_classes
    return total.clamp_min(1).to(labels.device)


def _logits(outputs: Any) -> Tensor:
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if found is None:
        raise InvalidInputError(f"outputs must have logits, got {type(outputs).__name__}")
    check_tensor("logits", found)
    return found  # type: ignore[no-any-return]


def _classes_second(logits: Tensor) -> Tensor:
    """(n, k) as it is, (n, t, k) as (n, k, t)."""
    if logits.ndim not in (2, 3):
        shape = tuple(logits.shape)
        raise InvalidInputError(f"logits must have shape (n, classes) or (n, tokens, classes), got {shape}")
    return logits.movedim(-1, 1)


def predictions(
    output: TrainerOutput, *, problem_type: str = SINGLE_LABEL, **options: Unpack[PredictionsOptions]
) -> Predictions:
    """Predictions from what `Trainer.predict` returns; every token is a row, those labelled −100 are left out.

    Of several outputs of a model the first is used: every classifier in transformers returns its logits first. A model
    with ``num_labels=1`` is one of regression, unless its ``problem_type`` says that it was trained with binary
    cross-entropy: then its output is the logit of class 1.

    Args:
        output: The result of `Trainer.predict`.
        problem_type: That of the model's configuration: "single_label_classification", or for one logit
            "multi_label_classification".
        **options: Options of `Predictions.from_logits`.

    Returns:
        The predictions.

    Raises:
        InvalidInputError: The model is one of regression, or of several labels for a row; the output has several kinds
            of labels, or none for tokens; or an option is invalid.
        UnknownNameError: There is no such problem type.
    """
    check_choice("problem_type", problem_type, PROBLEM_TYPES)
    if problem_type == "regression":
        raise InvalidInputError("problem_type must be one of classification: a regression has no probabilities")
    if not hasattr(output, "predictions") or not hasattr(output, "label_ids"):
        raise InvalidInputError(f"output must be what Trainer.predict returns, got {type(output).__name__}")
    values, labels = output.predictions, output.label_ids
    values = values[0] if isinstance(values, tuple) else values
    logits = _classes_second(floats("predictions", values))
    if isinstance(labels, tuple):
        raise InvalidInputError(f"label_ids must be one array, got a tuple of {len(labels)}; name one in label_names")
    if labels is None and logits.ndim == 3:
        raise InvalidInputError("label_ids must be given for tokens, as padding has label -100; got None")
    one_logit = is_one_logit(logits)
    if one_logit and problem_type != MULTI_LABEL:
        raise InvalidInputError(
            "predictions of one number for each row are those of a regression (num_labels=1): if the model was trained "
            f"with binary cross-entropy, say problem_type={MULTI_LABEL!r}"
        )
    if not one_logit and (problem_type == MULTI_LABEL or np.shape(labels) == np.shape(values)):
        raise InvalidInputError(
            "a row must have one class, and this model has several labels for a row: give its logits and labels to "
            "calibrant.score_multilabel, as tensors"
        )
    if one_logit:
        if labels is not None:
            known = torch.as_tensor(labels)
            labels = class_labels(known if known.ndim < 3 else _classes_second(known), logits, PADDING_LABEL)
        logits = two_logits(logits)
    return Predictions.from_logits(logits, labels, **options)


def compute_metrics(
    metrics: Iterable[str] | None = LOGGED_METRICS, *, n_bins: int = 15, problem_type: str = SINGLE_LABEL
) -> Callable[[TrainerOutput], dict[str, float]]:
    """Metrics as ``Trainer(compute_metrics=…)``, which reports them as ``eval_ece`` and so on.

    A metric that is undefined, such as ``nll_on_errors`` without errors, is left out.

    Args:
        metrics: Names in `METRICS`, or None for all.
        n_bins: The number of bins of the binned calibration errors.
        problem_type: As for `predictions`.

    Returns:
        A function from the Trainer's output to a dict of numbers.

    Raises:
        InvalidInputError: An argument is invalid.
        UnknownNameError: A metric does not exist.
    """
    names = None if metrics is None else check_metrics(metrics, 2)  # two classes allow every metric
    check_n_bins(n_bins)
    check_choice("problem_type", problem_type, PROBLEM_TYPES)

    def scores(output: TrainerOutput) -> dict[str, float]:
        return defined_scores(predictions(output, problem_type=problem_type), names, n_bins)

    return scores


def defined_scores(rows: Predictions, metrics: Iterable[str] | None, n_bins: int) -> dict[str, float]:
    """The metrics by name, without those that are undefined on these rows."""
    return Scorecard.of(rows, metrics=metrics, n_bins=n_bins).to_dict()
