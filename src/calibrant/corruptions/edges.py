"""Edges, distances to them, and 3x3 filters of grey planes: the integers of OpenCV, for a batch at once.

Planes are (h, w, n), images last: neighbours in a row or a column are then contiguous runs of memory.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from calibrant._arrays import count_keys

MAX_DISTANCE = 20  # pixels

# The steps of a 5x5 chamfer distance, to the next pixel, the diagonal one and a knight's move away, in 1/10000 pixel.
# OpenCV sums 1, 1.4 and 2.1969 in float32, or in 16.16 fixed point where it was built without Intel's library.
STRAIGHT, DIAGONAL, KNIGHT = 10000, 14000, 21969


def edges(planes: Tensor, low: int, high: int) -> Tensor:
    """Canny edges of uint8 planes, as ones.

    An edge is a peak of the gradient |dx| + |dy| of 3x3 Sobel filters that is above ``high``, or above ``low`` and
    joined by such peaks to one above ``high``.
    """
    across, down = _gradient(planes)
    opposed = (across ^ down).bitwise_right_shift_(15)
    across.abs_()
    down.abs_()
    slope = add_border(pixels(across + down, planes), "zero", torch.int16)
    rival = _rival(slope, across, down, opposed)
    middle = neighbours(slope)(0, 0)
    weak = torch.gt(middle, rival.clamp_(min=low), out=across)
    strong = torch.gt(middle, rival.clamp_(min=high), out=down)
    return _connect(*(add_border(pixels(peaks, planes), "zero", torch.uint8) for peaks in (strong, weak)))


def _gradient(planes: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel differences to the right and downwards, int16 runs; see :func:`neighbours`."""
    padded = add_border(planes, "replicate", torch.int16)
    cells, row = padded.flatten(0, 1), padded.shape[1]
    tall = cells[: -2 * row] + cells[2 * row :]
    tall += cells[row:-row]
    tall += cells[row:-row]
    wide = cells[:-2] + cells[2:]
    wide += cells[1:-1]
    wide += cells[1:-1]
    return tall[2:] - tall[:-2], wide[2 * row :] - wide[: -2 * row]


def _rival(slope: Tensor, across: Tensor, down: Tensor, opposed: Tensor) -> Tensor:
    """The value that a pixel's slope must exceed to be a peak: its two neighbours in the nearest of four directions.

    Of two equal slopes in a row or column the first is the peak; on a diagonal neither is. ``opposed`` has all bits
    set where the parts of the gradient have opposite signs.
    """
    at = neighbours(slope)
    rival = _select(opposed, torch.maximum(at(-1, 1), at(1, -1)), torch.maximum(at(-1, -1), at(1, 1)))
    rival = _select(_flat(across, down), torch.maximum(at(-1, 0), at(1, 0) - 1), rival)
    return _select(_flat(down, across), torch.maximum(at(0, -1), at(0, 1) - 1), rival)


def _flat(rise: Tensor, run: Tensor) -> Tensor:
    """All bits set where rise / run < tan 22.5°, the tangent to 15 binary digits."""
    return rise.int().mul_(32768).sub_(run.int().mul_(13573)).bitwise_right_shift_(31).short()


def _select(bits: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """``one`` where the bits are set, else ``other``; faster than torch.where."""
    return one.bitwise_xor_(other).bitwise_and_(bits).bitwise_xor_(other)


def _connect(strong: Tensor, weak: Tensor) -> Tensor:
    """The weak pixels that are connected to a strong one; planes with a border of zeros in, without it out."""
    row = strong.shape[1]
    found, allowed = strong.flatten(0, 1), weak.flatten(0, 1)[row:-row]
    middle, wide = found[row:-row], torch.zeros_like(found)
    grown = True
    while grown:
        before = middle.clone()
        for _ in range(2):
            torch.bitwise_or(found[:-2], found[2:], out=wide[1:-1])
            wide |= found
            torch.bitwise_or(wide[: -2 * row], wide[2 * row :], out=middle)
            middle |= wide[row:-row]
            middle &= allowed
        grown = bool(before.bitwise_xor_(middle).any())
    return strong[1:-1, 1:-1]


def distances(points: Tensor) -> Tensor:
    """Chamfer distances to the nearest 1 of uint8 planes, at most 20 pixels; int32, in 1/10000 pixel.

    A shortest path needs knight's moves in one direction and steps of one other kind in one direction, in any order:
    the steps of either kind are counted first, then the knight's moves are added.

    >>> distances(torch.tensor([[[1], [0], [0]], [[0], [0], [0]]], dtype=torch.uint8))[:, :, 0]
    tensor([[    0, 10000, 20000],
            [10000, 14000, 21969]], dtype=torch.int32)
    """
    height, width, n = points.shape
    # One long row: moves that leave the plane at the right enter it at the left, but too many columns later to count.
    padded = points.new_full((height, width + MAX_DISTANCE - 1, n), 2 * MAX_DISTANCE)
    padded[:, :width] = (1 - points).mul_(2 * MAX_DISTANCE)
    cells, row = padded.flatten(0, 1), padded.shape[1]
    straight = _spread(cells.clone(), (1, row), MAX_DISTANCE, 1)
    diagonal = _spread(cells, (row - 1, row + 1), MAX_DISTANCE * STRAIGHT // DIAGONAL, 1)
    cells = torch.minimum(straight.int().mul_(STRAIGHT), diagonal.int().mul_(DIAGONAL))
    found = cells.clamp_(max=MAX_DISTANCE * STRAIGHT).view_as(padded)[:, :width]
    _spread(cells, (row - 2, row + 2, 2 * row - 1, 2 * row + 1), int(found.max()) // KNIGHT, KNIGHT)
    return found


def _spread(cells: Tensor, moves: tuple[int, ...], reach: int, cost: int) -> Tensor:
    """The lowest value within ``reach`` moves along the cells, or back, plus the cost of each move; in place.

    Strides of 5, 2, 1 and 1 moves, each taken or not, are all of 0 to 9 moves.
    """
    while reach:
        stride = (reach + 1) // 2
        reach -= stride
        further = cells + stride * cost
        for jump in (stride * move for move in moves if stride * move < len(cells)):
            after, before = cells[jump:], cells[:-jump]
            torch.minimum(after, further[:-jump], out=after)
            torch.minimum(before, further[jump:], out=before)
    return cells


def equalise(levels: Tensor, n_levels: int) -> Tensor:
    """Histogram equalisation of planes of levels below ``n_levels`` to 0..255, uint8.

    The lowest level becomes 0 and its pixels do not count; a plane of one level stays as it is.
    """
    height, width, n = levels.shape
    index = (levels + torch.arange(n, device=levels.device, dtype=torch.int32) * n_levels).flatten()
    up_to = count_keys(index, n * n_levels).view(n, n_levels).cumsum(1)
    lowest = up_to.where(up_to > 0, height * width).amin(1, keepdim=True)
    rest = (height * width - lowest).float()
    # a number divided by a tensor would be its rounded reciprocal times the number
    scale = torch.full_like(rest, 255).div_(rest)
    spread = (up_to - lowest).float().mul_(scale).round_().clamp_(0, 255)
    unchanged = torch.arange(n_levels, device=levels.device, dtype=torch.float32)
    return spread.where(rest > 0, unchanged).byte().flatten().index_select(0, index).view(height, width, n)


def emboss(planes: Tensor) -> Tensor:
    """The planes lit from the lower right: weights -2 -1 0, -1 1 1, 0 1 2, clipped to uint8."""
    at = neighbours(add_border(planes, "reflect", torch.int16))
    lit = (at(1, 1) - at(-1, -1)).mul_(2)
    lit += at(0, 0)
    lit += at(0, 1)
    lit -= at(0, -1)
    lit += at(1, 0)
    lit -= at(-1, 0)
    return pixels(lit.clamp_(0, 255), planes)


def box_sum(planes: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums over 3x3 pixels, the planes mirrored at their outermost pixels."""
    padded = add_border(planes, "reflect", dtype)
    cells, row = padded.flatten(0, 1), padded.shape[1]
    tall = cells[: -2 * row] + cells[2 * row :]
    tall += cells[row:-row]
    total = tall[:-2] + tall[2:]
    total += tall[1:-1]
    return pixels(total, planes)


def add_border(planes: Tensor, border: Literal["zero", "replicate", "reflect"], dtype: torch.dtype) -> Tensor:
    """Planes with one more pixel on each side: zero, the outermost pixel, or the one before it."""
    height, width, n = planes.shape
    padded = planes.new_zeros((height + 2, width + 2, n), dtype=dtype)
    padded[1:-1, 1:-1] = planes
    if border != "zero":
        source = 1 if border == "replicate" else 2
        padded[0], padded[-1] = padded[source], padded[-1 - source]
        padded[:, 0], padded[:, -1] = padded[:, source], padded[:, -1 - source]
    return padded


def neighbours(padded: Tensor) -> Callable[[int, int], Tensor]:
    """``at(dy, dx)``: the neighbour of each pixel inside the border, as one run (h * (w + 2) - 2, n) of memory.

    A run has two meaningless values between rows; :func:`pixels` drops them.
    """
    height, row, _ = padded.shape
    cells = padded.flatten(0, 1)
    return lambda dy, dx: cells.narrow(0, (1 + dy) * row + 1 + dx, (height - 2) * row - 2)


def pixels(run: Tensor, like: Tensor) -> Tensor:
    """The pixels of a run of neighbours, in the shape of the planes ``like`` without border."""
    height, width, n = like.shape
    return run.as_strided((height, width, n), ((width + 2) * n, n, 1))
