"""Sums over the rows of each bin of the confidence, which merge by addition.

Few bins give the binned calibration errors, a fine sorted histogram gives those that depend on the order of the
confidences. Counts are int64 and sums float64, exact past 2^24 rows.
"""

from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import sum_of

Float64Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BinSums:
    """Sums over the rows of each bin; adding two of them is adding their data."""

    count: Tensor  # (…, 2) int64: incorrect rows, correct rows
    weight: Tensor  # (…, 2) float64: the sum of their weights
    confidence: Tensor  # (…) float64: the weighted sum of confidences
    squared: Tensor  # (…) float64: the sum of squared weights

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __getitem__(self, bins: int | slice | Tensor) -> Self:
        return type(self)(*(getattr(self, name)[bins] for name in self.__slots__))

    def view(self, *shape: int) -> Self:
        """The sums of the same bins in another shape."""
        pairs = {"count", "weight"}
        return type(self)(*(getattr(self, name).view(*shape, *[2] * (name in pairs)) for name in self.__slots__))

    @property
    def total(self) -> Tensor:
        """The weight of each bin."""
        return self.weight[..., 0] + self.weight[..., 1]

    @property
    def rows(self) -> Tensor:
        """(…, 2) the weights as numbers of rows, scaled up where their sum is less than the number of rows.

        For what depends on the number of rows and not only on proportions: weights that sum to 1 are not one row.
        """
        return self.weight * max(1.0, int(self.count.sum()) / sum_of(self.weight))

    @property
    def mass(self) -> Tensor:
        """The weight of each bin as a proportion of the total."""
        return self.total / sum_of(self.total)

    @property
    def gap(self) -> Tensor:
        """Mass times (mean confidence − accuracy) of each bin: positive where overconfident, 0 where empty."""
        return (self.confidence - self.weight[..., 1]) / sum_of(self.weight)

    @property
    def accuracy(self) -> Tensor:
        """Accuracy of each bin; NaN where empty."""
        return self.weight[..., 1] / self.total

    @property
    def mean_confidence(self) -> Tensor:
        """Mean confidence of each bin; NaN where empty."""
        return self.confidence / self.total

    @property
    def effective(self) -> Tensor:
        """Effective sample size of each bin: (Σw)² / Σw²."""
        return torch.where(self.squared > 0, self.total**2 / self.squared, 0.0)

    def merge(self, number: Tensor, n_bins: int) -> Self:
        """The sums of coarser bins: bin i becomes part of bin ``number[i]``."""
        pairs = torch.stack([2 * number, 2 * number + 1], dim=1).view(-1)
        return type(self)(
            torch.bincount(pairs, self.count.view(-1).double(), 2 * n_bins).view(-1, 2).long(),
            torch.bincount(pairs, self.weight.view(-1), 2 * n_bins).view(-1, 2),
            torch.bincount(number, self.confidence, n_bins),
            torch.bincount(number, self.squared, n_bins),
        )

    def merge_neighbours(self, number: Tensor, n_bins: int) -> Self:
        """The same for numbers in ascending order: much faster."""
        starts = np.flatnonzero(np.diff(number.numpy(), prepend=-1))
        filled = number[torch.from_numpy(starts)]
        parts = []
        for name in self.__slots__:
            part = getattr(self, name)
            total = part.new_zeros(n_bins, *part.shape[1:])
            total[filled] = torch.from_numpy(np.add.reduceat(part.numpy(), starts, axis=0))
            parts.append(total)
        return type(self)(*parts)


def bin_sums(number: Tensor, n_bins: int, confidence: Tensor, correct: Tensor, weights: Tensor | None) -> BinSums:
    """The sums of rows by the number of their bin."""
    slot = 2 * number + correct
    count = torch.bincount(slot, minlength=2 * n_bins).view(-1, 2)
    if weights is None:
        weight = count.double()
        confidences = torch.bincount(number, weights=confidence.double(), minlength=n_bins)
        return BinSums(count, weight, confidences, weight[:, 0] + weight[:, 1])
    return BinSums(
        count,
        torch.bincount(slot, weights=weights, minlength=2 * n_bins).view(-1, 2),
        torch.bincount(number, weights=weights * confidence, minlength=n_bins),
        torch.bincount(number, weights=weights * weights, minlength=n_bins),
    )
