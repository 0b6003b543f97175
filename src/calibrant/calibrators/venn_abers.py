"""Inductive Venn-Abers calibration of two classes: isotonic regression with the new row labelled 0, and labelled 1.

Vovk and Petej, "Venn-Abers predictors" (2014).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._checks import check_instance, check_same_kind
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import (
    check_in_range,
    check_increasing,
    check_same_classes,
    check_shape,
    check_two_classes,
)
from calibrant.calibrators.maps import log_odds
from calibrant.calibrators.modules import VennAbersModule
from calibrant.predictions import Predictions

FloatVector = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class VennAbers(Calibrator):
    """The probability p₁ / (1 − p₀ + p₁) of class 1, from an interval [p₀, p₁], wide where rows are few.

    p₀ and p₁ are the isotonic regressions of validation with the row added, labelled 0 or 1, at the row. For rows that
    are exchangeable with validation, one of the two is calibrated, whatever the model. No row gets probability 0 or 1.
    """

    name: ClassVar[str] = "venn_abers"
    keeps_argmax: ClassVar[bool] = False
    two_classes_only: ClassVar[bool] = True
    of_confidence: ClassVar[bool] = True

    lower_knots: Tensor  # log-odds from which on p₀ has its next value
    lower: Tensor  # p₀ between them
    upper_knots: Tensor  # log-odds up to which p₁ has its value
    upper: Tensor

    def __post_init__(self) -> None:
        for side in ("lower", "upper"):
            knots, values = getattr(self, f"{side}_knots"), getattr(self, side)
            check_shape(f"{side}_knots", knots, (None,))
            check_shape(side, values, (len(knots) + 1,))
            check_increasing(f"{side}_knots", knots)
            check_increasing(side, values)
            check_in_range(side, values, 0.0, 1.0)

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Compute p₀ and p₁ of every possible row in O(n log n)."""
        check_validation(validation, of_confidence=cls.of_confidence)
        check_two_classes(cls.name, validation.n_classes)
        odds = log_odds(validation.logits.double()).numpy()
        knots, group = np.unique(odds, return_inverse=True)
        rows: FloatVector = np.bincount(group).astype(float)
        positives: FloatVector = np.bincount(group[validation.labels.numpy() == 1], minlength=len(knots)).astype(float)
        upper = fit_upper(rows, positives)
        lower = 1.0 - fit_upper(rows[::-1], (rows - positives)[::-1])[::-1]  # labels and order reversed
        parts: dict[str, Any] = {}
        for side, values in (("lower", lower), ("upper", upper)):
            steps = np.flatnonzero(np.diff(values))
            parts[f"{side}_knots"] = torch.from_numpy(knots[steps])
            parts[side] = torch.from_numpy(values[np.append(steps, len(knots))])
        return cls.from_parameters(validation, **parts)

    @checked
    def interval(self, predictions: Predictions) -> Tensor:
        """The interval [p₀, p₁] of the probability of class 1, for each row; wide where rows are few.

        Args:
            predictions: Rows of the same classes that were not calibrated. Labels are not needed.

        Returns:
            (n, 2) float64: p₀ and p₁.

        Raises:
            InvalidInputError: The predictions have other classes.
        """
        check_instance("predictions", predictions, Predictions)
        check_same_kind(f"what {self.name} was fitted on", self, "predictions", predictions)
        names = self.class_names, predictions.class_names
        check_same_classes(self.name, self.n_classes, predictions.n_classes, *names)
        lower, upper = self.row_module().bounds(predictions.logits)
        return torch.stack([lower, upper], dim=1)

    def row_module(self) -> VennAbersModule:
        steps = {name: getattr(self, name) for name in ("lower_knots", "lower", "upper_knots", "upper")}
        return VennAbersModule(**steps)


def fit_upper(rows: FloatVector, positives: FloatVector) -> FloatVector:
    """(m + 1,) p₁ of a new row in each of m groups of equal scores, in ascending order, and beyond them, where it is 1.

    The isotonic regression is the slope of the greatest convex minorant of the cumulative sums P_i of rows and
    positives. A new row of label 1 in group j moves P_0 … P_j by (−1, −1). From one group to the next, one point moves,
    down and to the left, so what the minorant hides to the right stays hidden: all groups take O(m) (Vovk, Petej and
    Fedorova 2015).
    """
    points = [(0.0, 0.0), *zip(rows.cumsum().tolist(), positives.cumsum().tolist(), strict=True)]
    hull: list[tuple[float, float]] = []  # the minorant from the new row on, its first corner last
    found: list[float] = []
    for point in points[:0:-1]:
        _extend(hull, point)
    for x, y in points[:-1]:
        moved = (x - 1, y - 1)
        if not found or slope(hull[-1], moved) < found[-1]:
            if found:
                hull.pop()
            _extend(hull, moved)
        found.append(slope(hull[-1], hull[-2]))
    return np.array([*found, 1.0])


def _extend(hull: list[tuple[float, float]], point: tuple[float, float]) -> None:
    """Add a corner to the left of a convex curve, and remove those that lie above it then."""
    while len(hull) > 1 and slope(point, hull[-1]) >= slope(hull[-1], hull[-2]):
        hull.pop()
    hull.append(point)


def slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
