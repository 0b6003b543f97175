"""What the metrics refuse, each with the part of its message that carries the value."""

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import torch

import calibrant
from calibrant import metrics
from calibrant.errors import CalibrantError, InvalidInputError, UndefinedMetricError, UnknownNameError
from calibrant.metrics import compare, score_multilabel
from calibrant.predictions import Predictions
from made.metric_check import OF_LOGITS, OF_OUTCOMES

LOGITS = 2 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.arange(40) % 3
ANSWERS = LABELS.unsqueeze(1).eq(torch.arange(3)).long()
A = Predictions.from_logits(LOGITS, LABELS, columns={"site": ["a", "b"] * 20, "list": pa.array([[1]] * 40)})
B = Predictions.from_logits(0.5 * LOGITS, LABELS)
CORRECT = Predictions.from_probs([[0.8, 0.2]] * 2, [0, 0], columns={"site": ["a", "b"]})
UNLABELLED = Predictions.from_logits(LOGITS)


def with_label(row: int, label: int | None) -> Predictions:
    return Predictions.from_logits(LOGITS, pa.array([label if i == row else i % 3 for i in range(40)]))


def with_logit(value: float) -> torch.Tensor:
    logits = LOGITS.clone()
    logits[2, 1] = value
    return logits


def ece(confidence: list[float], correct: list[Any], **options: Any) -> torch.Tensor:
    flags = torch.tensor(correct, dtype=None if correct else torch.bool)
    return metrics.expected_calibration_error(torch.tensor(confidence), flags, **options)


def multilabel(logits: Any = LOGITS, labels: Any = ANSWERS, **options: Any) -> Any:
    return score_multilabel(logits, labels, **options)


CARD = calibrant.score(A, metrics=["ece"])
GROUPS = calibrant.score(CORRECT, by="site", metrics=["nll_on_errors", "ece"])

REFUSALS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ece([0.5, 1.5], [True, True]), InvalidInputError, r"confidence must lie in \[0, 1\], got 1.5 at row 1"),
    (lambda: ece([0.5], [True, True]), InvalidInputError, "same shape"),
    (lambda: ece([], []), InvalidInputError, "n > 0"),
    (lambda: ece([0.5], [1.0]), InvalidInputError, "correct must be boolean"),
    (lambda: ece([20.0], [True]), InvalidInputError, "got 20"),
    (lambda: metrics.nll_on_errors(LOGITS, LOGITS.argmax(1)), UndefinedMetricError, "none of 40 rows is an error"),
    (lambda: metrics.brier_on_errors(LOGITS, LOGITS.argmax(1)), UndefinedMetricError, "none of 40 rows is an error"),
    (lambda: ece([0.5], [True], n_bins=True), InvalidInputError, "n_bins must be an integer from 1 to 10000, got True"),
    (lambda: ece([0.5], [True], n_bins=10**9), InvalidInputError, "n_bins must be .*, got 1000000000"),
    (lambda: ece([0.5], [True], equal_mass="no"), InvalidInputError, "equal_mass must be True or False, got 'no'"),
    (
        lambda: metrics.accuracy(LOGITS, LABELS == 1),
        InvalidInputError,
        "labels must be integers for 3 classes, got bool",
    ),
    (
        lambda: metrics.accuracy(LOGITS, LABELS, weights=torch.ones(40, dtype=torch.complex64)),
        InvalidInputError,
        "weights must be real numbers, got torch.complex64",
    ),
    # Scorecards
    (lambda: calibrant.score(None), InvalidInputError, "predictions must be Predictions, .* got NoneType"),
    (lambda: calibrant.score(A, metrics=3), InvalidInputError, "metrics must be names of metrics, got int"),
    (lambda: calibrant.Scorecard.of(None), InvalidInputError, "predictions must be Predictions, got NoneType"),
    (lambda: calibrant.Scorecard.of(A, max_histogram_bins=0), InvalidInputError, "max_histogram_bins must be .* got 0"),
    (lambda: calibrant.Scorecard.of(A, max_cluster_groups=1), InvalidInputError, "max_cluster_groups must be .* got 1"),
    (lambda: CARD + 1, InvalidInputError, "what is added to a scorecard must be Scorecard, got int"),
    (lambda: GROUPS + CARD, InvalidInputError, "what is added to groups must be Groups, got Scorecard"),
    (lambda: calibrant.score([]), CalibrantError, "at least one row that counts"),
    (lambda: calibrant.score(A[:0], by="site"), InvalidInputError, "at least one row that counts"),
    (lambda: calibrant.score(LOGITS), InvalidInputError, "got Tensor; build them with Predictions.from_logits"),
    (lambda: calibrant.score(A, metrics=[]), InvalidInputError, "metrics must name at least one metric"),
    (lambda: calibrant.score(A, metrics=["ece_positive"]), InvalidInputError, "is for two classes, .* have 3"),
    (lambda: calibrant.score(A, by="sites"), UnknownNameError, r"'sites'.*did you mean 'site'"),
    (lambda: calibrant.score(A, by="list"), InvalidInputError, "list"),
    (lambda: calibrant.score(UNLABELLED), InvalidInputError, "no row with a label: without labels there are calibrant"),
    (lambda: CARD + calibrant.score(A, metrics=["ece"], n_bins=10), InvalidInputError, "same n_bins .* 15 and 10"),
    (lambda: CARD + calibrant.score(A, metrics=["nll"]), InvalidInputError, "same names"),
    (lambda: CARD.interval("nll"), InvalidInputError, "has no nll, only"),
    (lambda: CARD.interval("ecee"), UnknownNameError, "did you mean 'ece'"),
    (lambda: CARD.interval("ece_positive"), InvalidInputError, "ece_positive is for two classes, .* have 3"),
    (lambda: CARD.noise_floor("xyzzy"), UnknownNameError, "unknown metric 'xyzzy'"),
    (lambda: CARD.risk_coverage(), InvalidInputError, "need no histogram"),
    (lambda: calibrant.score(A, metrics=["nll"]).reliability(), InvalidInputError, "need no bins"),
    (lambda: calibrant.score(A, metrics=["nll"]).noise_floor("nll"), InvalidInputError, "nll has no noise floor"),
    (lambda: GROUPS.worst("nll_on_errors"), UndefinedMetricError, "is undefined in every group of site"),
    (lambda: GROUPS.worst("ecee"), UnknownNameError, "unknown metric 'ecee'; did you mean 'ece'"),
    (lambda: GROUPS.worst("nll"), InvalidInputError, "has no nll, only"),
    (lambda: GROUPS["c"], KeyError, "c"),
    *(
        (
            lambda level=level: CARD.interval("ece", level=level),
            InvalidInputError,
            f"999999, got {level}",
        )
        for level in (0.0, 1.0, 1.5, -0.1, math.nan)
    ),
    # Comparisons
    (lambda: compare(None, A), InvalidInputError, "a must be Predictions, got None"),
    (lambda: compare(A, B[:39]), InvalidInputError, "got 40 rows of 3 classes and 39 of 3"),
    (lambda: compare(A, Predictions.from_logits(LOGITS.repeat(1, 2), LABELS)), InvalidInputError, "of 3 .* 40 of 6"),
    (lambda: compare(A, with_label(17, 0)), InvalidInputError, "got labels 2 and 0 at row 17"),
    (lambda: compare(A, B, metrics=["brierr"]), UnknownNameError, "unknown metric 'brierr'; did you mean 'brier'"),
    (lambda: compare(CORRECT, CORRECT, metrics=["ece_positive"]), UnknownNameError, "metric that can be compared"),
    (lambda: compare(A, B, metrics=["nll"], by="sitee"), UnknownNameError, r"'sitee'.*did you mean 'site'"),
    (lambda: compare(A, B, metrics=["nll"], cluster="sit"), UnknownNameError, r"'sit'.*did you mean 'site'"),
    (lambda: compare(A, B, level=1.0), InvalidInputError, "level must lie between 0.001 and 0.999999, got 1.0"),
    (lambda: compare(UNLABELLED, UNLABELLED), InvalidInputError, "no row with a label"),
    # Multi-label
    (lambda: multilabel(LOGITS.tolist()), InvalidInputError, "logits must be a tensor, got list"),
    (lambda: multilabel(LOGITS[:, 0], ANSWERS[:, 0]), InvalidInputError, r"of shape \(n, k\), got .*, \(40,\)"),
    (lambda: multilabel(LOGITS[:0], ANSWERS[:0]), InvalidInputError, r"got torch.float64, \(0, 3\)"),
    (lambda: multilabel(ANSWERS), InvalidInputError, r"got torch\.int64"),
    (lambda: multilabel(LOGITS, ANSWERS[:, :2]), InvalidInputError, r"\(40, 2\)"),
    (lambda: multilabel(LOGITS, ANSWERS + 0.5), InvalidInputError, "labels"),
    (lambda: multilabel(LOGITS, ANSWERS + 1), InvalidInputError, r"labels must lie in \[0, 1\], got 2"),
    (lambda: multilabel(LOGITS, -ANSWERS), InvalidInputError, r"labels must lie in \[0, 1\], got -1"),
    (lambda: multilabel(class_names=["a", "b"]), InvalidInputError, "class_names"),
    (lambda: multilabel(class_names=["a", "b", "a"]), InvalidInputError, "distinct, got 'a'"),
    (lambda: multilabel(metrics=["ecee"]), UnknownNameError, "unknown metric 'ecee'; did you mean 'ece'"),
    (lambda: multilabel(n_bins=0), InvalidInputError, "n_bins"),
    *(
        (lambda value=value: multilabel(with_logit(value)), InvalidInputError, f"finite, got {value} at row 2, class 1")
        for value in (math.nan, math.inf, -math.inf)
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS, ids=[message for _, _, message in REFUSALS])
def test_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_functions_refuse_what_is_no_number() -> None:
    for bad in (math.nan, math.inf):
        for name in OF_LOGITS.values():
            with pytest.raises(InvalidInputError, match=f"{bad} at row 2, class 1"):
                getattr(metrics, name)(with_logit(bad), LABELS)
    for bad in (math.nan, 1.5, -0.25):
        for name in OF_OUTCOMES.values():
            with pytest.raises(InvalidInputError, match=f"got {bad} at row 1"):
                getattr(metrics, name)(torch.tensor([0.5, bad, 0.75]), torch.tensor([True, False, True]))


def test_too_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, and in a stream as soon as there are."""
    monkeypatch.setattr("calibrant.metrics.checks.MAX_GROUPS", 5)
    rows = Predictions.from_logits(LOGITS[:6], LABELS[:6], columns={"site": list(range(6))})
    calibrant.score([rows[:4], rows[1:5]], by="site", metrics=["accuracy"])
    for given in (rows, [rows[:4], rows[3:]]):
        with pytest.raises(InvalidInputError, match="at most 5 values, got more in 'site'"):
            calibrant.score(given, by="site", metrics=["accuracy"])
