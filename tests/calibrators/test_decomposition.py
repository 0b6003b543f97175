"""Scores split by cross-fitted recalibration, against numpy and probmetrics."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp

import calibrant as cb
from calibrant import Predictions
from calibrant.errors import InvalidInputError, UnknownNameError
from made.calibrator_data import generator_of, normal
from made.probmetrics import probmetrics_module


def rows_of(n: int, factor: float, seed: int = 0, k: int = 4) -> Predictions:
    """Logits times a factor: 1 for a calibrated model. Four rows of each patient."""
    generator = generator_of(seed)
    true = 2 * normal(n, k, generator=generator)
    labels = true.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(factor * true, labels, columns={"patient": torch.arange(n) // 4})


def scores(logits: torch.Tensor, labels: torch.Tensor, score: str) -> np.ndarray[Any, Any]:
    probs, hot = logits.double().softmax(1).numpy(), np.eye(logits.shape[1])[labels.numpy()]
    return -np.log((probs * hot).sum(1)) if score == "nll" else ((probs - hot) ** 2).sum(1)


@pytest.mark.parametrize("calibrator", ["temperature", "vector"])
@pytest.mark.parametrize("score", ["nll", "brier"])
def test_terms_are_means_of_rows_that_other_folds_recalibrated(score: str, calibrator: str) -> None:
    rows = rows_of(300, 2.5)
    found = cb.decompose(rows, score, calibrator=calibrator, folds=3, level=0.9)
    crossed = cb.cross_fit(rows, calibrator, folds=3)
    before, after = (scores(logits, rows.labels, score) for logits in (rows.logits, crossed.predictions.logits))
    for term, values in ((found.total, before), (found.calibration, before - after), (found.refinement, after)):
        assert term.value == pytest.approx(values.mean(), abs=1e-6)
        assert term.interval == pytest.approx(ttest_1samp(values, 0.0).confidence_interval(0.9), abs=1e-6)
    assert found.calibration.value + found.refinement.value == pytest.approx(found.total.value, abs=1e-12)
    assert found.calibration.interval[0] > 0
    assert (found.score, found.calibrator, found.n_rows, found.level) == (score, calibrator, 300, 0.9)


def test_clusters_count_once() -> None:
    one = rows_of(200, 2.0)
    four = one[torch.arange(800) // 4]
    four = Predictions.from_logits(four.logits, four.labels, columns={"patient": torch.arange(800) // 4})
    found = cb.decompose(four, cluster="patient")
    crossed = cb.cross_fit(four, cluster="patient").predictions
    means = (scores(four.logits, four.labels, "nll") - scores(crossed.logits, four.labels, "nll")).reshape(-1, 4)
    wanted = ttest_1samp(means.mean(1), 0.0).confidence_interval(0.95)
    assert found.calibration.interval == pytest.approx(wanted, abs=1e-6)


def test_probmetrics_splits_the_same_folds_alike() -> None:
    """Its temperature is the bisection of the same likelihood."""
    parts = ("calibrators", "distributions", "metrics", "splitters")
    calibrators, distributions, metrics, splitters = map(probmetrics_module, parts)
    rows = rows_of(500, 2.0)
    fold = cb.cross_fit(rows).fold.numpy()

    class OurFolds(splitters.Splitter):  # type: ignore[misc, name-defined]
        def get_splits(self, **_: Any) -> list[tuple[Any, Any]]:
            return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(5)]

        def get_name(self) -> str:
            return "ours"

    both = metrics.CombinedMetrics([metrics.LogLoss(), metrics.BrierLoss()])
    split = metrics.MetricsWithCalibration(both, calibrators.TemperatureScalingCalibrator(), OurFolds(), "t")
    hot = torch.eye(4)[rows.labels]
    seen = distributions.CategoricalLogits(rows.logits.float())
    found = split.compute_all(distributions.CategoricalProbs(hot), seen)
    for score, name in (("nll", "logloss"), ("brier", "brier")):
        ours = cb.decompose(rows, score)
        assert ours.calibration.value == pytest.approx(float(found[f"calib-err_{name}_t_ours"]), abs=1e-5)
        assert ours.refinement.value == pytest.approx(float(found[f"refinement_{name}_t_ours"]), abs=1e-5)


@pytest.mark.slow
def test_intervals_of_the_calibration_error_cover_it() -> None:
    """The true one: the NLL above that of the true probabilities, on many rows."""
    truth = rows_of(200_000, 1.6, seed=99)
    before = scores(truth.logits, truth.labels, "nll")
    wanted = (before - scores(truth.logits / 1.6, truth.labels, "nll")).mean()
    found = [cb.decompose(rows_of(400, 1.6, seed=seed)).calibration.interval for seed in range(100)]
    covered = sum(low <= wanted <= high for low, high in found)
    assert covered >= 88  # of 95 ± 2.2 standard errors


def test_a_calibrated_model_may_be_below_0() -> None:
    values = [cb.decompose(rows_of(200, 1.0, seed=seed)).calibration.value for seed in range(20)]
    assert min(values) < 0
    assert abs(np.mean(values)) < 0.01


def test_refused() -> None:
    rows = rows_of(40, 2.0)
    with pytest.raises(UnknownNameError, match="ece"):
        cb.decompose(rows, "ece")
    with pytest.raises(UnknownNameError, match="temprature"):
        cb.decompose(rows, calibrator="temprature")
    with pytest.raises(InvalidInputError, match=r"level.*1.5"):
        cb.decompose(rows, level=1.5)
    with pytest.raises(InvalidInputError, match=r"folds.*40 rows, got 99"):
        cb.decompose(rows, folds=99)
    with pytest.raises(InvalidInputError, match="at least one row"):
        cb.decompose(rows[:0])
    logits = rows.logits.clone()
    logits[7, rows.labels[7]] = -math.inf
    for calibrator in ("temperature", "histogram"):
        with pytest.raises(InvalidInputError, match="row 7"):
            cb.decompose(Predictions.from_logits(logits, rows.labels), calibrator=calibrator)
    assert math.isfinite(
        cb.decompose(Predictions.from_logits(logits, rows.labels), "brier", calibrator="histogram").total.value
    )
