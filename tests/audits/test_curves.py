"""The curves of an audit, against numpy and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from calibrant.audits.curves import (
    high_confidence_accuracy,
    histogram_records,
    reliability_records,
    risk_coverage_records,
    risk_records,
)
from calibrant.audits.statistics import collect_statistics
from calibrant.metrics import score
from calibrant.predictions import Predictions
from made.audits import make_rows, plain_rows

WEIGHTS = pytest.mark.parametrize("weights", [None, "w"])


@WEIGHTS
def test_bins_have_limits_and_a_band(weights: str | None) -> None:
    rows = make_rows()
    found, kept = reliability_records(score(rows, weights=weights).top_bins, 0.9), plain_rows(rows, weights)
    assert sum(row["count"] for row in found) == len(kept)
    for row in found:
        inside = [r for r in kept if row["low"] < r[3] <= row["high"]]
        weight = math.fsum(r[4] for r in inside)
        n = weight**2 / math.fsum(r[4] ** 2 for r in inside)
        accuracy = math.fsum(r[4] for r in inside if r[1] == r[2]) / weight
        confidence = math.fsum(r[4] * r[3] for r in inside) / weight
        assert row["count"] == len(inside)
        assert row["share"] == pytest.approx(weight / math.fsum(r[4] for r in kept))
        assert (row["accuracy"], row["confidence"]) == pytest.approx((accuracy, confidence), abs=1e-6)
        k = accuracy * n
        low = 0.0 if k < 1e-9 else stats.beta.ppf(0.05, k, n - k + 1)
        high = 1.0 if k > n - 1e-9 else stats.beta.ppf(0.95, k + 1, n - k)
        assert row["interval"] == pytest.approx((low, high), abs=1e-6)
        whole = max(round(n), 1)
        assert row["band"] == pytest.approx(tuple(stats.binom.ppf([0.05, 0.95], whole, confidence) / whole))


def test_bars_hold_all_rows() -> None:
    found = histogram_records(collect_statistics(make_rows(), weights="w").histogram)
    assert sum(bar["correct"] + bar["incorrect"] for bar in found) == len(plain_rows(make_rows(), "w"))
    assert sum(bar["correct_share"] + bar["incorrect_share"] for bar in found) == pytest.approx(1.0)
    assert all(bar["correct"] + bar["incorrect"] for bar in found)


@WEIGHTS
def test_errors_among_the_most_confident_rows(weights: str | None) -> None:
    rows = make_rows(n=2000)
    cells = score(rows, weights=weights).top_histogram
    kept = sorted(plain_rows(rows, weights), key=lambda row: -row[3])
    weight = np.cumsum([row[4] for row in kept])
    wrong = np.cumsum([row[4] * (row[1] != row[2]) for row in kept])
    for share, found in zip((0.95, 0.8, 0.5), risk_records(cells, 0.95), strict=True):
        place = int(np.searchsorted(weight, share * weight[-1] * (1 + 1e-12), side="right")) - 1
        assert found["coverage"] == pytest.approx(weight[place] / weight[-1])
        assert found["error"] == pytest.approx(wrong[place] / weight[place])
        assert found["threshold"] == pytest.approx(kept[place][3], abs=1e-6)
        assert found["interval"][0] < found["error"] < found["interval"][1]
    points = risk_coverage_records(cells)
    coverage = [point["coverage"] for point in points]
    assert len(points) <= 400
    assert (coverage[-1], points[-1]["error"]) == (1.0, pytest.approx(wrong[-1] / weight[-1]))
    assert coverage == sorted(coverage)


def test_equal_confidences_cannot_be_kept_apart() -> None:
    cells = score(Predictions.from_logits([[1.0, 0.0]] * 40, [0] * 40)).top_histogram
    assert risk_records(cells, 0.95) == []
    assert risk_coverage_records(cells) == [{"coverage": 1.0, "error": 0.0}]
    ties = score(Predictions.from_logits([[2.0, 0.0]] * 24 + [[1.0, 0.0]] * 16, [0] * 40)).top_histogram
    assert risk_records(ties, 0.95) == []  # a coverage of 60 % is far from 80 %


def test_the_rows_above_nine_tenths() -> None:
    found = high_confidence_accuracy(collect_statistics(make_rows(n=1000)).histogram, 0.95)
    kept = [row for row in plain_rows(make_rows(n=1000)) if row[3] > 0.9]
    right = sum(row[1] == row[2] for row in kept)
    assert found is not None
    assert (found["n_rows"], found["accuracy"]) == (len(kept), pytest.approx(right / len(kept)))
    ci = stats.binomtest(right, len(kept)).proportion_ci(0.95)
    assert found["interval"] == pytest.approx((ci.low, ci.high))
    none_above = collect_statistics(Predictions.from_positive_probs([0.9], [1])).histogram
    assert high_confidence_accuracy(none_above, 0.95) is None
