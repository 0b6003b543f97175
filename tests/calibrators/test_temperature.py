"""Temperature scaling against the root of its slope, found by scipy in float64 and measured in longer floats."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import binom
from scipy.stats import t as student_t

import calibrant as cb
from calibrant.calibrators import PAPER_GRID, EnsembleTemperature, GridTemperature, TemperatureScaling
from calibrant.errors import InvalidInputError, NotConvergedError
from made.calibrator_data import Rows, calibrated, draw32, noisy, sample


def draw(n: int, n_classes: int, temperature: float = 1.0, seed: int = 0, spread: float = 2.0) -> Rows:
    """Rows whose best temperature is near the one given: labels follow softmax(logits / temperature)."""
    random = np.random.default_rng(seed)
    true_logits = random.normal(size=(n, n_classes)) * spread
    return Rows(true_logits * temperature, sample(softmax(true_logits, axis=1), random))


def margins(rows: Rows) -> NDArray[np.longdouble]:
    """(n, k) logits less that of the label, which the NLL needs alone."""
    wide = rows.logits.astype(np.longdouble)
    return wide - wide[np.arange(len(rows.labels)), rows.labels][:, None]


def nll(rows: Rows, temperature: float) -> np.longdouble:
    """Mean NLL, to 64 bits where the machine has them: also of rows whose label has nearly probability 1."""
    scaled = margins(rows) / np.longdouble(temperature)
    scaled[np.arange(len(rows.labels)), rows.labels] = -np.inf
    largest = scaled.max(1)
    with np.errstate(over="ignore"):
        others = np.exp(scaled - largest[:, None]).sum(1)
        each = np.where(largest > 0, largest + np.log(others + np.exp(-largest)), np.log1p(others * np.exp(largest)))
    return np.longdouble(np.average(each, weights=rows.weights))


def slope(rows: Rows, temperature: float) -> float:
    """The derivative of the mean NLL in log T."""
    given = margins(rows)
    scaled = given / np.longdouble(temperature)
    odds = np.exp(scaled - scaled.max(1, keepdims=True))
    mean = (np.where(np.isfinite(given), given, 0) * odds).sum(1) / odds.sum(1)
    return -float(np.average(mean, weights=rows.weights) / np.longdouble(temperature))


def best(rows: Rows) -> float:
    """The temperature at which the slope changes its sign."""
    scale = float(np.abs(margins(rows)[np.isfinite(margins(rows))]).max())
    found = brentq(lambda log: slope(rows, math.exp(log)) * math.exp(log), math.log(scale) - 14, math.log(scale) + 12)
    low, high = found - 1e-6, found + 1e-6
    return math.exp(brentq(lambda log: slope(rows, math.exp(log)) * math.exp(log), low, high, xtol=1e-15, rtol=1e-15))


def excess(rows: Rows, temperature: float) -> float:
    """How much larger the NLL is than the least one, relative to it."""
    least = nll(rows, best(rows))
    return float((nll(rows, temperature) - least) / least)


def fit(rows: Rows, **options: object) -> TemperatureScaling:
    return TemperatureScaling.fit(rows.predictions(), **options)


# The oracle itself


def test_the_oracle_is_a_minimum_and_its_slope_a_derivative() -> None:
    rows = draw(300, 4, 2.5)
    top = best(rows)
    assert abs(slope(rows, top)) < 1e-14
    for step in (1e-4, -1e-4):
        assert nll(rows, top * (1 + step)) > nll(rows, top)
    difference = float(nll(rows, 2 * math.exp(1e-6)) - nll(rows, 2 * math.exp(-1e-6))) / 2e-6
    assert slope(rows, 2.0) == pytest.approx(difference, rel=1e-8)


# Exactness


@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5, 1.0, 2.5, 10.0, 50.0, 200.0])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_the_fit_is_exact_at_any_temperature_and_in_either_precision(temperature: float, n_classes: int) -> None:
    for seed, n in enumerate((30, 200, 1000)):
        rows = draw(n, n_classes, temperature, seed)
        rows = rows._replace(logits=rows.logits.astype(np.float32).astype(np.float64))
        found, single = fit(rows), TemperatureScaling.fit(rows.predictions(torch.float32))
        assert max(excess(rows, found.temperature), excess(rows, single.temperature)) <= 1e-12
        assert found.temperature == pytest.approx(best(rows), rel=1e-6)
        assert found.temperature == pytest.approx(temperature, rel=0.7 if n == 30 else 0.3)
        assert 0 <= found.slope < 1e-9
        assert found.fitted.nll_after == pytest.approx(float(nll(rows, best(rows))), rel=1e-9)
    other = draw(100, n_classes, temperature, 12)
    wanted = torch.tensor(other.logits / found.temperature).log_softmax(1)
    torch.testing.assert_close(found(other.predictions()).log_probs, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.data())
def test_the_fit_is_exact_on_coarse_grids_with_ties(data: st.DataObject) -> None:
    """Whole numbers tell without rounding whether the best temperature is 0, infinite or between."""
    n_classes, n = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 25))
    flat = data.draw(st.lists(st.integers(-4, 4), min_size=n * n_classes, max_size=n * n_classes))
    labels = np.array(data.draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)))
    whole = np.array(flat).reshape(n, n_classes)
    rows = Rows(whole * 0.5, labels)
    of_label = whole[np.arange(n), labels]
    if (n_classes * of_label - whole.sum(1)).sum() <= 0 or (of_label == whole.max(1)).all():
        with pytest.raises(NotConvergedError):
            fit(rows)
        return
    found = fit(rows)
    assert excess(rows, found.temperature) <= 1e-12
    assert found.slope < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_a_few_errors_of_very_sure_rows_are_fitted_exactly(seed: int) -> None:
    """Heavy tails: most labels have a probability of nearly 1, one has nearly none."""
    random = np.random.default_rng(seed)
    logits = random.standard_t(2, size=(400, 5)) * 30
    labels = logits.argmax(1)
    labels[0] = logits[0].argmin()
    rows = Rows(logits, labels)
    assert excess(rows, fit(rows).temperature) <= 1e-12


def test_labels_may_miss_classes() -> None:
    """Where scikit-learn 1.9 ends in an IndexError: the labels of a validation set need not name every class."""
    rows = draw(1500, 4, 2.5)
    for missing in ((0,), (1,), (3,), (1, 2, 3)):
        known = rows.take(~np.isin(rows.labels, missing))
        assert excess(known, fit(known).temperature) <= 1e-12


def test_classes_of_probability_0_do_not_count() -> None:
    rows = draw(300, 4, 3.0, seed=4)
    narrow = rows.take(rows.labels < 3)
    wide = narrow._replace(logits=np.where(np.arange(4) == 3, -np.inf, narrow.logits))
    found = fit(wide)
    assert found.temperature == pytest.approx(fit(narrow._replace(logits=narrow.logits[:, :3])).temperature, rel=1e-9)
    assert found(wide.predictions(), allow_same_rows=True).probs[:, 3].tolist() == [0.0] * len(wide.labels)


def test_constants_of_rows_do_not_matter() -> None:
    rows = draw(500, 3, 2.0, seed=5)
    moved = rows._replace(logits=rows.logits + np.random.default_rng(6).normal(size=(500, 1)) * 1000)
    assert fit(moved).temperature == pytest.approx(fit(rows).temperature, rel=1e-7)


# The standard error


@pytest.mark.parametrize("noise", [0.0, 0.3], ids=["a model that is right", "labels that it does not know"])
def test_the_standard_error_is_the_spread_of_the_temperature_over_repetitions(noise: float) -> None:
    temperatures, errors = [], []
    for seed in range(150):
        rows = draw(400, 3, 2.0, seed=1000 + seed)
        random = np.random.default_rng(seed)
        swapped = random.random(400) < noise * (rows.logits[:, 0] > 0)
        labels = np.where(swapped, random.integers(3, size=400), rows.labels)
        found = fit(rows._replace(labels=labels))
        temperatures.append(found.temperature)
        errors.append(found.standard_error)
    assert np.median(errors) == pytest.approx(np.std(temperatures, ddof=1), rel=0.15)


def test_the_standard_error_does_not_assume_that_the_model_is_true() -> None:
    """√Σ s² / Σ c, with the slope s and the curvature c of a row's NLL in 1/T; not 1 / √Σ c."""
    rows = draw(900, 4, 2.0, seed=13)
    rows = rows._replace(labels=np.where(np.arange(900) % 3 == 0, rows.logits.argmin(1), rows.labels))
    found, given = fit(rows), margins(rows).astype(np.float64)
    probs = softmax(given / found.temperature, axis=1)
    slopes = (probs * given).sum(1)
    curvature = ((probs * given**2).sum(1) - slopes**2).sum()
    robust = found.temperature**2 * math.sqrt((slopes**2).sum()) / curvature
    assert found.standard_error == pytest.approx(robust, rel=1e-6)
    assert abs(found.temperature**2 / math.sqrt(curvature) / robust - 1) > 0.1


# The interval


@pytest.mark.parametrize("n", [50, 100, 200])
def test_the_interval_covers_a_proportion_exactly_as_often_as_it_says(n: int) -> None:
    """Equal rows of two classes: T is a function of the number of errors, so the coverage is a sum of its chances."""
    fits = {}
    for m in range(1, n // 2):
        found = fit(Rows(np.tile([2.0, 0.0], (n, 1)), (np.arange(n) < m).astype(np.int64)))
        fits[m] = (found.interval, (found.temperature, 1.96 * found.standard_error))
    worst = 1.0
    for share in (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3):
        truth = 2 / math.log((1 - share) / share)
        chances = binom.pmf(list(fits), n, share)
        covered = [low <= truth <= high for (low, high), _ in fits.values()]
        assert 0.935 < chances @ covered / chances.sum() < 0.985, share
        worst = min(worst, chances @ [abs(truth - t) <= error for _, (t, error) in fits.values()] / chances.sum())
    assert worst < 0.93  # of T ± 1.96 standard errors


@pytest.mark.slow
def test_the_interval_covers_where_a_few_rows_decide() -> None:
    """Confident rows, 1.5 % of labels at random: no temperature is true. At full size in benchmarks/."""

    def confident(n: int, seed: int) -> Rows:
        random = np.random.default_rng(seed)
        logits = random.normal(size=(n, 10))
        logits[:, 0] += 4 + 8 * random.exponential(size=n)
        labels = sample(softmax(logits, axis=1), random)
        return Rows(logits, np.where(random.random(n) < 0.015, random.integers(10, size=n), labels))

    truth = fit(confident(300_000, 0)).temperature
    fits = [fit(confident(200, seed)) for seed in range(1, 201)]
    assert np.mean([low <= truth <= high for low, high in (found.interval for found in fits)]) > 0.93
    assert np.mean([abs(found.temperature - truth) <= 1.96 * found.standard_error for found in fits]) < 0.9
    assert np.mean([found.rests_on_few_rows for found in fits]) > 0.9
    assert not fit(draw(300, 5, 2.0)).rests_on_few_rows


@pytest.mark.parametrize(("n", "temperature"), [(40, 2.0), (300, 0.3), (20_000, 5.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_limits_are_where_the_corrected_likelihood_ratio_is_a_quantile(
    n: int, temperature: float, weighted: bool
) -> None:
    rows = draw(n, 4, temperature, seed=n)
    weights = np.random.default_rng(n).exponential(size=n) if weighted else np.ones(n)
    rows = rows._replace(weights=weights)
    found, given = fit(rows, weights="weight"), margins(rows).astype(np.float64)
    probs = softmax(given / found.temperature, axis=1)
    mean = (probs * given).sum(1)
    slopes, curvature = weights * mean, (weights * ((probs * given**2).sum(1) - mean**2)).sum()
    variance = (slopes**2).sum()
    skewness = (slopes**3).sum() / variance**1.5
    effective = variance**2 / (slopes**4).sum()
    quantile = student_t.ppf(0.975, 2 * effective - 1)
    assert found.influential_rows == pytest.approx(effective, rel=1e-6)
    for limit, sign in zip(found.interval, (1, -1), strict=True):
        difference = weights.sum() * float(nll(rows, limit) - nll(rows, found.temperature))
        r = sign * math.sqrt(2 * difference * curvature / variance * (n - 1) / n)
        assert r + skewness * (r * r / 3 + 1 / 6) + skewness**2 * r**3 / 27 == pytest.approx(sign * quantile, rel=0.02)


def test_an_interval_may_have_no_end(tmp_path: Path) -> None:
    """Of four rows, or of one, which has no spread at all; at a bound there is none."""
    for rows in (Rows(np.tile([2.0, 0.0], (4, 1)), np.array([0, 0, 0, 1])), Rows([[0.0, -1.0, -3.0]], [1])):
        found = fit(rows)
        assert found.interval[0] < 1
        assert found.interval[1] == math.inf
        found.save(tmp_path / "t.json")
        assert cb.load_calibrator(tmp_path / "t.json").interval == found.interval
    assert fit(draw(500, 3, 20.0), bounds=(0.5, 7.0), at_bound="clip").interval is None


# Grids


def grid_fit(rows: Rows, **options: object) -> GridTemperature:
    return GridTemperature.fit(rows.predictions(), **options)


def test_the_grid_of_the_paper() -> None:
    assert PAPER_GRID == (1.25, 1.5, 1.75, 2.0)
    for temperature, wanted in ((1.0, 1.25), (1.5, 1.5), (1.75, 1.75), (3.0, 2.0)):
        assert grid_fit(draw(5000, 4, temperature, seed=14)).temperature == wanted


def test_a_grid_takes_the_temperature_of_least_nll_in_any_order() -> None:
    """With weights as without; logits so small that every temperature gives the same NLL go to the smallest one."""
    rows = draw(300, 3, 1.3, seed=15)
    random = np.random.default_rng(16)
    grid = [float(t) for t in random.uniform(0.3, 5, size=40)]
    found = grid_fit(rows, grid=grid)
    assert found.temperature == min(grid, key=lambda t: nll(rows, t))
    assert found.fitted.nll_after == pytest.approx(float(nll(rows, found.temperature)), rel=1e-9)
    weighted = rows._replace(weights=np.where(rows.labels == rows.logits.argmax(1), 0.1, 1.0))
    other = grid_fit(weighted, grid=grid, weights="weight").temperature
    assert other == min(grid, key=lambda t: nll(weighted, t)) != found.temperature
    tied = Rows(np.array([[1e-19, 0.0, -1e-19], [0.0, 1e-19, 0.0]]), np.array([0, 2]))
    assert grid_fit(tied, grid=(2.0, 1.5, 1.75)).temperature == 1.5


# Weights


def test_a_weight_of_2_is_the_row_twice_and_of_0_none_though_its_label_has_probability_0() -> None:
    rows = draw(200, 3, 2.0, seed=17)
    counts = np.random.default_rng(17).integers(0, 4, size=200)
    logits = rows.logits.copy()
    absent = counts.argmin()
    logits[absent, rows.labels[absent]] = -np.inf
    found = fit(Rows(logits, rows.labels, counts.astype(float)), weights="weight").temperature
    assert counts[absent] == 0
    assert found == pytest.approx(fit(rows.take(np.repeat(np.arange(200), counts))).temperature, rel=1e-9)
    assert found != pytest.approx(fit(rows).temperature, rel=1e-4)


def test_weights_that_are_no_whole_numbers() -> None:
    rows = draw(300, 4, 0.7, seed=18)
    rows = rows._replace(weights=np.random.default_rng(19).exponential(size=300))
    found = fit(rows, weights="weight")
    assert excess(rows, found.temperature) <= 1e-12
    scaled = rows._replace(weights=rows.weights * 1e-6)
    assert fit(scaled, weights="weight").temperature == pytest.approx(found.temperature, rel=1e-9)


def test_the_nll_of_a_weighted_fit_is_weighted() -> None:
    """Rows that are rare and heavy are overconfident, the others not: T helps, though the plain mean says it harms."""
    random = np.random.default_rng(20)
    scale = np.where(np.arange(400) < 40, 6.0, 1.0)
    rows = draw(400, 3, 1.0, seed=21)
    weights = np.where(random.random(400) < 0.1, 0.0, np.where(scale > 1, 30.0, 0.1))
    rows = Rows(rows.logits * scale[:, None], rows.labels, weights)
    rows.logits[weights.argmin(), rows.labels[weights.argmin()]] = -np.inf  # of weight 0: its NLL does not count
    for found in (fit(rows, weights="weight"), grid_fit(rows, weights="weight")):
        counted = rows.take(weights > 0)
        assert found.fitted.nll_before == pytest.approx(float(nll(counted, 1.0)), rel=1e-9)
        assert found.fitted.nll_after == pytest.approx(float(nll(counted, found.temperature)), rel=1e-9)
        assert found.fitted.nll_after < found.fitted.nll_before
        plain = counted._replace(weights=None)
        assert nll(plain, found.temperature) > nll(plain, 1.0)
        assert found.summary()["weighted"]
    assert not fit(rows.take(weights > 0)).fitted.weighted


def test_weights_that_are_none_are_refused() -> None:
    rows = draw(20, 3, 2.0)
    third = np.arange(20) == 3
    for weights, message in (
        (np.where(third, -1.0, 1.0), r"weight.*-1.* row 3"),
        (np.where(third, math.nan, 1.0), r"weight.*nan.* row 3"),
        (np.where(third, math.inf, 1.0), r"weight.*inf"),
        (np.zeros(20), r"weights.*0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            fit(rows._replace(weights=weights), weights="weight")


# Where there is no answer


def test_rows_that_have_no_temperature() -> None:
    for spread in (0.1, 2.0, 30.0):
        rows = draw(100, 3, 2.0, spread=spread)
        with pytest.raises(NotConvergedError, match="correct"):
            fit(rows._replace(labels=rows.logits.argmax(1)))
        with pytest.raises(NotConvergedError, match="infinity"):
            fit(rows._replace(labels=rows.logits.argmin(1)))
    with pytest.raises(NotConvergedError, match="equal logits"):
        fit(Rows(np.repeat(np.arange(6.0), 3).reshape(6, 3), np.array([0, 1, 2, 0, 1, 0])))


def test_a_temperature_outside_the_bounds() -> None:
    for temperature, bounds, bound in ((20.0, (0.5, 7.25), 7.25), (0.05, (0.375, 10.0), 0.375)):
        rows = draw(500, 3, temperature)
        with pytest.raises(NotConvergedError, match=str(bound)):
            fit(rows, bounds=bounds)
        assert fit(rows, bounds=bounds, at_bound="clip").temperature == bound
        inside = fit(rows, bounds=(temperature / 3, temperature * 3), at_bound="clip")
        assert excess(rows, inside.temperature) <= 1e-12


# Where other libraries stop early, do nothing, or agree


def test_probabilities_of_float32_are_calibrated() -> None:
    """Where netcal 1.4 returns them as they came: a temperature of exactly 1."""
    for temperature in (0.5, 2.5):
        rows = draw(2000, 4, temperature)
        probs = torch.tensor(rows.logits, dtype=torch.float32).softmax(1)
        found = TemperatureScaling.fit(cb.Predictions.from_probs(probs, rows.labels))
        assert found.temperature == pytest.approx(best(rows), rel=1e-4)
        assert found.fitted.nll_after < 0.98 * found.fitted.nll_before


@pytest.mark.parametrize("temperature", [0.05, 0.5, 2.5, 40.0])
def test_scikit_learn_agrees_in_float64(temperature: float) -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    if not hasattr(calibration, "_TemperatureScaling"):
        pytest.skip("this scikit-learn has no temperature scaling")
    rows = draw(1500, 4, temperature, seed=22)
    for weights in (None, np.random.default_rng(23).exponential(size=1500)):
        rows = rows._replace(weights=weights)
        theirs = 1 / float(calibration._TemperatureScaling().fit(rows.logits, rows.labels, weights).beta_)
        found = fit(rows, weights=None if weights is None else "weight").temperature
        assert found == pytest.approx(theirs, rel=1e-5)
        assert nll(rows, found) <= nll(rows, theirs) * (1 + 1e-12)


# Ensembles


@pytest.mark.parametrize(("n_classes", "noise"), [(2, 0.1), (4, 0.0), (4, 0.3), (10, 0.2)])
def test_ensemble_weights_meet_the_conditions_of_an_optimum(n_classes: int, noise: float) -> None:
    """On the simplex the mean of q_j / p is 1 for every part in use, and at most 1 for the others."""
    rows = noisy(2000, n_classes, noise, seed=n_classes)
    found = EnsembleTemperature.fit(rows.predictions())
    weights = found.weights.numpy()
    assert weights.shape == (3,)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    scaled, plain = softmax(rows.logits / found.temperature, axis=1), softmax(rows.logits, axis=1)
    parts = np.stack([scaled, plain, np.full_like(plain, 1 / n_classes)], 2)
    likelihoods = parts[np.arange(2000), rows.labels]
    slopes = (likelihoods / (likelihoods @ weights)[:, None]).mean(0)
    assert slopes.max() <= 1 + 1e-5
    assert np.abs(weights * (1 - slopes)).max() <= 1e-5
    assert calibrated(found, rows) == pytest.approx(parts @ weights, abs=1e-6)
    assert found.fitted.nll_after <= TemperatureScaling.fit(rows.predictions()).fitted.nll_after + 1e-9


def test_an_ensemble_gives_no_class_less_than_its_temperature_does() -> None:
    calibrator = EnsembleTemperature.fit(draw32(2000, 3, 0, factor=1.05))
    assert calibrator.calibrate(cb.Predictions.from_logits([[0.0, -1.0, -900.0]])).logits.isfinite().all()


def test_impossible_classes_do_not_hide_why_there_is_no_temperature() -> None:
    rows = draw32(500, 5, 0)
    logits = rows.logits.clone()
    labels = torch.arange(500) % 4
    logits[torch.arange(500), labels] -= 5
    logits[:, 4] = -math.inf
    with pytest.raises(NotConvergedError, match="do not follow"):
        TemperatureScaling.fit(cb.Predictions.from_logits(logits, labels))
