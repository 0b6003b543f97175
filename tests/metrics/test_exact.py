"""Exact tests and limits: against every outcome there is, against draws, and against scipy's."""

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

PARTS: list[GapDirection] = ["both", "over", "under"]


def tally_of(bins: list[tuple[int, float, int]]) -> BinSums:
    """Bins of so many rows, of one confidence, so many of them right."""
    count = torch.tensor([[n - right, right] for n, _, right in bins])
    confidence = torch.tensor([n * p for n, p, _ in bins], dtype=torch.float64)
    return BinSums(count, count.double(), confidence, count.sum(1).double())


def size(gap: float, part: GapDirection) -> float:
    return abs(gap) if part == "both" else max(-gap, 0.0) if part == "over" else max(gap, 0.0)


def every_outcome(bins: list[tuple[int, float, int]], part: GapDirection, share: float = 1.0) -> float:
    """The chance of an error at least this share of the observed one, over all numbers of right rows."""
    observed = sum(size(right - n * p, part) for n, p, right in bins)
    total = 0.0
    for rights in itertools.product(*(range(n + 1) for n, _, _ in bins)):
        error = sum(size(k - n * p, part) for k, (n, p, _) in zip(rights, bins, strict=True))
        if error >= share * observed - 1e-9:
            total += math.prod(
                math.comb(n, k) * p**k * (1 - p) ** (n - k) for k, (n, p, _) in zip(rights, bins, strict=True)
            )
    return total


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "bins",
    [
        pytest.param([(1, 0.9, 0)], id="one row"),
        pytest.param([(6, 0.55, 1), (9, 0.8, 8), (12, 0.97, 9)], id="three bins"),
        pytest.param([(5, 0.3, 5), (20, 0.7, 14)], id="under"),
        pytest.param([(4, 0.5, 2), (4, 0.75, 3), (1, 1.0, 1)], id="no error"),
    ],
)
def test_p_value_is_a_sum_over_all_outcomes(bins: list[tuple[int, float, int]], part: GapDirection) -> None:
    found = ece_p_value(tally_of(bins), part)
    assert found >= every_outcome(bins, part) - 1e-12  # never too small,
    assert found <= every_outcome(bins, part, share=0.995) + 1e-12  # and too large by no more than the grid


@pytest.mark.parametrize("weighted", [False, True])
def test_the_chance_agrees_with_the_draws_behind_the_noise_floor(weighted: bool) -> None:
    draw = np.random.default_rng(3)
    confidence = draw.beta(4, 1.5, 400)
    correct = draw.random(400) < confidence**1.15
    weights = torch.from_numpy(draw.random(400) ** 2) if weighted else None
    bins = reliability_bins(torch.from_numpy(confidence), torch.from_numpy(correct), n_bins=15, weights=weights)
    gap, perfect, _ = intervals.draw_noise(bins, 0, n_draws=20_000)
    norms = intervals.ABSOLUTE_SUM, intervals.POSITIVE_SUM, intervals.NEGATIVE_SUM
    for part, norm in zip(PARTS, norms, strict=True):
        assert ece_p_value(bins, part) == pytest.approx(float((norm(perfect) >= norm(gap)).mean()), abs=0.015)


def test_a_certain_model_that_errs_cannot_be_calibrated_and_one_that_does_not_can() -> None:
    assert ece_p_value(tally_of([(50, 1.0, 49)])) == 0.0
    assert ece_p_value(tally_of([(50, 1.0, 50)])) == 1.0


def test_many_rows_need_no_draws_to_be_sure() -> None:
    assert ece_p_value(tally_of([(10**7, 0.9, 8_990_000)])) < 1e-12
    assert ece_p_value(tally_of([(10**7, 0.9, 9_000_100)])) == pytest.approx(2 * stats.norm.sf(100 / 948.7), abs=0.01)


def test_a_calibrated_model_is_called_miscalibrated_one_time_in_twenty_at_most() -> None:
    draw = np.random.default_rng(0)
    alarms = 0
    for _ in range(150):
        confidence = draw.uniform(0.4, 1.0, 200)
        correct = draw.random(200) < confidence
        bins = reliability_bins(torch.from_numpy(confidence), torch.from_numpy(correct), n_bins=15)
        gap = binomial_p_value(float(correct.sum()), 200, float(confidence.mean()))
        alarms += combined_p_value(ece_p_value(bins), gap) <= 0.05
    assert 0.005 <= alarms / 150 <= 0.08


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 40), (999, 1000)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_limits_of_a_share_are_clopper_and_pearsons(right: int, n: int, level: float) -> None:
    expected = stats.binomtest(right, n).proportion_ci(level, method="exact")
    assert clopper_pearson(right, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("right", "n", "p"), [(0, 5, 0.5), (5, 5, 0.9), (3, 10, 0.7), (7, 10, 0.7), (50, 60, 0.95)])
def test_the_chance_of_a_share_is_twice_the_smaller_tail(right: int, n: int, p: float) -> None:
    mass = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    assert binomial_p_value(right, n, p) == pytest.approx(min(1.0, 2 * min(sum(mass[right:]), sum(mass[: right + 1]))))


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (7, 0.999), (40, 0.3), (1000, 0.97), (12, 0.0), (12, 1.0)])
def test_counts_that_chance_allows_are_binomial_quantiles(n: int, p: float) -> None:
    assert binomial_limits(n, p, 0.9) == tuple(stats.binom.ppf([0.05, 0.95], n, p))


def test_holm_by_its_definition() -> None:
    draw = np.random.default_rng(1)
    chances = [*draw.random(7), 0.001, 0.001]
    for chance, corrected in zip(chances, holm(chances), strict=True):
        smaller = sorted(other for other in chances if other <= chance)
        wanted = max((len(chances) - rank) * other for rank, other in enumerate(smaller))
        assert corrected == pytest.approx(min(1.0, wanted))
    assert holm([]) == []
