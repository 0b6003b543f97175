"""Intervals have their coverage, and noise floors are what a calibrated model scores."""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch
from scipy.stats import beta, binom, binomtest, gamma
from torch import Tensor

import calibrant
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics import METRICS, Scorecard
from calibrant.metrics.hypotheses import Bins, draw_gaps, invert_drawn, limits_of, rays
from calibrant.metrics.intervals import bandwidth_response
from calibrant.metrics.smooth import cosine_transform, fixed_point
from calibrant.predictions import Predictions

ERRORS = [name for name, metric in METRICS.items() if metric.floor is not None]  # 0 for a calibrated model
CONSERVATIVE = ("mce", "mce_positive", "cece")  # may cover more often than their level


def draw(n: int, n_classes: int, sharpness: float, seed: int) -> Predictions:
    """Labels from softmax(sharpness · logits): at 1 the logits are calibrated, below it overconfident."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_classes, generator=generator)
    labels = torch.multinomial((sharpness * logits).softmax(1), 1, generator=generator).squeeze(1)
    return Predictions.from_logits(logits, labels)


def names_of(n_classes: int, kind: str) -> list[str]:
    """Metrics by what their intervals cost: "mean" nothing, "binned" a few draws, "sorted" many."""
    kinds = {name: "binned" if name in ERRORS else "mean" for name in METRICS} | {"kse": "sorted", "smece": "sorted"}
    del kinds["kse_positive"], kinds["smece_positive"]  # the same functions of another probability
    return [name for name in kinds if kinds[name] == kind and (n_classes == 2 or not METRICS[name].binary)]


@cache
def truth(n_classes: int, sharpness: float) -> dict[str, float]:
    """Values of a quarter of a million rows, 11 times as precise as those of 2000; 0 where there is no error."""
    values = calibrant.score(draw(2**16, n_classes, sharpness, 10**6 + part) for part in range(4)).values()
    known = {name: value for name, value in values.items() if value is not None}
    if sharpness == 1:
        known.update({name: 0.0 for name in known if name in ERRORS})
    else:
        known["underconfidence"] = 0.0
    return known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reps", "n_classes", "n", "sharpness"),
    [
        ("mean", 400, 10, 1000, 1.0),
        ("mean", 400, 2, 500, 0.6),
        ("binned", 100, 10, 2000, 1.0),
        ("binned", 60, 2, 1000, 0.6),
        ("binned", 100, 10, 2000, 0.6),
        ("binned", 60, 2, 1000, 1.0),
        ("sorted", 25, 10, 2000, 1.0),
        ("sorted", 25, 2, 1000, 0.6),
    ],
)
def test_coverage(kind: str, reps: int, n_classes: int, n: int, sharpness: float) -> None:
    """Counts that an interval of 93 % (or 97 %) coverage falls below (or above) one time in a thousand.

    Of 400 these are 355 to 397, of 100 they are 84 to 100: only the former detect an interval that is too wide.
    """
    lowest, highest = int(binom.ppf(1e-3, reps, 0.93)), int(binom.isf(1e-3, reps, 0.97))
    names, wanted = names_of(n_classes, kind), truth(n_classes, sharpness)
    counts = dict.fromkeys(names, 0)
    for seed in range(reps):
        card = calibrant.score(draw(n, n_classes, sharpness, seed), metrics=names)
        for name in names:
            low, high = card.interval(name, seed=seed)
            counts[name] += low <= wanted[name] <= high
    failed = []
    for name, count in counts.items():
        may_exceed = name in CONSERVATIVE or (name in ("overconfidence", "underconfidence") and wanted[name] == 0)
        if count < lowest or (count > highest and not may_exceed):
            failed.append(f"{name} covers {count} of {reps}, not {lowest} to {highest}")
    assert not failed, failed


@pytest.mark.slow
def test_coverage_of_an_accurate_overconfident_model() -> None:
    """300 rows, 99 % of them correct: intervals from the observed errors alone miss the truth on the dangerous side."""
    names = ["nll", "brier", "ece", "adaece", "cece", "ece_positive", "kse_positive", "smece_positive"]
    reps = 80

    def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(n, 2, generator=generator)
        logits[:, 0] += torch.where(torch.rand(n, generator=generator) < 0.5, 5.5, -5.5)
        return logits / 0.6, logits.softmax(1)

    logits, probs = rows(2**17, 0)
    labels, weights = torch.arange(2).repeat_interleave(len(logits)), probs.T.reshape(-1).double()
    expected = weighted(Predictions.from_logits(logits.repeat(2, 1), labels), weights, names)
    counts = dict.fromkeys(names, 0)
    for seed in range(reps):
        logits, probs = rows(300, 100 + seed)
        labels = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)
        card = calibrant.score(Predictions.from_logits(logits, labels), metrics=names)
        for name in names:
            low, high = card.interval(name, seed=seed)
            counts[name] += low <= expected[name] <= high
    assert min(counts.values()) >= binom.ppf(1e-3, reps, 0.93), counts


# Noise floors


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 5])
def test_floor_is_the_mean_of_a_calibrated_model(n_classes: int) -> None:
    """Within 4 standard errors of the simulated mean, which include the floor's draws (1000, or 100 of smece)."""
    reps = 100
    names = [name for name in ERRORS if n_classes == 2 or not METRICS[name].binary]
    start = draw(800, n_classes, 1.0, 70)
    generator = torch.Generator().manual_seed(71)
    drawn = torch.empty(reps, len(names), dtype=torch.float64)
    for i in range(reps):
        labels = torch.multinomial(start.probs, 1, generator=generator).squeeze(1)
        card = calibrant.score(Predictions.from_logits(start.logits, labels), metrics=names)
        drawn[i] = torch.tensor([card[name] for name in names])
    card = calibrant.score(start, metrics=names)
    for name, mean, deviation in zip(names, drawn.mean(0).tolist(), drawn.std(0).tolist(), strict=True):
        error = deviation * math.sqrt(1 / reps + 1 / (100 if name.startswith("smece") else 1000))
        assert card.noise_floor(name) == pytest.approx(mean, abs=4 * error), name


@pytest.mark.parametrize("n", [200, 5000, 50_000])
def test_floor_of_evenly_spread_confidences(n: int) -> None:
    """E|gap| of a bin is about √(2/π · mass · p (1 − p) / n)."""
    probs = torch.linspace(0.5 / n, 1 - 0.5 / n, n, dtype=torch.float64)
    card = calibrant.score(Predictions.from_positive_probs(probs, (probs > 0.5).long()), metrics=["ece_positive"])
    middles = (torch.arange(15, dtype=torch.float64) + 0.5) / 15
    wanted = math.sqrt(2 / math.pi / n / 15) * float((middles * (1 - middles)).sqrt().sum())
    assert card.noise_floor("ece_positive") == pytest.approx(wanted, rel=0.05)


# Properties of an interval


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
def test_seeds(n_classes: int) -> None:
    first, second = (calibrant.score(draw(300, n_classes, 0.6, 73)) for _ in range(2))
    for name in first.names:
        assert first.interval(name) == second.interval(name, seed=0), name
    assert first.interval("ece", seed=5) != first.interval("ece", seed=6)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("sharpness", [1.0, 0.3])
def test_wider_at_a_higher_level_and_around_the_value(n_classes: int, sharpness: float) -> None:
    card = calibrant.score(draw(300, n_classes, sharpness, 74))
    for name in card.names:
        limits = [card.interval(name, level=level) for level in (0.5, 0.95, 0.99)]
        for (low, high), (lower, higher) in pairwise(limits):
            assert lower <= low + 1e-12, name
            assert high <= higher + 1e-12, name
        low, high = limits[1]
        assert 0 <= low <= card[name] + 1e-12, name
        assert card[name] - 1e-12 <= high <= (1 if name in ERRORS else math.inf), name


def weighted(rows: Predictions, weights: Tensor, metrics: list[str] | None = None) -> Scorecard:
    rows = Predictions.from_logits(rows.logits, rows.labels, columns={"w": weights.numpy()})
    card: Scorecard = calibrant.score(rows, weights="w", metrics=metrics)
    return card


@pytest.mark.slow
def test_more_rows_have_narrower_intervals_and_uneven_weights_count_as_fewer() -> None:
    rows = draw(8000, 4, 0.6, 75)
    weights = torch.ones(8000, dtype=torch.float64)
    weights[:800] = 30.0  # (Σw)² / Σw² = 1348 rows
    few, many, uneven = calibrant.score(rows[:500]), calibrant.score(rows), weighted(rows, weights)
    for name in few.names:
        widths = [high - low for low, high in (card.interval(name) for card in (few, many, uneven))]
        if name != "mce":  # the worst bin may hold a few rows, however many there are
            assert widths[1] < 0.5 * widths[0], name  # √16 = 4 where nothing else happens
            assert widths[2] > 1.5 * widths[1], name


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_accuracy_by_clopper_and_pearson(level: float) -> None:
    """Weights count by their effective sample size: of 1 and 3 it is 4/5 of the rows."""
    for correct, n in ((7, 10), (0, 12), (12, 12), (450, 1000)):
        rows = Predictions.from_probs(torch.tensor([[0.8, 0.2]] * n), (torch.arange(n) >= correct).long())
        exact = binomtest(correct, n).proportion_ci(level, method="exact")
        wanted = pytest.approx((exact.low, exact.high), abs=1e-9)
        assert calibrant.score(rows, metrics=["accuracy"]).interval("accuracy", level=level) == wanted
        assert weighted(rows, torch.full((n,), 3.0), ["accuracy"]).interval("accuracy", level=level) == wanted
    rows = Predictions.from_probs(torch.tensor([[0.8, 0.2]] * 10), torch.arange(10) % 2)
    card = weighted(rows, torch.tensor([1.0, 3.0] * 5), ["accuracy"])
    wanted = beta.ppf((1 - level) / 2, 2.0, 7.0), beta.ppf((1 + level) / 2, 3.0, 6.0)
    assert card.interval("accuracy", level=level) == pytest.approx(wanted, abs=1e-9)  # 2 of 8 rows


def test_means_by_the_gamma_distribution() -> None:
    """60 rows at 0.9, all correct: the upper limit counts one error more than was seen, whose NLL would be log 10."""
    rows = Predictions.from_positive_probs(torch.full((60,), 0.9, dtype=torch.float64), torch.ones(60).long())
    card = calibrant.score(rows, metrics=["nll", "brier", "confidence"])
    for name, seen, error in (("nll", -math.log(0.9), math.log(10)), ("brier", 2 * 0.01, 2 * 0.81)):
        mean, deviation = seen + error / 60, error / 60
        upper = gamma.ppf(0.975, (mean / deviation) ** 2) * deviation**2 / mean
        assert card.interval(name) == pytest.approx((seen, upper), rel=1e-6), name
    assert card.interval("confidence")[0] < 0.9 <= card.interval("confidence")[1] + 1e-12


def test_means_of_many_rows_are_normal() -> None:
    rows = draw(40_000, 4, 0.6, 79)
    card = calibrant.score(rows, metrics=["nll", "brier", "entropy", "confidence"])
    nll = torch.nn.functional.cross_entropy(rows.logits.double(), rows.labels, reduction="none")
    margin = 1.96 * float(nll.std()) / 200
    low, high = card.interval("nll")
    assert (card.nll - low, high - card.nll) == pytest.approx((margin, margin), rel=0.03)


def test_the_brier_score_of_few_errors_stays_within_its_range() -> None:
    rows = Predictions.from_positive_probs(torch.tensor([0.99, 0.9, 0.95, 0.999, 0.8]).double(), [0, 0, 0, 0, 1])
    low, high = calibrant.score(rows, metrics=["brier_on_errors"]).interval("brier_on_errors")
    assert 0 < low < high <= 2


def test_ece_where_every_bin_is_overconfident() -> None:
    """It is confidence − accuracy: the limits are those of a mean, up to the draws of their quantiles."""
    generator = torch.Generator().manual_seed(78)
    probs = torch.linspace(0.51, 0.99, 20_000, dtype=torch.float64)
    correct = torch.rand(20_000, generator=generator, dtype=torch.float64) < probs - 0.2
    card = calibrant.score(Predictions.from_positive_probs(probs, correct.long()), metrics=["ece", "overconfidence"])
    margin = 1.96 * float((probs - correct.double()).std()) / math.sqrt(20_000)
    for name in card.names:
        low, high = card.interval(name)
        assert (card[name] - low, high - card[name]) == pytest.approx((margin, margin), rel=0.1), name


def test_the_bandwidth_of_the_smooth_error_follows_its_value() -> None:
    """Gaps that are 2 % larger raise the error by 2 % times the response, which is below 1 where signs differ."""
    histogram = calibrant.score(draw(500, 4, 1.0, 79), metrics=["smece"]).top_histogram
    transform = cosine_transform(histogram.gap.numpy(), histogram.mean_confidence.numpy())
    low, value, high = (fixed_point(scale * transform) for scale in (0.98, 1.0, 1.02))
    response = bandwidth_response(histogram, value)
    assert response < 0.9
    assert (high - low) / (0.04 * value) == pytest.approx(response, rel=0.05)


def test_infinite_nll() -> None:
    logits = torch.tensor([[0.0, -math.inf], [0.0, -1.0], [0.0, -2.0]])
    card = calibrant.score(Predictions.from_logits(logits, [1, 0, 0]))
    assert card.interval("nll") == card.interval("nll_on_errors") == (math.inf, math.inf)
    assert all(map(math.isfinite, card.interval("brier")))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_row(n_classes: int) -> None:
    card = calibrant.score(draw(1, n_classes, 0.6, 76))
    for name in card.names:
        if card.get(name) is None:
            with pytest.raises(UndefinedMetricError):
                card.interval(name)
            continue
        low, high = card.interval(name)
        assert low - 1e-12 <= card[name] <= high + 1e-12, name
        if name in ERRORS:
            assert 0 <= card.noise_floor(name) <= 1, name
        else:
            with pytest.raises(InvalidInputError, match=f"{name} has no noise floor"):
                card.noise_floor(name)
    assert card.interval("confidence") == (0.0, 1.0)
    assert card.interval("nll") == (0.0, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weight", [2.0, 0.25])
def test_a_constant_weight_changes_no_interval(n_classes: int, weight: float) -> None:
    """AURC and the debiased error take weights as numbers of rows: only these may move, by their 1/n."""
    single = draw(300, n_classes, 0.6, 77)
    rows = Predictions.from_logits(single.logits.double(), single.labels)
    unweighted, heavy = calibrant.score(rows), weighted(rows, torch.full((300,), weight, dtype=torch.float64))
    for name in unweighted.names:
        tolerance = 0.02 if name.startswith(("l2ce", "aurc")) else 1e-9
        assert heavy.interval(name) == pytest.approx(unweighted.interval(name), abs=tolerance), name
        if name in ERRORS and not name.startswith(("l2ce", "smece")):
            assert heavy.noise_floor(name) == pytest.approx(unweighted.noise_floor(name), abs=1e-9), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "confidence", "accuracy"), [(50, 1.0, 0.98), (50, 0.8, 0.99), (50, 0.999, 0.99), (300, 1.0, 0.98)]
)
def test_coverage_with_few_errors(n: int, confidence: float, accuracy: float) -> None:
    """Where the bootstrap alone misses the true error up to two times in three; every error is that of one bin."""

    def card(n_rows: int, n_errors: int) -> Scorecard:
        labels = (torch.arange(n_rows) >= n_errors).long()
        probs = torch.full((n_rows,), confidence, dtype=torch.float64)
        return calibrant.score(Predictions.from_positive_probs(probs, labels), metrics=ERRORS)

    known = card(10**5, round(10**5 * (1 - accuracy)))
    outside = dict.fromkeys(ERRORS, 0.0)
    for n_errors in range(n + 1):
        chance = float(binom.pmf(n_errors, n, 1 - accuracy))
        if chance < 1e-4:
            continue
        found = card(n, n_errors)
        for name in ERRORS:
            low, high = found.interval(name)
            outside[name] += chance * (not low <= known[name] + 1e-6 or not known[name] - 1e-6 <= high)
    assert max(outside.values()) <= 0.05, outside


@pytest.mark.parametrize("n_errors", [0, 1])
def test_classwise_interval_with_few_errors(n_errors: int) -> None:
    """Fifty rows of ten classes by a model of confidence 1: an error moves two classes, by a tenth of a row each."""
    top = torch.arange(50) % 10
    labels = torch.where(torch.arange(50) < n_errors, (top + 1) % 10, top)
    probs = torch.nn.functional.one_hot(top, 10).double()
    low, high = calibrant.score(Predictions.from_probs(probs, labels), metrics=["cece"]).interval("cece")
    exact = binomtest(n_errors, 50).proportion_ci(method="exact")
    assert high == pytest.approx(2 / 10 * exact.high, rel=0.2)
    assert low == pytest.approx(2 / 10 * exact.low, abs=5e-4)


# Rows that say little


def positive(p: float, correct: int, n: int) -> Predictions:
    """Rows of one probability of class 1, of which so many have the label 1."""
    return Predictions.from_positive_probs(torch.full((n,), p, dtype=torch.float64), (torch.arange(n) < correct).long())


@pytest.mark.parametrize(
    ("p", "correct", "n", "lowest", "highest"),
    [
        (0.5, 20, 40, 0.1, 0.25),  # the outcomes tell no direction
        (1.0, 3, 3, 0.5, 0.8),  # nor do these, and they have no variance
        (0.9, 60, 60, 0.09, 0.11),  # 60 of 60 correct are underconfident, never overconfident
    ],
)
def test_upper_limits_of_few_or_equal_rows(p: float, correct: int, n: int, lowest: float, highest: float) -> None:
    card = calibrant.score(positive(p, correct, n), metrics=["ece", "adaece", "kse", "cece"])
    for name in card.names:
        assert lowest < card.interval(name)[1] < highest, name


def test_the_next_row_of_a_certain_model_may_be_an_error() -> None:
    card = calibrant.score(positive(1.0, 50, 50), metrics=["nll", "brier"])
    assert card.interval("nll") == (0.0, math.inf)
    assert card.interval("brier")[1] > 0.1


def test_one_row_of_almost_all_weight() -> None:
    weights = torch.ones(200, dtype=torch.float64)
    weights[0] = 40_000.0  # an effective sample size of 1.01
    card = weighted(draw(200, 3, 0.6, 80), weights)
    for name in card.names:
        if card.get(name) is not None:
            assert card.interval(name)[0] <= card[name] <= card.interval(name)[1] + 1e-12, name


def test_classwise_interval_of_clusters_has_a_width() -> None:
    rows = draw(600, 20, 1.0, 81)
    clusters = Predictions.from_logits(rows.logits, rows.labels, columns={"patient": (torch.arange(600) // 15).numpy()})
    low, high = calibrant.score(clusters, metrics=["cece"], cluster="patient").interval("cece")
    assert low < 0.5 * high


def test_outcomes_that_agree_too_well_do_not_shorten_the_interval() -> None:
    """In each of five bins exactly as many rows are correct as the confidence says, which happens one time in 10^5."""
    probs = torch.tensor([0.55, 0.65, 0.75, 0.85, 0.95], dtype=torch.float64).repeat_interleave(100)
    correct = torch.arange(500) % 100 < (100 * probs).round()
    card = calibrant.score(Predictions.from_positive_probs(probs, correct.long()), metrics=["ece", "kse"])
    for name in card.names:
        assert card[name] == pytest.approx(0, abs=1e-9)
        low, high = card.interval(name)
        assert low == 0, name
        assert 0.02 < high < 0.08, name
    first, _ = rays(card.top_bins, 0)
    assert invert_drawn(first, 0.0, lambda gap: abs(gap).sum(-1), 0.95)  # calibration at least is not contradicted


def test_less_than_one_independent_row_has_the_noise_of_that_share() -> None:
    """Ten rows of confidence 0.5 that count as a quarter of one: a standard deviation of √(0.25 / 0.25)."""
    sums = calibrant.score(positive(0.5, 5, 10), metrics=["ece"]).top_bins
    bins = Bins.of(replace(sums, squared=sums.squared * 40))
    [drawn] = draw_gaps(bins, [torch.zeros(1, dtype=torch.float64).numpy()], seed=0, n_draws=4000)
    assert float(drawn.std()) == pytest.approx(1.0, rel=0.05)


def test_without_a_hypothesis_anything_is_possible() -> None:
    assert limits_of([], float) == (0.0, 1.0)


def test_the_brier_score_of_errors_has_its_tail_on_the_left() -> None:
    """Nearly all errors score 2, a few much less: the lower limit is further away than the upper one."""
    probs = torch.full((40,), 0.999, dtype=torch.float64)
    probs[:4] = 0.6
    card = calibrant.score(Predictions.from_positive_probs(probs, [0] * 40), metrics=["brier_on_errors"])
    low, high = card.interval("brier_on_errors")
    assert card.brier_on_errors - low > 1.2 * (high - card.brier_on_errors)


def test_the_largest_gap_may_be_in_a_bin_of_few_rows() -> None:
    """The fit follows 5,000 rows at 0.999; of 5 rows at 0.6, any share may be correct."""
    probs = torch.tensor([0.999] * 5000 + [0.6] * 5, dtype=torch.float64)
    labels = [1] * 4950 + [0] * 50 + [1, 1, 1, 0, 0]
    assert calibrant.score(Predictions.from_positive_probs(probs, labels), metrics=["mce"]).interval("mce")[1] > 0.3


def test_classwise_interval_of_clusters_where_bins_are_empty() -> None:
    labels = torch.arange(200) % 3
    columns = {"patient": (torch.arange(200) // 5).numpy()}
    rows = Predictions.from_logits(torch.zeros(200, 3), labels, columns=columns)
    low, high = calibrant.score(rows, metrics=["cece"], cluster="patient").interval("cece")
    assert 0 <= low < high < 0.2
