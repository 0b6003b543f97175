"""TransCal: a temperature for an unlabelled target, fitted with importance weights (Wang et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

from torch import Tensor

from calibrant.calibrators.base import check_validation
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.importance import check_overlap, check_target, effective_rows, importance_weights
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.temperature import OneTemperature
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions


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
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, target: Predictions | None = None, clip: float | None = None) -> Self:
        """Weight each row by its density ratio, from a logistic discriminator, then fit a temperature.

        Args:
            target: Predictions of the target. Labels are not used. The discriminator uses features if validation and
                target have them, otherwise logits.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.

        Raises:
            NotConvergedError: The two hardly overlap, the discriminator does not converge, or no temperature is best.
        """
        check_validation(validation)
        raw = importance_weights(validation, check_target(cls.name, validation, target))
        weights = control_variate(raw)
        effective = effective_rows(weights)
        check_overlap(raw, effective, "no temperature can be transferred")
        solution = solve_temperature(Likelihood(validation.logits, validation.labels, weights))
        return cls.from_parameters(
            validation,
            row_weights=weights,
            nll_after=solution.nll,
            temperature=solution.temperature,
            effective_rows=effective,
        )


def control_variate(weights: Tensor) -> Tensor:
    """Weights v with Σ v ℓ = Σ w ℓ − η Σ (w − 1), η the regression of w ℓ on w, whose mean should be 1.

    That is linear in ℓ: v = w (1 − (w − w̄)(w̄ − 1) / var w). Negative weights become 0.
    """
    mean, variance = weights.mean(), weights.var(correction=0)
    if variance == 0:
        return weights
    return (weights * (1 - (weights - mean) * (mean - 1) / variance)).clamp(min=0.0)
