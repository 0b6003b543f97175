"""The scikit-learn estimator: scikit-learn's own checks, and what a calibrated classifier must do beyond them."""

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import calibrant as cb
from calibrant.errors import CalibrantError
from calibrant.integrations.sklearn import CalibratedClassifier

CHECKED = ("temperature", "platt")  # any number of classes, and two: the checks are of the estimator


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of scikit-learn's estimators on the data of its checks
@parametrize_with_checks([CalibratedClassifier(calibrator=name, cv=2) for name in CHECKED])
def test_scikit_learn_checks(estimator: CalibratedClassifier, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, ...]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order] / 16, np.array([f"digit {label}" for label in labels[order]])
    return images[:900], labels[:900], images[900:], labels[900:]


@pytest.mark.parametrize(
    "calibrator", ["temperature", "vector", "isotonic_multiclass", "spline", "conditional_temperature"]
)
def test_calibrates_an_overconfident_model(digits: tuple[np.ndarray, ...], calibrator: str) -> None:
    x, y, new, labels = digits
    raw = GaussianNB(var_smoothing=1e-3).fit(x, y)
    model = CalibratedClassifier(GaussianNB(var_smoothing=1e-3), calibrator).fit(x, y)
    assert log_loss(labels, model.predict_proba(new)) < 0.7 * log_loss(labels, raw.predict_proba(new))
    assert model.calibrator_.name == calibrator
    if model.calibrator_.keeps_argmax:
        assert (model.predict(new) == raw.predict(new)).all()


@pytest.mark.slow
@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8),
    reason="scikit-learn has temperature scaling since 1.8",
)
def test_agrees_with_scikit_learns_temperature(digits: tuple[np.ndarray, ...]) -> None:
    x, y, new, _ = digits
    base = LogisticRegression(C=0.01, max_iter=500)
    ours = CalibratedClassifier(base, cv=3).fit(x, y)
    theirs = CalibratedClassifierCV(base, method="temperature", cv=3, ensemble=False).fit(x, y)
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-4)


def test_models_with_zeros_or_without_probabilities(digits: tuple[np.ndarray, ...]) -> None:
    x, y, new, labels = digits
    forest = RandomForestClassifier(30, random_state=0)
    before = forest.fit(x, y).predict_proba(new)
    assert (before == 0).any()
    calibrated = CalibratedClassifier(forest).fit(x, y).predict_proba(new)
    assert np.isfinite(np.log(calibrated)).all()
    assert log_loss(labels, calibrated) < log_loss(labels, before)
    margins = CalibratedClassifier(LinearSVC(C=0.1), "dirichlet").fit(x, y)
    assert log_loss(labels, margins.predict_proba(new)) < 0.4


@pytest.mark.slow
def test_works_inside_pipelines_and_searches() -> None:
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = CalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), "platt", cv=2)
    search = GridSearchCV(model, {"calibrator": ["platt", "beta", "identity"]}, scoring="neg_log_loss", cv=2).fit(x, y)
    assert search.best_score_ > -0.15
    assert search.best_estimator_.feature_names_in_.tolist() == list(x.columns)
    assert clone(model).calibrator == "platt"


def test_refusals(digits: tuple[np.ndarray, ...]) -> None:
    x, y, *_ = digits
    for calibrator, labels, message in (
        ("temprature", y, "temprature"),
        ("beta", y, "Only binary"),
        ("temperature", ["a"] * 10, "1 class"),
        ("temperature", ["a"] * 11 + ["b"], "got 1 of b"),
        ("transcal", ["a", "b"] * 10, "target"),
    ):
        with pytest.raises(CalibrantError, match=message):
            CalibratedClassifier(calibrator=calibrator).fit(x[: len(labels)], labels)


def test_separable_rows_take_the_least_temperature() -> None:
    x = np.concatenate([np.full((20, 1), -9.0), np.full((20, 1), 9.0)])
    model = CalibratedClassifier().fit(x, [0] * 20 + [1] * 20)
    assert isinstance(model.calibrator_, cb.TemperatureScaling)
    assert model.calibrator_.at_bound
    assert model.predict_proba(x)[:, 1].round(6).tolist() == [0.0] * 20 + [1.0] * 20
