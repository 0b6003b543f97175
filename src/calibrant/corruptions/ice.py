"""Ferns and stars of ice on a window, generated: images with the statistics of the photographs that they replace."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, special

from calibrant.corruptions.colour import LUMA

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
RGBImage = NDArray[np.uint8]  # (height, width, 3)

STEP = 0.5  # pixels between the points of a stroke
PERCENTILES = np.array((0.02, 1, 10, 50, 90, 99, 99.98))
ROUNDS = 2  # of matching the spectrum, then the histogram: each changes the other, less in every round


class Pattern(NamedTuple):
    """The size (height, width) and statistics of a photograph, and the ice that is grown in its place.

    Ice is crystals of stems, branches and branchlets from scattered seeds; lengths in pixels, angles in radians.
    """

    size: tuple[int, int]
    mean: tuple[float, float, float]  # of red, green and blue
    std: tuple[float, float, float]
    correlation: tuple[float, float]  # of red with green and with blue
    luma: tuple[float, ...]  # at PERCENTILES
    slopes: tuple[float, float]  # of the power spectrum, below and above the knee
    knee: float  # cycles per pixel
    light: float  # deviation of the uneven light, as a share of that of the ice
    seeds: int
    stem: float  # length
    branch: float  # length of the longest branch, as a share of its stem
    heading: float
    swirl: float  # deviation of the headings, which turn slowly over the window
    arms: int  # stems from one seed: 1 makes ferns, 6 makes stars
    angle: float  # between a stem and its branches


# A column for each photograph; spectra and light such that windows of 32, 64 and 224 pixels have those of its windows.
PHOTOGRAPH_STATISTICS: dict[str, tuple[Any, ...]] = {
    "size": ((600, 900), (315, 560), (350, 527), (495, 660)),
    "mean": ((77, 148, 165), (198, 203, 212), (145, 160, 173), (101, 112, 124)),
    "std": ((27, 16, 15), (21, 21, 22), (27, 27, 29), (38, 37, 36)),
    "correlation": ((0.79, 0.53), (0.995, 0.99), (0.997, 0.99), (1.0, 0.998)),
    "luma": (
        (88, 96, 107, 127, 153, 178, 215),
        (115, 143, 176, 206, 225, 236, 245),
        (50, 79, 124, 158, 189, 234, 250),
        (30, 43, 65, 107, 161, 210, 245),
    ),
    "slopes": ((1.75, 1.75), (0.7, 2.65), (-0.1, 2.2), (0.6, 2.15)),
    "knee": (0.05, 0.06, 0.065, 0.016),
    "light": (0.55, 0.6, 0.5, 0.3),
    "seeds": (100, 70, 80, 75),
    "stem": (150, 85, 42, 130),
    "branch": (0.55, 0.6, 0.6, 0.55),
    "heading": (-0.6, 0.9, 0, -1.2),
    "swirl": (0.5, 0.8, 2.5, 0.6),
    "arms": (1, 1, 6, 1),
    "angle": (0.7, 0.7, np.pi / 3, 0.7),
}
PATTERN_OF_PHOTOGRAPH = (0, 1, 1, 2, 3)  # the second and third photograph are the same image


class Strokes(NamedTuple):
    """Bent lines from (x, y); ``bend`` is the total turn, ``stem`` the number of the stem that they belong to."""

    x: FloatArray
    y: FloatArray
    heading: FloatArray
    length: FloatArray
    bend: FloatArray
    stem: IntArray

    def repeat(self, counts: IntArray) -> "Strokes":
        x, y, heading, length, bend = (np.repeat(values, counts) for values in self[:5])
        return Strokes(x=x, y=y, heading=heading, length=length, bend=bend, stem=np.repeat(self.stem, counts))

    def along(self, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points at a share of the length from the start; a circle's arc to second order in the bend."""
        heading = self.heading + self.bend * share / 2
        return self.x + share * self.length * np.cos(heading), self.y + share * self.length * np.sin(heading)


@lru_cache
def grow_ice(number: int) -> RGBImage:
    """The image of one pattern; the same bytes in every process."""
    pattern = Pattern(**{name: values[number] for name, values in PHOTOGRAPH_STATISTICS.items()})
    rng = np.random.default_rng(number)
    luma = np.log1p(_density(pattern, rng))
    luma = luma / luma.std() + 0.35 * _cloud(rng, pattern.size, slope=2.5)
    for _ in range(ROUNDS):
        luma = _match_percentiles(_match_power(luma, pattern), pattern.luma)
    down, across = (np.cos(np.pi * (np.arange(side) + 0.5) / side) for side in pattern.size)
    light = down[:, None] + across  # from the top left to the bottom right, of mean 0 and deviation 1
    luma = _match_percentiles(luma / luma.std() + pattern.light * light, pattern.luma)
    return _add_colour(luma, _cloud(rng, pattern.size, slope=2.5), pattern)


def _add_colour(luma: FloatArray, hue: FloatArray, pattern: Pattern) -> RGBImage:
    """Three channels with the means, deviations and correlations of the pattern; ``hue`` does not change the luma.

    Each channel is a vector in the plane of luma (real) and hue (imaginary): its length is the deviation, the angles
    between the vectors give the correlations, and the plane is rotated until the luma of the three is real.
    """
    luma = (luma - luma.mean()) / luma.std()
    hue = hue - (hue * luma).mean() * luma
    vectors = np.array(pattern.std) * np.exp(-1j * np.arccos((1, *pattern.correlation)))
    vectors *= np.exp(-1j * np.angle(np.array(LUMA) @ vectors))
    levels = pattern.mean + luma[..., None] * vectors.real + hue[..., None] / hue.std() * vectors.imag
    image: RGBImage = np.floor(levels.clip(0, 255) + 0.5).astype(np.uint8)
    return image


def _match_percentiles(values: FloatArray, percentiles: tuple[float, ...]) -> FloatArray:
    """A monotone map of the values to these percentiles, with pieces of normal distributions between them."""
    knots = special.ndtri(PERCENTILES / 100)
    scores = np.linspace(knots[0], knots[-1], 64)
    found = np.quantile(values.ravel()[::7], special.ndtr(scores))
    mapped: FloatArray = np.interp(values, found, np.interp(scores, knots, percentiles))
    return mapped


def _match_power(values: FloatArray, pattern: Pattern) -> FloatArray:
    """The values with the power of the pattern in each band; phases and directions are kept."""
    frequency = _frequency(values.shape)
    wanted = 1 / sum((frequency / pattern.knee) ** slope for slope in pattern.slopes)
    waves = np.fft.rfft2(values - values.mean())
    bands = (4 * np.log2(frequency / frequency.min())).astype(int)
    excess = np.bincount(bands.flat, (np.abs(waves) ** 2 / wanted).flat) / np.bincount(bands.flat).clip(1)
    shaped: FloatArray = np.fft.irfft2(waves / np.sqrt(excess)[bands], s=values.shape)
    return shaped


def _frequency(size: tuple[int, ...]) -> FloatArray:
    """Cycles per pixel of the coefficients of a real transform; the mean counts as the lowest frequency."""
    frequency: FloatArray = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1])).clip(1 / max(size))
    return frequency


def _cloud(rng: np.random.Generator, size: tuple[int, int], slope: float) -> FloatArray:
    """Noise of deviation 1 whose power falls with the frequency, with this exponent."""
    waves = np.fft.rfft2(rng.random(size) - 0.5) * _frequency(size) ** (-slope / 2)
    waves[0, 0] = 0
    cloud: FloatArray = np.fft.irfft2(waves, s=size)
    return cloud / float(cloud.std())


def _density(pattern: Pattern, rng: np.random.Generator) -> FloatArray:
    """The amount of ice on each pixel."""
    stems = _stems(pattern, rng)
    branches = _branches(stems, pattern.branch, pattern.angle, rng)
    branchlets = _branches(branches, 0.35, pattern.angle, rng)
    owner = _nearest_stem(stems, pattern.size)
    density = 3 * _draw(stems, owner) + _draw(branches, owner) + 0.6 * _draw(branchlets, owner)
    return np.asarray(ndimage.gaussian_filter(density, 0.75, mode="wrap"))


def _stems(pattern: Pattern, rng: np.random.Generator) -> Strokes:
    """Stems from seeds that are scattered within the cells of a grid, which leaves fewer gaps."""
    height, width = pattern.size
    columns = round((pattern.seeds * width / height) ** 0.5)
    rows = pattern.seeds // columns
    seeds = rows * columns
    x = (np.arange(seeds) % columns + rng.random(seeds)) * width / columns
    y = (np.arange(seeds) // columns + rng.random(seeds)) * height / rows
    heading = pattern.heading + pattern.swirl * _cloud(rng, pattern.size, slope=4.5)[y.astype(int), x.astype(int)]
    length = pattern.stem * (0.4 + 1.1 * rng.random(seeds) ** 1.5)
    bend = 1.2 / pattern.arms * (rng.random(seeds) - 0.5)
    stems = Strokes(x=x, y=y, heading=heading, length=length, bend=bend, stem=np.arange(seeds)).repeat(
        np.full(seeds, pattern.arms)
    )
    turn = 2 * np.pi / pattern.arms * np.tile(np.arange(pattern.arms), seeds)
    jitter = 0.85 + 0.3 * rng.random(seeds * pattern.arms)
    return stems._replace(
        heading=stems.heading + turn, length=stems.length * jitter, stem=np.arange(seeds * pattern.arms)
    )


def _branches(strokes: Strokes, share: float, angle: float, rng: np.random.Generator) -> Strokes:
    """Branches on both sides of the strokes, a pair for every 6 pixels, shorter towards the tip."""
    parents = strokes.repeat(2 * (strokes.length / 6).astype(int).clip(1))
    count = len(parents.x)
    place = 0.05 + 0.95 * rng.random(count)
    side = np.where(np.arange(count) % 2, 1, -1)
    x, y = parents.along(place)
    heading = parents.heading + parents.bend * place + side * (angle + 0.12 * (rng.random(count) - 0.5))
    outline = (1 - place) ** 0.6 * (0.4 + 3 * place).clip(max=1)
    length = parents.length * share * outline * (0.45 + 0.75 * rng.random(count))
    return Strokes(
        x=x, y=y, heading=heading, length=length, bend=-0.4 * side * (0.5 + rng.random(count)), stem=parents.stem
    )


def _pixels(strokes: Strokes, size: tuple[int, ...]) -> tuple[IntArray, FloatArray, IntArray]:
    """Pixels under the strokes, the share of the length at which each lies, and its stem; edges wrap around."""
    counts = (strokes.length / STEP).astype(int).clip(1)
    points = strokes.repeat(counts)
    left = np.repeat(np.cumsum(counts), counts) - np.arange(counts.sum())
    share = 1 - (left - 0.5) / np.repeat(counts, counts)
    x, y = points.along(share)
    return np.floor(y).astype(int) % size[0] * size[1] + np.floor(x).astype(int) % size[1], share, points.stem


def _nearest_stem(stems: Strokes, size: tuple[int, int]) -> IntArray:
    pixels, _, stem = _pixels(stems, size)
    owner = np.full(size, -1)
    owner.flat[pixels] = stem
    nearest = ndimage.distance_transform_edt(owner < 0, return_distances=False, return_indices=True)
    return np.asarray(owner[tuple(nearest)])


def _draw(strokes: Strokes, owner: IntArray) -> FloatArray:
    """The strokes, fainter towards their tips; they end where another stem is nearer."""
    pixels, share, stem = _pixels(strokes, owner.shape)
    weights = STEP * (1 - 0.7 * share) * (owner.flat[pixels] == stem)
    return np.asarray(np.bincount(pixels, weights, minlength=owner.size), dtype=np.float64).reshape(owner.shape)
