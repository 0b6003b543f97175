"""Elastic transform: a random affine map, then a smooth random displacement of every pixel."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from calibrant.corruptions.noise import to_bytes

FIELD_ONE, TAP_ONE = 2.0**23, 2.0**28  # products of such whole numbers sum exactly in float64, in whatever order


def elastic_transform(images: Tensor, alpha: float, sigma: float, corners: Tensor, fields: Tensor) -> Tensor:
    """The image under the affine map that moves three points by corners, then displaced by alpha · smooth fields.

    Both steps take values between pixels linearly; the first mirrors the border without its edge, the second with it.
    corners (n, 3, 2) and the displacement are in pixels; fields (n, 2, h, w) are uniform in (-1, 1), x first.
    """
    height, width = images.shape[2:]
    lines = (torch.arange(size, dtype=torch.float64, device=images.device) for size in (height, width))
    y, x = torch.meshgrid(*lines, indexing="ij")
    maps = torch.from_numpy(_sources(corners.double().cpu().numpy(), height, width)).to(images.device)
    across, down = ((x * a).add_(y * b).add_(c) for a, b, c in maps[..., None, None].transpose(1, 2))
    values = _sampled(images.float(), across, down, repeats_edge=False)
    if alpha:
        shift = smooth_fields(fields, sigma).mul_(alpha)
        values = _sampled(values, shift[:, 0] + x, shift[:, 1] + y, repeats_edge=True)
    return to_bytes(values)


def _sources(corners: np.ndarray, height: int, width: int) -> np.ndarray:
    """For each image the rows (a, b, c) with which a x + b y + c is the source's x, and its y: float64 (2, n, 3)."""
    # the published scripts take (height, width) for (x, y)
    middle, reach = np.array([height // 2, width // 2]), min(height, width) // 3
    points = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = np.concatenate((points + corners, np.ones((len(corners), 3, 1))), axis=2)
    return np.linalg.solve(moved, np.broadcast_to(points.astype(np.float64), corners.shape)).transpose(2, 0, 1)


def smooth_fields(fields: Tensor, sigma: float) -> Tensor:
    """Fields (n, m, h, w) under a Gaussian of radius ⌊3σ + ½⌋, the border mirrored with its edge, float64."""
    whole = fields.double().mul(FIELD_ONE)
    for size in fields.shape[:1:-1]:
        taps = _smoothing(size, sigma, fields.device)
        whole = (whole.round_() @ taps).div_(TAP_ONE).transpose(2, 3).contiguous()
    return whole.div_(FIELD_ONE)


@lru_cache(maxsize=4)  # of a large image it takes tens of megabytes
def _smoothing(size: int, sigma: float, device: torch.device) -> Tensor:
    """The matrix (size, size), of whole numbers, that smooths the lines it is multiplied to from the right."""
    radius = int(3 * sigma + 0.5)
    distances = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 / (sigma * sigma) * distances**2)
    taps = np.rint(taps / taps.sum() * TAP_ONE)
    taps[radius] += TAP_ONE - taps.sum()
    matrix = np.zeros((size, size))
    lines = np.arange(size)
    for distance, tap in zip(distances, taps, strict=True):
        place = (lines + distance) % (2 * size)
        matrix[np.minimum(place, 2 * size - 1 - place), lines] += tap
    return torch.from_numpy(matrix).to(device)


def _sampled(values: Tensor, x: Tensor, y: Tensor, *, repeats_edge: bool) -> Tensor:
    """Values (n, c, h, w) at the places x, y (n, h, w), linear in between; float32."""
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


def _neighbours(places: Tensor, size: int, *, repeats_edge: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The lines at either side of each place, int32, and how far it lies between them, float32."""
    floor = places.floor()
    first = floor.to(torch.int32)
    period = 2 * size if repeats_edge else 2 * size - 2
    sides = []
    for line in (first, first + 1):
        line = line.remainder_(period)
        sides.append(line.minimum(period - repeats_edge - line))
    return sides[0], sides[1], places.sub(floor).float()
