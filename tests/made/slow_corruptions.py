"""Every corruption written from its definition: one image, float64, step by step; slow, and unlike the library.

An image is a uint8 array (height, width, channels). Each function takes the image, the parameters in the order of the
published tables, and the random draws; draws that belong to single values have the shape of the image.
"""

import colorsys
import io
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage, stats

from calibrant.corruptions.severities import PARAMETERS

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float64]


def floored(unit_values: Floats) -> Pixels:
    """Bytes of an image in [0, 1]: clipped, times 255, cut off; never rounded."""
    return np.floor(np.clip(unit_values, 0, 1) * 255).astype(np.uint8)


def unit(image: Pixels) -> Floats:
    return image.astype(np.float64) / 255


def uniforms(words: NDArray[np.int32]) -> Floats:
    """The number in (0, 1) that a 32-bit word stands for."""
    return (words.astype(np.float64) + 2**31 + 0.5) / 2**32


def luma(image: Pixels) -> Pixels:
    """The grey level of three channels, as Pillow rounds it."""
    red, green, blue = (image[:, :, channel].astype(np.int64) for channel in range(3))
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).astype(np.uint8)[:, :, None]


# Noise


def gaussian_noise(image: Pixels, scale: float, normals: Floats) -> Pixels:
    return floored(unit(image) + scale * normals)


def speckle_noise(image: Pixels, scale: float, normals: Floats) -> Pixels:
    return floored(unit(image) + unit(image) * scale * normals)


def shot_noise(image: Pixels, photons: float, words: NDArray[np.int32]) -> Pixels:
    """Photon counts of mean photons · x, by inversion: the smallest count whose probability up to it reaches u."""
    u = uniforms(words)
    counts = np.zeros(image.shape)
    for level in range(1, 256):  # a black value has no photons
        here = image == level
        counts[here] = stats.poisson.ppf(u[here], photons * (level / 255))
    return floored(counts / photons)


def impulse_noise(image: Pixels, amount: float, words: NDArray[np.int32]) -> Pixels:
    u = uniforms(words)
    result = image.copy()
    result[u < amount / 2] = 0
    result[u > 1 - amount / 2] = 255
    return result


# Blur


def smooth(plane: Floats, sigma: float, *, truncate: float, border: str) -> Floats:
    """Gaussian smoothing of height and width, with the taps cut at truncate · sigma."""
    sigmas = (sigma, sigma, 0)[: plane.ndim]
    return np.asarray(ndimage.gaussian_filter(plane, sigmas, truncate=truncate, mode=border))


def gaussian_blur(image: Pixels, sigma: float) -> Pixels:
    return floored(smooth(unit(image), sigma, truncate=4, border="nearest"))


def defocus_kernel(radius: float, alias: float) -> Floats:
    """A disk on an aperture of at least 17 × 17, smoothed; a disk that meets the border of the array gains there.

    In float32, as published: whether the weights sum to just above or just below 1 decides the bytes of flat areas.
    """
    reach, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    steps = range(-reach, reach + 1)
    disk = np.array([[float(x**2 + y**2 <= radius**2) for x in steps] for y in steps], np.float32)
    disk /= disk.sum()
    half = taps // 2
    weights = [math.exp(-(k**2) / (2 * alias**2)) for k in range(half + 1)]
    total = weights[0] + 2 * math.fsum(weights[1:])
    side = 2 * reach + 1
    for axis in (1, 0):
        wide = np.pad(disk, [(half, half) if a == axis else (0, 0) for a in (0, 1)], mode="reflect")
        slices = [wide.take(range(k, k + side), axis) for k in range(taps)]
        disk = np.float32(weights[0] / total) * slices[half]
        for k in range(1, half + 1):
            disk = disk + np.float32(weights[k] / total) * (slices[half - k] + slices[half + k])
    return disk.astype(np.float64)


def defocus_blur(image: Pixels, radius: float, alias: float) -> Pixels:
    kernel = defocus_kernel(radius, alias)
    reach = len(kernel) // 2
    height, width, _ = image.shape
    wide = np.pad(unit(image), ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    result = np.zeros(image.shape)
    for i, j in np.argwhere(kernel > 0):
        result += kernel[i, j] * wide[i : i + height, j : j + width]
    return floored(result)


def glass_blur(image: Pixels, sigma: float, reach: int, sweeps: int, offsets: NDArray[np.int64]) -> Pixels:
    """Blur, cut to bytes, copy pixels from nearby (the last row first), blur.

    The published swap of two array views ends as a copy: the first assignment is read back by the second.
    """
    height, width, _ = image.shape
    blurred = floored(smooth(unit(image), sigma, truncate=4, border="nearest"))
    content = [[(row, column) for column in range(width)] for row in range(height)]  # what each pixel shows
    for sweep in range(sweeps):
        dx, dy = offsets[sweep].tolist()
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                i, j = row - reach - 1, column - reach - 1
                content[row][column] = content[row + dy[i][j]][column + dx[i][j]]
    sources = np.array(content)
    copied = blurred[sources[:, :, 0], sources[:, :, 1]]
    return floored(smooth(unit(copied), sigma, truncate=4, border="nearest"))


def motion_blur(image: Pixels, radius: float, sigma: float, angle: float) -> Pixels:
    """Mean along a ray with the weights of half a bell, in 16 bits (level · 257, rounded), then back to 8 (cut off)."""
    width = 2 * math.ceil(radius) + 1
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(width)]
    total = math.fsum(weights)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    rows, columns = np.arange(image.shape[0]), np.arange(image.shape[1])
    mean = np.zeros(image.shape)
    for i, weight in enumerate(weights):
        across, down = math.ceil(i * cosine - 0.5), math.ceil(i * sine - 0.5)
        near_rows = np.clip(rows + down, 0, image.shape[0] - 1)
        near_columns = np.clip(columns + across, 0, image.shape[1] - 1)
        mean += weight / total * image[near_rows][:, near_columns]
    return (np.floor(257 * mean + 0.5) // 257).astype(np.uint8)


def clipped_zoom(plane: NDArray[np.floating], factor: float) -> NDArray[np.floating]:
    """The centre of the plane enlarged to at least its size, and trimmed to it; each axis by itself."""
    inner = []
    for length in plane.shape:
        kept = math.ceil(length / factor)
        start = (length - kept) // 2
        inner.append(slice(start, start + kept))
    enlarged = ndimage.zoom(plane[tuple(inner)], factor, order=1)
    trimmed = []
    for length, got in zip(plane.shape, enlarged.shape, strict=True):
        start = (got - length) // 2
        trimmed.append(slice(start, start + length))
    return enlarged[tuple(trimmed)]


def zoom_blur(image: Pixels, factors: Sequence[float]) -> Pixels:
    """Mean of the image and its zooms, of which the first is the image again; float32 as published."""
    result = np.zeros_like(image)
    for channel in range(image.shape[2]):
        plane = unit(image[:, :, channel]).astype(np.float32)
        total = np.zeros_like(plane)
        for factor in factors:
            total += clipped_zoom(plane, float(factor))
        mean = (plane + total) / np.float32(len(factors) + 1)
        result[:, :, channel] = np.floor(np.clip(mean, 0, 1) * np.float32(255)).astype(np.uint8)
    return result


# Weather


def snow(
    image: Pixels,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    mix: float,
    normals: Floats,
    angle: float,
) -> Pixels:
    flakes = clipped_zoom(mean + std * normals.astype(np.float64), zoom).copy()
    flakes[flakes < threshold] = 0
    flakes = unit(motion_blur(floored(flakes)[:, :, None], radius, sigma, angle))
    x = unit(image)
    grey = (0.299 * x[:, :, 0] + 0.587 * x[:, :, 1] + 0.114 * x[:, :, 2])[:, :, None]
    whitened = mix * x + (1 - mix) * np.maximum(x, 1.5 * grey + 0.5)
    return floored(whitened + flakes + flakes[::-1, ::-1])


def plasma(side: int, decay: float, noise: Floats) -> Floats:
    """Diamond-square on a torus: each new node is the mean of four older ones plus wibble² · noise."""
    heights = [[0.0] * side for _ in range(side)]
    draws = noise.tolist()
    step, wibble = side, 100.0
    while step >= 2:
        half = step // 2
        for y in range(half, side, step):
            for x in range(half, side, step):
                up, left, down, right = y - half, x - half, (y + half) % side, (x + half) % side
                corners = heights[up][left] + heights[up][right] + heights[down][left] + heights[down][right]
                heights[y][x] = corners / 4 + wibble * wibble * draws[y][x]
        for y in range(0, side, half):
            for x in range(half if y % step == 0 else 0, side, step):
                around = heights[y - half][x] + heights[(y + half) % side][x]  # y − half = −half counts from the end
                around += heights[y][x - half] + heights[y][(x + half) % side]
                heights[y][x] = around / 4 + wibble * wibble * draws[y][x]
        step, wibble = half, wibble / decay
    plane = np.array(heights)
    plane -= plane.min()
    return plane / plane.max()


def fog(image: Pixels, density: float, decay: float, noise: Floats) -> Pixels:
    height, width, _ = image.shape
    x = unit(image)
    brightest = x.max()
    x = x + density * plasma(len(noise), decay, noise)[:height, :width, None]
    return floored(x * brightest / (brightest + density))


def frost(image: Pixels, weight: float, share: float, crop: Pixels) -> Pixels:
    return np.floor(np.clip(weight * image.astype(np.float64) + share * crop, 0, 255)).astype(np.uint8)


# Colour


def hsv_route(image: Pixels, change: Callable[[float, float, float], tuple[float, float, float]]) -> Pixels:
    result = np.zeros(image.shape)
    for row, line in enumerate((image / 255).tolist()):
        for column, (red, green, blue) in enumerate(line):
            result[row, column] = colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(red, green, blue)))
    return floored(result)


def brightness(image: Pixels, shift: float) -> Pixels:
    return hsv_route(image, lambda hue, saturation, value: (hue, saturation, min(max(value + shift, 0), 1)))


def saturate(image: Pixels, gain: float, shift: float) -> Pixels:
    return hsv_route(image, lambda hue, saturation, value: (hue, min(max(gain * saturation + shift, 0), 1), value))


def contrast(image: Pixels, gain: float) -> Pixels:
    x = unit(image)
    mean = x.mean(axis=(0, 1))
    return floored((x - mean) * gain + mean)


# Digital


def pillow(image: Pixels) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def from_pillow(image: Image.Image) -> Pixels:
    array = np.array(image)
    return array[:, :, None] if array.ndim == 2 else array


def pixelate(image: Pixels, share: float) -> Pixels:
    """Box means, and each of them repeated; across first, then down, as every release of Pillow before 13 did."""
    height, width, _ = image.shape
    small_height, small_width = int(height * share), int(width * share)
    image = pillow(image)
    for size in ((small_width, height), (small_width, small_height), (width, small_height), (width, height)):
        image = image.resize(size, Image.Resampling.BOX)
    return from_pillow(image)


def jpeg_compression(image: Pixels, quality: int) -> Pixels:
    file = io.BytesIO()
    pillow(image).save(file, "JPEG", quality=quality)
    return from_pillow(Image.open(file))


# Elastic transform


def affine_map(before: Floats, after: Floats) -> Floats:
    """The 2 × 3 matrix that takes the three points `before` to the three points `after`; points are rows (x, y)."""
    return np.linalg.solve(np.column_stack([before, np.ones(3)]), after).T


def bilinear(x: Floats, columns: Floats, rows: Floats, border: str) -> Floats:
    planes = [ndimage.map_coordinates(x[:, :, c], [rows, columns], order=1, mode=border) for c in range(x.shape[2])]
    return np.stack(planes, axis=2)


def elastic_transform(image: Pixels, alpha: float, sigma: float, corners: Floats, fields: Floats) -> Pixels:
    """A random affine map, then a smooth random displacement; sigma 0 means no displacement."""
    height, width, _ = image.shape
    x, y = height // 2, width // 2  # as published, which differs from the centre (width // 2, height // 2) off squares
    arm = min(height, width) // 3
    before = np.array([[x + arm, y + arm], [x + arm, y - arm], [x - arm, y - arm]], np.float32)
    after = before + corners.astype(np.float32)
    back = affine_map(after.astype(np.float64), before.astype(np.float64))
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    source_columns = back[0, 0] * columns + back[0, 1] * rows + back[0, 2]
    source_rows = back[1, 0] * columns + back[1, 1] * rows + back[1, 2]
    moved = bilinear(unit(image), source_columns, source_rows, "mirror")
    if sigma > 0:
        dx, dy = (alpha * smooth(field.astype(np.float64), sigma, truncate=3, border="reflect") for field in fields)
        moved = bilinear(moved, columns + dx, rows + dy, "reflect")
    return floored(moved)


# Spatter


def is_ridge(size: NDArray[np.int64], x: int, y: int, row: int, column: int) -> bool:
    """Whether the gradient is largest here along its own direction; of two equal neighbours the first is the ridge.

    `size` has a margin of one zero. The direction is across, down or diagonal, parted at tan 22.5° = 13573 / 2^15.
    """
    here = size[row, column]
    flat = abs(x) * 13573
    if abs(y) << 15 < flat:
        return bool(here > size[row, column - 1] and here >= size[row, column + 1])
    if abs(y) << 15 > flat + (abs(x) << 16):
        return bool(here > size[row - 1, column] and here >= size[row + 1, column])
    lean = -1 if (x < 0) != (y < 0) else 1
    return bool(here > size[row - 1, column - lean] and here > size[row + 1, column + lean])


def canny(plane: Pixels, low: int, high: int) -> NDArray[np.bool_]:
    """Ridges of the Sobel gradient (|x| + |y|) above `high`, and those above `low` that touch them, step by step."""
    sobel = [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]
    gradient_x = ndimage.correlate(plane.astype(np.int64), sobel, mode="nearest").astype(np.int64)
    gradient_y = ndimage.correlate(plane.astype(np.int64), np.transpose(sobel), mode="nearest").astype(np.int64)
    size = np.pad(np.abs(gradient_x) + np.abs(gradient_y), 1)
    ridges = np.zeros(plane.shape, bool)
    for row, column in np.argwhere(size[1:-1, 1:-1] > low).tolist():
        ridges[row, column] = is_ridge(
            size, int(gradient_x[row, column]), int(gradient_y[row, column]), row + 1, column + 1
        )
    groups, _ = ndimage.label(ridges, np.ones((3, 3)))
    return ridges & np.isin(groups, groups[ridges & (size[1:-1, 1:-1] > high)])


def chamfer(edges: NDArray[np.bool_], cap: int) -> NDArray[np.int64]:
    """Length of the shortest path to an edge in steps of a king (1, 1.4) and a knight (2.1969), at most `cap`.

    In ten-thousandths, so that it is exact. A path of `long` by `short` pixels takes as many knight's steps as it can.
    """
    height, width = edges.shape
    wide = np.pad(edges, cap)
    distance = np.full(edges.shape, cap * 10000)
    for dy in range(-cap, cap + 1):
        for dx in range(-cap, cap + 1):
            short, long = sorted((abs(dy), abs(dx)))
            if 2 * short <= long:
                path = short * 21969 + (long - 2 * short) * 10000
            else:
                path = (long - short) * 21969 + (2 * short - long) * 14000
            if path < cap * 10000:
                there = wide[cap + dy : cap + dy + height, cap + dx : cap + dx + width]
                distance[there] = np.minimum(distance[there], path)
    return distance


def equalised(plane: Pixels) -> Pixels:
    """Levels replaced by the share of pixels up to them; the darkest level becomes 0. Float32 decides ties."""
    levels, counts = np.unique(plane, return_counts=True)
    if len(levels) == 1:
        return plane
    scale = np.float32(255) / np.float32(plane.size - counts[0])
    total = 0
    result = np.zeros_like(plane)
    for level, count in zip(levels[1:].tolist(), counts[1:].tolist(), strict=True):
        total += count
        result[plane == level] = np.rint(np.float32(total) * scale)
    return result


def water(layer: Pixels) -> Floats:
    """How strongly each pixel is lit, at most 1: the layer times an embossed map of the distances to its outline."""
    ones = np.ones((3, 3))
    distance = chamfer(canny(layer, 50, 150), 20)
    relief = equalised((ndimage.correlate(distance, ones, mode="mirror") // 90000).astype(np.uint8))
    embossed = np.clip(
        ndimage.correlate(relief.astype(np.int64), [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], mode="mirror"), 0, 255
    )
    light = layer * np.rint(ndimage.correlate(embossed, ones, mode="mirror") / 9)
    return light / light.max() if light.max() > 0 else light


def spatter(
    image: Pixels, mean: float, std: float, sigma: float, threshold: float, strength: float, mud: bool, normals: Floats
) -> Pixels:
    """Water lights the image up in pale turquoise; mud covers it in brown. Of mud, `strength` is a second blur."""
    layer = smooth(mean + std * normals.astype(np.float64), sigma, truncate=4, border="nearest")
    if mud:
        cover = smooth((layer > threshold).astype(np.float64), strength, truncate=4, border="nearest")[:, :, None]
        cover[cover < 0.8] = 0
        return floored(unit(image) * (1 - cover) + cover * np.array([63, 42, 20]) / 255)
    layer[layer < threshold] = 0
    levels = (np.floor(layer * 255) % 256).astype(np.uint8)  # beyond white the published cast starts again at black
    light = strength * water(levels)[:, :, None]
    return floored(unit(image) + light * np.array([175, 238, 238]) / 255)


SLOW: dict[str, Callable[..., Pixels]] = {name: globals()[name] for name in PARAMETERS}
NEEDS_COLOUR = {"snow", "frost", "brightness", "saturate", "spatter"}


def slow_corruption(name: str, image: Pixels, *arguments: object) -> Pixels:
    """One image corrupted; a grey one by way of three equal channels where the definition needs colour."""
    if image.shape[2] == 1 and name in NEEDS_COLOUR:
        return luma(SLOW[name](np.repeat(image, 3, axis=2), *arguments))
    return SLOW[name](image, *arguments)
