"""Label shift: predictions calibrated on validation, re-weighted to the class proportions of an unlabelled target."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from scipy.special import fdtri
from torch import Tensor, nn

from calibrant._checks import check_number, check_positive
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.checks import check_in_range, check_shape
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.modules import AffineModule
from calibrant.calibrators.proportions import (
    SIGNIFICANT,
    ClassProportions,
    LabelShiftProblem,
    estimate_proportions,
)
from calibrant.calibrators.scaling import fit_bias_corrected
from calibrant.errors import InvalidInputError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

LEVEL = 0.9  # of the intervals of the proportions


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelShift(Calibrator):
    """softmax(z/T + b) times q/π: the class proportions π of validation become those of the target, q (Saerens 2002).

    T and b are those of bias-corrected temperature scaling (Alexandari et al. 2020). It assumes label shift: that the
    rows of each class are like those of validation. `warning` says where that is not so.
    """

    name: ClassVar[str] = "label_shift"
    keeps_argmax: ClassVar[bool] = False
    needs_target: ClassVar[bool] = True

    temperature: float
    bias: Tensor  # (k,)
    proportions: Tensor  # (k,) those that predictions are weighted to
    estimated: Tensor  # (k,) of the target
    intervals: Tensor  # (k, 2) of the estimated
    validation_proportions: Tensor  # (k,)
    kept: float  # share of the difference between the estimated proportions and those of validation
    p_value: float  # of label shift

    def __post_init__(self) -> None:
        k = self.n_classes
        check_positive("temperature", self.temperature)
        check_shape("bias", self.bias, (k,))
        check_shape("intervals", self.intervals, (k, 2))
        check_number("p_value", self.p_value, minimum=0.0, maximum=1.0)
        for name in ("proportions", "estimated", "validation_proportions"):
            check_shape(name, getattr(self, name), (k,))
            check_in_range(name, getattr(self, name), 0.0, 1.0)

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, target: Predictions | None = None, clip: float | None = None) -> Self:
        """Fit the temperature and the biases to validation, and the proportions to the target, by EM.

        The proportions are shrunk towards those of validation, all the way if the mean predictions of the two do not
        differ significantly: where nothing has shifted, predictions are only calibrated.

        Args:
            target: Predictions of the target, at least 20 rows. Labels are not used.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.

        Raises:
            InvalidInputError: A class has fewer than two rows in validation, or target has too few rows.
            NotConvergedError: The predictions do not tell two classes apart, or the labels do not follow the logits.
        """
        if target is None:
            raise InvalidInputError(f"target (--target) must be predictions of the target: {cls.name} needs them")
        problem = LabelShiftProblem(validation, target)
        fit = fit_bias_corrected(validation)
        found = estimate_proportions(problem, fit, level=LEVEL)
        prior, estimated, intervals = (
            torch.tensor(values, dtype=torch.float64)
            for values in (found.validation, found.proportions, found.intervals)
        )
        kept = _share_kept(*problem.difference(), min(len(validation), len(target)) - 1)
        proportions = prior + kept * (estimated - prior)
        return cls.from_parameters(
            validation,
            row_weights=(proportions / prior)[validation.labels],
            temperature=1 / fit.scale,
            bias=torch.from_numpy(fit.bias),
            proportions=proportions,
            estimated=estimated,
            intervals=intervals,
            validation_proportions=prior,
            kept=kept,
            p_value=found.p_value,
        )

    @property
    def class_proportions(self) -> ClassProportions:
        """The estimated proportions of the target, with intervals and the test of label shift."""
        low_high = ((low, high) for low, high in self.intervals.tolist())
        prior = tuple(self.validation_proportions.tolist())
        return ClassProportions("em", LEVEL, tuple(self.estimated.tolist()), tuple(low_high), prior, self.p_value)

    @property
    def warning(self) -> str | None:
        """Why the calibrated predictions are not to be believed, or None."""
        return self.class_proportions.warning

    @property
    def shown_parameters(self) -> dict[str, str]:
        return {
            "temperature": f"{self.temperature:.6g}",
            "shift": f"{self._shift:.6g}",
            "p_value": f"{self.p_value:.3g}",
        }

    @property
    def _shift(self) -> float:
        """Total variation between the proportions of the target and those of validation."""
        return float((self.proportions - self.validation_proportions).abs().sum()) / 2

    def summary(self) -> dict[str, Any]:
        return super().summary() | {
            "proportions": self.proportions.tolist(),
            "estimated": self.estimated.tolist(),
            "intervals": self.intervals.tolist(),
            "warning": self.warning,
        }

    def row_module(self) -> nn.Module:
        weight = torch.full_like(self.bias, 1 / self.temperature)
        bias = self.bias + (self.proportions / self.validation_proportions).log()
        return AffineModule(weight, bias, log_probs=False, floor=0.0)


def _share_kept(statistic: float, freedom: int, n_rows: int) -> float:
    """The share of a difference that remains: 0 if Hotelling's statistic is not significant, then growing towards 1.

    It is a non-negative garrote. No class of validation loses more than all but one row's worth.
    """
    if n_rows < freedom + 1 or freedom == 0:
        return 0.0
    limit = n_rows * freedom / (n_rows - freedom + 1) * fdtri(freedom, n_rows - freedom + 1, 1 - SIGNIFICANT)
    return float(np.clip(1 - limit / max(statistic, 1e-300), 0.0, n_rows / (n_rows + 1)))
