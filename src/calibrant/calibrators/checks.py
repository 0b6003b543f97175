"""Checks of the rows and parameters of calibrators."""

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from calibrant._checks import check_integer, check_positive, check_same_class_names, first_position, first_true
from calibrant.errors import InvalidInputError

CLIP_HINT = (
    "; clip=1e-6 (--clip 1e-6) raises probabilities of 0, and histogram, bbq, isotonic, isotonic_multiclass and "
    "venn_abers work without"
)
MAX_KNOTS = 100  # of a function of one number; 6 are the default


def check_bounds(argument: str, bounds: Sequence[float]) -> tuple[float, float]:
    """A positive lower and a larger upper bound."""
    pair = isinstance(bounds, Sequence) and len(bounds) == 2 and all(isinstance(bound, Real) for bound in bounds)
    if not pair or not 0 < bounds[0] < bounds[1] < math.inf:
        raise InvalidInputError(f"{argument} must be two positive numbers, the lower first, got {bounds!r}")
    return float(bounds[0]), float(bounds[1])


def check_grid(argument: str, values: Sequence[float]) -> list[float]:
    """Positive numbers, at least one."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) == 0:
        raise InvalidInputError(f"{argument} must be positive numbers, got {values!r}")
    return [check_positive(argument, value) for value in values]


def check_same_classes(
    calibrator: str,
    n_classes: int,
    got: int,
    names: Sequence[str] | None = None,
    got_names: Sequence[str] | None = None,
) -> None:
    if got != n_classes:
        raise InvalidInputError(
            f"predictions must have the {n_classes} classes that {calibrator} was fitted on, got {got}"
        )
    check_same_class_names(calibrator, names, "predictions", got_names)


def check_two_classes(calibrator: str, n_classes: int) -> None:
    if n_classes != 2:
        raise InvalidInputError(f"{calibrator} is for two classes, validation has {n_classes}")


def check_shape(argument: str, values: Tensor, shape: tuple[int | None, ...]) -> None:
    """Float64 of this shape, any size for None."""
    fits = values.ndim == len(shape) and all(s in (None, got) for s, got in zip(shape, values.shape, strict=True))
    if not fits or values.dtype != torch.float64:
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InvalidInputError(f"{argument} must be float64 of shape ({wanted}), got {got}")


def check_increasing(argument: str, values: Tensor) -> None:
    if bool((values.diff(dim=-1) < 0).any()):
        raise InvalidInputError(f"{argument} must not decrease")


def check_in_range(argument: str, values: Tensor, low: float, high: float) -> None:
    if values.numel() == 0 or float(values.min()) < low or float(values.max()) > high:
        raise InvalidInputError(f"{argument} must lie in [{low:g}, {high:g}]")


def check_feature_count(calibrator: str, n_features: int, got: int) -> None:
    if got != n_features:
        raise InvalidInputError(f"features must be the {n_features} that {calibrator} was fitted on, got {got}")


def check_n_knots(n_knots: int) -> int:
    return check_integer("n_knots", n_knots, 2, MAX_KNOTS)


def check_folds(folds: int, n_rows: int) -> int:
    check_integer("folds", folds, 2)
    if folds > n_rows:
        raise InvalidInputError(f"folds must be at most the {n_rows} rows, got {folds}")
    return int(folds)


def check_has_features(calibrator: str, features: Tensor | None, argument: str = "predictions") -> Tensor:
    if features is None:
        hint = "add them with Predictions.with_features, or to the file as the column features"
        raise InvalidInputError(f"{argument} must have features for {calibrator}; {hint}")
    return features


def check_likely_labels(logits: Tensor, labels: Tensor, hint: str = CLIP_HINT) -> None:
    """Labels (n,) of a probability above 0; the hint says what to do where there are others."""
    impossible = logits.gather(1, labels.unsqueeze(1)).squeeze(1) == -math.inf
    if impossible.any():
        got = f"0 for class {int(labels[first_true(impossible)])} at {first_position(impossible)}"
        raise InvalidInputError(f"labels must have a probability above 0, got {got}{hint}")
