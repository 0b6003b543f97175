"""Importance weights for a covariate shift: the density ratio of target to validation rows, from a discriminator."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._checks import check_instance, check_same_kind
from calibrant.calibrators.checks import check_feature_count, check_has_features, check_same_classes
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.predictions import Predictions

DISCRIMINATOR_FOLDS = 5
MIN_DISCRIMINATOR_ROWS = 10  # of either side, for a discriminator
MIN_CENTRED_LOGIT = -50.0
MIN_EFFECTIVE_ROWS, MAX_MEAN_WEIGHT = 30.0, 5.0  # effective rows, and how far the mean weight may be from 1


class Sides(NamedTuple):
    """The standardized inputs of a discriminator, of either side in the order of its hashes."""

    x: NDArray[np.float64]
    is_target: NDArray[np.int64]
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    order: NDArray[np.int64]  # of the validation rows
    of_features: bool

    @classmethod
    def of(cls, validation: Predictions, target: Predictions) -> Self:
        of_features = validation.features is not None and target.features is not None
        orders = [np.argsort(rows.row_hashes[0], kind="stable") for rows in (validation, target)]
        first, second = (
            discriminator_inputs(rows, of_features)[order]
            for rows, order in zip((validation, target), orders, strict=True)
        )
        if of_features:
            check_feature_count("validation", first.shape[1], second.shape[1])
        x = np.concatenate([first, second])
        centre, spread = x.mean(0), x.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        is_target = np.repeat([0, 1], [len(first), len(second)])
        return cls((x - centre) / spread, is_target, centre, spread, orders[0], of_features)


@dataclass(frozen=True)
class DensityRatio:
    """The density of a target divided by that of validation rows, at any row: exp(x · weight + bias).

    Args:
        weight: (d,) of the inputs x, which are features, or logits minus the largest.
        bias: The constant.
        of_features: Whether the inputs are features.
    """

    weight: Tensor
    bias: float
    of_features: bool

    @classmethod
    def fit(cls, validation: Predictions, target: Predictions) -> Self:
        """(1 − d)/d, d = P(validation | x), of a logistic discriminator that is fitted to all rows of both.

        Raises: NotConvergedError.
        """
        sides = Sides.of(validation, target)
        with must_converge():
            model = discriminator().fit(sides.x, sides.is_target)
        weight = model.coef_[0] / sides.spread
        bias = float(model.intercept_[0] - weight @ sides.centre) + math.log(len(validation) / len(target))
        return cls(torch.from_numpy(weight), bias, sides.of_features)

    def __call__(self, rows: Predictions) -> Tensor:
        """(n,) the ratio at each row. Raises: InvalidInputError if the rows lack the features that it needs."""
        if self.of_features:
            features = check_has_features("importance weights", rows.features)
            check_feature_count("importance weights", len(self.weight), features.shape[1])
        # A product and a sum for each row: a matrix product would depend on the number of rows.
        log_ratio = (discriminator_inputs(rows, self.of_features) * self.weight.numpy()).sum(1) + self.bias
        return torch.from_numpy(log_ratio).exp()


def importance_weights(validation: Predictions, target: Predictions) -> Tensor:
    """(n,) the density ratio at each row of validation: (1 − d)/d, d = P(validation | x).

    The discriminator is cross-fitted: it was not fitted to the row. Raises: NotConvergedError.
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    sides = Sides.of(validation, target)
    folds = StratifiedKFold(DISCRIMINATOR_FOLDS, shuffle=True, random_state=0)
    with must_converge():
        log_probs = cross_val_predict(discriminator(), sides.x, sides.is_target, cv=folds, method="predict_log_proba")
    odds = log_probs[: len(validation), 1] - log_probs[: len(validation), 0]
    weights = np.empty(len(validation))
    weights[sides.order] = np.exp(odds) * len(validation) / len(target)
    return torch.from_numpy(weights)


def discriminator_inputs(rows: Predictions, of_features: bool) -> NDArray[np.float64]:
    """(n, d) the features of rows, or their logits minus the largest."""
    if of_features:
        return rows.features.double().numpy()  # type: ignore[union-attr]
    logits = rows.logits.double()
    return (logits - logits.amax(1, keepdim=True)).clamp(min=MIN_CENTRED_LOGIT).numpy()


def discriminator() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=2000)


@contextmanager
def must_converge() -> Iterator[None]:
    """Raises: NotConvergedError in place of scikit-learn's warning."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            yield
        except ConvergenceWarning:
            raise NotConvergedError("the discriminator of validation and target did not converge") from None


def check_target(needed_by: str, validation: Predictions, target: Predictions | None) -> Predictions:
    """Predictions of the target, of the same classes, and enough rows for a discriminator."""
    if target is None:
        raise InvalidInputError(f"target (--target) must be predictions of the target: {needed_by} needs them")
    check_instance("target", target, Predictions)
    check_same_kind("validation", validation, "target", target)
    names = validation.class_names, target.class_names
    check_same_classes("validation", validation.n_classes, target.n_classes, *names)
    if min(len(validation), len(target)) < MIN_DISCRIMINATOR_ROWS:
        raise InvalidInputError(f"validation and target must have at least {MIN_DISCRIMINATOR_ROWS} rows each")
    return target


def effective_rows(weights: Tensor) -> float:
    """Kish's effective sample size, (Σ w)² / Σ w²."""
    return float(weights.sum() ** 2 / weights.square().sum())


def check_overlap(raw: Tensor, effective: float, consequence: str, minimum: float = MIN_EFFECTIVE_ROWS) -> None:
    """Raises: NotConvergedError where weights, of which ``raw`` should have the mean 1, rest on too few rows."""
    if not 1 / MAX_MEAN_WEIGHT <= float(raw.mean()) <= MAX_MEAN_WEIGHT or not effective >= minimum:
        raise NotConvergedError(
            f"validation and target hardly overlap: the effective number of rows is {effective:.3g}, and the mean "
            f"weight, which should be 1, is {float(raw.mean()):.3g}; {consequence}"
        )
