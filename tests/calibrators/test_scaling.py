"""Vector, matrix and Dirichlet scaling, Platt scaling and beta calibration against scipy and scikit-learn."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import calibrant as cb
from calibrant.calibrators import (
    CALIBRATORS,
    BetaCalibration,
    Calibrator,
    DirichletCalibration,
    MatrixScaling,
    PlattScaling,
    VectorScaling,
)
from calibrant.calibrators.base import mean_nll
from calibrant.calibrators.modules import AffineModule, MixtureModule
from calibrant.errors import NotConvergedError
from made.calibrator_data import FloatArray, Labels, calibrated, curved, draw32, skewed

TINY = 1e-7  # a prior that plenty of data outweigh


def nll_of(probs: FloatArray, labels: Labels) -> float:
    return -float(np.log(probs[np.arange(len(labels)), labels]).mean())


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
    assert found.fitted.nll_after == pytest.approx(nll_of(wanted, rows.labels), abs=1e-5)
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
    assert nll_of(weak, rows.labels) <= nll_of(between, rows.labels) + 1e-9 <= nll_of(strong, rows.labels) + 2e-9


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


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet", "conditional_temperature", "platt", "beta"])
@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_logits_of_another_scale_are_calibrated(name: str, factor: float) -> None:
    k = 2 if CALIBRATORS[name].two_classes_only else 10
    calibrator = CALIBRATORS[name].fit(draw32(1000, k, 0, spread=3, factor=factor))
    fresh = mean_nll(calibrator.calibrate(draw32(5000, k, 1, spread=3, factor=factor)))
    assert fresh - mean_nll(draw32(5000, k, 1, spread=3)) < (0.03 if k == 2 else 0.06)


@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_one_row_does_not_decide_a_matrix(name: str) -> None:
    calibrator = CALIBRATORS[name].fit(cb.Predictions.from_logits([[1.0, 0.0, 0.0]], [1]))
    probs = calibrator.calibrate(cb.Predictions.from_logits([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]])).probs
    assert probs.max() < 0.95


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet"])
def test_a_class_of_probability_0_stays_so_and_moves_no_other(name: str) -> None:
    calibrator = CALIBRATORS[name].fit(draw32(1000, 5, 0))
    least = float(draw32(1000, 5, 0).logits.min())
    rows = torch.tensor([[2.0, 1.0, 0.0, -1.0, 2 + least], [2.0, 1.0, 0.0, -1.0, -math.inf]])
    near, masked = calibrator.calibrate(cb.Predictions.from_logits(rows)).probs
    assert masked[4] == 0
    torch.testing.assert_close(masked[:4], near[:4], atol=0.1, rtol=0)


def test_a_large_offset_is_refused_or_fitted() -> None:
    rows = draw32(1000, 5, 0)
    shifted = cb.Predictions.from_logits(rows.logits.double() + 1e10, rows.labels)
    for name in ("vector", "matrix", "dirichlet"):
        try:
            calibrator = CALIBRATORS[name].fit(shifted)
        except NotConvergedError:
            continue
        assert calibrator.fitted.nll_after <= calibrator.fitted.nll_before + 1e-9  # type: ignore[operator]


def test_modules_return_what_the_formula_says_and_shift_only_rows_beyond_float32() -> None:
    weight, bias = torch.tensor([2.0, 3.0, 4.0]), torch.tensor([1.0, 0.0, -1.0])
    logits = torch.tensor([[1.0, 2.0, 3.0], [-math.inf] * 3, [3e38, 0.0, 1.0], [-3e38] * 3])
    for each in (weight, weight.diag()):
        found = AffineModule(each, bias, log_probs=False, floor=-50.0)(logits)
        assert found[:2].tolist() == [[3.0, 6.0, 11.0], [-math.inf] * 3]
        assert found[2:].softmax(1).tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    mixture = MixtureModule(temperature=0.5, weights=(0.5, 0.5, 0.0))
    for offset in (0.0, 1.7e308):  # z/T is beyond float64
        found = mixture(torch.tensor([[offset, -math.inf]], dtype=torch.float64))
        assert found.tolist() == [[0.0, -math.inf]]
