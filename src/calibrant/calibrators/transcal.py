"""TransCal: a temperature for an unlabelled target, fitted with importance weights (Wang et al. 2020)."""

import warnings
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor

from calibrant._checks import check_instance
from calibrant.calibrators.base import check_validation
from calibrant.calibrators.checks import check_same_classes
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.temperature import OneTemperature
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

DISCRIMINATOR_FOLDS = 5
MIN_DISCRIMINATOR_ROWS = 10  # of either side, for a discriminator
MIN_EFFECTIVE_ROWS, MAX_MEAN_WEIGHT = 30.0, 5.0  # effective rows, and how far the mean weight may be from 1


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransCal(OneTemperature):
    """One temperature, fitted with importance weights for the unlabelled rows of a target (Wang et al. 2020).

    The paper also raises the weights to a power that it tunes; here the power is 1.
    """

    name: ClassVar[str] = "transcal"
    needs_target: ClassVar[bool] = True

    effective_rows: float  # effective sample size of the weighted rows

    @classmethod
    @one_thread()
    def fit(cls, validation: Predictions, *, target: Predictions | None = None) -> Self:
        """Weight each row by its density ratio, from a logistic discriminator, then fit a temperature.

        Args:
            target: Predictions of the target. Labels are not used. The discriminator uses features if validation and
                target have them, otherwise logits.

        Raises:
            NotConvergedError: The two hardly overlap, the discriminator does not converge, or no temperature is best.
        """
        check_validation(validation)
        if target is None:
            raise InvalidInputError(f"target (--target) must be predictions of the target: {cls.name} needs them")
        check_instance("target", target, Predictions)
        names = validation.class_names, target.class_names
        check_same_classes("validation", validation.n_classes, target.n_classes, *names)
        if min(len(validation), len(target)) < MIN_DISCRIMINATOR_ROWS:
            raise InvalidInputError(f"validation and target must have at least {MIN_DISCRIMINATOR_ROWS} rows each")
        raw = importance_weights(validation, target)
        weights = control_variate(raw)
        effective = float(weights.sum() ** 2 / weights.square().sum())
        if not 1 / MAX_MEAN_WEIGHT <= float(raw.mean()) <= MAX_MEAN_WEIGHT or effective < MIN_EFFECTIVE_ROWS:
            raise NotConvergedError(
                f"validation and target hardly overlap: the effective number of rows is {effective:.3g}, and the mean "
                f"weight, which should be 1, is {float(raw.mean()):.3g}; no temperature can be transferred"
            )
        solution = solve_temperature(Likelihood(validation.logits, validation.labels, weights))
        return cls.from_parameters(
            validation,
            row_weights=weights,
            nll_after=solution.nll,
            temperature=solution.temperature,
            effective_rows=effective,
        )


def importance_weights(validation: Predictions, target: Predictions) -> Tensor:
    """The density ratio of target to validation at each row of validation: (1 − d)/d, d = P(validation | features).

    The discriminator is cross-fitted: it was not fitted to the row.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    orders = [np.argsort(rows.row_hashes[0], kind="stable") for rows in (validation, target)]
    sides = [
        _discriminator_inputs(rows, validation, target)[order]
        for rows, order in zip((validation, target), orders, strict=True)
    ]
    x = np.concatenate(sides)
    is_target = np.repeat([0, 1], [len(side) for side in sides])
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    model = LogisticRegression(max_iter=2000)
    folds = StratifiedKFold(DISCRIMINATOR_FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            log_probs = cross_val_predict(model, x, is_target, cv=folds, method="predict_log_proba")
        except ConvergenceWarning:
            raise NotConvergedError("the discriminator of validation and target did not converge") from None
    odds = log_probs[: len(validation), 1] - log_probs[: len(validation), 0]
    weights = np.empty(len(validation))
    weights[orders[0]] = np.exp(odds) * len(validation) / len(target)
    return torch.from_numpy(weights)


def _discriminator_inputs(rows: Predictions, validation: Predictions, target: Predictions) -> np.ndarray:
    """The features of rows, or their logits minus the largest."""
    if validation.features is not None and target.features is not None:
        features: Tensor = rows.features  # type: ignore[assignment]
        return features.double().numpy()
    centred = rows.logits.double() - rows.logits.double().amax(1, keepdim=True)
    return centred.clamp(min=-50.0).numpy()


def control_variate(weights: Tensor) -> Tensor:
    """Weights v with Σ v ℓ = Σ w ℓ − η Σ (w − 1), η the regression of w ℓ on w, whose mean should be 1.

    That is linear in ℓ: v = w (1 − (w − w̄)(w̄ − 1) / var w). Negative weights become 0.
    """
    mean, variance = weights.mean(), weights.var(correction=0)
    if variance == 0:
        return weights
    return (weights * (1 - (weights - mean) * (mean - 1) / variance)).clamp(min=0.0)
