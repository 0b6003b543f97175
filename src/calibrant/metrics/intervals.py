"""Confidence intervals and noise floors of calibration errors, from their sums alone.

A calibration error is a norm f(g) of gaps g (mass times confidence − accuracy, bin by bin), and what is observed is g
plus noise. A norm of noise is positive, so the percentile interval of the bootstrap never contains 0, not even for a
calibrated model. Here the interval holds the errors under all hypotheses that the observed error does not contradict
(`calibrant.metrics.hypotheses`); the noise floor is the mean of f over outcomes that follow the confidences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy.special import ndtr

from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.histogram import strata
from calibrant.metrics.hypotheses import (
    Bins,
    Hypothesis,
    Limits,
    Statistic,
    draw_gaps,
    invert_drawn,
    limits_of,
    rays,
)
from calibrant.metrics.ranking import ks
from calibrant.metrics.smooth import cosine_transform, fixed_point, smooth, smooth_residuals

FLOOR_DRAWS = 1000
N_STRATA = 256  # of neighbouring bins that are drawn together where a metric needs the order of confidences
INTERVAL_STRATA = 32  # the same for intervals
KERNEL_POINTS = 128  # at which smoothed gaps are compared
TILTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # standard deviations by which all gaps are moved in one direction


@dataclass(frozen=True)
class Norm:
    """A norm of gaps (…, m) over their last dimension, and what its limits depend on."""

    of: Callable[[Float64Array], Float64Array]
    mass_power: float = 0.0  # of the bin's mass that a gap is divided by before; at 1 it is confidence − accuracy
    tilts: tuple[int, ...] = ()  # signs of gaps that a few bins may have more of than the fit, and the norm depends on

    def __call__(self, gap: Float64Array) -> Float64Array:
        return np.asarray(self.of(gap))

    def scale(self, mass: Float64Array) -> Float64Array:
        """What the gaps of bins are divided by; an empty bin has no gap."""
        return np.where(mass > 0, np.maximum(mass, 1e-300) ** self.mass_power, np.inf)


ABSOLUTE_SUM = Norm(lambda gap: np.abs(gap).sum(-1))
POSITIVE_SUM = Norm(lambda gap: np.maximum(gap, 0.0).sum(-1), tilts=(1,))
NEGATIVE_SUM = Norm(lambda gap: np.maximum(-gap, 0.0).sum(-1), tilts=(-1,))
ROOT_MEAN_SQUARE = Norm(lambda gap: np.sqrt((gap**2).sum(-1)), mass_power=0.5)
LARGEST = Norm(lambda gap: np.abs(gap).max(-1))
LARGEST_PER_MASS = Norm(LARGEST.of, mass_power=1.0, tilts=(1, -1))


def error_interval(
    sums: BinSums,
    estimate: Statistic,
    truth: Callable[[Float64Array], float],
    level: float,
    seed: int,
    tilts: tuple[int, ...] = (),
) -> Limits:
    """The smallest and the largest error under a hypothesis that the observed estimate does not contradict."""
    gap = Bins.of(sums).gap
    observed = float(estimate(gap))
    first, opposite = rays(sums, seed)
    found = invert_drawn(opposite, observed, estimate, level, gap=gap)
    for ray in (first, *(_tilted_ray(sums, seed, sign) for sign in tilts)):
        found += invert_drawn(ray, observed, estimate, level)
    return limits_of(found, truth)


# Over bins


def binned_interval(bins: BinSums, level: float, seed: int, *, norm: Norm) -> Limits:
    """Limits of a norm of the gaps of bins."""
    scale = norm.scale(Bins.of(bins).mass)

    def scaled(gap: Float64Array) -> Float64Array:
        return norm(gap / scale)

    return error_interval(bins, scaled, lambda gap: float(scaled(gap)), level, seed, norm.tilts)


def _tilted_ray(sums: BinSums, seed: int, sign: int) -> tuple[Hypothesis, ...]:
    """From the fit of the first ray towards gaps of one sign, all by the same number of standard deviations."""
    bins, ray = Bins.of(sums), rays(sums, seed)[0]
    nearest = min(ray, key=lambda hypothesis: float(np.abs((hypothesis.gap - bins.gap).sum())))
    deviation = bins.deviation(nearest.gap)
    gaps = [bins.mass * (bins.confidence - bins.accuracy(nearest.gap + sign * t * deviation)) for t in TILTS]
    return tuple(map(Hypothesis, gaps, draw_gaps(bins, gaps, seed)))


def binned_floor(bins: BinSums, seed: int, *, norm: Norm) -> float:
    """Expected norm of the gaps of a calibrated model with these confidences."""
    return float(norm(calibrated_gaps(bins, seed) / norm.scale(Bins.of(bins).mass)).mean())


def calibrated_gaps(bins: BinSums, seed: int, n_draws: int = FLOOR_DRAWS) -> Float64Array:
    """(n_draws, m) gaps of the bins that are not empty, where outcomes follow the confidences."""
    filled = Bins.of(bins)
    return next(draw_gaps(filled, [np.zeros_like(filled.mass)], seed, n_draws))


def debiased_interval(bins: BinSums, level: float, seed: int) -> Limits:
    """Limits of the debiased error."""
    filled = Bins.of(bins)
    root = np.sqrt(filled.mass)
    return error_interval(
        bins, partial(_debiased, filled), lambda gap: float(ROOT_MEAN_SQUARE(gap / root)), level, seed
    )


def debiased_floor(bins: BinSums, seed: int) -> float:
    """The debiased error of a calibrated model: half of the time it is 0."""
    return float(_debiased(Bins.of(bins), calibrated_gaps(bins, seed)).mean())


def _debiased(bins: Bins, gap: Float64Array) -> Float64Array:
    """The debiased error of gaps (…, m), where rows count by their effective number."""
    accuracy = bins.accuracy(gap)
    bias = accuracy * (1 - accuracy) / np.maximum(bins.effective - 1, 1e-9)
    terms = np.where(bins.effective > 2 - 1e-9, bins.mass * ((gap / bins.mass) ** 2 - bias), 0.0)
    return np.asarray(np.sqrt(np.maximum(terms.sum(-1), 0.0)))


# Over the order of confidences


@lru_cache(maxsize=2)
def _interval_strata(histogram: BinSums) -> BinSums:
    return strata(histogram, INTERVAL_STRATA)


def ks_interval(histogram: BinSums, level: float, seed: int) -> Limits:
    """Limits of the largest cumulative gap, which is a little smaller over strata than over the histogram."""
    groups = _interval_strata(histogram)

    def largest(gap: Float64Array) -> Float64Array:
        return LARGEST(np.cumsum(gap, -1))

    low, high = error_interval(groups, largest, lambda gap: float(largest(gap)), level, seed)
    missed = max(float(ks(histogram)) - float(largest(Bins.of(groups).gap)), 0.0)
    return low, min(high + missed, 1.0)


def ks_floor(histogram: BinSums, seed: int) -> float:
    """Expected largest cumulative gap of a calibrated model."""
    return float(LARGEST(np.cumsum(calibrated_gaps(strata(histogram, N_STRATA), seed), -1)).mean())


# Smoothed


def smooth_interval(histogram: BinSums, level: float, seed: int) -> Limits:
    """Limits of the smooth ECE; hypotheses are tested by the error at the observed bandwidth."""
    groups = _interval_strata(histogram)
    position = groups.mean_confidence.numpy()
    weights = kernel_weights(groups, max(float(smooth(histogram)), 1e-3))

    def estimate(gap: Float64Array) -> Float64Array:
        return ABSOLUTE_SUM(gap @ weights)

    def truth(gap: Float64Array) -> float:
        return fixed_point(cosine_transform(gap, position))

    return error_interval(groups, estimate, truth, level, seed)


def smooth_floor(histogram: BinSums, seed: int) -> float:
    """Mean smooth ECE of draws of a calibrated model."""
    groups = strata(histogram, N_STRATA)
    position = groups.mean_confidence.numpy()
    drawn = calibrated_gaps(groups, seed, n_draws=100)
    return float(np.mean([fixed_point(cosine_transform(gap, position)) for gap in drawn]))


def kernel_weights(groups: BinSums, bandwidth: float) -> Float64Array:
    """(m, points): what a gap in each stratum adds to the smoothed gaps, whose absolute sum is the error."""
    edges, position = np.linspace(0.0, 1.0, KERNEL_POINTS + 1), groups.mean_confidence.numpy()[:, None]
    images = [sign * position + shift for sign in (-1, 1) for shift in (-4, -2, 0, 2, 4)]
    mass = np.sum([ndtr((edges - image) / bandwidth) for image in images], axis=0)
    return np.diff(mass, axis=1)


def bandwidth_response(histogram: BinSums, bandwidth: float) -> float:
    """Derivative of the smooth ECE by its norm at a fixed bandwidth: below 1, as the bandwidth follows the value."""
    transform = cosine_transform(histogram.gap.numpy(), histogram.mean_confidence.numpy())
    step = 0.05 * bandwidth
    before, after = (np.abs(smooth_residuals(transform, bandwidth + sign * step)).sum() for sign in (-1, 1))
    return 1 / (1 + max(float(before - after), 0.0) / (2 * step))
