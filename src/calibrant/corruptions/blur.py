"""Gaussian, defocus, glass, motion and zoom blur.

Weighted sums are taken in a fixed order or in integers: the bytes of an image do not depend on its batch.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._arrays import to_device
from calibrant.corruptions.noise import to_bytes

UNIT_WEIGHT = 2**22  # weights as integers; 255 of these fit into 32 bits
SMALL_KERNEL = 2  # radius up to which a kernel is summed in float64, to the last bit of the published sets


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    blurred = gaussian_smooth(to_pixels(images).double().div_(255), sigma, dims=(0, 1))
    return from_pixels(to_bytes(blurred.clamp_(0, 1).mul_(255)), images)


def gaussian_smooth(planes: Tensor, sigma: float, dims: tuple[int, int] = (-2, -1)) -> Tensor:
    """Smooth float64 planes along two dimensions by a Gaussian of radius ⌊4σ + ½⌋; the edge is repeated."""
    radius = int(4 * sigma + 0.5)
    distances = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 / (sigma * sigma) * distances**2) if radius else np.ones(1)
    taps = (taps / taps.sum())[radius:]
    for dim in dims:
        size = planes.shape[dim]
        index = torch.arange(-radius, size + radius, device=planes.device).clamp_(0, size - 1)
        padded = planes.index_select(dim, index)
        total, pair = planes * float(taps[0]), torch.empty_like(planes)
        for distance in range(radius, 0, -1):
            before, after = (padded.narrow(dim, radius + shift, size) for shift in (-distance, distance))
            total.add_(torch.add(before, after, out=pair).mul_(float(taps[distance])))
        planes = total
    return planes


def defocus_blur(images: Tensor, radius: float, alias: float) -> Tensor:
    """A disk smoothed by a small Gaussian; the border is mirrored without its edge.

    Each row of the kernel is a stack of centred boxes: integer sums over boxes replace most products.
    """
    steps = box_steps(radius, alias)
    reach = len(steps) - 1
    height, width = images.shape[2:]
    two_boxes = 2 * (2 * reach + 1) * 255
    pixels = _mirror_border(to_pixels(images), reach).to(torch.int16 if two_boxes < 2**15 else torch.int32)
    exact = steps.dtype == np.float64
    total = torch.zeros_like(pixels[:height, :width], dtype=torch.float64 if exact else torch.int32)
    box = torch.zeros_like(pixels[:, :width])
    pair, wide = torch.empty_like(box[:height]), torch.empty_like(total)
    for half_width in range(reach + 1):
        for left in {reach - half_width, reach + half_width}:
            box.add_(pixels[:, left : left + width])
        for distance in range(reach + 1):
            step = steps[distance, half_width].item()
            if step == 0:
                continue
            rows = box[reach + distance : reach + distance + height]
            if distance:
                rows = torch.add(rows, box[reach - distance : reach - distance + height], out=pair)
            if exact:
                total.add_(wide.copy_(rows).mul_(step))
            else:
                total.add_(rows, alpha=step)
    levels = to_bytes(total) if exact else total.bitwise_right_shift_(22).clamp_(0, 255).to(torch.uint8)
    return from_pixels(levels, images)


@lru_cache(maxsize=64)
def box_steps(radius: float, alias: float) -> np.ndarray:
    """The kernel as boxes, (r + 1, r + 1): entry [d, w] weighs the box of half width w in the rows at distance d.

    Small kernels are float64. Large ones are multiples of 2⁻²² whose sum is that of the kernel, rounded down: a kernel
    that sums to less than 1 lowers flat areas by a level, as its exact weights do.
    """
    kernel = disk_kernel(radius, alias)
    reach = len(kernel) // 2
    quarter = kernel[reach:, reach:]
    steps: np.ndarray = quarter - np.pad(quarter, ((0, 0), (0, 1)))[:, 1:]
    if reach <= SMALL_KERNEL:
        return steps
    integers: np.ndarray = np.rint(steps * UNIT_WEIGHT).astype(np.int64)
    boxes = (2 - (np.arange(reach + 1) == 0))[:, None] * (2 * np.arange(reach + 1) + 1)
    integers[0, 0] += math.floor(kernel.sum() * UNIT_WEIGHT) - (integers * boxes).sum()
    return integers


@lru_cache(maxsize=64)
def disk_kernel(radius: float, alias: float) -> np.ndarray:
    """A disk smoothed by a Gaussian of scale alias, 3 x 3 or, for large disks, 5 x 5, cut to its support.

    Single precision, as for the published sets: their flat areas are a level lower where the weights sum to less than
    1. The smoothing mirrors the border of the array; the kernel of a disk that reaches it sums to more than 1.
    """
    reach, side = (8, 3) if radius <= 8 else (math.ceil(radius), 5)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    distances = np.arange(side) - side // 2
    taps = np.exp(-(distances**2) / (2 * alias * alias)).astype(np.float32)
    taps = (taps * (1 / taps.sum(dtype=np.float64))).astype(np.float32)
    half = side // 2
    for _ in range(2):  # across, then down
        disk = np.pad(disk.T, ((half, half), (0, 0)), mode="reflect")
        total = taps[half] * disk[half : half + len(line)]
        for distance in range(1, half + 1):
            before, after = (disk[half + shift : half + shift + len(line)] for shift in (-distance, distance))
            total = total + taps[half + distance] * (before + after)
        disk = total
    support = np.abs(line[(disk > 1e-9).any(0)]).max()
    return disk[reach - support : reach + support + 1, reach - support : reach + support + 1].astype(np.float64)


def _mirror_border(pixels: Tensor, reach: int) -> Tensor:
    """Pixels (h, w, …) with a border that mirrors them without repeating the edge, as often as it takes."""
    for dim in (0, 1):
        size = pixels.shape[dim]
        index = torch.arange(-reach, size + reach, device=pixels.device).remainder(2 * size - 2)
        pixels = pixels.index_select(dim, index.minimum(2 * size - 2 - index))
    return pixels


def glass_blur(images: Tensor, sigma: float, reach: int, sweeps: int, offsets: Tensor) -> Tensor:
    """Blurred, shuffled locally, blurred again.

    A sweep visits the pixels from the last to the first; each takes the value of a neighbour at most reach away. The
    published scripts intend a swap but copy: on views of an array the second assignment reads what the first has
    written. offsets (n, sweeps, 2, h - 2 reach, w - 2 reach): x and y of the neighbour of each pixel.
    """
    blurred = gaussian_blur(images, sigma)
    n, channels, height, width = images.shape
    planes = torch.arange(n * channels, dtype=torch.int32, device=images.device).mul_(height * width)
    for sweep in offsets.unbind(1):
        source = _glass_sources(sweep.to(torch.int32), reach, height, width)
        index = source.view(n, 1, -1) + planes.view(n, channels, 1)
        blurred = blurred.flatten().index_select(0, index.flatten()).view_as(images)
    return gaussian_blur(blurred, sigma)


def _glass_sources(offsets: Tensor, reach: int, height: int, width: int) -> Tensor:
    """For each pixel (n, h · w) the pixel whose value before the sweep it has after it.

    A neighbour that was visited before has the value that it took itself; one that was not has its own. Such chains
    exist only with reach > 1: they are resolved by doubling until nothing changes.
    """
    pixels = torch.arange(height * width, dtype=torch.int32, device=offsets.device).view(height, width)
    inner = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    source = pixels.repeat(len(offsets), 1, 1)
    source[:, *inner] += offsets[:, 0] + offsets[:, 1] * width
    if reach == 1:
        return source
    visited = torch.zeros_like(pixels, dtype=torch.bool)
    visited[inner] = True
    source, start = source.flatten(1), pixels.flatten()
    ends = (source <= start) | ~visited.flatten()[source]  # the value taken there is the old one
    following = torch.where(ends, start, source)  # the pixel that takes the same value; itself at an end
    while True:
        further = following.gather(1, following.long())
        if torch.equal(further, following):
            return source.gather(1, following.long())
        following = further


def motion_blur(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """The weighted sum along a line that leaves each pixel at its image's angle (degrees, on the CPU); edges repeat.

    One side of a Gaussian, at integer offsets (⌈i cos t - ½⌉, ⌈i sin t - ½⌉). Images are sorted by angle: neighbours
    that share an offset are added at once. Half a level of 16 bits is added before flooring, because the published sets
    were first rounded to 16 bits.
    """
    steps = np.arange(2 * round(radius) + 1)
    shares = np.exp(-(steps**2) / (2.0 * sigma * sigma))
    weights = np.rint(shares / shares.sum() * UNIT_WEIGHT).astype(np.int64)
    weights[0] += UNIT_WEIGHT - weights.sum()
    order = angles.argsort(stable=True)
    directions = torch.deg2rad(angles[order]).numpy()[:, None]
    across = np.ceil(steps * np.cos(directions) - 0.5).astype(np.int64)
    down = np.ceil(steps * np.sin(directions) - 0.5).astype(np.int64)
    left, right, above, below = -across.min(), across.max(), -down.min(), down.max()
    by_angle = images.index_select(0, to_device(order, images.device))
    planes = F.pad(by_angle.float(), (left, right, above, below), mode="replicate").to(torch.int32)
    height, width = images.shape[2:]
    total = torch.full(images.shape, UNIT_WEIGHT // 514, dtype=torch.int32, device=images.device)
    for step, weight in enumerate(weights.tolist()):
        offsets = np.stack((down[:, step] + above, across[:, step] + left), axis=1)
        starts = np.flatnonzero(np.r_[True, (np.diff(offsets, axis=0) != 0).any(1)])
        for start, end in zip(starts, np.r_[starts[1:], len(offsets)], strict=True):
            y, x = offsets[start]
            total[start:end].add_(planes[start:end, :, y : y + height, x : x + width], alpha=weight)
    blurred = total.bitwise_right_shift_(22).to(torch.uint8)
    return blurred.index_select(0, to_device(order.argsort(), images.device))


def zoom_blur(images: Tensor, factors: Sequence[float]) -> Tensor:
    """The mean of an image and its enlargements, in the mixed precision of the published sets."""
    pixels = to_pixels(images).double().div_(255).float()
    wide, total = pixels.double(), torch.zeros_like(pixels)
    scratch = torch.empty_like(wide), torch.empty_like(wide), torch.empty_like(wide)
    single = torch.empty_like(pixels)
    for factor in factors:
        total.add_(single.copy_(enlarge(wide, factor, scratch)))
    mean = pixels.add_(total).div_(len(factors) + 1)
    return from_pixels(to_bytes(mean.clamp_(0, 1).mul_(255)), images)


def to_pixels(images: Tensor) -> Tensor:
    """(n, c, h, w) as (h, w, n · c): shifts and resampling then move contiguous memory."""
    return images.flatten(0, 1).permute(1, 2, 0).contiguous()


def from_pixels(pixels: Tensor, images: Tensor) -> Tensor:
    return pixels.permute(2, 0, 1).reshape(images.shape)


def enlarge(pixels: Tensor, factor: float, scratch: Sequence[Tensor]) -> Tensor:
    """Enlarge the middle of (h, w, m), float64, linearly to the same size, corners aligned; returns the last scratch.

    The caller allocates the scratch tensors once: allocating them for each factor takes longer than filling them.
    """
    for dim, out in ((0, scratch[0]), (1, scratch[2])):
        lower, upper, near, far = _enlargement(pixels.shape[dim], factor, pixels.device)
        shape = (-1, 1, 1) if dim == 0 else (-1, 1)
        torch.index_select(pixels, dim, lower, out=out).mul_(near.view(shape))
        out.add_(torch.index_select(pixels, dim, upper, out=scratch[1]).mul_(far.view(shape)))
        pixels = out
    return pixels


@lru_cache(maxsize=256)
def _enlargement(size: int, factor: float, device: torch.device) -> tuple[Tensor, ...]:
    """For each line of the enlargement: the original lines at either side, and the weights of both."""
    crop = math.ceil(size / factor)
    out = round(crop * factor)
    trim = (out - size) // 2
    positions = np.arange(trim, trim + size) * ((crop - 1) / max(1, out - 1))
    lower = np.minimum(np.floor(positions), crop - 1)
    far = positions - lower
    sides = (np.minimum(lower + side, crop - 1).astype(np.int64) + (size - crop) // 2 for side in (0, 1))
    return tuple(torch.from_numpy(values).to(device) for values in (*sides, 1 - far, far))
