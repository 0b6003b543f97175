"""Rounded probabilities: how far their sums may be from 1, by the digits that they have."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from calibrant._checks import PRIOR_TOLERANCE
from calibrant.errors import InvalidInputError

MAX_DIGITS = 6
MAX_GAP = 0.5  # from 1: a sum that is further off says nothing of the probabilities
EXACT = 1e-5  # from 1: what numbers of full precision, single precision included, may sum to
FEW_ROWS = 64  # which show that most tables are not rounded


@dataclass
class Rounding:
    """The digits and the worst sum of all rows; adding batches in any order gives the same.

    Rounding to d digits moves a probability by at most 10^-d / 2, and the sum of k of them by at most k 10^-d / 2.
    """

    n_classes: int = 0
    digits: int = 1  # the fewest that all probabilities have; more than MAX_DIGITS: not rounded
    worst: float = 0.0  # the largest distance of a sum from 1
    total: float = 1.0  # that sum
    row: int = 0
    n_rescaled: int = 0

    def add(self, probs: Tensor, first_row: int) -> None:
        """Add a batch of probabilities (n, k)."""
        values = probs.numpy()
        if not len(values):
            return
        self.n_classes = values.shape[1]
        for some in (values[:FEW_ROWS], values):
            while self.digits <= MAX_DIGITS and not _has_digits(some, self.digits):
                self.digits += 1
        sums = values.sum(1, dtype=np.float64)
        gaps = np.abs(sums - 1)
        row = int(gaps.argmax())
        if gaps[row] > self.worst:
            self.worst, self.total, self.row = float(gaps[row]), float(sums[row]), first_row + row
        self.n_rescaled += int((gaps > EXACT).sum())

    @property
    def tolerance(self) -> float:
        explained = self.n_classes * 10.0**-self.digits / 2 if self.digits <= MAX_DIGITS else 0.0
        return max(PRIOR_TOLERANCE, min(MAX_GAP, explained)) + 1e-9

    def check(self, argument: str) -> None:
        """Raises: InvalidInputError where rounding does not explain a sum."""
        if self.worst > self.tolerance:
            why = f"more than rounding to {self.digits} digits explains" if self.digits <= MAX_DIGITS else "not rounded"
            advice = "name the columns of all classes, or type --logits if these are logits"
            raise InvalidInputError(f"{argument} must sum to 1, got {self.total:g} at row {self.row} ({why}): {advice}")

    def __str__(self) -> str:
        if not self.n_rescaled:
            return ""
        how = f"as rounding to {self.digits} digits explains" if self.digits <= MAX_DIGITS else "and were rescaled"
        text = f"{self.n_rescaled:,} rows sum to 1 only within {self.worst:.2g}, {how}"
        return text + (": rescaled" if self.digits <= MAX_DIGITS else "")


def _has_digits(values: np.ndarray, digits: int) -> bool:
    """Whether all probabilities are multiples of 10^-digits, as far as their type can say."""
    scaled = values.astype(np.float64) * 10.0**digits
    return bool((np.abs(scaled - np.rint(scaled)) <= 10.0**digits * np.finfo(values.dtype).eps).all())
