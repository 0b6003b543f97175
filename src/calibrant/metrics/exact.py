"""Exact tests and limits of binomial counts: p-values of calibration, Clopper-Pearson limits, Holm's correction.

Rows are taken as independent, and as correct as often as the mean confidence of their bin. Rows of a bin that differ in
confidence make the number of correct ones vary less, so every p-value is slightly too large. Weighted rows count by
their effective sample size.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import bdtrik, betainc, betaincinv, gammaln, xlog1py, xlogy

from calibrant.metrics.bin_sums import BinSums, Float64Array

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


def binomial_p_value(correct: float, n: float, expected: float) -> float:
    """Two-sided binomial test of an accuracy: twice the smaller tail.

    >>> binomial_p_value(0, 3, 0.5)
    0.25
    """
    at_least = 1.0 if correct <= 0 else float(betainc(correct, n - correct + 1, expected))
    at_most = 1.0 if correct >= n else 1.0 - float(betainc(correct + 1, n - correct, expected))
    return min(1.0, 2 * min(at_least, at_most))


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
