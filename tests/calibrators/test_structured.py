"""Structured vector and matrix scaling against scipy, probmetrics and temperature scaling."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

import calibrant as cb
from calibrant.calibrators import CALIBRATORS, StructuredMatrixScaling, StructuredVectorScaling
from calibrant.calibrators.base import mean_nll
from calibrant.calibrators.scaling import AffineScaling
from made.calibrator_data import FloatArray, generator_of, nll_per_row, normal, skewed, uniform
from made.probmetrics import probmetrics_module

BOTH = (StructuredVectorScaling, StructuredMatrixScaling)


def objective_of(inputs: FloatArray, labels: np.ndarray[Any, Any], *, diagonal: bool) -> Callable[[FloatArray], float]:
    """Mean NLL + λ‖b‖² + λ‖v‖² + λ′‖off-diagonal‖² with λ = k/n and λ′ = k (k − 1)/n, parameter by parameter."""
    n, k = inputs.shape

    def objective(theta: FloatArray) -> float:
        v, b = theta[:k], theta[k : 2 * k]
        off = np.zeros((k, k))
        off[~np.eye(k, dtype=bool)] = 0.0 if diagonal else theta[2 * k :]
        nll = -log_softmax(inputs * (1 + v) + inputs @ off.T + b, axis=1)[np.arange(n), labels].mean()
        return float(nll + k / n * (v @ v + b @ b) + k * (k - 1) / n * (off**2).sum())

    return objective


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.name)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_fit_minimizes_the_published_objective(cls: type[AffineScaling], n_classes: int) -> None:
    rows, k = skewed(300, n_classes), n_classes
    found: Any = cls.fit(rows.predictions())
    temperature = cb.TemperatureScaling.fit(rows.predictions()).temperature
    assert found.temperature == pytest.approx(temperature, rel=1e-6)
    inputs = log_softmax(rows.logits / temperature, axis=1)
    objective = objective_of(inputs, rows.labels, diagonal=cls.diagonal)
    size = 2 * k if cls.diagonal else k * (k + 1)
    wanted = minimize(objective, np.zeros(size), method="BFGS", options={"gtol": 1e-7}).x
    weight = (found.weight.diag() if cls.diagonal else found.weight).numpy()
    assert weight.diagonal() == pytest.approx(1 + wanted[:k], abs=1e-3)
    assert found.bias.numpy() == pytest.approx(wanted[k : 2 * k], abs=1e-3)
    if not cls.diagonal:
        assert weight[~np.eye(k, dtype=bool)] == pytest.approx(wanted[2 * k :], abs=1e-3)


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.name)
def test_a_strong_prior_is_temperature_scaling(cls: type[AffineScaling]) -> None:
    rows = skewed(500, 4).predictions()
    wanted = cb.TemperatureScaling.fit(rows)(rows, allow_same_rows=True).probs
    strong, weak = (cls.fit(rows, strength=s)(rows, allow_same_rows=True).probs for s in (1e9, 1e-7))
    torch.testing.assert_close(strong, wanted, atol=1e-3, rtol=0)
    assert (weak - wanted).abs().max() > 0.05


def test_a_class_of_probability_0_stays_so() -> None:
    rows = skewed(500, 4).predictions()
    for cls in BOTH:
        masked = torch.tensor([[2.0, 1.0, 0.0, -math.inf]])
        assert cls.fit(rows)(cb.Predictions.from_logits(masked)).probs[0, 3] == 0


def source(kind: str, n: int, k: int, seed: int) -> cb.Predictions:
    """Logits twice too large; or with a weight and a bias for each class; or mixed."""
    generator = generator_of(seed)
    true = 2 * normal(n, k, generator=generator)
    labels_from = true / 2
    if kind == "classes":
        labels_from = true * (0.5 + uniform(k, generator=generator)) + 0.5 * normal(k, generator=generator)
    elif kind == "mixed":
        labels_from = true @ (torch.eye(k) + 0.3 * normal(k, k, generator=generator) / math.sqrt(k))
    labels = labels_from.softmax(1).multinomial(1, generator=generator)[:, 0]
    return cb.Predictions.from_logits(true.float(), labels)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # what torch says of its own parts
@pytest.mark.parametrize(("n", "k"), [(400, 3), (2000, 5), (300, 10)])
@pytest.mark.parametrize("kind", ["temperature", "classes", "mixed"])
def test_probmetrics_has_the_same_likelihood(kind: str, n: int, k: int) -> None:
    """It mixes 1/(n + 1) of the uniform distribution into the scaled probabilities: a difference below 0.5 %."""
    rows = source(kind, n + 4000, k, 1)
    validation, test = rows[:n], rows[n:]
    for cls in BOTH:
        other = getattr(probmetrics_module("calibrators.logistic"), f"{cls.name.upper()}Calibrator")()
        other.fit(validation.probs.numpy(), validation.labels.numpy())
        probs = other.predict_proba(test.probs.numpy())
        nll = -np.log(probs[np.arange(len(test)), test.labels.numpy()]).mean()
        assert mean_nll(cls.fit(validation)(test)) == pytest.approx(nll, rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(300, 10), (1000, 100), (5000, 10)])
@pytest.mark.parametrize("kind", ["classes", "mixed", "temperature"])
def test_few_rows_cost_little_and_help_where_classes_differ(kind: str, n: int, k: int) -> None:
    """Against temperature scaling on fresh rows; matrix scaling with its weaker prior loses far more."""
    rows = source(kind, n + 4000, k, 2)
    validation, test = rows[:n], rows[n:]
    base = nll_per_row(cb.TemperatureScaling.fit(validation)(test))
    change = {name: (nll_per_row(CALIBRATORS[name].fit(validation)(test)) - base).mean() for name in ("svs", "sms")}
    assert max(change.values()) < 0.035
    if kind == "classes":
        assert max(change.values()) < -0.02
    elif (n, k) == (1000, 100):
        assert (nll_per_row(CALIBRATORS["matrix"].fit(validation)(test)) - base).mean() > 3 * change["sms"]
