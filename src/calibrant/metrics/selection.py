"""Thresholds of a score with a promise: the rows above are wrong, or cost, at most so much, by exact binomial tests.

All functions take counts per distinct score, the surest first, so that a histogram of scores will do as well; rows of
one score are accepted together or not at all. Rows must be independent, and each counts once: there are no weights.

What is valid: let t be the score of the row of rank k + 1, with k fixed in advance. Given t and their number m, the
rows strictly above t are m independent draws from all rows above t. So P(Bin(m, max_error) ≤ errors) is a p-value of
the hypothesis that rows above t are wrong more often than max_error. A rank is fixed in advance if it depends on the
number of rows alone. Tests of several ranks share one chance of a false promise. Either each has its part of it, which
is valid whatever the scores are worth. Or they are tested in a fixed order until the first failure, or bisected: this
is valid if surer rows are not wrong more often. Taking the better of two procedures after seeing both is not valid.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betainc

from calibrant.metrics.bin_sums import Float64Array
from calibrant.metrics.exact import clopper_pearson

Int64Array = NDArray[np.int64]
MAX_ERROR = 0.05  # of accepted rows, by default
STEPS = 100  # ranks of the fixed sequence
START_SHARE = 0.1  # where it starts: among fewer rows, a single error more would often end it
START_ERRORS = (2, 50)  # but not before a test that passes with two errors, nor behind one that passes with fifty
COST_RANKS = 20
SHARES = np.arange(1, 11) / 10  # of the rows, in the search for what more rows would allow


def least_rows(max_error: float, chance: float) -> int:
    """The smallest number of rows that pass if none of them is wrong: (1 − max_error)^m ≤ chance.

    >>> least_rows(0.05, 0.05), least_rows(0.01, 0.05)
    (59, 299)
    """
    return math.ceil(math.log(chance) / math.log1p(-max_error) - 1e-9)


def fixed_sequence(rows: Int64Array, errors: Int64Array, max_error: float, chance: float) -> int:
    """Fixed-sequence testing (learn then test, Angelopoulos et al. 2021) from the surest rows downwards.

    It tests 100 ranks. The first is a tenth of the rows, but at least so many that two errors would pass, and at most
    so many that fifty would; where there are too few rows for two, so many that none would. Every test has the whole
    chance; the first failure ends it. Ranks at which ties leave too few rows to pass in any case are not tested.

    Args:
        rows: Number of rows of each distinct score, the surest first.
        errors: How many of them are wrong.
        max_error: The largest error that is allowed among accepted rows.
        chance: The probability of a false promise.

    Returns:
        The number of distinct scores to accept; 0 where nothing can be promised.

    >>> fixed_sequence(np.array([60, 40]), np.array([0, 9]), 0.05, 0.05)
    1
    """
    n, least = int(rows.sum()), least_rows(max_error, chance)
    fewest, most = (_rows_that_pass(count, max_error, chance) for count in START_ERRORS)
    start = max(fewest, min(round(START_SHARE * n), most))
    start = start if start <= n else least
    if start > n:
        return 0
    ranks = np.unique(np.linspace(start, n, STEPS).round().astype(np.int64))
    accepted, m, wrong = _above(rows, errors, ranks)
    tested = m >= least
    failed = tested & (bdtr(wrong, m, max_error) > chance)
    until = int(failed.argmax()) if failed.any() else len(ranks)
    return int(accepted[:until][tested[:until]].max(initial=0))


def guaranteed_risk(rows: Int64Array, errors: Int64Array, max_error: float, chance: float) -> int:
    """Selection with guaranteed risk (SGR, Geifman & El-Yaniv 2017): bisection, each step with its part of the chance.

    Arguments and result are those of `fixed_sequence`. Where ties leave too few rows to pass in any case, it goes on
    downwards.
    """
    n = int(rows.sum())
    chance /= max(1, math.ceil(math.log2(n + 1)))
    least, found, low, high = least_rows(max_error, chance), 0, 0, n + 1
    while high - low > 1:
        rank = (low + high) // 2
        accepted, m, wrong = (int(x[0]) for x in _above(rows, errors, np.array([rank])))
        if m >= least and bdtr(wrong, m, max_error) > chance:
            high = rank
        else:
            low, found = rank, accepted if m >= least else found
    return found


SELECTORS: dict[str, Callable[[Int64Array, Int64Array, float, float], int]] = {
    "fixed_sequence": fixed_sequence,
    "sgr": guaranteed_risk,
}


def cheapest(rows: Int64Array, errors: Int64Array, costs: tuple[float, float], chance: float) -> tuple[int, float]:
    """The threshold with the smallest upper bound of the expected cost per row, over 20 ranks that share the chance.

    Args:
        rows: Number of rows of each distinct score, the surest first.
        errors: How many of them are wrong.
        costs: The cost of an error that is accepted, and the cost of handing over a row.
        chance: The probability that the expected cost is above the bound.

    Returns:
        The number of distinct scores to accept, and the bound: for 0 the cost of handing over every row.
    """
    n = int(rows.sum())
    ranks = np.unique((np.arange(1, COST_RANKS + 1) * n) // COST_RANKS)
    accepted, m, wrong = _above(rows, errors, ranks)
    bounds = [cost_limits(n, *counts, costs, 1 - chance / COST_RANKS)[1] for counts in zip(m, wrong, strict=True)]
    best = int(np.argmin(bounds)) if n else 0
    return (int(accepted[best]), bounds[best]) if n and bounds[best] < costs[1] else (0, costs[1])


def cost_limits(n: int, accepted: int, errors: int, costs: tuple[float, float], level: float) -> tuple[float, float]:
    """Limits of the expected cost per row, from Clopper and Pearson's of the share accepted and of the error there.

    The cost is o − A (o − e R), with o and e the costs of handing over and of an error, A the share accepted, R its
    error. Of the upper limit, as long as it is below o, only one limit of each of the two matters.
    """
    of_error, handing_over = costs
    shares, risks = clopper_pearson(accepted, n, level), clopper_pearson(errors, accepted, level)
    found = [[handing_over - share * (handing_over - of_error * risk) for share in shares] for risk in risks]
    return min(found[0]), max(found[1])


def rows_needed(rows: Int64Array, errors: Int64Array, max_error: float, chance: float) -> int | None:
    """About how many rows it takes to certify something, at the observed error of the surest 10, 20, …, 100 %.

    An error is taken as (errors + ½) / (rows + 1). None where that is above max_error everywhere, or where there are so
    many rows already: then the surest of them are wrong more often than the others.
    """
    n = int(rows.sum())
    ranks = np.unique(np.ceil(SHARES * n).astype(np.int64))
    _, m, wrong = _above(rows, errors, ranks)
    needed = [
        math.ceil(_rows_at_error((e + 0.5) / (k + 1), max_error, chance) * n / k)
        for k, e in zip(m.tolist(), wrong.tolist(), strict=True)
        if k > 0 and (e + 0.5) / (k + 1) < max_error
    ]
    found = max(min(needed), least_rows(max_error, chance)) if needed else 0
    return found if found > n else None


def _above(rows: Int64Array, errors: Int64Array, ranks: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Above the score of the row after each rank: the numbers of distinct scores, of rows, and of errors."""
    ends, wrong = (np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) for counts in (rows, errors))
    accepted = np.searchsorted(ends, ranks, side="right") - 1
    return accepted, ends[accepted], wrong[accepted]


def _rows_that_pass(errors: int, max_error: float, chance: float) -> int:
    """The smallest number of rows that pass with so many errors."""
    return _first_true(lambda m: m > errors and float(_tail(m, errors, max_error)) <= chance)


def _rows_at_error(error: float, max_error: float, chance: float) -> int:
    """The smallest number of rows that pass with this share of errors, which is below max_error."""
    return _first_true(lambda m: float(_tail(m, error * m, max_error)) <= chance)


def _tail(m: float, errors: float, max_error: float) -> Float64Array:
    """P(Bin(m, max_error) ≤ errors), also between integers."""
    return np.asarray(betainc(m - errors, errors + 1, 1 - max_error))


def _first_true(holds: Callable[[int], bool]) -> int:
    """The smallest positive integer at which an increasing condition holds."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
