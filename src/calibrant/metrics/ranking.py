"""Metrics of the order of the confidences: the Kolmogorov-Smirnov error and the risk-coverage curve.

Each has a rigorous bound of its error when it is computed from a fine histogram whose bins hold several confidences.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant._arrays import sum_of
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import debiased
from calibrant.metrics.checks import check_outcomes
from calibrant.metrics.histogram import FineHistogram, equal_mass_bin_numbers, equal_mass_bins, fine_histogram
from calibrant.metrics.means import gamma_limits


def ks_error(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Kolmogorov-Smirnov error: the largest cumulative gap (Gupta et al., ICLR 2021).

    .. math:: \mathrm{KS} = \max_t \Bigl| \frac1n \sum_{i : r_i \le t} (r_i - c_i) \Bigr|

    Samples of equal confidence enter the sum together: the value does not depend on their order.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> ks_error(torch.tensor([0.9, 0.6, 0.6]), torch.tensor([True, False, True]))
    tensor(0.0667, dtype=torch.float64)
    """
    return ks(_sorted_sums(confidence, correct, weights))


def _sorted_sums(confidence: Tensor, correct: Tensor, weights: Tensor | None) -> BinSums:
    confidence, correct, weights = check_outcomes(confidence, correct, weights)
    return fine_histogram(confidence, 1 - confidence, correct, weights).sums


def ks(histogram: BinSums) -> Tensor:
    return histogram.gap.cumsum(0).abs().amax()


def ks_bound(histogram: FineHistogram, _n_bins: int) -> float:
    """Inside a bin the sum exceeds its ends by at most the smaller of the bin's total rise and total fall."""
    rise, fall = _rise_and_fall(histogram)
    return float(torch.minimum(rise, fall).amax())


def _rise_and_fall(histogram: FineHistogram) -> tuple[Tensor, Tensor]:
    """By how much the incorrect rows of each bin raise the sum of gaps, and the correct ones lower it."""
    sums = histogram.sums
    mass = sums.weight / sum_of(sums.weight)
    return mass[:, 0] * sums.mean_confidence, mass[:, 1] * (1 - sums.mean_confidence)


def adaptive_bound(histogram: FineHistogram, n_bins: int) -> float:
    """Bins of equal mass that end inside a bin of the histogram: twice its total rise and fall."""
    rise, fall = _rise_and_fall(histogram)
    return 2 * sum_of((rise + fall)[_is_split(histogram, n_bins)])


def debiased_bound(histogram: FineHistogram, n_bins: int) -> float:
    """The same for the root of Σ g²/m minus bias, whose slope in g is at most 2, and in the mass m at most 1."""
    split, value = _is_split(histogram, n_bins), float(debiased(equal_mass_bins(histogram.sums, n_bins)))
    rise, fall = _rise_and_fall(histogram)
    moved = sum_of((4 * (rise + fall) + 2 * histogram.sums.mass)[split])
    if moved == 0:
        return 0.0
    moved += n_bins / sum_of(histogram.sums.rows)
    return min(math.sqrt(moved), moved / value if value > 0 else math.inf)


def _is_split(histogram: FineHistogram, n_bins: int) -> Tensor:
    """Which bins have their first and their last row in different bins of equal mass."""
    sums = histogram.sums
    ends = sums.total.cumsum(0)
    count = sums.count.sum(-1)
    last = ends - sums.total / count  # the weight below the last row, if all have the same
    last_bin = (last * n_bins / ends[-1]).ceil().long() - 1
    return (count > 1) & (last_bin.clamp(0, n_bins - 1) != equal_mass_bin_numbers(sums, n_bins))


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Error rate among the most confident rows; one point for each distinct confidence.

    Args:
        coverage: The proportion of rows with at least this confidence.
        risk: The error rate among these rows.
    """

    coverage: Tensor
    risk: Tensor


def risk_coverage(histogram: BinSums) -> RiskCoverageCurve:
    total, errors = histogram.total.flip(0).cumsum(0), histogram.weight[:, 0].flip(0).cumsum(0)
    return RiskCoverageCurve(total / total[-1], errors / total)


def risk_coverage_curve(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> RiskCoverageCurve:
    """Error rate among the most confident rows, for every coverage that a threshold of the confidence gives.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        weights: (n,) row weights; 1 by default.

    Returns:
        The curve.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.
    """
    return risk_coverage(_sorted_sums(confidence, correct, weights))


def area_under_risk_coverage(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Area under the risk-coverage curve (AURC): the mean over i of the error rate among the i most confident samples.

    Samples of equal confidence come in random order: the value is the mean over all orders. A sample of weight 2 is
    two samples.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> area_under_risk_coverage(torch.tensor([0.9, 0.8]), torch.tensor([True, False]))
    tensor(0.2500, dtype=torch.float64)
    """
    return aurc(_sorted_sums(confidence, correct, weights))


def aurc(histogram: BinSums) -> Tensor:
    """Errors spread evenly over the ranks of their bin: a sum of 1/i over these ranks, by harmonic numbers."""
    n_rows, ends, errors, harmonic = _from_most_confident(histogram)
    rate = errors / n_rows
    area = errors + (errors.cumsum(0) - errors - rate * (ends - n_rows)) * harmonic
    return sum_of(area) / ends[-1]


def aurc_bound(histogram: FineHistogram, _n_bins: int) -> float:
    """The errors of a bin may all come first or last: at most correct·incorrect/all away from even."""
    n_rows, ends, errors, harmonic = _from_most_confident(histogram.sums)
    away = errors * (n_rows - errors) / n_rows
    return sum_of(away * harmonic) / float(ends[-1])


def _from_most_confident(histogram: BinSums) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Number of rows of each bin, rank of the last, number of errors, and the sum of 1/i over the ranks of the bin."""
    errors, correct = histogram.rows.flip(0).unbind(1)
    n_rows = errors + correct
    ends = n_rows.cumsum(0)
    harmonic = _harmonic(ends)
    harmonic[1:] -= harmonic[:-1].clone()
    harmonic[0] -= torch.digamma(torch.ones((), dtype=torch.float64))
    return n_rows, ends, errors, harmonic


def _harmonic(x: Tensor) -> Tensor:
    """1 + 1/2 + … + 1/x minus Euler's constant: the digamma function at x + 1, by its series where that converges."""
    inverse = 1 / x.clamp_min(32)
    series = x.clamp_min(32).log() + inverse * (1 / 2 - inverse * (1 / 12 - inverse**2 * (1 / 120 - inverse**2 / 252)))
    few = x < 32
    series[few] = torch.digamma(x[few] + 1)
    return series


def aurc_influence(histogram: BinSums) -> tuple[Tensor, Tensor]:
    r"""Influence of a correct and of an incorrect row of each bin on the AURC.

    With u the coverage at which a row enters and e(u) the error rate there, AURC = −∫ e ln u du, and a row with
    outcome e contributes :math:`-e \ln u - \int_u^1 e(v)/v\, dv + \bar e - \mathrm{AURC}`.
    """
    total, errors = histogram.total.flip(0), histogram.weight[:, 0].flip(0)
    everything = sum_of(total)
    ends = total.cumsum(0) / everything
    middle = ends - total / everything / 2
    beyond = (errors / everything / middle).flip(0).cumsum(0).flip(0) - errors / everything / middle / 2
    shared = -beyond + sum_of(errors) / everything - aurc(histogram)
    return shared.flip(0), (shared - middle.log()).flip(0)


def aurc_interval(histogram: BinSums, level: float) -> tuple[float, float]:
    """Limits from the variance of the influence. An error at a random coverage u adds −ln u, which is 1 on average.

    Where correct rows are the rare ones, the limits are those of 1 − AURC.
    """
    correct, incorrect = aurc_influence(histogram)
    squares = histogram.weight[:, 1] * correct**2 + histogram.weight[:, 0] * incorrect**2
    unit = histogram.squared / histogram.total
    total = sum_of(histogram.total)
    variance, rare = sum_of(squares * unit) / total**2, sum_of(histogram.squared) / total**2
    value = float(aurc(histogram))
    low, high = gamma_limits(min(value, 1 - value), variance, rare, level)
    return (low, min(high, 1.0)) if value <= 0.5 else (max(1 - high, 0.0), 1 - low)
