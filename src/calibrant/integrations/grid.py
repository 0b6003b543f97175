"""A fixed grid over the confidences, for a state that processes can add up: the scale of streams, with bits dropped.

Streams drop as many bits as they must; here 2^18 cells are left, whatever the data.
"""

from torch import Tensor

from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.histogram import SCALE_BITS, FineHistogram

GRID_BITS = 18
DROPPED = SCALE_BITS - GRID_BITS
N_GRID = 2**GRID_BITS


def grid_numbers(cells: FineHistogram) -> Tensor:
    """The number of each cell on the grid."""
    return cells.key_without(DROPPED) >> DROPPED


def occupied(grid: BinSums) -> FineHistogram:
    """The occupied cells of a tally of the whole grid."""
    number = grid.count.any(-1).nonzero().squeeze(1)
    return FineHistogram(number << DROPPED, grid[number], None, DROPPED)
