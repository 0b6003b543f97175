"""All input validation: each check returns its argument in the form that the rest of the package trusts."""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real

import torch
from torch import Tensor

from calibrant.errors import InvalidInputError, UnknownNameError

PRIOR_TOLERANCE = 1e-3  # a prior printed with four digits, as the paper's, still sums to 1 this closely


def check_choice(argument: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if value in known:
        return value
    near = get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    raise UnknownNameError(f"unknown {argument} {value!r}; {hint}")


def check_tensor(argument: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise InvalidInputError(f"{argument} must be a tensor, got {type(value).__name__}")


def _is_whole(value: object) -> bool:
    """Whether this is an integer, of Python or of numpy."""
    return isinstance(value, Integral)


def _check_real(argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInputError(f"{argument} must be a number, got {value!r}")


def check_number(argument: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> float:
    _check_real(argument, value)
    if not least <= value <= most or not math.isfinite(value):
        raise InvalidInputError(f"{argument} must be a finite number in [{least:g}, {most:g}], got {value}")
    return float(value)


def check_positive(argument: str, value: float) -> float:
    _check_real(argument, value)
    if not 0 < value < math.inf:
        raise InvalidInputError(f"{argument} must be a positive number, got {value}")
    return float(value)


def check_fraction(argument: str, value: float) -> float:
    _check_real(argument, value)
    if not 0 <= value < 1:
        raise InvalidInputError(f"{argument} must lie in [0, 1), got {value}")
    return float(value)


def _as_float64(argument: str, values: Sequence[float] | Tensor) -> Tensor:
    if isinstance(values, Tensor) and values.is_complex():
        raise InvalidInputError(f"{argument} must be real numbers, got {values.dtype}")
    try:
        return torch.as_tensor(values, dtype=torch.float64, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(f"{argument} must be numbers: {error}") from None


def _check_vector(argument: str, values: Sequence[float] | Tensor) -> Tensor:
    """A copy of the numbers as float64, one dimension, all finite."""
    vector = _as_float64(argument, values)
    if vector.ndim != 1:
        raise InvalidInputError(f"{argument} must have one dimension, got shape {tuple(vector.shape)}")
    if not vector.isfinite().all():
        row = int((~vector.isfinite()).nonzero()[0])
        raise InvalidInputError(f"{argument} must be finite, got {vector[row]} for class {row}")
    return vector


def check_prior(prior: Sequence[float] | Tensor) -> Tensor:
    """Class probabilities, float64, scaled to sum to 1 exactly."""
    vector = _check_vector("prior", prior)
    if len(vector) < 2:
        raise InvalidInputError(f"prior must have at least 2 classes, got {len(vector)}")
    if (vector < 0).any():
        row = int(vector.argmin())
        raise InvalidInputError(f"prior must not be negative, got {vector[row]:g} for class {row}")
    if abs(float(vector.sum()) - 1) > PRIOR_TOLERANCE:
        raise InvalidInputError(f"prior must sum to 1, got a sum of {vector.sum():g}")
    if (vector > 0).sum() < 2:
        raise InvalidInputError(f"prior must not be all in one class, got 1 for class {int(vector.argmax())}")
    return vector / vector.sum()


def check_counts(counts: Sequence[float] | Tensor) -> Tensor:
    """The prior of samples counted per class."""
    vector = _check_vector("counts", counts)
    if (vector < 0).any():
        row = int(vector.argmin())
        raise InvalidInputError(f"counts must not be negative, got {vector[row]:g} for class {row}")
    if not vector.sum() > 0:
        raise InvalidInputError("counts must not be all 0")
    return check_prior(vector / vector.sum())


def check_train_labels(labels: Sequence[int] | Tensor, n_classes: int, ignore_index: int) -> Tensor:
    """The prior of integer labels of any shape, those to be ignored left out."""
    if not _is_whole(n_classes) or n_classes < 2:
        raise InvalidInputError(f"n_classes must be an integer of at least 2, got {n_classes}")
    try:
        flat = torch.as_tensor(labels).detach().flatten().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"labels must be integers: {error}") from None
    if flat.is_floating_point() or flat.is_complex() or flat.dtype == torch.bool:
        raise InvalidInputError(f"labels must be integers, got {flat.dtype}")
    flat = flat.long()
    check_label_range(flat, n_classes, ignore_index)
    kept = flat[flat != ignore_index]
    if len(kept) == 0:
        raise InvalidInputError("labels must not be empty")
    return check_counts(torch.bincount(kept, minlength=int(n_classes)))


def check_class_values(class_values: Sequence[float] | Tensor | None, n_classes: int) -> Tensor:
    """The value of each class, by default 0, 1, …, n_classes - 1."""
    if class_values is None:
        return torch.arange(n_classes, dtype=torch.float64, device="cpu")
    values = _check_vector("class_values", class_values)
    if len(values) != n_classes:
        raise InvalidInputError(f"class_values must have one value for each of {n_classes} classes, got {len(values)}")
    if (values == values[0]).all():
        raise InvalidInputError(f"class_values must not all be equal, got {values[0]:g} for every class")
    if values.abs().max() > 1e100:
        raise InvalidInputError(f"class_values must not exceed 1e100, got {values[values.abs().argmax()]:g}")
    return values


def check_no_class_values(class_values: object) -> None:
    if class_values is not None:
        raise InvalidInputError("class_values have no meaning in the form 'prior', whose features are one-hot")


def check_class_weights(class_weights: Sequence[float] | Tensor, n_classes: int | None = None) -> Tensor:
    """How much a sample of each class counts, float64."""
    weights = _check_vector("class_weights", class_weights)
    if (weights < 0).any() or not (weights > 0).any():
        row = int(weights.argmin())
        raise InvalidInputError(f"class_weights must not be negative, nor all 0, got {weights[row]:g} for class {row}")
    if n_classes is not None and len(weights) != n_classes:
        raise InvalidInputError(
            f"class_weights must have one value for each of {n_classes} classes, got {len(weights)}"
        )
    return weights


def check_features(features: Tensor, n_classes: int) -> Tensor:
    """A (n_classes, n_features) matrix, float64."""
    matrix = _as_float64("features", features)
    if matrix.ndim != 2 or len(matrix) != n_classes or matrix.shape[1] == 0:
        raise InvalidInputError(f"features must have shape ({n_classes}, n_features), got {tuple(matrix.shape)}")
    if not matrix.isfinite().all():
        row, column = (~matrix.isfinite()).nonzero()[0].tolist()
        raise InvalidInputError(f"features must be finite, got {matrix[row, column]} for class {row}, column {column}")
    if not matrix.any(0).all():
        raise InvalidInputError(
            f"features must not be 0 for every class, as column {int(matrix.any(0).int().argmin())} is"
        )
    return matrix


def check_targets(targets: Sequence[float] | Tensor, n_constraints: int) -> Tensor:
    """A (n, n_constraints) matrix of target moments, float64; a single row may come alone."""
    matrix: Tensor = torch.atleast_2d(_as_float64("targets", targets))
    if matrix.ndim != 2 or matrix.shape[1] != n_constraints or len(matrix) == 0:
        shape = tuple(matrix.shape[1:]) if matrix.ndim == 2 else tuple(matrix.shape)
        raise InvalidInputError(f"targets must give {n_constraints} moments, got shape {shape}")
    if not matrix.isfinite().all():
        raise InvalidInputError(f"targets must be finite, got {matrix[~matrix.isfinite()][0]}")
    return matrix


def check_label_range(labels: Tensor, n_classes: int, ignore_index: int | None) -> bool:
    """Whether every integer label is a class (True), or some are ``ignore_index`` (False)."""
    if labels.numel() == 0:
        return True
    low, high = (int(bound) for bound in labels.aminmax())
    if low >= 0 and high < n_classes and not (ignore_index is not None and low <= ignore_index <= high):
        return True
    bad = (labels < 0) | (labels >= n_classes)
    if ignore_index is not None:
        bad &= labels != ignore_index
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        where = f"row {place[0]}" if len(place) == 1 else f"position {place}"
        raise InvalidInputError(f"labels must lie in [0, {n_classes - 1}], got {int(labels[place])} at {where}")
    return False


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
        row, label, *rest = bad.nonzero()[0].tolist()
        where = f"row {row}, class {label}" + (f", position {tuple(rest)}" if rest else "")
        raise InvalidInputError(f"logits must be finite, got {logits[row, label, *rest].item()} at {where}")
    return low, high


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
        got = f"shape {tuple(labels.shape)} of {labels.dtype}"
        raise InvalidInputError(
            f"labels must be integers of shape {(logits.shape[0], *logits.shape[2:])} or probabilities of shape "
            f"{tuple(logits.shape)}, got {got}"
        )
    return soft


def check_soft_labels(labels: Tensor) -> None:
    """Probabilities (n, k, …) that sum to 1 over the classes, as closely as their type can."""
    totals = labels.sum(1, dtype=torch.float32)
    tolerance = max(1e-3, 2 * torch.finfo(labels.dtype).eps)
    wrong = ~((totals - 1).abs() <= tolerance)
    if wrong.any():
        place = wrong.nonzero()[0].tolist()
        where = f"row {place[0]}" if len(place) == 1 else f"position {tuple(place)}"
        raise InvalidInputError(f"labels must sum to 1, got {float(totals[tuple(place)]):g} at {where}")
    if (labels < 0).any():
        row, label, *_ = (labels < 0).nonzero()[0].tolist()
        value = float(labels[labels < 0][0])
        raise InvalidInputError(f"labels must not be negative, got {value:g} at row {row}, class {label}")


def check_outcomes(confidence: Tensor, correct: Tensor, n_bins: int) -> None:
    """Confidences (n,) in [0, 1] beside whether each prediction was right."""
    check_tensor("confidence", confidence)
    check_tensor("correct", correct)
    if not _is_whole(n_bins) or n_bins < 1:
        raise InvalidInputError(f"n_bins must be an integer of at least 1, got {n_bins}")
    if confidence.ndim != 1 or confidence.shape != correct.shape or len(confidence) == 0:
        shapes = f"{tuple(confidence.shape)} and {tuple(correct.shape)}"
        raise InvalidInputError(f"confidence and correct must have the same shape (n,) with n > 0, got {shapes}")
    if correct.dtype != torch.bool:
        raise InvalidInputError(f"correct must be boolean, got {correct.dtype}")
    bad = ~((confidence >= 0) & (confidence <= 1))
    if bad.any():
        row = int(bad.nonzero()[0])
        raise InvalidInputError(f"confidence must lie in [0, 1], got {float(confidence[row]):g} at row {row}")
