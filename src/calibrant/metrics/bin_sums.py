"""Tallies: what falls into the cells of a partition of the confidences, as sums that merge by addition.

A tally over fifteen bins gives the binned calibration errors; one over fine cells, sorted by confidence, gives the
errors that depend on the order of the confidences. Counts are int64 and sums float64, so nothing stops at 2^24.
"""

from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Float64Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BinSums:
    """Sums over the rows of each cell; adding two of them is adding their data."""

    count: Tensor  # (…, 2) int64: incorrect rows, correct rows
    weight: Tensor  # (…, 2) float64: the sum of their weights
    confidence: Tensor  # (…) float64: the weighted sum of confidences
    squared: Tensor  # (…) float64: the sum of squared weights

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __getitem__(self, cells: int | slice | Tensor) -> Self:
        return type(self)(*(getattr(self, name)[cells] for name in self.__slots__))

    @property
    def total(self) -> Tensor:
        """The weight of each cell."""
        return self.weight[..., 0] + self.weight[..., 1]

    @property
    def rows(self) -> Tensor:
        """(…, 2) the weights as numbers of rows: as they are, or made larger so that they are as many as the rows.

        For what depends on the number of rows and not only on their shares; weights that sum to 1 are no single row.
        """
        return self.weight * max(1.0, float(self.count.sum() / self.weight.sum()))

    @property
    def mass(self) -> Tensor:
        """The share of each cell in the whole weight."""
        return self.total / self.total.sum()

    @property
    def gap(self) -> Tensor:
        """Mass times (mean confidence − accuracy) of each cell: positive where overconfident, 0 where it is empty."""
        return (self.confidence - self.weight[..., 1]) / self.weight.sum()

    @property
    def accuracy(self) -> Tensor:
        """Share of correct rows in each cell; NaN where it is empty."""
        return self.weight[..., 1] / self.total

    @property
    def mean_confidence(self) -> Tensor:
        """Mean confidence of each cell; NaN where it is empty."""
        return self.confidence / self.total

    @property
    def effective(self) -> Tensor:
        """The number of equally weighted rows that would tell as much: (Σw)² / Σw²."""
        return torch.where(self.squared > 0, self.total**2 / self.squared, 0.0)

    def merged(self, into: Tensor, n_cells: int) -> Self:
        """The tally of a coarser partition: cell i goes into cell ``into[i]``."""
        pairs = torch.stack([2 * into, 2 * into + 1], dim=1).view(-1)
        return type(self)(
            torch.bincount(pairs, self.count.view(-1).double(), 2 * n_cells).view(-1, 2).long(),
            torch.bincount(pairs, self.weight.view(-1), 2 * n_cells).view(-1, 2),
            torch.bincount(into, self.confidence, n_cells),
            torch.bincount(into, self.squared, n_cells),
        )

    def runs(self, number: Tensor, n_cells: int) -> Self:
        """The same for numbers that never fall, so that a run of neighbouring cells goes into one: much faster."""
        starts = np.flatnonzero(np.diff(number.numpy(), prepend=-1))
        filled = number[torch.from_numpy(starts)]
        parts = []
        for name in self.__slots__:
            part = getattr(self, name)
            total = part.new_zeros(n_cells, *part.shape[1:])
            total[filled] = torch.from_numpy(np.add.reduceat(part.numpy(), starts, axis=0))
            parts.append(total)
        return type(self)(*parts)


def bin_sums(cells: Tensor, n_cells: int, confidence: Tensor, correct: Tensor, weights: Tensor | None) -> BinSums:
    """The tally of rows by the number of their cell."""
    slot = 2 * cells + correct
    count = torch.bincount(slot, minlength=2 * n_cells).view(-1, 2)
    if weights is None:
        weight = count.double()
        confidences = torch.bincount(cells, weights=confidence.double(), minlength=n_cells)
        return BinSums(count, weight, confidences, weight[:, 0] + weight[:, 1])
    return BinSums(
        count,
        torch.bincount(slot, weights=weights, minlength=2 * n_cells).view(-1, 2),
        torch.bincount(cells, weights=weights * confidence, minlength=n_cells),
        torch.bincount(cells, weights=weights * weights, minlength=n_cells),
    )
