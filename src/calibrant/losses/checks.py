"""Checks of logits and labels as losses take them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from calibrant._arrays import to_tensor
from calibrant._checks import (
    check_distributions,
    check_integer,
    check_label_range,
    check_tensor,
    check_values,
    first_position,
    first_true,
)
from calibrant.errors import InvalidInputError
from calibrant.maxent.checks import MAX_PRIOR_CLASSES, check_counts, check_vector

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_train_labels(labels: Sequence[int] | Tensor, n_classes: int, ignore_index: int) -> Tensor:
    """The prior of integer labels of any shape, those to be ignored left out, or of soft labels (n, k)."""
    check_integer("n_classes", n_classes, 2, MAX_PRIOR_CLASSES)
    given = to_tensor("labels", "integers", labels)
    if given.is_floating_point() and given.ndim == 2 and given.shape[1] == n_classes and len(given):
        return check_counts(check_distributions("labels", given).sum(0))
    flat = given.flatten()
    if flat.is_floating_point() or flat.is_complex() or flat.dtype == torch.bool:
        raise InvalidInputError(f"labels must be integers, got {flat.dtype}")
    flat = flat.long()
    check_label_range(flat, n_classes, ignore_index)
    kept = flat[flat != ignore_index]
    if len(kept) == 0:
        raise InvalidInputError("labels must not be empty")
    return check_counts(torch.bincount(kept, minlength=int(n_classes)))


def check_class_weights(class_weights: Sequence[float] | Tensor, n_classes: int | None = None) -> Tensor:
    """How much a sample of each class counts, float64."""
    weights = check_vector("class_weights", class_weights, n_classes)
    if len(weights) == 0:
        raise InvalidInputError("class_weights must not be empty")
    if (weights < 0).any() or not (weights > 0).any():
        row = int(weights.argmin())
        raise InvalidInputError(f"class_weights must not be negative, nor all 0, got {weights[row]:g} for class {row}")
    return weights


def check_logits(logits: Tensor, labels: Tensor | None, ignore_index: int) -> tuple[float, float]:
    """Least and greatest logit; all are finite, except where integer labels say that they do not count."""
    if logits.numel() == 0:
        return 0.0, 0.0
    low, high = (float(bound) for bound in logits.detach().aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    bad = ~logits.detach().isfinite()
    if labels is not None:
        bad &= (labels != ignore_index).unsqueeze(1)
    if bad.any():
        row, label, *rest = first_true(bad)
        where = f"row {row}, class {label}" + (f", position {tuple(rest)}" if rest else "")
        raise InvalidInputError(f"logits must be finite, got {logits[row, label, *rest].item()} at {where}")
    return low, high


def two_classes(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One logit z for each sample, (n,) or (n, 1, …), as the logits [0, z] of two classes; others as they are.

    Its labels may then have the same shape, and be booleans, or floats, which are probabilities of class 1.
    """
    check_tensor("logits", logits)
    check_tensor("labels", labels)
    if not logits.is_floating_point() or logits.ndim == 0 or (logits.ndim > 1 and logits.shape[1] != 1):
        return logits, labels
    logits = logits.unsqueeze(1) if logits.ndim == 1 else logits
    one_each = (len(logits), *logits.shape[2:])
    if labels.shape not in (one_each, logits.shape):
        rule = f"shape {one_each} or {tuple(logits.shape)} for one logit each"
        raise InvalidInputError(f"labels must have {rule}, got {tuple(labels.shape)}")
    labels = labels.reshape(one_each)
    if labels.dtype == torch.bool:
        labels = labels.long()
    elif labels.is_floating_point():
        labels = torch.stack([1 - labels, labels], dim=1)
    return torch.cat([torch.zeros_like(logits), logits], dim=1), labels


def check_shapes(logits: Tensor, labels: Tensor) -> bool:
    """Whether the labels are soft, (n, k, …) as the logits; integer labels have no class dimension."""
    check_tensor("labels", labels)
    if logits.ndim < 2 or not logits.is_floating_point():
        what = f"shape {tuple(logits.shape)} of {logits.dtype}"
        raise InvalidInputError(f"logits must be floating point, (n, k) or (n, k, d1, …), got {what}")
    if logits.shape[1] < 2:
        raise InvalidInputError(f"logits must have at least 2 classes, got shape {tuple(logits.shape)}")
    soft = labels.is_floating_point()
    expected = logits.shape if soft else (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected or labels.dtype == torch.bool or labels.is_complex():
        rule = f"integers of shape {(len(logits), *logits.shape[2:])} or probabilities of shape {tuple(logits.shape)}"
        raise InvalidInputError(f"labels must be {rule}, got shape {tuple(labels.shape)} of {labels.dtype}")
    return soft


def check_batch(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits and labels of at least two classes, of good types, shapes and devices.

    Numbers are not read, which would wait for a device and end `torch.func.vmap`.
    """
    logits, labels = two_classes(logits, labels)
    soft = check_shapes(logits, labels)
    if logits.dtype not in FLOATS or not (soft or labels.dtype in (torch.int32, torch.int64)):
        got = f"{logits.dtype}, and labels of {labels.dtype}"
        raise InvalidInputError(f"logits must be floating point, and labels int32, int64 or floating point, got {got}")
    if logits.device != labels.device:
        raise InvalidInputError(f"labels must be on the device of the logits, {logits.device}, got {labels.device}")
    return logits, labels


def check_soft_labels(labels: Tensor) -> None:
    """Probabilities (n, k, …) that sum to 1 over the classes, as closely as their type can."""
    totals = labels.sum(1, dtype=torch.float32)
    tolerance = max(1e-3, 2 * torch.finfo(labels.dtype).eps)
    wrong = ~((totals - 1).abs() <= tolerance)
    if wrong.any():
        raise InvalidInputError(
            f"labels must sum to 1, got {float(totals[first_true(wrong)]):g} at {first_position(wrong)}"
        )
    check_values("labels", "not be negative", labels, labels >= 0, "at row", "class")
