r"""Confidence intervals and noise floors of calibration errors, from their tallies alone.

A calibration error is a norm f(g) of gaps g (mass times confidence − accuracy, cell by cell) and what is observed is g
plus noise. A norm of noise is positive, so the plain percentile interval never holds 0, not even for a perfect model.
We draw two kinds of noise from the tally: of outcomes that follow the confidences (a perfect model), and of rows drawn
anew (the Poisson bootstrap). Then

- the **noise floor** is the mean of f over outcomes that follow the confidences;
- the **lower limit** takes every gap of less than three standard deviations to be nothing but noise, and subtracts
  what noise then adds: it is above 0 for a perfect model one time in twenty;
- the **upper limit** takes every gap as it is, and subtracts noise only where gaps are so small that it hides them.

Where each gap is either nothing or plain to see, the interval covers the true error as often as its level says;
between the two it is wider (`docs/metrics.md`), and so it is where fewer than 20 rows are incorrect, or correct.
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
N_STRATA = 256  # groups of cells that are drawn together where a metric needs the order of confidences
N_WIDTHS = 256  # points at which smooth_residuals gaps are compared
FAR = 1e6  # so many times a gap, noise does not change its sign
SIGNIFICANT = 3.0  # standard deviations from which a gap is taken to be more than noise
MIN_OUTCOME_ROWS = 20  # effective rows, correct or incorrect, below which draws of rows do not know how rare these are

Noise: TypeAlias = tuple[
    Float64Array, Float64Array, Float64Array
]  # gaps (m,), draws of a perfect model (b, m), of rows anew (b, m)
Limits: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Norm:
    """A norm of gaps (…, m) over their last dimension, and what its limits depend on."""

    of: Callable[[Float64Array], Float64Array]
    mass_power: float = 0.0  # of the cell's mass that a gap is divided by before; at 1 it is confidence − accuracy
    one_sign: bool = False  # whether gaps of the other sign count as 0
    is_max: bool = False

    def __call__(self, gap: Float64Array) -> Float64Array:
        return np.asarray(self.of(gap))

    def scale(self, mass: Float64Array) -> Float64Array:
        """What the gaps of cells are divided by; an empty one has no gap."""
        return np.where(mass > 0, np.maximum(mass, 1e-300) ** self.mass_power, np.inf)


ABSOLUTE_SUM = Norm(lambda gap: np.abs(gap).sum(-1))
POSITIVE_SUM = Norm(lambda gap: np.maximum(gap, 0.0).sum(-1), one_sign=True)
NEGATIVE_SUM = Norm(lambda gap: np.maximum(-gap, 0.0).sum(-1), one_sign=True)
ROOT_MEAN_SQUARE = Norm(lambda gap: np.sqrt((gap**2).sum(-1)), mass_power=0.5)
LARGEST = Norm(lambda gap: np.abs(gap).max(-1), is_max=True)
LARGEST_PER_MASS = Norm(LARGEST.of, mass_power=1.0, is_max=True)


def draw_noise(bins: BinSums, seed: int, n_draws: int = INTERVAL_DRAWS) -> Noise:
    """The gaps of a tally, and draws of their noise."""
    generator = np.random.default_rng(seed)
    filled = bins[bins.total > 0]
    total, correct = filled.total.numpy(), filled.weight[:, 1].numpy()
    confidence = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0)
    n = total.sum()
    gap = (total * confidence - correct) / n
    rows = np.maximum(np.rint(filled.effective.numpy()), 1)  # equally weighted rows that tell as much
    unit = total / rows
    half = total / n / 2  # half a row more of either outcome: rows that are all correct do not know that for certain
    perfect = (
        (rows * confidence - generator.binomial(rows.astype(np.int64), confidence, (n_draws, len(rows)))) * unit / n
    )
    rates = correct / unit + half, np.maximum(total - correct, 0.0) / unit + half
    drawn_correct, drawn_incorrect = (generator.poisson(rate, (n_draws, len(rows))) * unit for rate in rates)
    drawn = drawn_incorrect * confidence - drawn_correct * (1 - confidence)
    sizes = np.maximum((drawn_correct + drawn_incorrect).sum(1, keepdims=True), unit.min())
    centre = (rates[1] * confidence - rates[0] * (1 - confidence)) * unit
    return gap, perfect, drawn / sizes - centre / (n + (unit * total).sum() / n)


def transform(noise: Noise, function: Callable[[Float64Array], Float64Array]) -> Noise:
    """The same for a linear function of the gaps."""
    gap, perfect, anew = noise
    return function(gap), function(perfect), function(anew)


def interval(observed: float, noise: Noise, norm: Norm, level: float) -> Limits:
    """Limits of a norm of gaps."""
    gap, perfect, anew = noise
    spread = np.maximum(anew.std(0), perfect.std(0))
    plain = np.abs(gap) > SIGNIFICANT * spread
    base = np.where(plain, gap, 0.0)
    if norm.is_max:
        low = _low_by_band(gap, perfect, spread, level)
    else:
        added = norm(base + np.where(plain, anew, perfect)) - norm(base)
        low = lower_limit(observed, *np.quantile(added, [(1 - level) / 2, level, (1 + level) / 2]))
    redrawn = norm(gap + anew)
    reach = redrawn.mean() - np.quantile(redrawn, (1 - level) / 2)
    # Where gaps are small, their signs change in the draws, and the norm varies less than it would for larger ones;
    # but then the draws also tell how much noise adds to it.
    afar = FAR * (base if norm.one_sign else gap)
    reach_afar = np.quantile(norm(afar + anew) - norm(afar), (1 + level) / 2)
    reach = max(reach, reach_afar - (0.0 if norm.one_sign else redrawn.mean() - norm(gap)))
    return low, min(observed + float(reach), 1.0)


def _low_by_band(gap: Float64Array, perfect: Float64Array, spread: Float64Array, level: float) -> float:
    """The lower limit of the largest gap, from a band that holds for all gaps at once."""
    spread = np.maximum(spread, 1e-12)
    band = float(np.quantile((np.abs(perfect) / spread).max(1), level))
    return max(float((np.abs(gap) - band * spread).max()), 0.0)


def lower_limit(observed: float, least: float, one_sided: float, two_sided: float) -> float:
    """What is left when noise has been subtracted: the one-sided quantile of it at 0, the two-sided one far from 0.

    Between, over the range of the noise, the quantile changes evenly; the limit solves θ + q(θ) = observed.
    """
    reach = max(two_sided - least, 1e-300)
    near = (observed - one_sided) / (1 + (two_sided - one_sided) / reach)
    return max(float(near if near < reach else observed - two_sided), 0.0)


def cover_overall_gap(limits: Limits, cells: BinSums, norm: Norm, level: float) -> Limits:
    """Limits of a calibration error; where either outcome is rare, wide enough to hold those of the overall gap.

    With few incorrect rows, draws of rows miss the true error far more often than the level says. The limits of
    confidence − accuracy over all rows are exact, and of rows in one bin the error is a norm of that.
    """
    total, correct = float(cells.total.sum()), float(cells.weight[..., 1].sum())
    effective, accuracy = total**2 / float(cells.squared.sum()), correct / total
    if min(accuracy, 1 - accuracy) * effective >= MIN_OUTCOME_ROWS:
        return limits
    confidence = float(cells.confidence.sum()) / total
    high, low = (confidence - limit for limit in clopper_pearson(accuracy * effective, effective, level))
    least, *ends = norm(np.array([[min(max(0.0, low), high)], [low], [high]])).tolist()
    return min(limits[0], least), max(limits[1], *ends)


# Over bins


def _scaled(bins: BinSums, norm: Norm) -> Callable[[Float64Array], Float64Array]:
    """Divides the gaps of bins that are not empty by the power of their mass that the norm asks for."""
    scale = norm.scale(bins.mass[bins.total > 0].numpy())
    return lambda gap: gap / scale


def binned_interval(bins: BinSums, level: float, seed: int, *, norm: Norm) -> Limits:
    """Limits of a norm of the gaps of bins."""
    noise = transform(draw_noise(bins, seed), _scaled(bins, norm))
    low, high = cover_overall_gap(interval(float(norm(noise[0])), noise, norm, level), bins, norm, level)
    return low, min(high, largest_possible(bins, norm))


def binned_floor(bins: BinSums, seed: int, *, norm: Norm) -> float:
    """Expected norm of the gaps of a perfect model with these confidences."""
    return float(norm(_scaled(bins, norm)(draw_noise(bins, seed)[1])).mean())


def largest_possible(bins: BinSums, norm: Norm) -> float:
    """The norm where all rows of a bin are correct, or none is, whichever is further from their confidence."""
    filled = bins[bins.total > 0]
    confidence, mass = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0), filled.mass.numpy()
    none, all_of_them = confidence * mass, (confidence - 1) * mass
    ends = np.stack([none, all_of_them, np.where(confidence > 0.5, none, all_of_them)])
    return float(norm(_scaled(bins, norm)(ends)).max())


def debiased_floor(bins: BinSums, seed: int) -> float:
    """The debiased error of a perfect model: half of the time it is 0."""
    filled = bins[bins.total > 0]
    mass, rows = filled.mass.numpy(), filled.rows.sum(-1).numpy()
    gap = draw_noise(bins, seed)[1] / mass
    accuracy = np.clip(filled.mean_confidence.numpy() - gap, 0.0, 1.0)
    chance = accuracy * (1 - accuracy) / np.maximum(rows - 1, 1e-9)
    squared = np.where(rows > 2 - 1e-9, mass * (gap**2 - chance), 0.0).sum(1)
    return float(np.sqrt(np.maximum(squared, 0.0)).mean())


# Over the order of confidences


def _cumulative(cells: BinSums, seed: int) -> Noise:
    """Cumulative gaps, from the least confident on."""
    return transform(draw_noise(strata(cells, N_STRATA), seed), lambda gap: np.cumsum(gap, -1))


def ks_interval(cells: BinSums, level: float, seed: int) -> Limits:
    """Limits of the largest cumulative gap, of which the groups see a little less than the cells.

    The lower one subtracts the largest cumulative noise: a band of even width around all cumulative gaps.
    """
    noise, observed = _cumulative(cells, seed), float(ks(cells))
    coarse = float(LARGEST(noise[0]))
    band = max(float(np.quantile(LARGEST(drawn), level)) for drawn in noise[1:])
    low = max(observed - band, 0.0) if coarse > band else 0.0
    high = min(interval(coarse, noise, LARGEST, level)[1] + observed - coarse, 1.0)
    return cover_overall_gap((low, high), cells, LARGEST, level)


def ks_floor(cells: BinSums, seed: int) -> float:
    """Expected largest cumulative gap of a perfect model."""
    return float(LARGEST(_cumulative(cells, seed)[1]).mean())


# Smoothed


def smooth_interval(cells: BinSums, level: float, seed: int) -> Limits:
    """Limits of the smooth ECE: of the norm at its width, divided by what a change of width gives back."""
    groups, observed = strata(cells, N_STRATA), float(smooth(cells))
    noise = draw_noise(groups, seed)
    if observed == 0:
        return cover_overall_gap(interval(0.0, noise, ABSOLUTE_SUM, level), cells, ABSOLUTE_SUM, level)
    weights = kernel(groups, observed)
    noise = transform(noise, lambda gap: gap @ weights)
    middle, share = float(ABSOLUTE_SUM(noise[0])), bandwidth_response(cells, observed)
    low, high = interval(middle, noise, ABSOLUTE_SUM, level)
    low = max(observed - (middle - low) * share, 0.0) if low > 0 else 0.0
    return cover_overall_gap((low, min(observed + (high - middle) * share, 1.0)), cells, ABSOLUTE_SUM, level)


def smooth_floor(cells: BinSums, seed: int) -> float:
    """The smooth ECE of a perfect model: the mean over draws."""
    groups = strata(cells, N_STRATA)
    _, perfect, _ = draw_noise(groups, seed, n_draws=100)
    position = groups.mean_confidence.numpy()
    return float(np.mean([fixed_point(cosine_transform(gap, position)) for gap in perfect]))


def kernel(groups: BinSums, width: float) -> Float64Array:
    """(m, points): what a gap in each group adds to the smooth_residuals gaps, whose absolute sum is the error."""
    edges, position = np.linspace(0.0, 1.0, N_WIDTHS + 1), groups.mean_confidence.numpy()[:, None]
    images = [sign * position + shift for sign in (-1, 1) for shift in (-4, -2, 0, 2, 4)]
    mass = np.sum([ndtr((edges - image) / width) for image in images], axis=0)
    return np.diff(mass, axis=1)


def bandwidth_response(cells: BinSums, width: float) -> float:
    """How much of a change of the norm at a fixed width is left when the width follows."""
    transform = cosine_transform(cells.gap.numpy(), cells.mean_confidence.numpy())
    step = 0.05 * width
    fall = (
        np.abs(smooth_residuals(transform, width - step)).sum()
        - np.abs(smooth_residuals(transform, width + step)).sum()
    )
    return 1 / (1 + max(float(fall), 0.0) / (2 * step))
