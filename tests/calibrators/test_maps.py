"""The other maps of one row's logits, each against an oracle of scipy, scikit-learn or numpy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import calibrant as cb
from calibrant.calibrators import (
    BayesianBinning,
    BetaCalibration,
    Calibrator,
    DirichletCalibration,
    EnsembleTemperature,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    MulticlassIsotonic,
    PlattScaling,
    SplineCalibration,
    TemperatureScaling,
    VectorScaling,
)

FloatArray = NDArray[np.float64]
Labels = NDArray[np.int64]
TINY = 1e-7  # a prior that plenty of data do not feel


class Rows(NamedTuple):
    """Logits with labels."""

    logits: FloatArray
    labels: Labels

    def predictions(self) -> cb.Predictions:
        return cb.Predictions.from_logits(self.logits, self.labels)


def sample(probs: FloatArray, random: np.random.Generator) -> Labels:
    """A class for each row of probabilities."""
    return np.minimum((probs.cumsum(1) < random.random((len(probs), 1))).sum(1), probs.shape[1] - 1)


def skewed(n: int, n_classes: int, seed: int = 0) -> Rows:
    """Rows that need more than a temperature: each class has its own scale and offset."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, n_classes)) * 2
    scale, offset = np.linspace(0.4, 1.1, n_classes), np.linspace(-0.6, 0.8, n_classes)
    return Rows(logits, sample(softmax(scale * logits + offset, axis=1), random))


def curved(n: int, truth: Callable[[FloatArray], FloatArray], seed: int = 0) -> tuple[Rows, FloatArray]:
    """Two classes whose true P(y = 1) is a function of the predicted one; and that truth."""
    random = np.random.default_rng(seed)
    given = random.uniform(0.01, 0.99, size=n)
    true = truth(given)
    logits = np.stack([np.log1p(-given), np.log(given)], 1)
    return Rows(logits, (random.random(n) < true).astype(np.int64)), true


def calibrated(calibrator: Calibrator, rows: Rows) -> FloatArray:
    """Probabilities of rows, though the calibrator was fitted on them."""
    found: FloatArray = calibrator(rows.predictions(), allow_same_rows=True).probs().double().numpy()
    assert found.sum(1) == pytest.approx(np.ones(len(found)), abs=1e-9)
    return found


def mean_nll(probs: FloatArray, labels: Labels) -> float:
    return -float(np.log(probs[np.arange(len(labels)), labels]).mean())


# Ensemble temperature scaling


def noisy(n: int, n_classes: int, noise: float, seed: int) -> Rows:
    """Overconfident rows, and a share of labels that are drawn by lot."""
    random = np.random.default_rng(seed)
    honest = random.normal(size=(n, n_classes)) * 2
    labels = sample(softmax(honest, axis=1), random)
    return Rows(honest * 1.5, np.where(random.random(n) < noise, random.integers(n_classes, size=n), labels))


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


# Vector and matrix scaling, and Dirichlet calibration


def logistic(inputs: FloatArray, labels: Labels, *, diagonal: bool) -> FloatArray:
    """Probabilities of the unregularised fit of weights and biases, by scipy."""
    n, k = inputs.shape
    hot = np.eye(k)[labels]

    def unpack(vector: FloatArray) -> tuple[FloatArray, FloatArray]:
        return (np.diag(vector[:k]), vector[k:]) if diagonal else (vector[: k * k].reshape(k, k), vector[k * k :])

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        weight, bias = unpack(vector)
        logits = inputs @ weight.T + bias
        residual = (softmax(logits, axis=1) - hot) / n
        slope = residual.T @ inputs
        first = np.diag(slope) if diagonal else slope.ravel()
        return -float((log_softmax(logits, axis=1) * hot).sum() / n), np.concatenate([first, residual.sum(0)])

    start = np.concatenate([np.ones(k) if diagonal else np.eye(k).ravel(), np.zeros(k)])
    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 2000})
    weight, bias = unpack(found.x)
    probs: FloatArray = softmax(inputs @ weight.T + bias, axis=1)
    return probs


@pytest.mark.parametrize(
    ("cls", "diagonal", "normal"),
    [(VectorScaling, True, False), (MatrixScaling, False, False), (DirichletCalibration, False, True)],
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_linear_maps_of_logits_or_log_probs_are_the_unregularised_fit_where_data_are_plenty(
    cls: type[Calibrator], diagonal: bool, normal: bool, n_classes: int
) -> None:
    rows, other = skewed(4000, n_classes), skewed(40, n_classes, seed=1)
    inputs, new = (log_softmax(r.logits, axis=1) if normal else r.logits for r in (rows, other))
    wanted = logistic(inputs, rows.labels, diagonal=diagonal)
    found: Any = cls.fit(rows.predictions(), strength=TINY)
    assert calibrated(found, rows) == pytest.approx(wanted, abs=1e-3)
    assert found.fitted.nll_after == pytest.approx(mean_nll(wanted, rows.labels), abs=1e-5)
    assert found.fitted.nll_after < found.fitted.nll_before - 0.01
    weight = found.weight.diag() if diagonal else found.weight
    assert found.bias.shape == (n_classes,)
    wanted = softmax(new @ weight.numpy().T + found.bias.numpy(), axis=1)
    assert calibrated(found, other) == pytest.approx(wanted, abs=1e-9)


PRIORS: dict[type[Calibrator], int] = {
    VectorScaling: 4,
    MatrixScaling: 4,
    DirichletCalibration: 4,
    PlattScaling: 2,
    BetaCalibration: 2,
}


@pytest.mark.parametrize("cls", PRIORS, ids=lambda cls: cls.name)
def test_a_strong_prior_is_temperature_scaling(cls: type[Calibrator]) -> None:
    rows = skewed(500, PRIORS[cls])
    before = softmax(rows.logits / cb.TemperatureScaling.fit(rows.predictions()).temperature, axis=1)
    strong, weak = (calibrated(cls.fit(rows.predictions(), strength=strength), rows) for strength in (1e9, TINY))
    assert strong == pytest.approx(before, abs=1e-3)
    assert np.abs(weak - before).max() > 0.05
    between = calibrated(cls.fit(rows.predictions(), strength=3.0), rows)
    assert mean_nll(weak, rows.labels) <= mean_nll(between, rows.labels) + 1e-9 <= mean_nll(strong, rows.labels) + 2e-9


# Two classes


def test_platt_is_logistic_regression_on_the_log_odds() -> None:
    """Of logits with constants, which do not count."""
    rows, _ = curved(4000, lambda p: expit(0.5 * np.log(p / (1 - p)) - 0.7))
    rows = rows._replace(logits=rows.logits + np.linspace(-9, 9, 4000)[:, None])
    odds = (rows.logits[:, 1] - rows.logits[:, 0])[:, None]
    other = LogisticRegression(C=1e8, tol=1e-10, max_iter=1000).fit(odds, rows.labels)
    found = PlattScaling.fit(rows.predictions(), strength=TINY)
    assert (found.a, found.b) == pytest.approx((other.coef_.item(), other.intercept_.item()), abs=1e-3)
    assert calibrated(found, rows) == pytest.approx(other.predict_proba(odds), abs=1e-3)


def beta_oracle(given: FloatArray, labels: Labels) -> FloatArray:
    """a, b and c of least NLL with a and b not negative."""

    def objective(vector: FloatArray) -> tuple[float, FloatArray]:
        a, b, c = vector
        s = a * np.log(given) - b * np.log1p(-given) + c
        residual = expit(s) - labels
        slope = np.array([residual @ np.log(given), -residual @ np.log1p(-given), residual.sum()])
        return -float(log_expit(np.where(labels == 1, s, -s)).mean()), slope / len(given)

    bounds = [(0, None), (0, None), (None, None)]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}
    found: FloatArray = minimize(objective, [1, 1, 0], jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return found


@pytest.mark.parametrize(
    ("a", "b", "c"), [(0.5, 1.5, 0.3), (2.0, 0.7, -0.5), (-0.4, 1.2, 0.0), (1.3, -0.5, 0.2)], ids=str
)
def test_beta_calibration_is_the_bounded_fit(a: float, b: float, c: float) -> None:
    """Where the true a or b is negative, the bound holds it at 0."""
    rows, _ = curved(6000, lambda p: expit(a * np.log(p) - b * np.log1p(-p) + c))
    given = softmax(rows.logits, axis=1)[:, 1]
    wanted = beta_oracle(given, rows.labels)
    found = BetaCalibration.fit(rows.predictions(), strength=TINY)
    assert min(found.a, found.b) >= 0
    assert (found.a, found.b, found.c) == pytest.approx(tuple(wanted), abs=5e-3)
    probs = expit(wanted[0] * np.log(given) - wanted[1] * np.log1p(-given) + wanted[2])
    assert calibrated(found, rows)[:, 1] == pytest.approx(probs, abs=1e-3)


# Bins


def binned(hits: NDArray[Any], index: NDArray[np.int64]) -> FloatArray:
    """The mean of hits in each row's bin."""
    found: FloatArray = (np.bincount(index, hits) / np.maximum(np.bincount(index), 1))[index]
    return found


@pytest.mark.parametrize("equal_width", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_bins", [1, 5, 10, 15])
def test_histogram_is_the_mean_of_each_bin(n_classes: int, n_bins: int, equal_width: bool) -> None:
    """Where every bin of a row holds 100 rows or more, so that smoothing cannot do much, but for rows at an edge."""
    n = 6000
    rows = skewed(n, n_classes)
    probs = softmax(rows.logits, axis=1)
    ranks = probs.argsort(0).argsort(0) * n_bins // n
    index = np.minimum((probs * n_bins).astype(int), n_bins - 1) if equal_width else ranks
    wanted = np.stack([binned(rows.labels == c, index[:, c]) for c in range(n_classes)], 1)
    wanted /= wanted.sum(1, keepdims=True)
    full = np.stack([np.bincount(of_class)[of_class] for of_class in index.T], 1).min(1) >= 100
    assert full.mean() > (0.8 if n_bins <= 10 else 0.7)
    found = calibrated(HistogramBinning.fit(rows.predictions(), n_bins=n_bins, equal_width=equal_width), rows)
    error = np.abs(found - wanted)[full].max(1)
    assert error.max() < 0.03 if equal_width else np.quantile(error, 0.95) < 0.02


def test_bayesian_binning_is_near_the_truth_and_within_the_histograms() -> None:
    rows, truth = curved(6000, lambda p: p**2)
    found = calibrated(BayesianBinning.fit(rows.predictions()), rows)[:, 1]
    assert np.abs(found - truth).mean() < 0.03
    ranks = rows.logits[:, 1].argsort().argsort()
    means = [binned(rows.labels, ranks * bins // 6000) for bins in range(1, 80)]
    assert np.min(means) - 0.02 < found.min() < 0.1
    assert 0.8 < found.max() < np.max(means) + 0.02


# Isotonic regression


def test_isotonic_is_that_of_scikit_learn_up_to_smoothing_at_the_ends() -> None:
    rows = skewed(5000, 3)
    probs = softmax(rows.logits, axis=1)
    wanted = np.stack(
        [IsotonicRegression().fit_transform(probs[:, label], rows.labels == label) for label in range(3)], 1
    )
    inner = ((wanted > 0.03) & (wanted < 0.97)).all(1)
    assert inner.mean() > 0.3
    wanted /= wanted.sum(1, keepdims=True)
    error = np.abs(calibrated(IsotonicCalibration.fit(rows.predictions()), rows) - wanted).max(1)
    assert np.median(error[inner]) < 0.01
    assert np.quantile(error, 0.9) < 0.04


def test_multiclass_isotonic_is_one_strictly_increasing_map() -> None:
    rows, other = noisy(3000, 4, 0.2, seed=5), noisy(1000, 4, 0.2, seed=6)
    found = MulticlassIsotonic.fit(rows.predictions())
    before, after = other.predictions().log_probs(), found(other.predictions()).log_probs()
    order = before.argsort(1)
    assert after.gather(1, order).diff(dim=1).min() > 0
    pooled = softmax(rows.logits, axis=1)
    hot = np.eye(4)[rows.labels]
    wanted = IsotonicRegression().fit_transform(pooled.ravel(), hot.ravel()).reshape(-1, 4)
    wanted /= wanted.sum(1, keepdims=True)
    error = np.abs(calibrated(found, rows) - wanted).max(1)
    assert np.median(error) < 0.01
    assert np.quantile(error, 0.9) < 0.04
    assert cb.score(found(other.predictions())).nll < cb.score(other.predictions()).nll - 0.02


@pytest.mark.parametrize("cls", [HistogramBinning, BayesianBinning, IsotonicCalibration], ids=lambda cls: cls.name)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_probability_is_ever_0_or_1(cls: type[Calibrator], n_classes: int) -> None:
    """Though every prediction of the validation set is correct, or only one class is ever a label."""
    logits = np.random.default_rng(7).normal(size=(500, n_classes)) * 6
    wild = np.concatenate([logits * 3, -logits, np.zeros((1, n_classes)), 300 * np.eye(n_classes)])
    for labels in (logits.argmax(1), np.zeros(500, dtype=np.int64)):
        probs = cls.fit(cb.Predictions.from_logits(logits, labels))(cb.Predictions.from_logits(wild)).probs()
        assert 0 < probs.min() <= probs.max() < 1


# Splines


def top_label(n: int, seed: int) -> Rows:
    """The top of four classes is right with probability c² + 0.05, a smooth function of its confidence c."""
    random = np.random.default_rng(seed)
    top = random.integers(4, size=n)
    confidence = random.uniform(0.45, 0.95, size=n)
    rest = random.dirichlet([4.0, 4.0, 4.0], size=n) * (1 - confidence)[:, None]
    rest = np.minimum(rest, 0.9 * confidence[:, None])
    probs = np.empty((n, 4))
    probs[np.arange(4) == top[:, None]] = confidence
    probs[np.arange(4) != top[:, None]] = rest.ravel()
    right = random.random(n) < confidence**2 + 0.05
    others = (top + random.integers(1, 4, size=n)) % 4
    return Rows(np.log(probs), np.where(right, top, others))


def test_a_spline_divides_each_row_by_a_temperature_that_is_smooth_in_the_confidence_and_true() -> None:
    spline = SplineCalibration.fit(top_label(20_000, seed=12).predictions())
    before = top_label(200, seed=11).predictions()
    centred = [p.log_probs() - p.log_probs().mean(1, keepdim=True) for p in (before, spline(before))]
    scale = (centred[0] * centred[1]).sum(1, keepdim=True) / centred[0].square().sum(1, keepdim=True)
    assert scale.min() > 0
    torch.testing.assert_close(centred[1], scale * centred[0], rtol=0, atol=1e-6)
    confidence = np.linspace(0.5, 0.9, 81)
    grid = np.log(np.concatenate([confidence[:, None], np.repeat((1 - confidence)[:, None] / 3, 3, 1)], 1))
    found = spline(cb.Predictions.from_logits(grid)).probs()[:, 0].numpy()
    assert np.abs(found - confidence**2 - 0.05).max() < 0.06
    assert np.abs(np.diff(found)).max() < 0.05
