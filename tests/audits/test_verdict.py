"""The verdict: its kind in each case, and its numbers against numpy and scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.audits.verdict import Verdict, VerdictKind, calibration_verdict, significance_level
from calibrant.metrics import score
from calibrant.metrics.exact import ece_p_value
from calibrant.predictions import Predictions
from made.audits import make_rows, plain_rows


def binary(confidence: np.ndarray, accuracy: np.ndarray) -> Predictions:
    """Two classes: rows of these confidences that are correct with these probabilities."""
    return from_outcomes(confidence, np.random.default_rng(0).random(len(confidence)) < accuracy)


def from_outcomes(confidence: np.ndarray, correct: np.ndarray) -> Predictions:
    return Predictions.from_positive_probs(torch.from_numpy(confidence), torch.from_numpy(correct.astype(np.int64)))


def equal_rows(n: int, logit: float, errors: int) -> Predictions:
    return Predictions.from_logits([[logit, 0.0]] * n, [1] * errors + [0] * (n - errors))


def verdict_of(rows: Predictions, level: float = 0.95, weights: str | None = None) -> Verdict:
    return calibration_verdict(score(rows, weights=weights), level=level)


SPREAD = np.linspace(0.52, 0.98, 3000)
MIXED = np.where(SPREAD > 0.8, SPREAD - 0.15, SPREAD + 0.15)
REVERSED = np.where(SPREAD > 0.8, np.minimum(SPREAD + 0.1, 1.0), SPREAD - 0.15)
WAVES = SPREAD + np.where((SPREAD * 15).astype(int) % 2, 0.02, 0.0) * 9 - 0.09


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (binary(SPREAD, SPREAD), "no_evidence"),
        (binary(SPREAD, SPREAD - 0.1), "overconfident"),
        (binary(SPREAD, np.minimum(SPREAD + 0.1, 1.0)), "underconfident"),
        (binary(SPREAD, MIXED), "mixed"),
        (equal_rows(1, 1.0, errors=1), "too_few_rows"),
        (equal_rows(1, 9.0, errors=1), "overconfident"),  # nearly certain
        (equal_rows(29, 1.0, errors=8), "too_few_rows"),
        (equal_rows(29, 9.0, errors=29), "overconfident"),
        (equal_rows(50, 1.4, errors=0), "underconfident"),
        (equal_rows(50, 1.4, errors=50), "overconfident"),
        (equal_rows(50, 500.0, errors=0), "no_evidence"),
        (equal_rows(50, 500.0, errors=1), "overconfident"),
    ],
)
def test_the_kind_of_a_verdict(rows: Predictions, kind: VerdictKind) -> None:
    verdict = verdict_of(rows)
    assert verdict.kind == kind
    assert verdict.ece == score(rows).ece
    assert verdict.overconfidence + verdict.underconfidence == pytest.approx(verdict.ece)
    assert verdict.ece_interval[0] <= verdict.ece <= verdict.ece_interval[1] <= 1
    assert verdict.miscalibrated == (kind not in ("no_evidence", "too_few_rows"))


def test_an_error_that_all_bins_share_is_detected_by_the_gap() -> None:
    """No bin is significant by itself, but all of them err in one direction."""
    confidence = np.repeat([0.55, 0.65, 0.75, 0.85, 0.95], 60)
    verdict = verdict_of(from_outcomes(confidence, np.concatenate([np.arange(60) < n for n in (29, 36, 41, 47, 54)])))
    assert verdict.gap_interval[0] > 0
    assert verdict.p_ece > 0.025
    assert verdict.p_gap < 2 * stats.binom.cdf(207, 300, 0.75)
    assert verdict.p_value == pytest.approx(2 * verdict.p_gap)
    assert (verdict.kind, verdict.single_direction) == ("overconfident", False)


def test_a_lower_level_narrows_intervals_and_changes_no_decision() -> None:
    for accuracy in (SPREAD, SPREAD - 0.02, SPREAD - 0.1, MIXED):
        low, default = (verdict_of(binary(SPREAD, accuracy), level) for level in (0.5, 0.95))
        assert (low.kind, low.decision_interval, low.p_value) == (default.kind, default.ece_interval, default.p_value)
        assert low.ece_interval != default.ece_interval
    assert significance_level(0.5) == significance_level(0.95) == pytest.approx(0.05)
    assert significance_level(0.99) == pytest.approx(0.01)


def test_the_crossing_of_a_mixed_verdict() -> None:
    verdict, reverse, waves = (verdict_of(binary(SPREAD, rates)) for rates in (MIXED, REVERSED, WAVES))
    assert (verdict.crossing, verdict.overconfident_above) == (pytest.approx(0.8), True)
    assert reverse.crossing is not None
    assert not reverse.overconfident_above
    assert (waves.kind, waves.crossing) == ("mixed", None)


def test_only_significant_directions_are_named() -> None:
    """Two bins err in opposite directions, one without significance, and the gap is not significant."""
    correct = np.concatenate([np.arange(60) < 44, np.arange(400) < 360])  # 73 % of 60 %, 90 % of 95 %
    verdict = verdict_of(from_outcomes(np.repeat([0.6, 0.95], [60, 400]), correct))
    assert verdict.overconfidence / verdict.ece < 0.8
    assert verdict.kind == "no_direction"


def test_few_uncertain_rows_do_not_hide_the_direction() -> None:
    """The gap is tested row by row: 900 almost certain rows add almost no variance."""
    correct = np.concatenate([np.arange(900) < 899, np.arange(100) < 42])
    verdict = verdict_of(from_outcomes(np.repeat([0.999, 0.6], [900, 100]), correct))
    assert stats.binomtest(941, 1000, verdict.confidence).pvalue > 0.005
    assert verdict.p_gap < 0.001
    assert verdict.kind == "overconfident"


def test_a_small_significant_part_in_the_other_direction_changes_no_direction() -> None:
    correct = np.concatenate([np.arange(20_000) < 16_000, np.arange(2000) < 1300])  # 80 % of 90 %, 65 % of 60 %
    verdict = verdict_of(from_outcomes(np.repeat([0.9, 0.6], [20_000, 2000]), correct))
    assert ece_p_value(score(from_outcomes(np.repeat([0.6], 2000), correct[20_000:])).top_bins, "under") < 0.025
    assert verdict.kind == "overconfident"


@pytest.mark.parametrize("weights", [None, "w"])
def test_accuracy_confidence_and_gap(weights: str | None) -> None:
    rows = make_rows()
    kept = plain_rows(rows, weights)
    total = math.fsum(row[4] for row in kept)
    accuracy = math.fsum(row[4] for row in kept if row[1] == row[2]) / total
    confidence = math.fsum(row[4] * row[3] for row in kept) / total
    effective = total**2 / math.fsum(row[4] ** 2 for row in kept)
    verdict = verdict_of(rows, 0.9, weights)
    assert (verdict.n_rows, verdict.level) == (len(kept), 0.9)
    assert (verdict.accuracy, verdict.n_effective) == pytest.approx((accuracy, effective))
    assert verdict.gap == pytest.approx(confidence - accuracy, abs=1e-6)
    correct = accuracy * effective
    limits = stats.beta.ppf([0.05, 0.95], [correct, correct + 1], [effective - correct + 1, effective - correct])
    assert verdict.accuracy_interval == pytest.approx(limits.tolist(), abs=1e-6)
    assert verdict.gap_interval == pytest.approx((confidence - limits[1], confidence - limits[0]), abs=1e-6)
    assert verdict.few_outcomes == (min(accuracy, 1 - accuracy) * effective < 20)


def test_one_heavy_row_gives_a_small_effective_sample_size() -> None:
    weight = torch.ones(300, dtype=torch.float64)
    weight[0] = 1e6
    verdict = verdict_of(make_rows(w=weight), weights="w")
    assert (verdict.kind, verdict.few_outcomes) == ("too_few_rows", True)
    assert verdict.n_effective == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("confidence", "correct"), [(0.6, 0), (0.6, 1), (0.9, 0), (0.9, 1)])
def test_limits_are_possible_values(confidence: float, correct: int) -> None:
    card = score(from_outcomes(np.array([confidence]), np.array([correct])))
    largest = dict.fromkeys(("ece", "mce", "rmsce", "adaece"), confidence)
    for name, limit in (largest | {"overconfidence": confidence, "underconfidence": 1 - confidence}).items():
        assert card.interval(name)[0] <= card[name] <= card.interval(name)[1] <= limit + 1e-12
