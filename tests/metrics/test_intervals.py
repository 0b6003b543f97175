"""Intervals cover the truth as often as they say, and noise floors are what a perfect model scores."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, binomtest
from torch import Tensor

import calibrant
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics import METRICS, Scorecard

ERRORS = [name for name, metric in METRICS.items() if metric.floor is not None]  # 0 for a perfect model
SLOW = [name for name in METRICS if name.startswith(("kse", "smece"))]
CONSERVATIVE = ("mce", "mce_positive", "cece")  # may cover more often than they say
SOURCES = [(10, 2000, 1.0), (10, 2000, 0.6), (2, 1000, 1.0), (2, 1000, 0.6)]  # classes, rows, sharpness of the truth


def draw(n: int, n_classes: int, sharpness: float, seed: int) -> calibrant.Predictions:
    """Labels from softmax(sharpness · logits): at 1 the logits are calibrated, below it overconfident."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator)
    labels = torch.multinomial((sharpness * logits).softmax(1), 1, generator=generator).squeeze(1)
    return calibrant.Predictions.from_logits(logits, labels)


def names_of(n_classes: int, kind: str) -> list[str]:
    """Metrics whose intervals cost about the same: "mean" nothing, "binned" a few draws, "ordered" many."""
    kinds = {name: "ordered" if name in SLOW else "binned" if name in ERRORS else "mean" for name in METRICS}
    return [name for name in METRICS if kinds[name] == kind and (n_classes == 2 or not METRICS[name].binary)]


@cache
def truth(n_classes: int, sharpness: float) -> dict[str, float]:
    """Values of half a million rows, a stream, known 16 times better than those of 2000; 0 where there is no error."""
    values = calibrant.score(draw(2**16, n_classes, sharpness, 10**6 + part) for part in range(8)).values()
    known = {name: value for name, value in values.items() if value is not None}
    if sharpness == 1:
        known.update({name: 0.0 for name in known if name in ERRORS})
    else:
        known["underconfidence"] = 0.0
    return known


def covered(n_classes: int, n: int, sharpness: float, reps: int, kind: str) -> dict[str, int]:
    """How many of so many intervals of each metric hold the truth."""
    names, wanted = names_of(n_classes, kind), truth(n_classes, sharpness)
    found = dict.fromkeys(names, 0)
    for seed in range(reps):
        card = calibrant.score(draw(n, n_classes, sharpness, seed), metrics=names)
        for name in names:
            low, high = card.interval(name, seed=seed)
            found[name] += low <= wanted[name] <= high
    return found


def acceptance(reps: int) -> tuple[int, int]:
    """Counts outside of which a metric that covers 93 % (or 97 %) falls one time in a thousand, below (or above).

    Of 400 these are 355 to 397, of 100 they are 84 to 100 (so that too wide an interval shows in the former alone).
    """
    return int(binom.ppf(1e-3, reps, 0.93)), int(binom.isf(1e-3, reps, 0.97))


def check_coverage(n_classes: int, n: int, sharpness: float, reps: int, kind: str) -> None:
    least, most = acceptance(reps)
    wanted = truth(n_classes, sharpness)
    failed = []
    for name, count in covered(n_classes, n, sharpness, reps, kind).items():
        may_exceed = name in CONSERVATIVE or (name in ("overconfidence", "underconfidence") and wanted[name] == 0)
        if count < least or (count > most and not may_exceed):
            failed.append(f"{name} covers {count} of {reps}, not {least} to {most}")
    assert not failed, failed


@pytest.mark.parametrize(("n_classes", "n", "sharpness"), SOURCES)
def test_coverage_of_means(n_classes: int, n: int, sharpness: float) -> None:
    check_coverage(n_classes, n, sharpness, 400, "mean")


@pytest.mark.parametrize(("n_classes", "n", "sharpness"), SOURCES)
def test_coverage_of_calibration_errors(n_classes: int, n: int, sharpness: float) -> None:
    check_coverage(n_classes, n, sharpness, 100, "binned")


@pytest.mark.parametrize(("n_classes", "n", "sharpness"), [SOURCES[0], SOURCES[3]])
def test_coverage_of_errors_without_bins(n_classes: int, n: int, sharpness: float) -> None:
    check_coverage(n_classes, n, sharpness, 25, "ordered")


# Noise floors


def perfect(n: int, n_classes: int, seed: int) -> calibrant.Predictions:
    return draw(n, n_classes, 1.0, seed)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_floor_is_the_mean_of_a_perfect_model(n_classes: int) -> None:
    """Within 4 standard errors of the simulated mean, the floor's own draws (1000, or 100 of smece) counted too."""
    reps = 150
    names = [name for name in ERRORS if n_classes == 2 or not METRICS[name].binary]
    start = perfect(800, n_classes, 70)
    generator = torch.Generator().manual_seed(71)
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(reps):
        labels = torch.multinomial(start.probs(), 1, generator=generator).squeeze(1)
        values = calibrant.score(calibrant.Predictions.from_logits(start.logits, labels), metrics=names).values()
        for name in names:
            value = values[name]
            assert value is not None
            drawn[name].append(value)
    card = calibrant.score(start, metrics=names)
    for name in names:
        sample = torch.tensor(drawn[name], dtype=torch.float64)
        n_draws = 100 if name.startswith("smece") else 1000
        error = float(sample.std()) * math.sqrt(1 / reps + 1 / n_draws)
        assert card.noise_floor(name) == pytest.approx(float(sample.mean()), abs=4 * error), name


@pytest.mark.parametrize("n", [200, 1000, 5000, 50_000])
def test_floor_of_evenly_spread_confidences(n: int) -> None:
    """E|gap| of a bin is about √(2/π · mass · p (1 − p) / n)."""
    probs = torch.linspace(0.5 / n, 1 - 0.5 / n, n, dtype=torch.float64)
    card = calibrant.score(
        calibrant.Predictions.from_positive_probs(probs, (probs > 0.5).long()), metrics=["ece_positive"]
    )
    middles = (torch.arange(15, dtype=torch.float64) + 0.5) / 15
    wanted = math.sqrt(2 / math.pi / n / 15) * float((middles * (1 - middles)).sqrt().sum())
    assert card.noise_floor("ece_positive") == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize(("n", "figure"), [(200, 0.0475), (1000, 0.0219), (5000, 0.0099), (50_000, 0.0030)])
def test_floor_of_figures_for_an_unnamed_model(n: int, figure: float) -> None:
    """Figures of the ECE of a perfect model that do not say which.

    Evenly spread P(y = 1) gives 0.0384 at 1,000, and its larger probability 0.0278. Beta(3, ½) was chosen among others
    because it comes out near the figures, so this tests how the floor falls with n, not where the figures are from.
    """
    probs = torch.from_numpy(np.random.default_rng(80).beta(3.0, 0.5, n)).clamp(1e-12, 1 - 1e-12)
    rows = calibrant.Predictions.from_positive_probs(probs, torch.ones(n, dtype=torch.long))
    assert calibrant.score(rows, metrics=["ece"]).noise_floor("ece") == pytest.approx(figure, rel=0.05)


def test_floor_only_for_calibration_errors() -> None:
    card = calibrant.score(perfect(50, 3, 72))
    for name in card.names:
        if name in ERRORS:
            assert 0 <= card.noise_floor(name) <= 1
        else:
            with pytest.raises(InvalidInputError, match=f"{name} has no noise floor"):
                card.noise_floor(name)


# What an interval is


def card_of(n: int, n_classes: int, seed: int, sharpness: float = 0.6) -> Scorecard:
    card: Scorecard = calibrant.score(draw(n, n_classes, sharpness, seed))
    return card


@pytest.mark.parametrize("n_classes", [2, 4])
def test_same_seed_same_interval(n_classes: int) -> None:
    first, second = card_of(300, n_classes, 73), card_of(300, n_classes, 73)
    for name in first.names:
        assert first.interval(name, seed=5) == second.interval(name, seed=5), name
        assert first.interval(name) == first.interval(name, seed=0), name
    assert first.interval("ece", seed=5) != first.interval("ece", seed=6)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("sharpness", [1.0, 0.3])
def test_wider_at_a_higher_level_and_around_the_value(n_classes: int, sharpness: float) -> None:
    """The upper limit is never below the value; the lower one is below it, or both are at the edge of the range."""
    card = card_of(300, n_classes, 74, sharpness)
    for name in card.names:
        limits = [card.interval(name, level=level) for level in (0.5, 0.8, 0.95, 0.99)]
        for (low, high), (lower, higher) in pairwise(limits):
            assert lower <= low + 1e-12, name
            assert high <= higher + 1e-12, name
        low, high = limits[2]
        assert 0 <= low <= high, name
        if name in ERRORS:
            assert high <= 1, name
        assert high >= card[name] - 1e-12, name
        assert low <= card[name] + 1e-12, name


def test_intervals_shrink_with_rows() -> None:
    few, many = card_of(500, 4, 75), card_of(8000, 4, 75)
    for name in few.names:
        widths = [high - low for low, high in (card.interval(name) for card in (few, many))]
        if name != "mce":  # the worst bin may hold a few rows, however many there are
            assert widths[1] < 0.5 * widths[0], name  # √16 = 4 where nothing else happens


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_accuracy_by_clopper_and_pearson(level: float) -> None:
    """Exact limits of a share; weights count as the equal rows that tell as much: of 1 and 3 these are 4/5."""
    for correct, n in ((7, 10), (0, 12), (12, 12), (450, 1000)):
        rows = calibrant.Predictions.from_probs(torch.tensor([[0.8, 0.2]] * n), (torch.arange(n) >= correct).long())
        exact = binomtest(correct, n).proportion_ci(level, method="exact")
        wanted = pytest.approx((exact.low, exact.high), abs=1e-9)
        assert calibrant.score(rows, metrics=["accuracy"]).interval("accuracy", level=level) == wanted
        assert weighted(rows, torch.full((n,), 3.0), ["accuracy"]).interval("accuracy", level=level) == wanted
    rows = calibrant.Predictions.from_probs(torch.tensor([[0.8, 0.2]] * 10), torch.arange(10) % 2)
    card = weighted(rows, torch.tensor([1.0, 3.0] * 5), ["accuracy"])
    wanted = beta.ppf((1 - level) / 2, 2.0, 7.0), beta.ppf((1 + level) / 2, 3.0, 6.0)
    assert card.interval("accuracy", level=level) == pytest.approx(wanted, abs=1e-9)  # 2 of 8 rows


def test_mean_by_student() -> None:
    """NLL of −log p for p = 0.5, 0.25, 0.125: mean 2 log 2, standard error log 2 / √3, t(2) = 4.3027."""
    probs = [[0.5, 0.5], [0.75, 0.25], [0.875, 0.125]]
    card = calibrant.score(calibrant.Predictions.from_probs(torch.tensor(probs, dtype=torch.float64), [1, 1, 1]))
    reach = 4.302653 * math.log(2) / math.sqrt(3)
    assert card.interval("nll") == pytest.approx((max(2 * math.log(2) - reach, 0), 2 * math.log(2) + reach), abs=1e-6)


def test_infinite_nll() -> None:
    logits = torch.tensor([[0.0, -math.inf], [0.0, -1.0], [0.0, -2.0]])
    card = calibrant.score(calibrant.Predictions.from_logits(logits, [1, 0, 0]))
    assert card.nll == math.inf
    assert card.interval("nll") == (math.inf, math.inf)
    assert card.interval("nll_on_errors") == (math.inf, math.inf)
    assert all(map(math.isfinite, card.interval("brier")))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_row(n_classes: int) -> None:
    card = card_of(1, n_classes, 76)
    for name in card.names:
        if card.get(name) is None:
            with pytest.raises(UndefinedMetricError):
                card.interval(name)
            continue
        low, high = card.interval(name)
        assert not math.isnan(low + high), name
        assert low <= card[name] + 1e-12, name
        assert card[name] <= high + 1e-12, name
        if name in ERRORS:
            assert math.isfinite(card.noise_floor(name)), name
    assert card.interval("confidence") == (0.0, 1.0)
    assert card.interval("nll") == (0.0, math.inf)


def weighted(predictions: calibrant.Predictions, weights: Tensor, metrics: list[str] | None = None) -> Scorecard:
    rows = calibrant.Predictions.from_logits(predictions.logits, predictions.labels, columns={"w": weights.numpy()})
    card: Scorecard = calibrant.score(rows, weights="w", metrics=metrics)
    return card


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weight", [2.0, 0.25])
def test_a_constant_weight_changes_no_interval(n_classes: int, weight: float) -> None:
    """AURC and the debiased error take weights as numbers of rows, so only these may move, by their 1/n."""
    single = draw(300, n_classes, 0.6, 77)
    rows = calibrant.Predictions.from_logits(single.logits.double(), single.labels)
    plain, heavy = calibrant.score(rows), weighted(rows, torch.full((300,), weight, dtype=torch.float64))
    for name in plain.names:
        counts_rows = name.startswith(("l2ce", "aurc"))
        tolerance = 0.02 if counts_rows else 1e-9
        assert heavy.interval(name) == pytest.approx(plain.interval(name), abs=tolerance), name
        if name in ERRORS and not name.startswith(("l2ce", "smece")):
            assert heavy.noise_floor(name) == pytest.approx(plain.noise_floor(name), abs=1e-9), name


def test_uneven_weights_are_worth_fewer_rows() -> None:
    rows = draw(2000, 4, 0.6, 78)
    weights = torch.ones(2000, dtype=torch.float64)
    weights[:200] = 30.0  # (Σw)² / Σw² = 337 rows
    plain, uneven = calibrant.score(rows), weighted(rows, weights)
    for name in plain.names:
        widths = [high - low for low, high in (card.interval(name) for card in (plain, uneven))]
        if name != "mce":  # its upper limit is 1 where the worst bin holds a few rows
            assert widths[1] > 1.5 * widths[0], name


def test_an_error_of_more_than_1_is_impossible() -> None:
    card = card_of(8000, 4, 75)
    for name in ERRORS:
        if name in card.names and not name.startswith("smece"):
            assert card.interval(name)[1] <= 1, name


@pytest.mark.parametrize(
    ("n", "confidence", "accuracy"), [(50, 1.0, 0.98), (50, 0.8, 0.99), (50, 0.999, 0.99), (300, 1.0, 0.98)]
)
def test_few_wrong_rows_have_intervals_that_hold(n: int, confidence: float, accuracy: float) -> None:
    """Where draws of rows alone leave the true error out up to two times in three; every error is that of one bin."""

    def card(n_rows: int, n_wrong: int) -> Scorecard:
        labels = (torch.arange(n_rows) >= n_wrong).long()
        probs = torch.full((n_rows,), confidence, dtype=torch.float64)
        return calibrant.score(calibrant.Predictions.from_positive_probs(probs, labels), metrics=ERRORS)

    known = card(10**5, round(10**5 * (1 - accuracy))).values()
    outside = dict.fromkeys(ERRORS, 0.0)
    for n_wrong in range(n + 1):
        chance = float(binom.pmf(n_wrong, n, 1 - accuracy))
        if chance < 1e-5:
            continue
        found = card(n, n_wrong)
        for name in ERRORS:
            low, high = found.interval(name)
            truth_of = known[name]
            assert truth_of is not None
            outside[name] += chance * (not low <= truth_of + 1e-6 or not truth_of - 1e-6 <= high)
    assert max(outside.values()) <= 0.05, outside


@pytest.mark.parametrize("n_wrong", [0, 1])
def test_few_surprises_among_many_classes_have_intervals_that_hold(n_wrong: int) -> None:
    """Fifty rows of ten classes by a model that is certain: a wrong row is two surprises, of a tenth of a row each."""
    top = torch.arange(50) % 10
    labels = torch.where(torch.arange(50) < n_wrong, (top + 1) % 10, top)
    probs = torch.nn.functional.one_hot(top, 10).double()
    low, high = calibrant.score(calibrant.Predictions.from_probs(probs, labels), metrics=["cece"]).interval("cece")
    exact = binomtest(n_wrong, 50).proportion_ci(method="exact")
    assert (low, high) == pytest.approx((2 / 10 * exact.low, 2 / 10 * exact.high))
