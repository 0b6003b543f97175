"""Exact tests and limits against all outcomes, against draws, and against scipy."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.metrics import intervals
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import reliability_bins
from calibrant.metrics.exact import (
    GapDirection,
    binomial_limits,
    clopper_pearson,
    combined_p_value,
    ece_p_value,
    gap_limits,
    gap_p_value,
    holm,
)
from calibrant.metrics.hypotheses import Bins

DIRECTIONS: list[GapDirection] = ["both", "over", "under"]


def sums_of(bins: list[tuple[int, float, int]]) -> BinSums:
    """Bins of (rows, confidence, correct rows)."""
    count = torch.tensor([[n - correct, correct] for n, _, correct in bins])
    confidence = torch.tensor([n * p for n, p, _ in bins], dtype=torch.float64)
    return BinSums(count, count.double(), confidence, count.sum(1).double())


def size(gap: float, direction: GapDirection) -> float:
    return abs(gap) if direction == "both" else max(-gap, 0.0) if direction == "over" else max(gap, 0.0)


def every_outcome(bins: list[tuple[int, float, int]], direction: GapDirection, share: float = 1.0) -> float:
    """The probability of an error of at least this share of the observed one, over all numbers of correct rows."""
    observed = sum(size(correct - n * p, direction) for n, p, correct in bins)
    total = 0.0
    for counts in itertools.product(*(range(n + 1) for n, _, _ in bins)):
        error = sum(size(k - n * p, direction) for k, (n, p, _) in zip(counts, bins, strict=True))
        if error >= share * observed - 1e-9:
            total += math.prod(
                math.comb(n, k) * p**k * (1 - p) ** (n - k) for k, (n, p, _) in zip(counts, bins, strict=True)
            )
    return total


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "bins",
    [
        pytest.param([(1, 0.9, 0)], id="one row"),
        pytest.param([(6, 0.55, 1), (9, 0.8, 8), (12, 0.97, 9)], id="three bins"),
        pytest.param([(5, 0.3, 5), (20, 0.7, 14)], id="under"),
        pytest.param([(4, 0.5, 2), (4, 0.75, 3), (1, 1.0, 1)], id="no error"),
    ],
)
def test_p_value_is_a_sum_over_all_outcomes(bins: list[tuple[int, float, int]], direction: GapDirection) -> None:
    found = ece_p_value(sums_of(bins), direction)
    assert found >= every_outcome(bins, direction) - 1e-12  # never too small,
    assert found <= every_outcome(bins, direction, share=0.995) + 1e-12  # and too large by no more than the grid


@pytest.mark.parametrize("weighted", [False, True])
def test_p_value_agrees_with_the_draws_of_the_noise_floor(weighted: bool) -> None:
    draw = np.random.default_rng(3)
    confidence = draw.beta(4, 1.5, 400)
    correct = draw.random(400) < confidence**1.15
    weights = torch.from_numpy(draw.random(400) ** 2) if weighted else None
    bins = reliability_bins(torch.from_numpy(confidence), torch.from_numpy(correct), n_bins=15, weights=weights)
    gap, calibrated = Bins.of(bins).gap, intervals.calibrated_gaps(bins, 0, n_draws=20_000)
    norms = intervals.ABSOLUTE_SUM, intervals.POSITIVE_SUM, intervals.NEGATIVE_SUM
    for direction, norm in zip(DIRECTIONS, norms, strict=True):
        assert ece_p_value(bins, direction) == pytest.approx(float((norm(calibrated) >= norm(gap)).mean()), abs=0.015)


def test_p_values_of_certain_models_and_of_many_rows() -> None:
    assert ece_p_value(sums_of([(50, 1.0, 49)])) == 0.0
    assert ece_p_value(sums_of([(50, 1.0, 50)])) == 1.0
    assert ece_p_value(sums_of([(10**7, 0.9, 8_990_000)])) < 1e-12
    assert ece_p_value(sums_of([(10**7, 0.9, 9_000_100)])) == pytest.approx(2 * stats.norm.sf(100 / 948.7), abs=0.01)


def test_false_alarms_of_a_calibrated_model() -> None:
    draw = np.random.default_rng(0)
    alarms = 0
    for _ in range(150):
        confidence = draw.uniform(0.4, 1.0, 200)
        correct = draw.random(200) < confidence
        bins = reliability_bins(torch.from_numpy(confidence), torch.from_numpy(correct), n_bins=15)
        alarms += combined_p_value(ece_p_value(bins), gap_p_value(bins)) <= 0.05
    assert 0.005 <= alarms / 150 <= 0.08


# The gap


def poisson_binomial(chances: np.ndarray) -> np.ndarray:
    """The probability of each number of correct rows, one row after the other."""
    found = np.ones(1)
    for chance in chances:
        found = np.convolve(found, [1 - chance, chance])
    return found


def rows_of(chances: np.ndarray, correct: int) -> BinSums:
    """Rows of these confidences, of which the first so many are correct."""
    return sums_of([(1, float(p), int(i < correct)) for i, p in enumerate(chances)])


@pytest.mark.parametrize(
    "chances",
    [
        np.array([0.7]),
        np.repeat([0.999, 0.6], [36, 4]),
        np.linspace(0.5, 0.99, 40),
        np.repeat([1.0, 0.9], [10, 30]),
        np.repeat([0.02, 0.3], [80, 20]),
    ],
    ids=["one row", "two kinds", "spread", "certain rows", "unlikely rows"],
)
def test_p_value_of_the_gap_is_that_of_the_poisson_binomial_distribution(chances: np.ndarray) -> None:
    distribution = poisson_binomial(chances)
    for correct in range(len(chances) + 1):
        exact = min(1.0, 2 * min(distribution[: correct + 1].sum(), distribution[correct:].sum()))
        found = gap_p_value(rows_of(chances, correct))
        if exact > 1e-9 and abs(correct - chances.sum()) > 1:
            assert found == pytest.approx(exact, rel=0.2)
        assert found > 0.93 * min(exact, 0.5)  # and never much too small


@pytest.mark.parametrize("freedom", [math.inf, 5.0])
def test_limits_of_the_gap_exclude_0_where_the_p_value_is_small(freedom: float) -> None:
    chances = np.concatenate([np.full(180, 0.995), np.linspace(0.3, 0.9, 20)])
    gap = float(chances.mean()) - np.arange(201) / 200
    p_values, limits = [], []
    for correct in range(201):
        p_values.append(gap_p_value(rows_of(chances, correct), freedom))
        limits.append(gap_limits(rows_of(chances, correct), 0.95, freedom))
    excluded = [low > 0 or high < 0 for low, high in limits]
    assert excluded == [p_value <= 0.05 for p_value in p_values]
    assert 0 < excluded.count(False) < 40
    assert all(low <= g + 1e-9 and g - 1e-9 <= high for (low, high), g in zip(limits, gap, strict=True))


def test_limits_of_the_gap_of_one_confidence_are_clopper_and_pearsons() -> None:
    for correct, n in ((0, 7), (7, 7), (3, 40), (999, 1000)):
        low, high = clopper_pearson(correct, n, 0.9)
        assert gap_limits(sums_of([(n, 0.8, correct)]), 0.9) == pytest.approx((0.8 - high, 0.8 - low))


def test_limits_of_the_gap_hold_far_from_the_confidences() -> None:
    """Rows of a confidence of almost 1 that are wrong one time in ten: shifted log-odds would explain no such error."""
    rows = sums_of([(400, 1 - 1e-9, 360), (50, 0.9, 45)])
    low, high = clopper_pearson(405, 450, 0.95)
    confidence = (400 * (1 - 1e-9) + 45) / 450
    assert gap_limits(rows, 0.95) == pytest.approx((confidence - high, confidence - low))


def test_rows_that_differ_in_confidence_make_the_test_of_the_gap_sharper() -> None:
    """90 % of the rows are almost certain: the binomial distribution of the mean confidence is far too wide."""
    rows = sums_of([(900, 0.999, 900), (100, 0.6, 48)])
    assert gap_p_value(rows) < 0.04
    assert gap_p_value(sums_of([(1000, 0.9591, 948)])) > 0.05
    halves = BinSums(rows.count, rows.weight / 2, rows.confidence / 2, rows.squared / 4)
    assert gap_p_value(halves) == pytest.approx(gap_p_value(rows))
    quarter = BinSums(rows.count, rows.weight, rows.confidence, rows.squared * 4)  # worth a quarter of the rows
    fewer = sums_of([(225, 0.999, 225), (25, 0.6, 12)])
    assert gap_p_value(quarter) == pytest.approx(gap_p_value(fewer))


@pytest.mark.parametrize(("correct", "n"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 40), (999, 1000)])
def test_limits_of_an_accuracy(correct: int, n: int) -> None:
    for level in (0.5, 0.95):
        expected = stats.binomtest(correct, n).proportion_ci(level, method="exact")
        assert clopper_pearson(correct, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (7, 0.999), (40, 0.3), (1000, 0.97), (12, 0.0), (12, 1.0)])
def test_binomial_limits_are_quantiles(n: int, p: float) -> None:
    assert binomial_limits(n, p, 0.9) == tuple(stats.binom.ppf([0.05, 0.95], n, p))


def test_holm_by_its_definition() -> None:
    p_values = [*np.random.default_rng(1).random(7), 0.001, 0.001]
    for p_value, corrected in zip(p_values, holm(p_values), strict=True):
        smaller = sorted(other for other in p_values if other <= p_value)
        wanted = max((len(p_values) - rank) * other for rank, other in enumerate(smaller))
        assert corrected == pytest.approx(min(1.0, wanted))
    assert holm([]) == []
