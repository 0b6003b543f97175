"""Isotonic regression: an increasing function of the probability, one for each class or one for all."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.binning import FloatArray, class_probs
from calibrant.calibrators.checks import check_in_range, check_increasing, check_shape
from calibrant.calibrators.modules import ProbabilityModule
from calibrant.predictions import Predictions

SLOPE = 1e-6  # of what is added to a map so that it increases everywhere


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IncreasingCalibrator(Calibrator):
    """Increasing, piecewise linear functions of probabilities; then the probabilities of a row are scaled to sum 1."""

    knots: Tensor  # (k, m), or (1, m) for one function of all classes
    values: Tensor  # (k, m)

    def __post_init__(self) -> None:
        check_shape("knots", self.knots, (1 if self.keeps_argmax else self.n_classes, None))
        check_shape("values", self.values, tuple(self.knots.shape))
        check_increasing("knots", self.knots)
        check_increasing("values", self.values)
        check_in_range("values", self.values, 0.0, 1.0 + SLOPE)

    @classmethod
    def from_functions(cls, validation: Predictions, maps: list[tuple[FloatArray, FloatArray]]) -> Self:
        """The calibrator of these functions, padded to one length."""
        most = max(2, *(len(knots) for knots, _ in maps))
        padded = [[np.pad(a, (0, most - len(a)), mode="edge") for a in pair] for pair in maps]
        knots, values = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*padded, strict=True))
        return cls.from_parameters(validation, knots=knots, values=values)

    def module(self) -> nn.Module:
        return ProbabilityModule(self.knots, self.values, linear=True, keeps_top=self.keeps_argmax)


@final
class IsotonicCalibration(IncreasingCalibrator):
    """One increasing function for each class against the rest (Zadrozny and Elkan 2002)."""

    name: ClassVar[str] = "isotonic"
    keeps_argmax: ClassVar[bool] = False

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Least squares of each class, a little extended: no probability becomes 0 or 1 (see `fit_isotonic`)."""
        check_validation(validation)
        return cls.from_functions(validation, [fit_isotonic(*pair) for pair in class_probs(validation)])


@final
class MulticlassIsotonic(IncreasingCalibrator):
    """One increasing function for all classes, which keeps their order (IRM of Zhang et al. 2020)."""

    name: ClassVar[str] = "isotonic_multiclass"
    keeps_argmax: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Least squares over the probabilities of all classes and rows, extended as those of `IsotonicCalibration`."""
        check_validation(validation)
        probs, happened = (np.concatenate(arrays) for arrays in zip(*class_probs(validation), strict=True))
        order = np.argsort(probs, kind="stable")
        knots, values = fit_isotonic(probs[order], happened[order])
        return cls.from_functions(validation, [(knots, values + SLOPE * knots)])


def fit_isotonic(probs: FloatArray, happened: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Knots and values of the increasing function closest to the labels; probabilities sorted.

    A row with the label at the least probability and one without it at the greatest are added.
    """
    from sklearn.isotonic import IsotonicRegression

    x = np.concatenate([probs[:1], probs, probs[-1:]])
    y = np.concatenate([[1.0], happened, [0.0]])
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
    return model.X_thresholds_.astype(float), model.y_thresholds_.astype(float)
