"""Histogram and Bayesian binning, isotonic regression and splines against numpy and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

import calibrant as cb
from calibrant.calibrators import (
    CALIBRATORS,
    BayesianBinning,
    Calibrator,
    HistogramBinning,
    IsotonicCalibration,
    MulticlassIsotonic,
    SplineCalibration,
)
from made.calibrator_data import FloatArray, Rows, calibrated, curved, draw32, noisy, skewed


def binned(hits: NDArray[Any], index: NDArray[np.int64]) -> FloatArray:
    """The mean of hits in each row's bin."""
    found: FloatArray = (np.bincount(index, hits) / np.maximum(np.bincount(index), 1))[index]
    return found


@pytest.mark.parametrize("equal_width", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_bins", [1, 5, 10, 15])
def test_histogram_is_the_mean_of_each_bin(n_classes: int, n_bins: int, equal_width: bool) -> None:
    """Up to smoothing, for rows whose bins hold at least 100 rows, except at edges."""
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


def test_bins_of_equal_mass_end_where_ties_do() -> None:
    probs = [[0.9, 0.1]] * 50 + [[0.1, 0.9]] * 50
    labels = ([1] * 5 + [0] * 45) + ([0] * 5 + [1] * 45)
    rows = cb.Predictions.from_probs(probs, labels)
    for name in ("histogram", "bbq", "isotonic"):
        calibrated = CALIBRATORS[name].fit(rows).calibrate(cb.Predictions.from_probs([[0.9, 0.1], [0.1, 0.9]])).probs
        assert calibrated.diagonal().numpy() == pytest.approx([0.9, 0.9], abs=0.03)


def test_a_bin_without_rows_keeps_its_middle() -> None:
    rows = cb.Predictions.from_probs([[0.4, 0.6], [0.6, 0.4]] * 50, [1, 0] * 50)
    calibrator = HistogramBinning.fit(rows, n_bins=10, equal_width=True)
    found = calibrator.calibrate(cb.Predictions.from_probs([[0.03, 0.97]])).probs
    assert found[0, 1].item() == pytest.approx(0.95, abs=0.01)


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
    before, after = other.predictions().log_probs, found(other.predictions()).log_probs
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
        probs = cls.fit(cb.Predictions.from_logits(logits, labels))(cb.Predictions.from_logits(wild)).probs
        assert 0 < probs.min() <= probs.max() < 1


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
    centred = [p.log_probs - p.log_probs.mean(1, keepdim=True) for p in (before, spline(before))]
    scale = (centred[0] * centred[1]).sum(1, keepdim=True) / centred[0].square().sum(1, keepdim=True)
    assert scale.min() > 0
    torch.testing.assert_close(centred[1], scale * centred[0], rtol=0, atol=1e-6)
    confidence = np.linspace(0.5, 0.9, 81)
    grid = np.log(np.concatenate([confidence[:, None], np.repeat((1 - confidence)[:, None] / 3, 3, 1)], 1))
    found = spline(cb.Predictions.from_logits(grid)).probs[:, 0].numpy()
    assert np.abs(found - confidence**2 - 0.05).max() < 0.06
    assert np.abs(np.diff(found)).max() < 0.05


def test_a_near_tie_does_not_push_the_other_classes_out() -> None:
    calibrator = CALIBRATORS["spline"].fit(draw32(2000, 10, 0, spread=3, factor=0.5))
    tie = cb.Predictions.from_probs([[0.4002, 0.4001, *[0.024962] * 8]])
    assert calibrator.calibrate(tie).probs.min() > 1e-12
