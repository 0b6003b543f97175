"""Spline calibration: the confidence becomes the slope of a spline of cumulative accuracy (Gupta et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from calibrant._checks import check_positive
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.binning import FloatVector, cumulative
from calibrant.calibrators.checks import check_in_range, check_increasing, check_n_knots, check_shape
from calibrant.calibrators.likelihood import natural_scale
from calibrant.calibrators.modules import ConfidenceModule, ProbabilityModule
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

SPLINE_POINTS = 513  # at which the function is stored


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SplineCalibration(Calibrator):
    """A smooth function of the confidence; each row is divided by the temperature that attains it, within limits.

    Let h(t) be the share of rows that are correct and among the share t of least confidence. The KS error is the
    distance of h from the same sum of confidences. The slope of the least-squares natural cubic spline of h is the
    accuracy. Of rows with the confidence alone, the function of it is the result, without limits.
    """

    name: ClassVar[str] = "spline"
    keeps_argmax: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True
    of_confidence: ClassVar[bool] = True

    knots: Tensor  # (m,) confidences
    values: Tensor  # (m,) what they become
    scale: float  # 1/T of all rows; that of a row lies within a factor of 3

    def __post_init__(self) -> None:
        check_shape("knots", self.knots, (None,))
        check_shape("values", self.values, tuple(self.knots.shape))
        check_increasing("knots", self.knots)
        check_in_range("values", self.values, 0.0, 1.0)
        check_positive("scale", self.scale)

    @classmethod
    @one_thread()
    def fit(cls, validation: Predictions, *, n_knots: int = 6) -> Self:
        """Fit the spline by least squares.

        Args:
            n_knots: Number of evenly spaced knots; 6 in the paper.
        """
        check_validation(validation, of_confidence=cls.of_confidence)
        check_n_knots(n_knots)
        confidence, predicted = validation.logits.double().softmax(1).max(1)
        if validation.top_label:
            confidence, predicted = validation.logits.double().softmax(1)[:, 1], torch.ones_like(predicted)
        order = confidence.argsort(stable=True)
        correct = (predicted == validation.labels)[order].double().numpy()
        knots, values = fit_spline(confidence[order].numpy(), correct, n_knots)
        return cls.from_parameters(
            validation,
            knots=torch.from_numpy(knots),
            values=torch.from_numpy(values),
            scale=natural_scale(validation.logits, validation.labels),
        )

    def row_module(self) -> nn.Module:
        if not self.top_label:
            return ConfidenceModule(self.knots, self.values, self.scale)
        knots = torch.stack([1 - self.knots.flip(0), self.knots])
        values = torch.stack([1 - self.values.flip(0), self.values])
        return ProbabilityModule(knots, values, linear=True)


def fit_spline(confidence: FloatVector, correct: FloatVector, n_knots: int) -> tuple[FloatVector, FloatVector]:
    """Confidences, and the accuracy at each, strictly within (0, 1), from sorted rows."""
    from scipy.interpolate import CubicSpline

    n = len(confidence)
    knots = np.linspace(0.0, 1.0, n_knots)
    basis = CubicSpline(knots, np.eye(n_knots), bc_type="natural")  # column j: the spline that is 1 at knot j
    fractile = np.arange(n + 1) / n
    _, tie = np.unique(confidence, return_inverse=True)
    even = (np.bincount(tie, correct) / np.bincount(tie))[tie]  # rows of equal confidence have no order
    sums = cumulative(even) / n
    heights, *_ = np.linalg.lstsq(basis(fractile), sums, rcond=None)
    points = np.linspace(0.0, 1.0, min(SPLINE_POINTS, n + 1))
    accuracy = np.clip(basis(points, 1) @ heights, 1 / (n + 2), 1 - 1 / (n + 2))
    quantiles = np.interp(points, (np.arange(n) + 0.5) / n, confidence)
    at, inverse = np.unique(quantiles, return_inverse=True)
    values = np.bincount(inverse, accuracy) / np.bincount(inverse)
    return (at, values) if len(at) > 1 else (np.repeat(at, 2), np.repeat(values, 2))
