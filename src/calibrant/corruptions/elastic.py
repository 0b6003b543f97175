"""Elastic transform: a random affine map, then a smooth random displacement of every pixel."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from calibrant._arrays import to_device
from calibrant.corruptions.noise import to_bytes

FIELD_UNIT, TAP_UNIT = 2.0**23, 2.0**28  # products of such integers sum exactly in float64, in any order


def elastic_transform(images: Tensor, alpha: float, sigma: float, corners: Tensor, fields: Tensor) -> Tensor:
    """An affine map that moves three points by corners, then a displacement by alpha · smooth fields.

    Both steps interpolate linearly; the first mirrors the border without its edge, the second with it. corners
    (n, 3, 2), on the CPU, and the displacement are in pixels; fields (n, 2, h, w) are uniform in (-1, 1), x first.
    """
    height, width = images.shape[2:]
    lines = (torch.arange(size, dtype=torch.float64, device=images.device) for size in (height, width))
    y, x = torch.meshgrid(*lines, indexing="ij")
    maps = to_device(torch.from_numpy(_sources(corners.double().numpy(), height, width)), images.device)
    across, down = ((x * a).add_(y * b).add_(c) for a, b, c in maps[..., None, None].transpose(1, 2))
    values = _sample(images.float(), across, down, repeats_edge=False)
    if alpha:
        shift = smooth_fields(fields, sigma).mul_(alpha)
        values = _sample(values, shift[:, 0] + x, shift[:, 1] + y, repeats_edge=True)
    return to_bytes(values)


def _sources(corners: np.ndarray, height: int, width: int) -> np.ndarray:
    """Coefficients (a, b, c) of each image, float64 (2, n, 3): a x + b y + c is the x, and the y, of the source."""
    # the published scripts use (height, width) as (x, y)
    middle, reach = np.array([height // 2, width // 2]), min(height, width) // 3
    points = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = np.concatenate((points + corners, np.ones((len(corners), 3, 1))), axis=2)
    return np.linalg.solve(moved, np.broadcast_to(points.astype(np.float64), corners.shape)).transpose(2, 0, 1)


def smooth_fields(fields: Tensor, sigma: float) -> Tensor:
    """Smooth fields (n, m, h, w) by a Gaussian of radius ⌊3σ + ½⌋, the border mirrored with its edge, float64."""
    integers = fields.double().mul(FIELD_UNIT)
    for size in fields.shape[:1:-1]:
        taps = _smoothing(size, sigma, fields.device)
        integers = (integers.round_() @ taps).div_(TAP_UNIT).transpose(2, 3).contiguous()
    return integers.div_(FIELD_UNIT)


@lru_cache(maxsize=4)  # the matrix of a large image takes tens of megabytes
def _smoothing(size: int, sigma: float, device: torch.device) -> Tensor:
    """The matrix (size, size), of integers, that smooths the rows it is multiplied to from the right."""
    radius = int(3 * sigma + 0.5)
    distances = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 / (sigma * sigma) * distances**2)
    taps = np.rint(taps / taps.sum() * TAP_UNIT)
    taps[radius] += TAP_UNIT - taps.sum()
    matrix = np.zeros((size, size))
    lines = np.arange(size)
    for distance, tap in zip(distances, taps, strict=True):
        source = (lines + distance) % (2 * size)
        matrix[np.minimum(source, 2 * size - 1 - source), lines] += tap
    return torch.from_numpy(matrix).to(device)


def _sample(values: Tensor, x: Tensor, y: Tensor, *, repeats_edge: bool) -> Tensor:
    """Values (n, c, h, w) at the positions x, y (n, h, w), interpolated linearly; float32."""
    n, channels, height, width = values.shape
    left, right, across = _neighbours(x, width, repeats_edge=repeats_edge)
    upper, lower, down = _neighbours(y, height, repeats_edge=repeats_edge)
    planes = torch.arange(n * channels, dtype=torch.int32, device=values.device).mul_(height * width)
    planes, flat = planes.view(n, channels, 1, 1), values.flatten()

    def between(rows: Tensor) -> Tensor:
        rows = rows.mul_(width)[:, None] + planes
        near = flat.index_select(0, (rows + left[:, None]).flatten()).view_as(values)
        far = flat.index_select(0, (rows + right[:, None]).flatten()).view_as(values)
        return far.sub_(near).mul_(across[:, None]).add_(near)

    above = between(upper)
    return between(lower).sub_(above).mul_(down[:, None]).add_(above)


def _neighbours(positions: Tensor, size: int, *, repeats_edge: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The lines at either side of each position, int32, and the weight of the second, float32."""
    floor = positions.floor()
    first = floor.to(torch.int32)
    period = 2 * size if repeats_edge else 2 * size - 2
    sides = []
    for line in (first, first + 1):
        line = line.remainder_(period)
        sides.append(line.minimum(period - repeats_edge - line))
    return sides[0], sides[1], positions.sub(floor).float()
