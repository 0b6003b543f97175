"""Exact tests and limits of binomial counts: p-values of calibration, limits of a share, Holm's correction.

Nothing is drawn. Rows are taken as independent, and as correct as often as the mean confidence of their bin says. That
rows of a bin differ in confidence makes the number of correct ones vary less, so every p-value is a little too large.
Weighted rows count as many as equal ones would tell as much.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import bdtrik, betainc, betaincinv, gammaln, xlog1py, xlogy

from calibrant.metrics.bin_sums import BinSums, Float64Array

GRID = 4096  # steps from 0 to the observed error
REACH, MORE = 12.0, 30.0  # standard deviations, and rows beyond them, outside of which a binomial count never is

GapDirection = Literal["all", "over", "under"]  # of the gaps: confidence above accuracy, or below


def ece_p_value(bins: BinSums, part: GapDirection = "all") -> float:
    """How often a calibrated model with these confidences has an ECE, or such a part of it, at least as large.

    The sizes of the gaps are put on a grid, rounded up, and the distributions of the bins are folded into that of
    their sum: the chance is never too small, and with 15 bins that of an error less than half a percent smaller.
    """
    filled = bins[bins.total > 0]
    total, correct = filled.total.numpy(), filled.weight[:, 1].numpy()
    confidence = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0)
    observed = float(_size(total * confidence - correct, part).sum())
    if observed <= 1e-9 * float(total.sum()):
        return 1.0
    rows = np.maximum(np.rint(filled.effective.numpy()), 1.0)
    below = np.zeros(GRID)  # the chance of each place on the grid before the observed error
    below[0] = 1.0
    for n, p, unit in zip(rows, confidence, total / rows, strict=True):
        count, chance = binomial(float(n), float(p))
        place = np.ceil(_size(n * p - count, part) * unit * (GRID / observed) - 1e-9)
        near = place < GRID
        below = _folded(below, np.bincount(place[near].astype(np.int64), chance[near], GRID).astype(np.float64))
    return min(max(1.0 - float(below.sum()), 0.0), 1.0)


def combined_p_value(ece: float, gap: float) -> float:
    """That of two tests of one model, each with its p-value: twice the smaller, as two can raise a false alarm.

    >>> combined_p_value(0.3, 0.01), combined_p_value(0.9, 0.7)
    (0.02, 1.0)
    """
    return min(1.0, 2 * min(ece, gap))


def _size(gap: Float64Array, part: GapDirection) -> Float64Array:
    """Of gaps: expected correct rows minus those seen."""
    if part == "all":
        return np.abs(gap)
    return np.maximum(gap if part == "over" else -gap, 0.0)


def _folded(a: Float64Array, b: Float64Array) -> Float64Array:
    """The distribution of a sum, as far as the grid goes."""
    size = 2 * len(a)
    folded = np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)[: len(a)]
    return np.maximum(folded, 0.0)


def binomial(n: float, p: float) -> tuple[Float64Array, Float64Array]:
    """The counts that ever occur, and their chances."""
    reach = REACH * math.sqrt(n * p * (1 - p)) + MORE
    count = np.arange(max(0.0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach)) + 1)
    chance = binomial_pmf(count, n, p)
    return count, chance / chance.sum()


def binomial_pmf(count: Float64Array, n: Float64Array | float, p: Float64Array | float) -> Float64Array:
    """How often a binomial count is that, element by element."""
    log_chance = gammaln(n + 1) - gammaln(count + 1) - gammaln(n - count + 1)
    return np.asarray(np.exp(log_chance + xlogy(count, p) + xlog1py(n - count, -p)))


def binomial_p_value(right: float, n: float, expected: float) -> float:
    """How often a share that is as expected is seen so far off: twice the smaller tail of the binomial.

    >>> binomial_p_value(0, 3, 0.5)
    0.25
    """
    at_least = 1.0 if right <= 0 else float(betainc(right, n - right + 1, expected))
    at_most = 1.0 if right >= n else 1.0 - float(betainc(right + 1, n - right, expected))
    return min(1.0, 2 * min(at_least, at_most))


def binomial_limits(n: float, p: float, level: float) -> tuple[float, float]:
    """Between which counts of n rows, each right with chance p, lie at least ``level`` of the time: exact quantiles."""
    if p <= 0 or p >= 1:
        return n * p, n * p
    low, high = (_quantile((1 + sign * level) / 2, n, p) for sign in (-1, 1))
    return low, high


def _quantile(share: float, n: float, p: float) -> float:
    """The least count that at least so large a share does not exceed."""
    near = float(bdtrik(share, n, p))
    return 0.0 if math.isnan(near) else min(max(math.ceil(near - 1e-9), 0.0), n)


def clopper_pearson(right: float, n: float, level: float) -> tuple[float, float]:
    """Clopper and Pearson's limits of a share of which ``right`` of n rows were seen; either need not be whole.

    >>> clopper_pearson(0, 1, 0.95)
    (0.0, 0.975)
    """
    outside = (1 - level) / 2
    low = 0.0 if right <= 0 else float(betaincinv(right, n - right + 1, outside))
    high = 1.0 if right >= n else float(betaincinv(right + 1, n - right, 1 - outside))
    return low, high


def holm(chances: Sequence[float]) -> list[float]:
    """Each p-value made as large as if all were tested at once (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, running = [1.0] * len(chances), 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        running = min(max(running, chances[place] * (len(chances) - rank)), 1.0)
        corrected[place] = running
    return corrected
