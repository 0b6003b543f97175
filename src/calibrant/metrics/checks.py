"""Checks of the rows that metrics measure."""

import torch
from torch import Tensor

from calibrant._checks import (
    check_boolean_labels,
    check_dense,
    check_has_mass,
    check_integer_labels,
    check_label_range,
    check_n_bins,
    check_tensor,
    check_values,
    first_true,
)
from calibrant.errors import InvalidInputError

MAX_GROUPS = 100_000  # that are scored; a column of more values is more likely an id
MAX_AUDITED_GROUPS = 10_000  # each of which takes milliseconds
MAX_CLASS_BINS = 2**25  # of the classes of all groups


def _at_least_float32(values: Tensor) -> Tensor:
    """On the CPU, out of the graph, lower precision as float32."""
    values = values.detach().cpu()
    return values if values.dtype == torch.float64 else values.float()


def check_group_count(by: str, n_groups: int, n_class_bins: int, most: int | None = None) -> None:
    """At most so many groups that their sums fit into memory."""
    maximum = max(1, min(MAX_GROUPS if most is None else most, MAX_CLASS_BINS // n_class_bins))
    if n_groups > maximum:
        raise InvalidInputError(f"by must name a column of at most {maximum:,} values, got more in {by!r}")


def check_row_weights(weights: Tensor, n: int) -> Tensor:
    """Weights of n rows, as float64."""
    check_tensor("weights", weights)
    if weights.shape != (n,):
        raise InvalidInputError(f"weights must be {n} numbers, got {weights.dtype} of shape {tuple(weights.shape)}")
    vector = weights.detach().double().cpu()
    finite = (vector >= 0) & vector.isfinite()
    check_values("weights", "be finite and not negative", vector, finite, "at row")
    in_range = (vector == 0) | ((vector >= 1e-100) & (vector <= 1e100))
    check_values("weights", "be 0 or lie in [1e-100, 1e100]", vector, in_range, "at row")
    return vector


def check_nonzero_weights(weights: Tensor) -> Tensor:
    """Which rows have a positive weight; some must."""
    counts = weights > 0
    if not counts.any():
        raise InvalidInputError(f"weights must not be all 0, as those of all {len(weights)} rows are")
    return counts


def check_outcomes(
    confidence: Tensor, correct: Tensor, weights: Tensor | None = None, n_bins: int = 1
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Confidences (n,) in [0, 1], at least float32, and which predictions are correct; without rows of weight 0."""
    check_tensor("confidence", confidence)
    check_tensor("correct", correct)
    check_n_bins(n_bins)
    if confidence.ndim != 1 or confidence.shape != correct.shape or len(confidence) == 0:
        shapes = f"{tuple(confidence.shape)} and {tuple(correct.shape)}"
        raise InvalidInputError(f"confidence and correct must have the same shape (n,) with n > 0, got {shapes}")
    if correct.dtype != torch.bool or not confidence.is_floating_point():
        got = f"{confidence.dtype} and {correct.dtype}"
        raise InvalidInputError(f"confidence must be floating point and correct must be boolean, got {got}")
    confidence = _at_least_float32(confidence)
    low, high = confidence.aminmax()
    if not (low >= 0 and high <= 1):
        check_values("confidence", "lie in [0, 1]", confidence, (confidence >= 0) & (confidence <= 1), "at row")
    return _drop_zero_weights(confidence, correct.cpu(), weights)


def _drop_zero_weights(a: Tensor, b: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    if weights is None:
        return a, b, None
    weights = check_row_weights(weights, len(a))
    counts = check_nonzero_weights(weights)
    return a[counts], b[counts], weights[counts]


def check_labelled(argument: str, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers (n, k), at least float32, with labels (n,) that are classes."""
    check_tensor(argument, values)
    check_tensor("labels", labels)
    check_dense(argument, values)
    if values.ndim != 2 or not values.is_floating_point() or len(values) == 0:
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InvalidInputError(f"{argument} must be floating point of shape (n, k) with n > 0, got {got}")
    if labels.dtype == torch.bool:
        check_boolean_labels("labels", values.shape[1])
    labels = check_integer_labels("labels", labels.detach().cpu(), (len(values),))
    check_label_range(labels, values.shape[1], None)
    return _at_least_float32(values), labels


def check_scored(logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits (n, k), at least float32, with labels (n,) that are classes; without rows of weight 0."""
    logits, labels = check_labelled("logits", logits, labels)
    check_has_mass("logits", logits)
    return _drop_zero_weights(logits, labels, weights)


def check_same_rows(a: Tensor, b: Tensor, classes_a: int, classes_b: int) -> None:
    """Two models' predictions of the same rows have the same labels."""
    if len(a) != len(b) or classes_a != classes_b:
        got = f"{len(a)} rows of {classes_a} classes and {len(b)} of {classes_b}"
        raise InvalidInputError(f"a and b must be predictions of the same rows, got {got}")
    if not torch.equal(a, b):
        (row,) = first_true(a != b)
        got = f"labels {int(a[row])} and {int(b[row])} at row {row}"
        raise InvalidInputError(f"a and b must be predictions of the same rows in the same order, got {got}")


def check_same_soft_labels(a: Tensor, b: Tensor) -> None:
    """The same for soft labels (n, k), up to rounding."""
    if a.shape == b.shape and not torch.allclose(a, b, rtol=0.0, atol=1e-6):
        row, label = first_true((a - b).abs() > 1e-6)
        got = f"soft labels {float(a[row, label]):g} and {float(b[row, label]):g} at row {row}, class {label}"
        raise InvalidInputError(f"a and b must be predictions of the same rows in the same order, got {got}")


def check_multilabel(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Finite logits (n, k), at least float32, and labels (n, k) of 0 and 1."""
    check_tensor("logits", logits)
    check_tensor("labels", labels)
    if logits.ndim != 2 or not logits.is_floating_point() or 0 in logits.shape:
        got = f"{logits.dtype}, {tuple(logits.shape)}"
        raise InvalidInputError(f"logits must be floating point of shape (n, k), got {got}")
    labels = labels.detach().cpu()
    if labels.is_floating_point() and bool(((labels == 0) | (labels == 1)).all()):
        labels = labels.long()  # the losses of multi-label models take floats
    labels = check_integer_labels("labels", labels, tuple(logits.shape))
    check_label_range(labels, 2, None)
    logits = _at_least_float32(logits)
    check_values("logits", "be finite", logits, logits.isfinite(), "at row", "class")
    return logits, labels
