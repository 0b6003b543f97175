"""Exact tests and limits of counts of correct rows: p-values of calibration, Clopper-Pearson limits, Holm's correction.

Rows are taken as independent. The test of the ECE takes rows as correct as often as the mean confidence of their bin;
the spread of the confidences in a bin makes its p-value slightly too large. The test of the gap takes every row by its
own confidence. Weighted rows count by their effective sample size.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from scipy.special import bdtrik, betaincinv, expit, gammaln, log_expit, ndtr, ndtri, stdtr, stdtrit, xlog1py, xlogy

from calibrant._arrays import sum_of
from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.histogram import strata

GAP_STRATA = 1024  # of confidences in the test of the gap
CERTAIN = 1e-12  # a confidence of 1 counts as 1 minus this: every outcome has a probability
GRID = 4096  # steps from 0 to the observed error
SUPPORT_DEVIATIONS, SUPPORT_ROWS = 12.0, 30.0  # a binomial count further from its mean has no probability in float64

GapDirection = Literal["both", "over", "under"]  # over: confidence above accuracy


def ece_p_value(bins: BinSums, direction: GapDirection = "both") -> float:
    """Probability that a calibrated model with these confidences has an ECE, or such a part of it, at least as large.

    The sizes of the gaps are rounded up to a grid, and the distributions of the bins are convolved to that of their
    sum: the p-value is never too small, and with 15 bins that of an error less than half a percent smaller.
    """
    filled = bins[bins.total > 0]
    total, correct = filled.total.numpy(), filled.weight[:, 1].numpy()
    confidence = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0)
    observed = float(_size(total * confidence - correct, direction).sum())
    if observed <= 1e-9 * float(total.sum()):
        return 1.0
    rows = np.maximum(np.rint(filled.effective.numpy()), 1.0)
    below = np.zeros(GRID)  # the probability of each step of the grid below the observed error
    below[0] = 1.0
    for n, p, unit in zip(rows, confidence, total / rows, strict=True):
        count, chance = _binomial_distribution(float(n), float(p))
        step = np.ceil(_size(n * p - count, direction) * unit * (GRID / observed) - 1e-9)
        near = step < GRID
        below = _convolve(below, np.bincount(step[near].astype(np.int64), chance[near], GRID).astype(np.float64))
    return min(max(1.0 - float(below.sum()), 0.0), 1.0)


def combined_p_value(ece: float, gap: float) -> float:
    """The p-value of two tests of one model (Bonferroni): twice the smaller.

    >>> combined_p_value(0.3, 0.01), combined_p_value(0.9, 0.7)
    (0.02, 1.0)
    """
    return min(1.0, 2 * min(ece, gap))


def _size(gap: Float64Array, direction: GapDirection) -> Float64Array:
    """Of gaps: expected correct rows minus observed ones."""
    if direction == "both":
        return np.abs(gap)
    return np.maximum(gap if direction == "over" else -gap, 0.0)


def _convolve(a: Float64Array, b: Float64Array) -> Float64Array:
    """The distribution of a sum, up to the end of the grid."""
    size = 2 * len(a)
    convolved = np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)[: len(a)]
    return np.maximum(convolved, 0.0)


def _binomial_distribution(n: float, p: float) -> tuple[Float64Array, Float64Array]:
    """The counts of positive probability, and their probabilities."""
    reach = SUPPORT_DEVIATIONS * math.sqrt(n * p * (1 - p)) + SUPPORT_ROWS
    count = np.arange(max(0.0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach)) + 1)
    chance = binomial_pmf(count, n, p)
    return count, chance / chance.sum()


def binomial_pmf(count: Float64Array, n: Float64Array | float, p: Float64Array | float) -> Float64Array:
    """Binomial probabilities, element by element."""
    log_chance = gammaln(n + 1) - gammaln(count + 1) - gammaln(n - count + 1)
    return np.asarray(np.exp(log_chance + xlogy(count, p) + xlog1py(n - count, -p)))


def gap_p_value(histogram: BinSums, freedom: float = math.inf) -> float:
    """Two-sided p-value of confidence − accuracy over all bins, if every row is correct as often as it is confident.

    The number of correct rows has a Poisson-binomial distribution; its tails have a saddlepoint approximation. Where a
    variance in ``histogram.squared`` has so many degrees of freedom, Student's t replaces the normal deviate.
    """
    at_least, at_most, _ = _tails_of_correct_rows(histogram)
    return student_p_value(min(1.0, 2 * min(at_least(0.0), at_most(0.0))), freedom)


def gap_limits(histogram: BinSums, level: float, freedom: float = math.inf) -> tuple[float, float]:
    """Limits of confidence − accuracy that exclude 0 where `gap_p_value` is at most 1 − level.

    Clopper and Pearson's of the accuracy, which hold for any probabilities of the rows. They are too wide where
    confidences differ: a limit on the other side of 0 than the test says is that of shifted log-odds, at which the
    observed number of correct rows is in a tail of its distribution.
    """
    at_least, at_most, mean = _tails_of_correct_rows(histogram)
    outside = (1 - level) / 2
    if not math.isinf(freedom):
        outside = float(ndtr(stdtrit(freedom, outside))) if freedom > 0 else 0.0
    total = sum_of(histogram.total)
    effective, accuracy = total**2 / sum_of(histogram.squared), sum_of(histogram.weight[:, 1]) / total
    confidence = sum_of(histogram.confidence) / total
    high, low = (confidence - limit for limit in clopper_pearson(accuracy * effective, effective, 1 - 2 * outside))
    fewest, most = (mean(_shift(tail, outside, sign)) for tail, sign in ((at_least, 1), (at_most, -1)))
    shifted_low, shifted_high = confidence - most, confidence - fewest
    return (
        low if (low > 0) == (shifted_low > 0) else shifted_low,
        high if (high < 0) == (shifted_high < 0) else shifted_high,
    )


def student_p_value(p_value: float, freedom: float) -> float:
    """The two-sided p-value of a normal deviate whose variance was estimated with so many degrees of freedom.

    >>> round(student_p_value(0.05, 3.0), 3)
    0.145
    """
    if math.isinf(freedom):
        return p_value
    return 2 * float(stdtr(freedom, ndtri(p_value / 2))) if freedom > 0 else 1.0


Tail = Callable[[float], float]  # a probability as a function of the shift of the log-odds


def _tails_of_correct_rows(histogram: BinSums) -> tuple[Tail, Tail, Tail]:
    """At a shift of the log-odds: the probabilities of at least and at most as many correct rows, the mean accuracy."""
    groups = strata(histogram[histogram.total > 0], GAP_STRATA)
    total, squared = groups.total.numpy(), groups.squared.numpy()
    row = squared.sum() / total.sum()  # the weight of a row
    rows, unit = total**2 / squared, squared / total / row
    confidence = np.clip(groups.mean_confidence.numpy(), CERTAIN, 1 - CERTAIN)
    log_odds = np.log(confidence) - np.log1p(-confidence)
    correct, incorrect = (float(groups.weight[:, outcome].sum()) / row for outcome in (1, 0))
    at_most = _upper_tail(-log_odds, rows, unit, incorrect)
    return (
        _upper_tail(log_odds, rows, unit, correct),
        lambda shift: at_most(-shift),
        lambda shift: float(total @ expit(log_odds + shift * unit) / total.sum()),
    )


def _upper_tail(log_odds: Float64Array, rows: Float64Array, unit: Float64Array, least: float) -> Tail:
    """P(X ≥ least) for X a sum of units of rows that are correct with these log-odds, as a function of their shift.

    Lugannani and Rice's approximation in the form of Barndorff-Nielsen, with Daniels' second correction for counts: K
    is the cumulant generating function, and K'(s) = least − ½ at the saddlepoint s.
    """
    size, point = rows * unit, least - 0.5
    if point <= 0:
        return lambda shift: 1.0
    if point >= size.sum() - 0.5 - 1e-9:  # all rows
        return lambda shift: math.exp(float(rows @ log_expit(log_odds + shift * unit)))

    def excess(s: float) -> float:
        return float(size @ expit(log_odds + s * unit)) - point

    saddle = _root(excess)
    chance = expit(log_odds + saddle * unit)
    spread = size * unit * chance * expit(-log_odds - saddle * unit)
    variance, third = float(spread.sum()), float((spread * unit * (1 - 2 * chance)).sum())

    def tail(shift: float) -> float:
        d = saddle - shift
        small = np.log1p(chance * np.expm1(np.clip(-d * unit, -1.0, 1.0)))  # keeps its digits where d is small
        far = np.logaddexp(0.0, log_odds + shift * unit) - np.logaddexp(0.0, log_odds + saddle * unit)
        cumulant = -float(rows @ np.where(abs(d) * unit < 1, small, far))  # K(s) − K(shift)
        w = math.copysign(math.sqrt(max(2 * (d * point - cumulant), 0.0)), d)
        if abs(w) < 1e-3:
            return float(ndtr(-w - third / (6 * variance**1.5)))
        log_v = abs(d) / 2 + math.log(-math.expm1(-abs(d))) + 0.5 * math.log(variance)
        return float(ndtr(-w - (log_v - math.log(abs(w))) / w))

    return tail


def _shift(tail: Tail, probability: float, sign: int) -> float:
    """The shift at which a tail has a probability; an infinite one where it never has. sign: that of its slope."""
    if probability <= 0 or tail(-sign * 1e6) > probability:
        return -sign * math.inf

    def excess(shift: float) -> float:
        return sign * (tail(shift) - probability)

    return _root(excess)


def _root(excess: Callable[[float], float]) -> float:
    """The root of an increasing function."""
    from scipy.optimize import brentq

    return float(brentq(excess, *_bracket(excess)))


def _bracket(excess: Callable[[float], float]) -> tuple[float, float]:
    """Arguments at which an increasing function is negative and positive."""
    low, high = -1.0, 1.0
    while excess(low) > 0:
        low, high = 2 * low, low
    while excess(high) < 0:
        low, high = high, 2 * high
    return low, high


def binomial_limits(n: float, p: float, level: float) -> tuple[float, float]:
    """Quantiles of a binomial count, between which it lies with a probability of at least ``level``."""
    if p <= 0 or p >= 1:
        return n * p, n * p
    low, high = (_quantile((1 + sign * level) / 2, n, p) for sign in (-1, 1))
    return low, high


def _quantile(probability: float, n: float, p: float) -> float:
    near = float(bdtrik(probability, n, p))
    return 0.0 if math.isnan(near) else min(max(math.ceil(near - 1e-9), 0.0), n)


def clopper_pearson(correct: float, n: float, level: float) -> tuple[float, float]:
    """Clopper and Pearson's limits of an accuracy; neither number needs to be an integer.

    >>> clopper_pearson(0, 1, 0.95)
    (0.0, 0.975)
    """
    outside = (1 - level) / 2
    low = 0.0 if correct <= 0 else float(betaincinv(correct, n - correct + 1, outside))
    high = 1.0 if correct >= n else float(betaincinv(correct + 1, n - correct, 1 - outside))
    return low, high


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, running = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = min(max(running, p_values[index] * (len(p_values) - rank)), 1.0)
        corrected[index] = running
    return corrected
