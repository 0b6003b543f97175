"""AUROC, average precision and FPR at 95 % TPR: slow loops, scikit-learn, variances against resampling, coverage."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from calibrant.metrics.exact import clopper_pearson
from calibrant.ood.separation import (
    ScoreCounts,
    auroc,
    auroc_limits,
    average_precision,
    average_precision_limits,
    fpr_at_95_tpr,
    fpr_limits,
    tpr_threshold,
)

Limits = Callable[[ScoreCounts, float], tuple[float, float]]
LIMITS: dict[str, Limits] = {"auroc": auroc_limits, "aupr": average_precision_limits, "fpr": fpr_limits}
VALUES = {"auroc": auroc, "aupr": average_precision, "fpr": fpr_at_95_tpr}
scores = st.lists(st.integers(-3, 3), min_size=1, max_size=30)


def counts_of(inside: object, outside: object) -> ScoreCounts:
    return ScoreCounts.of(*(torch.tensor(np.asarray(part), dtype=torch.float64) for part in (inside, outside)))


def drawn(n: int, m: int, seed: int, digits: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties."""
    random = np.random.default_rng(seed)
    return random.normal(size=n).round(digits), random.normal(1.0, 1.3, m).round(digits)


@given(scores, scores)
def test_values_by_loops_and_scikit_learn(inside: list[int], outside: list[int]) -> None:
    counts = counts_of(inside, outside)
    wins = sum((y > x) + 0.5 * (y == x) for x in inside for y in outside)
    assert auroc(counts) == pytest.approx(wins / len(inside) / len(outside), abs=1e-12)
    precision = [sum(z >= y for z in outside) / sum(z >= y for z in inside + outside) for y in outside]
    assert average_precision(counts) == pytest.approx(sum(precision) / len(outside), abs=1e-12)
    threshold = min(t for t in inside if 100 * sum(x <= t for x in inside) >= 95 * len(inside))
    assert tpr_threshold(counts) == threshold
    assert fpr_at_95_tpr(counts) == pytest.approx(sum(y <= threshold for y in outside) / len(outside), abs=1e-12)
    both, is_outside = inside + outside, [0] * len(inside) + [1] * len(outside)
    assert auroc(counts) == pytest.approx(roc_auc_score(is_outside, both), abs=1e-12)
    assert average_precision(counts) == pytest.approx(average_precision_score(is_outside, both), abs=1e-12)
    fpr, tpr, _ = roc_curve(1 - np.array(is_outside), -np.array(both), drop_intermediate=False)
    first = next(rate for rate, recall in zip(fpr, tpr, strict=True) if recall >= 0.95 - 1e-9)
    assert fpr_at_95_tpr(counts) == pytest.approx(first, abs=1e-12)


@given(scores, scores)
def test_invariants(inside: list[int], outside: list[int]) -> None:
    counts = counts_of(inside, outside)
    increasing = counts_of(np.exp(inside), np.exp(outside))
    swapped = counts_of([-y for y in outside], [-x for x in inside])
    assert auroc(swapped) == auroc(counts)
    for name, limits in LIMITS.items():
        value, (low, high) = VALUES[name](counts), limits(counts, 0.9)
        assert VALUES[name](increasing) == value
        assert 0 <= low <= value <= high <= 1
        wide_low, wide_high = limits(counts, 0.99)
        assert wide_low <= low + 1e-12
        assert wide_high >= high - 1e-12
    assert auroc_limits(swapped, 0.9) == pytest.approx(auroc_limits(counts, 0.9), abs=1e-12)


def test_variance_of_delong_by_loops() -> None:
    inside, outside = drawn(40, 25, seed=0)
    of_outside = [np.mean([(y > x) + 0.5 * (y == x) for x in inside]) for y in outside]
    of_inside = [np.mean([(y > x) + 0.5 * (y == x) for y in outside]) for x in inside]
    value = np.mean(of_outside)
    error = math.sqrt(np.var(of_outside, ddof=1) / 25 + np.var(of_inside, ddof=1) / 40)
    half = norm.ppf(0.975) * error / (value * (1 - value))
    ends = [1 / (1 + math.exp(-(math.log(value / (1 - value)) + sign * half))) for sign in (-1, 1)]
    assert auroc_limits(counts_of(inside, outside), 0.95) == pytest.approx(ends, abs=1e-12)


@pytest.mark.parametrize("name", ["auroc", "aupr"])
def test_width_is_that_of_a_bootstrap(name: str) -> None:
    inside, outside = drawn(400, 300, seed=1)
    random = np.random.default_rng(0)
    values = [VALUES[name](counts_of(random.choice(inside, 400), random.choice(outside, 300))) for _ in range(800)]
    low, high = LIMITS[name](counts_of(inside, outside), 0.95)
    assert (high - low) / 2 / norm.ppf(0.975) == pytest.approx(np.std(values), rel=0.08)


def test_influence_on_the_average_precision_is_its_derivative() -> None:
    """Each row once more, with a small weight: the delete-one jackknife has the same variance to first order."""
    inside, outside = drawn(300, 200, seed=2)

    def weighted(of_inside: np.ndarray, of_outside: np.ndarray) -> float:
        """The average precision of weighted rows; the samples keep their sizes."""
        of_inside, of_outside = of_inside / of_inside.sum() * 300, of_outside / of_outside.sum() * 200
        above = [(of_outside[outside >= y].sum(), of_inside[inside >= y].sum()) for y in outside]
        return float(sum(w * p / (p + q) for w, (p, q) in zip(of_outside, above, strict=True)) / 200)

    ones, step = (np.ones(300), np.ones(200)), 1e-5
    base, variance = weighted(*ones), 0.0
    for which, n in enumerate((300, 200)):
        slopes = []
        for row in range(n):
            moved = [part.copy() for part in ones]
            moved[which][row] += step
            slopes.append((weighted(*moved) - base) / step)
        variance += np.sum(np.square(slopes)) * n / (n - 1)
    half = norm.ppf(0.95) * math.sqrt(variance) / (base * (1 - base))
    low, high = average_precision_limits(counts_of(inside, outside), 0.9)
    logits = [math.log(end / (1 - end)) for end in (low, high)]
    assert (logits[1] - logits[0]) / 2 == pytest.approx(half, rel=1e-3)


def test_limits_of_the_fpr_by_loops() -> None:
    inside, outside = drawn(200, 12, seed=3)
    ranked, counts = np.sort(inside), counts_of(inside, outside)
    low, high = fpr_limits(counts, 0.9)

    def tails(share: float) -> tuple[float, float]:
        """P(as many outside rows or more), and P(as many or fewer), over the rank of the true threshold."""
        more = fewer = 0.0
        for rank in range(201):
            surely = (outside <= ranked[rank - 1]).sum() if rank else 0
            perhaps = (outside <= ranked[rank]).sum() if rank < 200 else 12
            chance = binom.pmf(rank, 200, 0.95)
            more += chance * binom.sf(surely - 1, 12, share)
            fewer += chance * binom.cdf(perhaps, 12, share)
        return more, fewer

    assert tails(low)[0] == pytest.approx(0.05, abs=1e-6)
    assert tails(high)[1] == pytest.approx(0.05, abs=1e-6)
    assert low < fpr_at_95_tpr(counts) < high
    few = counts_of(inside[:50], outside)  # 0.95^50 = 0.08: all of them may be below the true threshold
    assert fpr_limits(few, 0.9)[1] == 1.0


def test_edges() -> None:
    equal = counts_of([2.0] * 7, [2.0] * 5)
    assert (auroc(equal), average_precision(equal), fpr_at_95_tpr(equal)) == (0.5, 5 / 12, 1.0)
    assert auroc_limits(equal, 0.95) == clopper_pearson(2.5, 5, 0.95)
    assert fpr_limits(equal, 0.95)[1] == 1.0
    one = counts_of([0.0], [1.0])
    assert (auroc(one), average_precision(one), fpr_at_95_tpr(one)) == (1.0, 1.0, 0.0)
    assert auroc_limits(one, 0.95) == clopper_pearson(1, 1, 0.95) == (pytest.approx(0.025), 1.0)
    assert fpr_limits(one, 0.95) == (0.0, 1.0)
    apart = counts_of(range(50), range(50, 90))
    assert auroc_limits(apart, 0.95) == (pytest.approx(0.025 ** (1 / 40)), 1.0)  # 40 pairs, all of them won
    share = 1 - 0.025 ** (1 / 40)
    constant = np.linspace(0.5, 9999.5, 10_000) / 10_000  # the inside rows of this share are above all outside rows
    expected = (40 * constant / (40 * constant + 50 * share)).mean()
    assert average_precision_limits(apart, 0.95) == (pytest.approx(expected, abs=1e-4), 1.0)
    reverse = counts_of(range(50, 90), range(50))
    assert auroc_limits(reverse, 0.95) == (0.0, pytest.approx(1 - 0.025 ** (1 / 40)))
    assert average_precision_limits(reverse, 0.95)[0] < average_precision(reverse)
    exact = counts_of(range(20), [18.5])  # 19 of 20 are 95 %
    assert (tpr_threshold(exact), fpr_at_95_tpr(exact)) == (18.0, 0.0)


def test_a_million_rows() -> None:
    random = np.random.default_rng(0)
    counts = counts_of(random.normal(size=500_000), random.normal(1.0, 1.0, 500_000))
    truth = norm.cdf(1 / math.sqrt(2)), norm.cdf(norm.ppf(0.95) - 1)
    for value, (low, high) in zip(truth, (auroc_limits(counts, 0.99), fpr_limits(counts, 0.99)), strict=True):
        assert low < value < high < low + 0.02


def truth(n: int, m: int, shift: float, scale: float) -> dict[str, float]:
    """Of N(0, 1) inside and N(shift, scale²) outside, by numeric integration."""
    grid = np.linspace(-12.0, 30.0, 200_001)
    above_in, above_out = norm.sf(grid), norm.sf(grid, shift, scale)
    mass = -np.diff(above_out)
    inside, outside = ((part[1:] + part[:-1]) / 2 for part in (above_in, above_out))
    precision = m * outside / np.maximum(m * outside + n * inside, 1e-300)
    return {
        "auroc": float(1 - mass @ inside),
        "aupr": float(mass @ precision),
        "fpr": float(norm.cdf(norm.ppf(0.95), shift, scale)),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(20, 20), (100, 100), (300, 100), (1000, 2000)])
@pytest.mark.parametrize(("shift", "scale"), [(0.5, 1.0), (1.5, 1.5), (2.5, 0.8)])
def test_coverage(n: int, m: int, shift: float, scale: float) -> None:
    """Of 95 % limits in 500 draws; three standard deviations of chance are 0.03."""
    random, known, n_draws = np.random.default_rng(n + m), truth(n, m, shift, scale), 500
    covered = dict.fromkeys(LIMITS, 0)
    for _ in range(n_draws):
        counts = counts_of(random.normal(size=n), random.normal(shift, scale, m))
        for name, limits in LIMITS.items():
            low, high = limits(counts, 0.95)
            covered[name] += low <= known[name] <= high
    share = {name: number / n_draws for name, number in covered.items()}
    assert share["fpr"] >= 0.92
    assert min(share["auroc"], share["aupr"]) >= 0.89, share
    assert max(share["auroc"], share["aupr"]) <= 0.99, share
