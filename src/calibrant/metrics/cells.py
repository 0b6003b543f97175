"""Cells: a tally so fine, and sorted, that the metrics that depend on the order of confidences can be read from it.

Exact cells hold the rows of one confidence each; they are as many as there are distinct confidences. Grid cells are
those of a fixed grid, so their number is bounded and two of them add up cell by cell: the state of a stream. The grid
is even in the confidence where that is moderate (2^-18 wide) and even in the logarithm of the doubt, 1 − confidence,
near 1 (128 cells per factor of 2, down to 2^-126), and the same near 0: a confidence that float32 rounds to 1 still
has its place.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from calibrant.metrics.tally import Tally, tally

FINEST = 2.0**-18  # width of a grid cell where the scale is even
KNEE = 2.0**-7  # below this distance from 0 or 1 the scale is logarithmic
OCTAVE_BITS = 7  # 128 cells per octave there
SMALLEST = 2.0**-126  # the least distance from 0 or 1 that is told apart
_HALF_BITS, _KNEE, _SMALLEST = torch.tensor([0.5, KNEE, SMALLEST], dtype=torch.float64).view(torch.int64).tolist()
_KNEE_BITS, _SMALLEST_BITS = _KNEE >> (52 - OCTAVE_BITS), _SMALLEST >> (52 - OCTAVE_BITS)
_N_LOGARITHMIC = _KNEE_BITS - _SMALLEST_BITS
_N_EVEN = round((0.5 - KNEE) / FINEST)
_N_SIDE = _N_LOGARITHMIC + _N_EVEN + 1  # the last cell of a side holds ½ alone
N_GRID = 2 * _N_SIDE
TIE_BITS = {torch.float32: 18, torch.float64: 42}  # bits of a confidence that the rounding of a softmax leaves alone


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Occupied cells in the order of confidence."""

    key: Tensor  # (m,) int64, increasing
    tally: Tally  # of m cells
    exact: bool  # whether a cell holds one confidence only

    def __add__(self, other: Self) -> Self:
        if self.exact != other.exact:
            return self.on_grid() + other.on_grid()  # type: ignore[return-value]
        key, into = torch.cat([self.key, other.key]).unique(return_inverse=True)
        both = (torch.cat([getattr(self.tally, n), getattr(other.tally, n)]) for n in Tally.__slots__)
        return type(self)(key, Tally(*both).merged(into, len(key)), self.exact)

    def on_grid(self) -> "Cells":
        """The same rows in the cells of the grid."""
        if not self.exact:
            return self
        low = self.key <= _HALF_BITS
        nearest = torch.where(low, self.key, 2 * _HALF_BITS - self.key).view(torch.float64)
        key, into = _grid_keys(nearest, low).unique(return_inverse=True)
        return Cells(key, self.tally.merged(into, len(key)), False)


def exact_cells(
    confidence: Tensor, doubt: Tensor, correct: Tensor, weights: Tensor | None, tie_bits: int | None = None
) -> Cells:
    """A cell for each distinct confidence, or for those that agree to this many bits of confidence and doubt."""
    keys, order = exact_keys(confidence, doubt, tie_bits).sort()
    starts = torch.ones_like(keys, dtype=torch.bool)
    starts[1:] = keys[1:] != keys[:-1]
    cell = starts.cumsum(0) - 1
    key = keys[starts]
    ordered = (confidence[order], correct[order], None if weights is None else weights[order])
    return Cells(key, tally(cell, len(key), *ordered), True)


def exact_keys(confidence: Tensor, doubt: Tensor, tie_bits: int | None = None) -> Tensor:
    """Integers in the order of the confidences, equal where these are: the bits of the distance to 0 or to 1."""
    nearest, low = _nearest(confidence, doubt)
    bits = nearest.view(torch.int64)
    if tie_bits is not None:
        dropped = 52 - tie_bits
        bits = (bits + (1 << (dropped - 1))) >> dropped << dropped
    return torch.where(low, bits, 2 * _HALF_BITS - bits)


def grid_cells(confidence: Tensor, doubt: Tensor, correct: Tensor, weights: Tensor | None) -> Cells:
    key, cell = _grid_keys(*_nearest(confidence, doubt)).unique(return_inverse=True)
    return Cells(key, tally(cell, len(key), confidence, correct, weights), False)


def sparse(dense: Tally) -> Cells:
    """The occupied ones of all the cells of the grid."""
    key = dense.count.any(-1).nonzero().squeeze(1)
    return Cells(key, dense[key], False)


def dense(cells: Cells) -> Tally:
    """All the cells of the grid: of one size for any data, so that processes can add them up."""
    on_grid = cells.on_grid()
    return on_grid.tally.merged(on_grid.key, N_GRID)


def _nearest(confidence: Tensor, doubt: Tensor) -> tuple[Tensor, Tensor]:
    """The distance to the nearer of 0 and 1, and whether that is 0."""
    confidence, doubt = confidence.double(), doubt.double()
    low = confidence <= doubt
    return torch.where(low, confidence, doubt).clamp_(0.0, 0.5), low


def _grid_keys(nearest: Tensor, low: Tensor) -> Tensor:
    logarithmic = (nearest.clamp_min(SMALLEST).view(torch.int64) >> (52 - OCTAVE_BITS)) - _SMALLEST_BITS
    even = ((nearest - KNEE) / FINEST).long() + _N_LOGARITHMIC
    side = torch.where(nearest < KNEE, logarithmic, even)
    return torch.where(low, side, N_GRID - 1 - side)


def equal_mass(cells: Tally, n_bins: int) -> Tally:
    """Bins of equal mass of sorted cells, which stay whole.

    A cell goes by the weight i of all cells below it, to bin ⌈i·n_bins/n⌉ − 1, and the least to the first: the bins of
    the published code, which drops the least sample.
    """
    return cells.runs(equal_mass_numbers(cells, n_bins), n_bins)


def equal_mass_numbers(cells: Tally, n_bins: int) -> Tensor:
    ends = cells.total.cumsum(0)
    below = ends - cells.total
    position = below * n_bins / ends[-1]
    return (position - 1e-9).ceil().long().sub_(1).clamp_(0, n_bins - 1)


def strata(cells: Tally, n_strata: int) -> Tally:
    """At most this many neighbouring groups of cells, of about equal mass."""
    if len(cells.total) <= n_strata:
        return cells
    merged = cells.runs(strata_numbers(cells, n_strata), n_strata)
    return merged[merged.total > 0]


def strata_numbers(cells: Tally, n_strata: int) -> Tensor:
    middle = cells.total.cumsum(0) - cells.total / 2
    return (middle * n_strata / cells.total.sum()).long().clamp_(0, n_strata - 1)
