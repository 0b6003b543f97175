"""Certified thresholds: the promise holds in simulation, where naive thresholds break it; oracles and edge cases."""

from collections.abc import Callable
from itertools import pairwise
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import bdtr
from scipy.stats import binom

from calibrant.metrics.selection import (
    COST_RANKS,
    SELECTORS,
    cheapest,
    cost_limits,
    fixed_sequence,
    guaranteed_risk,
    least_rows,
    rows_needed,
)

DRAWS = 2000
CHANCE = 0.05
MAX_BROKEN = CHANCE + 3 * sqrt(CHANCE * (1 - CHANCE) / DRAWS)
Counts = NDArray[np.int64]


def population(kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The share of rows of each distinct score, the surest first, and the error there."""
    depth = np.linspace(0, 1, 1000)
    if kind == "tied":  # six scores, two of which have most rows
        return np.array([0.1, 0.4, 0.05, 0.3, 0.1, 0.05]), np.array([0.0, 0.06, 0.1, 0.2, 0.3, 0.5])
    if kind == "one score":
        return np.ones(1), np.full(1, 0.11)
    if kind == "flat":  # just above what is allowed, everywhere
        return np.full(1000, 1e-3), np.full(1000, 0.1001)
    if kind == "crossing":  # most rows are of scores at which the error is near to what is allowed
        return np.full(1000, 1e-3), np.where(depth < 0.3, 0.09, 0.12)
    if kind == "hump":  # the surest rows are wrong more often than others: the assumption of the sequences fails
        return np.full(1000, 1e-3), np.where((depth > 0.15) & (depth < 0.3), 0.3, np.where(depth < 0.15, 0.02, 0.05))
    share = np.exp(-8 * depth)  # skewed: most rows are sure
    return share / share.sum(), 0.6 * depth**1.2


KINDS = ("skewed", "tied", "one score", "flat", "crossing", "hump")


def draws(kind: str, n: int) -> tuple[Counts, Counts, NDArray[np.float64]]:
    """Rows and errors (draws, scores) of samples, and the true error above each score, 0 of none."""
    share, error = population(kind)
    random = np.random.default_rng(n)
    rows = random.multinomial(n, share, DRAWS)
    above = np.concatenate([[0.0], np.cumsum(share * error) / np.cumsum(share)])
    return rows, random.binomial(rows, error), above


def broken(kind: str, n: int, choose: Callable[[Counts, Counts], int], max_error: float = 0.1) -> float:
    """The share of samples whose chosen threshold breaks the promise."""
    rows, errors, above = draws(kind, n)
    return float(np.mean([above[choose(r, e)] > max_error + 1e-12 for r, e in zip(rows, errors, strict=True)]))


@pytest.mark.slow
@pytest.mark.parametrize("method", SELECTORS)
@pytest.mark.parametrize("n", [100, 1_000, 10_000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_holds(kind: str, n: int, method: str) -> None:
    assert broken(kind, n, lambda r, e: SELECTORS[method](r, e, 0.1, CHANCE)) <= MAX_BROKEN


def test_it_is_no_empty_promise() -> None:
    """Where the error crosses what is allowed, most rows of a large sample are accepted."""
    rows, errors, above = draws("skewed", 10_000)
    share = population("skewed")[0].cumsum()
    best = share[np.flatnonzero(above[1:] <= 0.1)[-1]]
    for method, least in (("fixed_sequence", 0.95), ("sgr", 0.9)):
        accepted = [SELECTORS[method](r, e, 0.1, CHANCE) for r, e in zip(rows[:200], errors[:200], strict=True)]
        assert np.mean(share[np.array(accepted) - 1]) > least * best


@pytest.mark.slow
def test_the_default_accepts_more_than_sgr() -> None:
    """On average over populations, sample sizes and largest errors, which is why it is the default."""
    shares: dict[str, list[float]] = {method: [] for method in SELECTORS}
    for kind in ("skewed", "tied", "crossing"):
        for n in (100, 1_000, 10_000):
            rows, errors, _ = draws(kind, n)
            for method in SELECTORS:
                for max_error in (0.01, 0.05, 0.1):
                    found = [
                        SELECTORS[method](r, e, max_error, CHANCE) for r, e in zip(rows[:50], errors[:50], strict=True)
                    ]
                    shares[method] += [r[:k].sum() / n for r, k in zip(rows[:50], found, strict=True)]
    assert np.mean(shares["fixed_sequence"]) > 1.05 * np.mean(shares["sgr"])


def naive(rows: Counts, errors: Counts) -> int:
    """The lowest threshold whose observed error is small enough."""
    total = np.maximum(rows.cumsum(), 1)
    good = np.flatnonzero(errors.cumsum() / total <= 0.1)
    return int(good[-1]) + 1 if len(good) else 0


def uncorrected(rows: Counts, errors: Counts) -> int:
    """The lowest of all thresholds that pass a test each, without a correction for their number."""
    good = np.flatnonzero(bdtr(errors.cumsum(), rows.cumsum(), 0.1) <= CHANCE)
    return int(good[-1]) + 1 if len(good) else 0


@pytest.mark.slow
@pytest.mark.parametrize("choose", [naive, uncorrected])
@pytest.mark.parametrize("n", [100, 1_000, 10_000])
def test_naive_thresholds_break_the_same_promise(n: int, choose: Callable[[Counts, Counts], int]) -> None:
    assert broken("flat", n, choose) > 1.5 * MAX_BROKEN


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [100, 1_000, 10_000])
def test_the_bound_of_the_cost_holds(kind: str, n: int) -> None:
    share, error = population(kind)
    mass, wrong = (np.concatenate([[0.0], np.cumsum(x)]) for x in (share, share * error))
    cost = 8 * wrong + (1 - mass)
    rows, errors, _ = draws(kind, n)
    found = [cheapest(r, e, (8.0, 1.0), CHANCE) for r, e in zip(rows, errors, strict=True)]
    assert np.mean([cost[accepted] > bound + 1e-12 for accepted, bound in found]) <= MAX_BROKEN


def test_the_cost_is_nearly_the_smallest() -> None:
    share, error = population("skewed")
    cost = np.concatenate([[1.0], 8 * np.cumsum(share * error) + 1 - np.cumsum(share)])
    rows, errors, _ = draws("skewed", 10_000)
    accepted, bound = cheapest(rows[0], errors[0], (8.0, 1.0), CHANCE)
    assert cost[accepted] < cost.min() + 0.03
    assert cost[accepted] < bound < cost[accepted] + 0.1


samples = st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=1, max_size=12)


@given(samples, st.sampled_from([0.05, 0.2, 0.5]), st.sampled_from(list(SELECTORS)))
def test_what_is_accepted_passes_its_test(sample: list[tuple[int, float]], max_error: float, method: str) -> None:
    rows = np.array([n for n, _ in sample])
    errors = np.array([int(n * share) for n, share in sample])
    accepted = SELECTORS[method](rows, errors, max_error, CHANCE)
    assert 0 <= accepted <= len(rows)
    if accepted:
        m, wrong = int(rows[:accepted].sum()), int(errors[:accepted].sum())
        tail = sum(comb(m, k) * max_error**k * (1 - max_error) ** (m - k) for k in range(wrong + 1))
        assert tail <= CHANCE * (1 + 1e-9)


def slow_sequence(scores: list[int], wrong: list[bool], max_error: float, chance: float) -> int:
    """The number of rows that are accepted, of rows in order of their scores, the largest first."""
    n = len(wrong)
    least = next(m for m in range(1, 10**6) if (1 - max_error) ** m <= chance)
    two = next(m for m in range(3, 10**6) if binom.cdf(2, m, max_error) <= chance)
    fifty = next(m for m in range(51, 10**6) if binom.cdf(50, m, max_error) <= chance)
    start = max(two, min(round(n / 10), fifty))
    start = least if start > n else start
    accepted = 0
    for step in range(100):
        rank = round(start + step * (n - start) / 99)
        if rank > n:
            break
        above = [bad for score, bad in zip(scores, wrong, strict=True) if rank == n or score > scores[rank]]
        if len(above) < least:
            continue
        if binom.cdf(sum(above), len(above), max_error) > chance:
            break
        accepted = len(above)
    return accepted


@pytest.mark.slow
@pytest.mark.parametrize("tied", [1, 7, 90])
@pytest.mark.parametrize("n", [50, 60, 100, 237, 900, 3000])
def test_the_fixed_sequence_is_what_it_says(n: int, tied: int) -> None:
    random = np.random.default_rng(n)
    scores = -(np.arange(n) // tied)
    rows = np.bincount(-scores)
    for _ in range(10):
        wrong = random.random(n) < np.linspace(0, 0.3, n)
        errors = np.bincount(-scores, weights=wrong).astype(np.int64)
        found = fixed_sequence(rows, errors, 0.05, CHANCE)
        assert rows[:found].sum() == slow_sequence(scores.tolist(), wrong.tolist(), 0.05, CHANCE)


@pytest.mark.parametrize("method", SELECTORS)
def test_edges(method: str) -> None:
    choose = SELECTORS[method]
    none, tied = np.zeros(0, np.int64), np.array([200])
    assert choose(none, none, 0.05, CHANCE) == 0
    assert choose(tied, np.array([0]), 0.05, CHANCE) == 1  # ties everywhere: all or nothing
    assert choose(tied, np.array([30]), 0.05, CHANCE) == 0
    ones = np.ones(300, np.int64)
    assert choose(ones, 0 * ones, 0.05, CHANCE) == 300  # all correct
    assert choose(ones, ones, 0.05, CHANCE) == 0  # all wrong
    assert choose(np.ones(58, np.int64), np.zeros(58, np.int64), 0.05, CHANCE) == 0  # one row too few
    assert choose(np.array([1, 1, 198]), np.array([0, 1, 0]), 0.05, CHANCE) == 3  # ties leave no rank to test before


def test_how_many_rows_it_takes() -> None:
    for max_error in (0.01, 0.05, 0.3):
        least = least_rows(max_error, CHANCE)
        assert (1 - max_error) ** least <= CHANCE < (1 - max_error) ** (least - 1)
    assert fixed_sequence(np.array([59]), np.array([0]), 0.05, CHANCE) == 1
    sure = np.array([100, 100]), np.array([2, 60])  # the surest half is wrong 2.5 times of 101
    needed = rows_needed(*sure, 0.05, CHANCE)
    assert needed is not None
    error = 2.5 / 101
    half = needed // 2
    assert binom.cdf(np.floor(error * half), half, 0.05) <= CHANCE * 1.3
    assert binom.cdf(np.ceil(error * 0.9 * half), round(0.9 * half), 0.05) > CHANCE
    assert rows_needed(np.array([100]), np.array([30]), 0.05, CHANCE) is None
    # at the error of all 5,000 rows fewer would do, but the surest tenth is wrong too often
    assert rows_needed(np.array([500, 4500]), np.array([50, 0]), 0.05, CHANCE) is None
    assert rows_needed(np.array([20]), np.array([0]), 0.05, CHANCE) == rows_needed(
        np.ones(20, np.int64), np.zeros(20, np.int64), 0.05, CHANCE
    )


def test_limits_of_costs() -> None:
    low, high = cost_limits(1000, 600, 30, (10.0, 1.0), 0.95)
    assert low < (10 * 30 + 400) / 1000 < high
    assert cost_limits(100, 0, 0, (10.0, 1.0), 0.95)[1] > 1  # nothing is known of what a threshold would accept
    assert cheapest(np.array([100]), np.array([100]), (10.0, 1.0), CHANCE) == (0, 1.0)
    assert cheapest(np.zeros(0, np.int64), np.zeros(0, np.int64), (10.0, 1.0), CHANCE) == (0, 1.0)
    bounds = [cheapest(np.full(20, k), np.zeros(20, np.int64), (10.0, 1.0), CHANCE)[1] for k in (5, 50, 500)]
    assert all(a > b for a, b in pairwise(bounds))
    assert COST_RANKS == 20
    assert guaranteed_risk(np.array([300]), np.array([0]), 0.05, CHANCE) == 1
