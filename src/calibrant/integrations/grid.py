"""A fixed grid over the confidences, for a state that processes can add up: the scale of streams, with bits dropped.

Streams drop as many bits as they must; here 2^18 cells are left, whatever the data.
"""

from torch import Tensor

from calibrant.metrics.cells import SCALE_BITS, Cells
from calibrant.metrics.tally import Tally

GRID_BITS = 18
DROPPED = SCALE_BITS - GRID_BITS
N_GRID = 2**GRID_BITS


def grid_numbers(cells: Cells) -> Tensor:
    """The number of each cell on the grid."""
    return cells.key_without(DROPPED) >> DROPPED


def occupied(grid: Tally) -> Cells:
    """The occupied cells of a tally of the whole grid."""
    number = grid.count.any(-1).nonzero().squeeze(1)
    return Cells(number << DROPPED, grid[number], None, DROPPED)
