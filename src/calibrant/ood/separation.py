"""How well a score separates two samples: AUROC, average precision and FPR at 95 % TPR, each with confidence limits.

A higher score means more likely outside. Everything is computed from the numbers of rows of each distinct score, so
ties need no special case. Nothing is drawn at random.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc, expit, logit, ndtri
from torch import Tensor

from calibrant.metrics.bin_sums import Float64Array
from calibrant.metrics.exact import binomial_limits, binomial_pmf, clopper_pearson

Counts = NDArray[np.int64]
TPR_PERCENT = 95
NEGLIGIBLE = 1e-12  # probability that the rank of the true threshold is left out of the sum over ranks


@dataclass(frozen=True)
class ScoreCounts:
    """The numbers of inside and outside rows of each distinct score, in increasing order."""

    scores: Float64Array
    inside: Counts
    outside: Counts

    @classmethod
    def of(cls, inside: Tensor, outside: Tensor) -> Self:
        both = np.concatenate([inside.numpy(), outside.numpy()])
        scores, number = np.unique(both, return_inverse=True)
        parts = (number[: len(inside)], number[len(inside) :])
        return cls(scores, *(np.bincount(part, minlength=len(scores)) for part in parts))

    @property
    def n_inside(self) -> int:
        return int(self.inside.sum())

    @property
    def n_outside(self) -> int:
        return int(self.outside.sum())


def auroc(counts: ScoreCounts) -> float:
    """P(an outside row scores higher than an inside row) + P(the two are equal) / 2."""
    twice_won = counts.outside @ (2 * counts.inside.cumsum() - counts.inside)
    return float(twice_won) / (2 * counts.n_inside * counts.n_outside)


def auroc_limits(counts: ScoreCounts, level: float) -> tuple[float, float]:
    """Limits on the logit scale, from the variance of DeLong, DeLong and Clarke-Pearson (1988).

    A row adds its placement: the share of rows of the other sample on the right side of it, ties counting half.
    """
    of_outside = (counts.inside.cumsum() - counts.inside / 2) / counts.n_inside
    of_inside = (_at_least(counts.outside) - counts.outside / 2) / counts.n_outside
    return _logit_limits(counts, auroc(counts), of_inside, of_outside, level)


def average_precision(counts: ScoreCounts) -> float:
    """The mean over outside rows of the share of outside rows among all rows that score at least as high."""
    return float(counts.outside @ _precision(counts)) / counts.n_outside


def average_precision_limits(counts: ScoreCounts, level: float) -> tuple[float, float]:
    r"""Limits on the logit scale, from the variance of the influence of the rows.

    With n inside and m outside rows, and F and G the shares of them with a score of at least s, the precision at s is
    :math:`p = m G / (m G + n F)`. A row of score x adds to its mean over outside rows what it adds to G, or to F, at
    all s ≤ x; an outside row adds p(x) besides.
    """
    n, m = counts.n_inside, counts.n_outside
    if auroc(counts) == 1:
        return _precision_with_errors(1 - clopper_pearson(min(n, m), min(n, m), level)[0], n / m), 1.0
    share_in, share_out = _at_least(counts.inside) / n, _at_least(counts.outside) / m
    slope = n * m / (n * share_in + m * share_out) ** 2 * counts.outside / m
    of_outside = _precision(counts) + (slope * share_in).cumsum()
    of_inside = -(slope * share_out).cumsum()
    return _logit_limits(counts, average_precision(counts), of_inside, of_outside, level)


def _precision_with_errors(share: float, ratio: float) -> float:
    """The average precision if this share of the inside rows scored above all outside rows; ratio: inside / outside."""
    return 1 - share * ratio * math.log1p(1 / (share * ratio))


def _precision(counts: ScoreCounts) -> Float64Array:
    outside = _at_least(counts.outside)
    return np.asarray(outside / (outside + _at_least(counts.inside)))


def _at_least(rows: Counts) -> Counts:
    """The number of rows with each score or a higher one."""
    return rows[::-1].cumsum()[::-1]


def _logit_limits(
    counts: ScoreCounts, value: float, of_inside: Float64Array, of_outside: Float64Array, level: float
) -> tuple[float, float]:
    """Limits from what a row of each score adds to the value.

    Without a variance, because a sample has one row or the samples do not overlap, they are Clopper and Pearson's of as
    many pairs as the smaller sample has rows: pairs that share no row are independent, and each is won with a
    probability of the AUROC.
    """
    fewer = min(counts.n_inside, counts.n_outside)
    overlap = fewer > 1 and 0 < auroc(counts) < 1
    variance = _variance(of_inside, counts.inside) + _variance(of_outside, counts.outside) if overlap else 0.0
    if variance == 0:
        return clopper_pearson(value * fewer, fewer, level)
    half = float(ndtri((1 + level) / 2)) * math.sqrt(variance) / (value * (1 - value))
    return float(expit(logit(value) - half)), float(expit(logit(value) + half))


def _variance(values: Float64Array, rows: Counts) -> float:
    """Of the mean of values, each with this number of rows."""
    n = rows.sum()
    return float(rows @ (values - rows @ values / n) ** 2 / (n - 1) / n)


def tpr_threshold(counts: ScoreCounts) -> float:
    """The least score at or below which at least 95 % of the inside rows are."""
    return float(counts.scores[_threshold_index(counts)])


def _threshold_index(counts: ScoreCounts) -> int:
    return int(np.searchsorted(100 * counts.inside.cumsum(), TPR_PERCENT * counts.n_inside))


def fpr_at_95_tpr(counts: ScoreCounts) -> float:
    """The share of the outside rows at or below the threshold that accepts 95 % of the inside rows."""
    return float(counts.outside[: _threshold_index(counts) + 1].sum()) / counts.n_outside


def fpr_limits(counts: ScoreCounts, level: float) -> tuple[float, float]:
    """Clopper and Pearson's limits, with their tails averaged over the rank of the true threshold.

    Of n inside rows a binomial number J, B(n, 0.95), is below the true threshold, which so lies between the inside
    scores of ranks J and J + 1. With as many outside rows as are at or below the first, the lower limit is that of the
    share; the upper one with as many as are at or below the second.
    """
    n, m, tpr = counts.n_inside, counts.n_outside, TPR_PERCENT / 100
    least, most = binomial_limits(n, tpr, 1 - NEGLIGIBLE)
    rank = np.arange(int(least), int(most) + 1)
    chance = binomial_pmf(rank.astype(np.float64), n, tpr)
    accepted = np.concatenate([[0], counts.outside.cumsum()])
    below = counts.inside.cumsum()
    surely = accepted[np.where(rank > 0, np.searchsorted(below, rank) + 1, 0)]
    perhaps = np.where(rank < n, accepted[np.minimum(np.searchsorted(below, rank + 1) + 1, len(below))], m)
    outside, value = (1 - level) / 2, fpr_at_95_tpr(counts)
    low = _root(lambda share: float(chance @ bdtrc(surely - 1.0, m, share)) - outside)
    high = _root(lambda share: outside - float(chance @ bdtr(perhaps.astype(np.float64), m, share)))
    return min(low, value), max(high, value)


def _root(increasing: Callable[[float], float]) -> float:
    """The share at which an increasing function is 0; an end of [0, 1] where it is never."""
    if increasing(0.0) >= 0:
        return 0.0
    return 1.0 if increasing(1.0) <= 0 else float(brentq(increasing, 0.0, 1.0))
