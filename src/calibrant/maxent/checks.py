"""Checks of priors, class values, features and target moments; each returns float64 on the CPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

from calibrant._arrays import to_tensor
from calibrant._checks import PRIOR_TOLERANCE, check_values, first_true
from calibrant.errors import InvalidInputError

MAX_PRIOR_CLASSES = 100_000  # the time to find multipliers grows with their square, to about half an hour


def as_float64(argument: str, values: Sequence[float] | Tensor) -> Tensor:
    return to_tensor(argument, "numbers", values).double().clone()


def check_vector(argument: str, values: Sequence[float] | Tensor, n_classes: int | None = None) -> Tensor:
    """A copy of the numbers as float64, one dimension, all finite, and one for each class."""
    vector = as_float64(argument, values)
    if vector.ndim != 1:
        raise InvalidInputError(f"{argument} must have one dimension, got shape {tuple(vector.shape)}")
    check_values(argument, "be finite", vector, vector.isfinite(), "for class")
    if n_classes is not None and len(vector) != n_classes:
        raise InvalidInputError(f"{argument} must have one value for each of {n_classes} classes, got {len(vector)}")
    return vector


def _check_shares(argument: str, values: Sequence[float] | Tensor) -> Tensor:
    """The same, and none negative."""
    vector = check_vector(argument, values)
    if (vector < 0).any():
        row = int(vector.argmin())
        raise InvalidInputError(f"{argument} must not be negative, got {vector[row]:g} for class {row}")
    return vector


def check_prior(prior: Sequence[float] | Tensor) -> Tensor:
    """Class probabilities, float64, scaled to sum to 1 exactly."""
    vector = _check_shares("prior", prior)
    if not 2 <= len(vector) <= MAX_PRIOR_CLASSES:
        raise InvalidInputError(f"prior must have 2 to {MAX_PRIOR_CLASSES:,} classes, got {len(vector):,}")
    if abs(float(vector.sum()) - 1) > PRIOR_TOLERANCE:
        raise InvalidInputError(f"prior must sum to 1, got a sum of {vector.sum():g}")
    if (vector > 0).sum() < 2:
        raise InvalidInputError(f"prior must not be all in one class, got 1 for class {int(vector.argmax())}")
    return vector / vector.sum()


def check_counts(counts: Sequence[float] | Tensor) -> Tensor:
    """The prior of samples counted per class."""
    vector = _check_shares("counts", counts)
    if not vector.sum() > 0:
        raise InvalidInputError("counts must not be all 0")
    return check_prior(vector / vector.sum())


def check_class_values(class_values: Sequence[float] | Tensor | None, n_classes: int) -> Tensor:
    """The value of each class, by default 0, 1, …, n_classes - 1."""
    if class_values is None:
        return torch.arange(n_classes, dtype=torch.float64, device="cpu")
    values = check_vector("class_values", class_values, n_classes)
    if (values == values[0]).all():
        raise InvalidInputError(f"class_values must not all be equal, got {values[0]:g} for every class")
    if values.abs().max() > 1e100:
        raise InvalidInputError(f"class_values must not exceed 1e100, got {values[values.abs().argmax()]:g}")
    return values


def check_no_class_values(class_values: object) -> None:
    if class_values is not None:
        raise InvalidInputError("class_values are not used by the form 'prior', whose features are one-hot")


def check_features(features: Tensor, n_classes: int | None = None) -> Tensor:
    """A (n_classes, n_features) matrix, float64."""
    matrix = as_float64("features", features)
    if matrix.ndim != 2 or n_classes not in (None, len(matrix)) or 0 in matrix.shape:
        rule = f"({n_classes or 'n_classes'}, n_features)"
        raise InvalidInputError(f"features must have shape {rule}, got {tuple(matrix.shape)}")
    check_values("features", "be finite", matrix, matrix.isfinite(), "for class", "column")
    if not matrix.any(0).all():
        (column,) = first_true(~matrix.any(0))
        raise InvalidInputError(f"features must not be 0 for every class, as column {column} is")
    return matrix


def check_targets(targets: Sequence[float] | Tensor, n_constraints: int) -> Tensor:
    """A (n, n_constraints) matrix of target moments, float64; a single row may come alone."""
    matrix: Tensor = torch.atleast_2d(as_float64("targets", targets))
    if matrix.ndim != 2 or matrix.shape[1] != n_constraints or len(matrix) == 0:
        shape = tuple(matrix.shape[1:]) if matrix.ndim == 2 else tuple(matrix.shape)
        raise InvalidInputError(f"targets must give {n_constraints} moments, got shape {shape}")
    if not matrix.isfinite().all():
        raise InvalidInputError(f"targets must be finite, got {matrix[~matrix.isfinite()][0]}")
    return matrix
