"""Ferns and stars of ice on a window, grown by rule: images with the statistics of the photographs they replace."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, special

from calibrant.corruptions.colour import LUMA

Array = NDArray[np.float64]
Integers = NDArray[np.intp]
RGBImage = NDArray[np.uint8]  # (height, width, 3)

STEP = 0.5  # pixels between the points of a stroke
PERCENTILES = np.array((0.02, 1, 10, 50, 90, 99, 99.98))
ROUNDS = 2  # of spectrum, then histogram: each spoils the other a little, less with every round


class Pattern(NamedTuple):
    """One photograph to stand in for: its size (height, width), its statistics, and the ice that grows in its place.

    The ice is crystals of stems, branches and branchlets from scattered seeds; lengths in pixels, angles in radians.
    """

    size: tuple[int, int]
    mean: tuple[float, float, float]  # of red, green and blue
    std: tuple[float, float, float]
    correlation: tuple[float, float]  # of red with green and with blue
    luma: tuple[float, ...]  # at PERCENTILES
    slopes: tuple[float, float]  # of the power, which falls by one below and by the other above the knee
    knee: float  # cycles per pixel
    light: float  # deviation of the uneven light, as a share of that of the ice
    seeds: int
    stem: float  # length
    branch: float  # length of the longest branch, as a share of its stem
    heading: float
    swirl: float  # deviation of the headings, which turn slowly over the window
    arms: int = 1  # stems from one seed: 1 makes ferns, 6 makes stars
    angle: float = 0.7  # between a stem and its branches


# Colours and percentiles of the photographs; spectra and light such that windows of 32, 64 and 224 pixels have theirs.
PATTERNS = (
    Pattern(
        size=(600, 900),
        mean=(77, 148, 165),
        std=(27, 16, 15),
        correlation=(0.79, 0.53),
        luma=(88, 96, 107, 127, 153, 178, 215),
        slopes=(1.75, 1.75),
        knee=0.05,
        light=0.55,
        seeds=100,
        stem=150,
        branch=0.55,
        heading=-0.6,
        swirl=0.5,
    ),
    Pattern(
        size=(315, 560),
        mean=(198, 203, 212),
        std=(21, 21, 22),
        correlation=(0.995, 0.99),
        luma=(115, 143, 176, 206, 225, 236, 245),
        slopes=(0.7, 2.65),
        knee=0.06,
        light=0.6,
        seeds=70,
        stem=85,
        branch=0.6,
        heading=0.9,
        swirl=0.8,
    ),
    Pattern(
        size=(350, 527),
        mean=(145, 160, 173),
        std=(27, 27, 29),
        correlation=(0.997, 0.99),
        luma=(50, 79, 124, 158, 189, 234, 250),
        slopes=(-0.1, 2.2),
        knee=0.065,
        light=0.5,
        seeds=80,
        stem=42,
        branch=0.6,
        heading=0,
        swirl=2.5,
        arms=6,
        angle=np.pi / 3,
    ),
    Pattern(
        size=(495, 660),
        mean=(101, 112, 124),
        std=(38, 37, 36),
        correlation=(1.0, 0.998),
        luma=(30, 43, 65, 107, 161, 210, 245),
        slopes=(0.6, 2.15),
        knee=0.016,
        light=0.3,
        seeds=75,
        stem=130,
        branch=0.55,
        heading=-1.2,
        swirl=0.6,
    ),
)
DRAWN = (0, 1, 1, 2, 3)  # the second and third photograph are the same image


class Strokes(NamedTuple):
    """Bent lines that start at (x, y); ``bend`` is the whole turn, ``stem`` the number of the stem they belong to."""

    x: Array
    y: Array
    heading: Array
    length: Array
    bend: Array
    stem: Integers

    def repeated(self, counts: Integers) -> "Strokes":
        x, y, heading, length, bend = (np.repeat(values, counts) for values in self[:5])
        return Strokes(x, y, heading, length, bend, np.repeat(self.stem, counts))

    def along(self, share: Array) -> tuple[Array, Array]:
        """Points at a share of the length from the start; a circle's arc to second order in the bend."""
        heading = self.heading + self.bend * share / 2
        return self.x + share * self.length * np.cos(heading), self.y + share * self.length * np.sin(heading)


@lru_cache
def grown(number: int) -> RGBImage:
    """The image of one pattern; the same bytes in every process."""
    pattern = PATTERNS[number]
    rng = np.random.default_rng(number)
    luma = np.log1p(_density(pattern, rng))
    luma = luma / luma.std() + 0.35 * _cloud(rng, pattern.size, slope=2.5)
    for _ in range(ROUNDS):
        luma = _with_percentiles(_with_power(luma, pattern), pattern.luma)
    luma = _with_percentiles(luma / luma.std() + pattern.light * _light(pattern.size), pattern.luma)
    return _coloured(luma, _cloud(rng, pattern.size, slope=2.5), pattern)


def _coloured(luma: Array, hue: Array, pattern: Pattern) -> RGBImage:
    """Three channels with the means, deviations and correlations of the pattern; ``hue`` leaves the luma as it is.

    Each channel is a vector in the plane of luma (real) and hue (imaginary): its length is the deviation, the angles
    between the vectors give the correlations, and the plane is turned until the luma of the three is real.
    """
    luma = (luma - luma.mean()) / luma.std()
    hue = hue - (hue * luma).mean() * luma
    vectors = np.array(pattern.std) * np.exp(-1j * np.arccos((1, *pattern.correlation)))
    vectors *= np.exp(-1j * np.angle(np.array(LUMA) @ vectors))
    levels = pattern.mean + luma[..., None] * vectors.real + hue[..., None] / hue.std() * vectors.imag
    image: RGBImage = np.floor(levels.clip(0, 255) + 0.5).astype(np.uint8)
    return image


def _with_percentiles(values: Array, wanted: tuple[float, ...]) -> Array:
    """The values, mapped in their order to the wanted percentiles, with pieces of normal distributions between them."""
    knots = special.ndtri(PERCENTILES / 100)
    scores = np.linspace(knots[0], knots[-1], 64)
    found = np.quantile(values.ravel()[::7], special.ndtr(scores))
    mapped: Array = np.interp(values, found, np.interp(scores, knots, wanted))
    return mapped


def _with_power(values: Array, pattern: Pattern) -> Array:
    """The values with the power of the pattern in each band; phases and directions, which make the ice, stay."""
    frequency = _frequency(values.shape)
    wanted = 1 / sum((frequency / pattern.knee) ** slope for slope in pattern.slopes)
    waves = np.fft.rfft2(values - values.mean())
    bands = (4 * np.log2(frequency / frequency.min())).astype(int)
    excess = np.bincount(bands.flat, (np.abs(waves) ** 2 / wanted).flat) / np.bincount(bands.flat).clip(1)
    shaped: Array = np.fft.irfft2(waves / np.sqrt(excess)[bands], s=values.shape)
    return shaped


def _light(size: tuple[int, int]) -> Array:
    """Light that falls from the top left to the bottom right, of mean 0 and deviation 1."""
    down, across = (np.cos(np.pi * (np.arange(side) + 0.5) / side) for side in size)
    light: Array = down[:, None] + across
    return light


def _frequency(size: tuple[int, ...]) -> Array:
    """Cycles per pixel of the coefficients of a real transform; the mean counts as the slowest wave."""
    frequency: Array = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1])).clip(1 / max(size))
    return frequency


def _cloud(rng: np.random.Generator, size: tuple[int, int], slope: float) -> Array:
    """Noise of deviation 1 whose power falls with the frequency by the slope."""
    waves = np.fft.rfft2(rng.random(size) - 0.5) * _frequency(size) ** (-slope / 2)
    waves[0, 0] = 0
    cloud: Array = np.fft.irfft2(waves, s=size)
    return cloud / float(cloud.std())


def _density(pattern: Pattern, rng: np.random.Generator) -> Array:
    """How much ice lies on each pixel."""
    stems = _stems(pattern, rng)
    branches = _branches(stems, pattern.branch, pattern.angle, rng)
    branchlets = _branches(branches, 0.35, pattern.angle, rng)
    owner = _nearest_stem(stems, pattern.size)
    density = 3 * _drawn(stems, owner) + _drawn(branches, owner) + 0.6 * _drawn(branchlets, owner)
    blurred: Array = ndimage.gaussian_filter(density, 0.75, mode="wrap")
    return blurred


def _stems(pattern: Pattern, rng: np.random.Generator) -> Strokes:
    """Stems from seeds scattered in the fields of a grid, which leaves fewer gaps than scattering them freely."""
    height, width = pattern.size
    columns = round((pattern.seeds * width / height) ** 0.5)
    rows = pattern.seeds // columns
    seeds = rows * columns
    x = (np.arange(seeds) % columns + rng.random(seeds)) * width / columns
    y = (np.arange(seeds) // columns + rng.random(seeds)) * height / rows
    heading = pattern.heading + pattern.swirl * _cloud(rng, pattern.size, slope=4.5)[y.astype(int), x.astype(int)]
    length = pattern.stem * (0.4 + 1.1 * rng.random(seeds) ** 1.5)
    bend = 1.2 / pattern.arms * (rng.random(seeds) - 0.5)
    stems = Strokes(x, y, heading, length, bend, np.arange(seeds)).repeated(np.full(seeds, pattern.arms))
    turn = 2 * np.pi / pattern.arms * np.tile(np.arange(pattern.arms), seeds)
    jitter = 0.85 + 0.3 * rng.random(seeds * pattern.arms)
    return stems._replace(
        heading=stems.heading + turn, length=stems.length * jitter, stem=np.arange(seeds * pattern.arms)
    )


def _branches(strokes: Strokes, share: float, angle: float, rng: np.random.Generator) -> Strokes:
    """Branches on both sides of the strokes, a pair for every 6 pixels; long near the root, short at the tip."""
    parents = strokes.repeated(2 * (strokes.length / 6).astype(int).clip(1))
    count = len(parents.x)
    place = 0.05 + 0.95 * rng.random(count)
    side = np.where(np.arange(count) % 2, 1, -1)
    x, y = parents.along(place)
    heading = parents.heading + parents.bend * place + side * (angle + 0.12 * (rng.random(count) - 0.5))
    outline = (1 - place) ** 0.6 * (0.4 + 3 * place).clip(max=1)
    length = parents.length * share * outline * (0.45 + 0.75 * rng.random(count))
    return Strokes(x, y, heading, length, -0.4 * side * (0.5 + rng.random(count)), parents.stem)


def _pixels(strokes: Strokes, size: tuple[int, ...]) -> tuple[Integers, Array, Integers]:
    """Pixels under the strokes, the share of the length at which each lies, and its stem; the edges are joined."""
    counts = (strokes.length / STEP).astype(int).clip(1)
    points = strokes.repeated(counts)
    left = np.repeat(np.cumsum(counts), counts) - np.arange(counts.sum())
    share = 1 - (left - 0.5) / np.repeat(counts, counts)
    x, y = points.along(share)
    return np.floor(y).astype(int) % size[0] * size[1] + np.floor(x).astype(int) % size[1], share, points.stem


def _nearest_stem(stems: Strokes, size: tuple[int, int]) -> Integers:
    pixels, _, stem = _pixels(stems, size)
    owner = np.full(size, -1)
    owner.flat[pixels] = stem
    nearest = ndimage.distance_transform_edt(owner < 0, return_distances=False, return_indices=True)
    return np.asarray(owner[tuple(nearest)])


def _drawn(strokes: Strokes, owner: Integers) -> Array:
    """The strokes, paler towards their tips; like grains of ice they end where another stem is nearer."""
    pixels, share, stem = _pixels(strokes, owner.shape)
    weights = STEP * (1 - 0.7 * share) * (owner.flat[pixels] == stem)
    return np.asarray(np.bincount(pixels, weights, minlength=owner.size), dtype=np.float64).reshape(owner.shape)
