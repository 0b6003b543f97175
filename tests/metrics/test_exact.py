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
    binomial_p_value,
    clopper_pearson,
    combined_p_value,
    ece_p_value,
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
        gap = binomial_p_value(float(correct.sum()), 200, float(confidence.mean()))
        alarms += combined_p_value(ece_p_value(bins), gap) <= 0.05
    assert 0.005 <= alarms / 150 <= 0.08


@pytest.mark.parametrize(("correct", "n"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 40), (999, 1000)])
def test_limits_and_p_values_of_an_accuracy(correct: int, n: int) -> None:
    for level in (0.5, 0.95):
        expected = stats.binomtest(correct, n).proportion_ci(level, method="exact")
        assert clopper_pearson(correct, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)
    for p in (0.5, 0.7, 0.95):
        tails = stats.binom.sf(correct - 1, n, p), stats.binom.cdf(correct, n, p)
        assert binomial_p_value(correct, n, p) == pytest.approx(min(1.0, 2 * min(tails)), abs=1e-12)


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
