"""Confidence intervals and noise floors of calibration errors, from their sums alone.

A calibration error is a norm f(g) of gaps g (mass times confidence − accuracy, bin by bin), and what is observed is g
plus noise. A norm of noise is positive, so the percentile interval never contains 0, not even for a calibrated model.
Two kinds of noise are drawn from the sums: of outcomes that follow the confidences (a calibrated model), and of
resampled rows (the Poisson bootstrap). Then

- the **noise floor** is the mean of f over outcomes that follow the confidences;
- the **lower limit** takes every gap of less than three standard deviations to be noise, and subtracts what noise then
  adds: it is above 0 for a calibrated model one time in twenty;
- the **upper limit** takes every gap as it is, and subtracts noise only where gaps are smaller than the noise.

Where each gap is either 0 or significant, the interval has the nominal coverage; between the two it is wider
(`docs/metrics.md`), and so it is where fewer than 20 rows are incorrect, or correct.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import ndtr

from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.histogram import strata
from calibrant.metrics.ranking import ks
from calibrant.metrics.smooth import cosine_transform, fixed_point, smooth, smooth_residuals

INTERVAL_DRAWS = 1000
N_STRATA = 256  # of neighbouring bins that are drawn together where a metric needs the order of confidences
KERNEL_POINTS = 256  # at which smoothed gaps are compared
FAR = 1e6  # so many times a gap, noise does not change its sign
SIGNIFICANT = 3.0  # standard deviations from which a gap is taken to be more than noise
MIN_OUTCOME_ROWS = 20  # correct or incorrect effective rows, below which the bootstrap misses how rare these are

# gaps (m,), draws of a calibrated model (b, m), bootstrap draws (b, m)
Noise: TypeAlias = tuple[Float64Array, Float64Array, Float64Array]
Limits: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Norm:
    """A norm of gaps (…, m) over their last dimension, and what its limits depend on."""

    of: Callable[[Float64Array], Float64Array]
    mass_power: float = 0.0  # of the bin's mass that a gap is divided by before; at 1 it is confidence − accuracy
    one_sign: bool = False  # whether gaps of the other sign count as 0
    is_max: bool = False

    def __call__(self, gap: Float64Array) -> Float64Array:
        return np.asarray(self.of(gap))

    def scale(self, mass: Float64Array) -> Float64Array:
        """What the gaps of bins are divided by; an empty bin has no gap."""
        return np.where(mass > 0, np.maximum(mass, 1e-300) ** self.mass_power, np.inf)


ABSOLUTE_SUM = Norm(lambda gap: np.abs(gap).sum(-1))
POSITIVE_SUM = Norm(lambda gap: np.maximum(gap, 0.0).sum(-1), one_sign=True)
NEGATIVE_SUM = Norm(lambda gap: np.maximum(-gap, 0.0).sum(-1), one_sign=True)
ROOT_MEAN_SQUARE = Norm(lambda gap: np.sqrt((gap**2).sum(-1)), mass_power=0.5)
LARGEST = Norm(lambda gap: np.abs(gap).max(-1), is_max=True)
LARGEST_PER_MASS = Norm(LARGEST.of, mass_power=1.0, is_max=True)


def draw_noise(
    bins: BinSums,
    seed: int,
    n_draws: int = INTERVAL_DRAWS,
    *,
    linear: Callable[[Float64Array], Float64Array] = lambda gap: gap,
) -> Noise:
    """The gaps of bins that are not empty and draws of their noise, all mapped by a linear function."""
    generator = np.random.default_rng(seed)
    filled = bins[bins.total > 0]
    total, correct = filled.total.numpy(), filled.weight[:, 1].numpy()
    confidence = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0)
    n = total.sum()
    gap = (total * confidence - correct) / n
    rows = np.maximum(np.rint(filled.effective.numpy()), 1)
    unit = total / rows
    half = total / n / 2  # half a row more of either outcome: rows that are all correct have a variance too
    counts = generator.binomial(rows.astype(np.int64), confidence, (n_draws, len(rows)))
    calibrated = (rows * confidence - counts) * unit / n
    rates = correct / unit + half, np.maximum(total - correct, 0.0) / unit + half
    drawn_correct, drawn_incorrect = (generator.poisson(rate, (n_draws, len(rows))) * unit for rate in rates)
    drawn = drawn_incorrect * confidence - drawn_correct * (1 - confidence)
    sizes = np.maximum((drawn_correct + drawn_incorrect).sum(1, keepdims=True), unit.min())
    centre = (rates[1] * confidence - rates[0] * (1 - confidence)) * unit
    bootstrap = drawn / sizes - centre / (n + (unit * total).sum() / n)
    return linear(gap), linear(calibrated), linear(bootstrap)


def norm_interval(observed: float, noise: Noise, norm: Norm, level: float) -> Limits:
    """Limits of a norm of gaps."""
    gap, calibrated, bootstrap = noise
    deviation = np.maximum(bootstrap.std(0), calibrated.std(0))
    significant = np.abs(gap) > SIGNIFICANT * deviation
    base = np.where(significant, gap, 0.0)
    if norm.is_max:
        low = _band_lower_limit(gap, calibrated, deviation, level)
    else:
        added = norm(base + np.where(significant, bootstrap, calibrated)) - norm(base)
        low = lower_limit(observed, *np.quantile(added, [(1 - level) / 2, level, (1 + level) / 2]))
    redrawn = norm(gap + bootstrap)
    margin = redrawn.mean() - np.quantile(redrawn, (1 - level) / 2)
    # Where gaps are small, their signs change in the draws, and the norm varies less than it would for larger ones;
    # but then the draws also show how much noise adds to it.
    far = FAR * (base if norm.one_sign else gap)
    far_margin = np.quantile(norm(far + bootstrap) - norm(far), (1 + level) / 2)
    margin = max(margin, far_margin - (0.0 if norm.one_sign else redrawn.mean() - norm(gap)))
    return low, min(observed + float(margin), 1.0)


def _band_lower_limit(gap: Float64Array, calibrated: Float64Array, deviation: Float64Array, level: float) -> float:
    """The lower limit of the largest gap, from a simultaneous band of all gaps."""
    deviation = np.maximum(deviation, 1e-12)
    band = float(np.quantile((np.abs(calibrated) / deviation).max(1), level))
    return max(float((np.abs(gap) - band * deviation).max()), 0.0)


def lower_limit(observed: float, lowest: float, one_sided: float, two_sided: float) -> float:
    """The observed value minus a quantile of the noise: the one-sided one at 0, the two-sided one far from 0.

    Between, over the range of the noise, the quantile is interpolated; the limit solves θ + q(θ) = observed.
    """
    noise_range = max(two_sided - lowest, 1e-300)
    near = (observed - one_sided) / (1 + (two_sided - one_sided) / noise_range)
    return max(float(near if near < noise_range else observed - two_sided), 0.0)


def cover_overall_gap(limits: Limits, sums: BinSums, norm: Norm, level: float) -> Limits:
    """Limits of a calibration error; where either outcome is rare, widened to cover those of the overall gap.

    With few incorrect rows, the bootstrap covers the true error far less often than the level. The limits of
    confidence − accuracy over all rows are exact, and the error of rows in one bin is a norm of that.
    """
    total, correct = float(sums.total.sum()), float(sums.weight[..., 1].sum())
    effective, accuracy = total**2 / float(sums.squared.sum()), correct / total
    if min(accuracy, 1 - accuracy) * effective >= MIN_OUTCOME_ROWS:
        return limits
    confidence = float(sums.confidence.sum()) / total
    high, low = (confidence - limit for limit in clopper_pearson(accuracy * effective, effective, level))
    lowest, *ends = norm(np.array([[min(max(0.0, low), high)], [low], [high]])).tolist()
    return min(limits[0], lowest), max(limits[1], *ends)


# Over bins


def _scaling(bins: BinSums, norm: Norm) -> Callable[[Float64Array], Float64Array]:
    """Divides the gaps of bins that are not empty by the norm's power of their mass."""
    scale = norm.scale(bins.mass[bins.total > 0].numpy())
    return lambda gap: gap / scale


def binned_interval(bins: BinSums, level: float, seed: int, *, norm: Norm) -> Limits:
    """Limits of a norm of the gaps of bins."""
    noise = draw_noise(bins, seed, linear=_scaling(bins, norm))
    low, high = cover_overall_gap(norm_interval(float(norm(noise[0])), noise, norm, level), bins, norm, level)
    return low, min(high, _largest_possible(bins, norm))


def binned_floor(bins: BinSums, seed: int, *, norm: Norm) -> float:
    """Expected norm of the gaps of a calibrated model with these confidences."""
    return float(norm(draw_noise(bins, seed, linear=_scaling(bins, norm))[1]).mean())


def _largest_possible(bins: BinSums, norm: Norm) -> float:
    """The norm where all rows of a bin are correct, or none is, whichever is further from their confidence."""
    filled = bins[bins.total > 0]
    confidence, mass = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0), filled.mass.numpy()
    none_correct, all_correct = confidence * mass, (confidence - 1) * mass
    ends = np.stack([none_correct, all_correct, np.where(confidence > 0.5, none_correct, all_correct)])
    return float(norm(_scaling(bins, norm)(ends)).max())


def debiased_floor(bins: BinSums, seed: int) -> float:
    """The debiased error of a calibrated model: half of the time it is 0."""
    filled = bins[bins.total > 0]
    mass, rows = filled.mass.numpy(), filled.rows.sum(-1).numpy()
    gap = draw_noise(bins, seed)[1] / mass
    accuracy = np.clip(filled.mean_confidence.numpy() - gap, 0.0, 1.0)
    bias = accuracy * (1 - accuracy) / np.maximum(rows - 1, 1e-9)
    squared = np.where(rows > 2 - 1e-9, mass * (gap**2 - bias), 0.0).sum(1)
    return float(np.sqrt(np.maximum(squared, 0.0)).mean())


# Over the order of confidences


def _cumulative_noise(histogram: BinSums, seed: int) -> Noise:
    return draw_noise(strata(histogram, N_STRATA), seed, linear=lambda gap: np.cumsum(gap, -1))


def ks_interval(histogram: BinSums, level: float, seed: int) -> Limits:
    """Limits of the largest cumulative gap, which is a little smaller over strata than over the histogram.

    The lower one subtracts the largest cumulative noise: a band of even width around all cumulative gaps.
    """
    noise, observed = _cumulative_noise(histogram, seed), float(ks(histogram))
    coarse = float(LARGEST(noise[0]))
    band = max(float(np.quantile(LARGEST(drawn), level)) for drawn in noise[1:])
    low = max(observed - band, 0.0) if coarse > band else 0.0
    high = min(norm_interval(coarse, noise, LARGEST, level)[1] + observed - coarse, 1.0)
    return cover_overall_gap((low, high), histogram, LARGEST, level)


def ks_floor(histogram: BinSums, seed: int) -> float:
    """Expected largest cumulative gap of a calibrated model."""
    return float(LARGEST(_cumulative_noise(histogram, seed)[1]).mean())


# Smoothed


def smooth_interval(histogram: BinSums, level: float, seed: int) -> Limits:
    """Limits of the smooth ECE: those at a fixed bandwidth, times the response of the bandwidth."""
    groups, observed = strata(histogram, N_STRATA), float(smooth(histogram))
    if observed == 0:
        limits = norm_interval(0.0, draw_noise(groups, seed), ABSOLUTE_SUM, level)
        return cover_overall_gap(limits, histogram, ABSOLUTE_SUM, level)
    weights = kernel_weights(groups, observed)
    noise = draw_noise(groups, seed, linear=lambda gap: gap @ weights)
    middle, response = float(ABSOLUTE_SUM(noise[0])), bandwidth_response(histogram, observed)
    low, high = norm_interval(middle, noise, ABSOLUTE_SUM, level)
    low = max(observed - (middle - low) * response, 0.0) if low > 0 else 0.0
    high = min(observed + (high - middle) * response, 1.0)
    return cover_overall_gap((low, high), histogram, ABSOLUTE_SUM, level)


def smooth_floor(histogram: BinSums, seed: int) -> float:
    """Mean smooth ECE of draws of a calibrated model."""
    groups = strata(histogram, N_STRATA)
    _, calibrated, _ = draw_noise(groups, seed, n_draws=100)
    position = groups.mean_confidence.numpy()
    return float(np.mean([fixed_point(cosine_transform(gap, position)) for gap in calibrated]))


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
