"""What an audit finds: verdicts, groups, classes, curves and temperatures, each against numpy or scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.audits.classes import ClassRow, class_rows, opposed_classes
from calibrant.audits.curves import bars, reliability, risk, risk_points, sure_rows
from calibrant.audits.gather import gather_rows
from calibrant.audits.groups import GroupFindings, find_groups
from calibrant.audits.temperature import temperature_effect, unfit
from calibrant.audits.verdict import Kind, Verdict, alpha, assess
from calibrant.calibrators import cross_fit
from calibrant.metrics import compare, score
from calibrant.metrics.exact import ece_p_value
from calibrant.predictions import Predictions
from made.audits import grouped, made, plain

WEIGHTS = pytest.mark.parametrize("weights", [None, "w"])


def binary(confidence: np.ndarray, accuracy: np.ndarray, seed: int = 0) -> Predictions:
    """Two classes: rows of these confidences that are correct with these chances."""
    correct = np.random.default_rng(seed).random(len(confidence)) < accuracy
    return of_outcomes(confidence, correct)


def of_outcomes(confidence: np.ndarray, correct: np.ndarray) -> Predictions:
    return Predictions.from_positive_probs(torch.from_numpy(confidence), torch.from_numpy(correct.astype(np.int64)))


def judged(rows: Predictions, level: float = 0.95, weights: str | None = None) -> Verdict:
    return assess(score(rows, weights=weights), level=level)


SPREAD = np.linspace(0.52, 0.98, 3000)
MIXED = np.where(SPREAD > 0.8, SPREAD - 0.15, SPREAD + 0.15)
REVERSED = np.where(SPREAD > 0.8, np.minimum(SPREAD + 0.1, 1.0), SPREAD - 0.15)
WAVES = SPREAD + np.where((SPREAD * 15).astype(int) % 2, 0.02, 0.0) * 9 - 0.09


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        pytest.param(binary(SPREAD, SPREAD), "unproven", id="calibrated"),
        pytest.param(binary(SPREAD, SPREAD - 0.1), "over", id="over"),
        pytest.param(binary(SPREAD, np.minimum(SPREAD + 0.1, 1.0)), "under", id="under"),
        pytest.param(binary(SPREAD, MIXED), "mixed", id="mixed"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]], [1]), "few", id="one row"),
        pytest.param(Predictions.from_logits([[9.0, 0.0]], [1]), "over", id="one row, nearly certain and incorrect"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]] * 29, [0] * 21 + [1] * 8), "few", id="29 rows"),
        pytest.param(Predictions.from_logits([[9.0, 0.0]] * 29, [1] * 29), "over", id="29 rows, all incorrect"),
        pytest.param(Predictions.from_logits([[1.4, 0.0]] * 50, [0] * 50), "under", id="all correct"),
        pytest.param(Predictions.from_logits([[1.4, 0.0]] * 50, [1] * 50), "over", id="all incorrect"),
        pytest.param(Predictions.from_logits([[500.0, 0.0]] * 50, [0] * 50), "unproven", id="certain and correct"),
        pytest.param(Predictions.from_logits([[500.0, 0.0]] * 50, [1, *[0] * 49]), "over", id="certain, one error"),
    ],
)
def test_the_kind_of_a_verdict(rows: Predictions, kind: Kind) -> None:
    verdict = judged(rows)
    assert verdict.kind == kind
    assert verdict.ece == score(rows).ece
    assert verdict.overconfidence + verdict.underconfidence == pytest.approx(verdict.ece)
    assert verdict.interval[0] <= verdict.ece <= verdict.interval[1] <= 1
    assert verdict.miscalibrated == (kind not in ("unproven", "few"))


def test_an_error_that_all_bins_share_is_shown_by_the_gap_of_all_rows() -> None:
    """Each of five bins is off by no more than chance gives it, all of them in one direction."""
    confidence = np.repeat([0.55, 0.65, 0.75, 0.85, 0.95], 60)
    verdict = judged(of_outcomes(confidence, np.concatenate([np.arange(60) < n for n in (29, 36, 41, 47, 54)])))
    assert verdict.gap_interval[0] > 0
    assert verdict.p_ece > 0.025
    assert verdict.p_gap == pytest.approx(2 * stats.binom.cdf(207, 300, 0.75))
    assert verdict.p_value == pytest.approx(2 * verdict.p_gap)
    assert (verdict.kind, verdict.of_one_direction) == ("over", False)


def test_a_lower_level_narrows_intervals_and_decides_nothing_else() -> None:
    for accuracy in (SPREAD, SPREAD - 0.02, SPREAD - 0.1, MIXED):
        low, usual = (judged(binary(SPREAD, accuracy), level) for level in (0.5, 0.95))
        assert (low.kind, low.wide_interval, low.p_value) == (usual.kind, usual.interval, usual.p_value)
        assert low.interval != usual.interval
    assert alpha(0.5) == alpha(0.95) == pytest.approx(0.05)
    assert alpha(0.99) == pytest.approx(0.01)


def test_both_sides_of_a_mixed_model_are_named_by_the_confidence_that_parts_them() -> None:
    verdict, reverse, waves = (judged(binary(SPREAD, rates)) for rates in (MIXED, REVERSED, WAVES))
    assert (verdict.split, verdict.over_above) == (pytest.approx(0.8), True)
    assert reverse.split is not None
    assert not reverse.over_above
    assert (waves.kind, waves.split) == ("mixed", None)


def test_no_direction_is_named_that_is_not_shown() -> None:
    """Two bins err in both directions, one no more than chance; or the gap of all rows may be none."""
    correct = np.concatenate([np.arange(60) < 42, np.arange(400) < 360])  # 70 % of 60 %, 90 % of 95 %
    verdict = judged(of_outcomes(np.repeat([0.6, 0.95], [60, 400]), correct))
    assert verdict.overconfidence / verdict.ece < 0.8
    assert verdict.kind == "unclear"
    verdict = judged(of_outcomes(np.repeat([0.999, 0.6], [2000, 10]), np.arange(2010) < 1998))
    assert verdict.overconfidence > 0.99 * verdict.ece
    assert verdict.p_ece < 0.025 < verdict.p_gap
    assert verdict.kind == "unclear"


def test_a_direction_is_named_where_little_is_of_the_other_though_that_is_beyond_chance_too() -> None:
    correct = np.concatenate([np.arange(20_000) < 16_000, np.arange(2000) < 1300])  # 80 % of 90 %, 65 % of 60 %
    verdict = judged(of_outcomes(np.repeat([0.9, 0.6], [20_000, 2000]), correct))
    assert ece_p_value(score(of_outcomes(np.repeat([0.6], 2000), correct[20_000:])).top_bins, "under") < 0.025
    assert verdict.kind == "over"


@WEIGHTS
def test_accuracy_confidence_and_gap(weights: str | None) -> None:
    rows = made()
    kept = plain(rows, weights)
    total = math.fsum(row[4] for row in kept)
    accuracy = math.fsum(row[4] for row in kept if row[1] == row[2]) / total
    confidence = math.fsum(row[4] * row[3] for row in kept) / total
    effective = total**2 / math.fsum(row[4] ** 2 for row in kept)
    verdict = judged(rows, 0.9, weights)
    assert (verdict.n_rows, verdict.level) == (len(kept), 0.9)
    assert (verdict.accuracy, verdict.effective) == pytest.approx((accuracy, effective))
    assert verdict.gap == pytest.approx(confidence - accuracy, abs=1e-6)
    correct = accuracy * effective
    limits = stats.beta.ppf([0.05, 0.95], [correct, correct + 1], [effective - correct + 1, effective - correct])
    assert verdict.gap_interval == pytest.approx((confidence - limits[1], confidence - limits[0]), abs=1e-6)
    assert verdict.few_outcomes == (min(accuracy, 1 - accuracy) * effective < 20)


def test_weights_of_one_heavy_row_are_few_rows() -> None:
    weight = torch.ones(300, dtype=torch.float64)
    weight[0] = 1e6
    verdict = judged(made(w=weight), weights="w")
    assert (verdict.kind, verdict.few_outcomes) == ("few", True)
    assert verdict.effective == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("confidence", "right"), [(0.6, 0), (0.6, 1), (0.9, 0), (0.9, 1)])
def test_no_limit_is_beyond_what_is_possible(confidence: float, right: int) -> None:
    card = score(of_outcomes(np.array([confidence]), np.array([right])))
    most = dict.fromkeys(("ece", "mce", "rmsce", "adaece"), confidence)
    for name, limit in (most | {"overconfidence": confidence, "underconfidence": 1 - confidence}).items():
        assert card.interval(name)[0] <= card[name] <= card.interval(name)[1] <= limit + 1e-12


# Groups


def found_in(rows: Predictions, level: float = 0.95) -> GroupFindings:
    return find_groups(score(rows, by="site"), level=level, seed=0)


def test_groups_are_tested_at_once_and_the_worst_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = grouped(("fine", 500, 0.8), ("bad", 500, 0.6), ("worse", 400, 0.4), ("one", 1, 0.0), ("small", 12, 0.5))
    found = found_in(rows)
    groups = {group.value: group for group in found.rows}
    assert list(groups) == ["worse", "bad", "small", "one", "fine"]
    assert [group.miscalibrated for group in found.rows] == [True, True, False, False, False]
    assert (len(found.cards), found.n_miscalibrated) == (5, 2)
    assert groups["one"].verdict.p_value == pytest.approx(0.4)  # twice, for two tests, that the one row is incorrect
    mass = [math.comb(12, k) * 0.8**k * 0.2 ** (12 - k) for k in range(13)]
    small = groups["small"]
    assert small.verdict.p_value == pytest.approx(2 * sum(mass[:7]))  # no count of correct rows is as far above
    assert small.p_holm == pytest.approx(3 * small.verdict.p_value)
    assert (small.verdict.gap, small.verdict.ece) == (pytest.approx(0.3), pytest.approx(0.3))
    assert small.verdict == assess(score(rows.where(site="small")))
    large, tiny = found_in(grouped(("tiny", 30, 0.4), ("large", 2000, 0.5))).rows  # by the least that the ECE can be
    assert (large.value, tiny.value, tiny.miscalibrated) == ("large", "tiny", True)
    assert tiny.verdict.ece > large.verdict.ece
    monkeypatch.setattr("calibrant.audits.groups.MAX_JUDGED", 3)
    few = found_in(rows)
    assert [group.value for group in few.rows] == ["worse", "bad", "small"]
    assert (few.n_miscalibrated, few.rows[2].p_holm) == (2, small.p_holm)


@pytest.mark.parametrize(
    ("parts", "apart", "in_sign"),
    [
        ((("a", 500, 0.6), ("b", 500, 0.95)), ["a", "b"], True),
        ((("a", 500, 0.4), ("b", 500, 0.7)), ["a", "b"], False),
        ((("a", 500, 0.6), ("b", 500, 0.82)), ["a", "b"], False),  # b is not shown to be underconfident
        ((("a", 500, 0.6), ("b", 500, 0.838)), ["a", "b"], False),  # nor here, as two tests are made of it: p = 0.035
        ((("a", 500, 0.78), ("b", 500, 0.82)), None, False),
        ((("a", 3, 0.0), ("b", 500, 0.8)), None, False),
        ((("a", 60_000, 0.795), ("b", 60_000, 0.805)), None, False),  # beyond chance, and a trifle
    ],
)
def test_groups_disagree_in_sign_or_size(
    parts: tuple[tuple[str, int, float], ...], apart: list[str] | None, in_sign: bool
) -> None:
    found = found_in(grouped(*parts))
    assert (found.apart and [group.value for group in found.apart]) == apart
    assert found.in_sign == in_sign
    if found.apart:
        assert found.apart[0].verdict.gap > found.apart[1].verdict.gap


def test_groups_that_disagree_are_shown_to_be_miscalibrated_too() -> None:
    """One is as it should be, the other just beyond chance, or just not."""
    for right in range(66, 76):
        found = found_in(grouped(("a", 100, right / 100), ("b", 100_000, 0.8)))
        assert found.apart is None or [group.value for group in found.rows if group.miscalibrated] == ["a"]
    assert found.apart is None


def test_two_groups_disagree_where_limits_for_both_at_once_do_not_meet() -> None:
    """On either side of the border: A is correct 60 times of 100, and B so often that the limits just do not meet."""

    def limits(right: int) -> tuple[float, float]:
        outside = 0.05 / 2 / 2 / 2  # of two groups, for a test that is one of two, on either side
        low, high = stats.beta.ppf(outside, right, 101 - right), stats.beta.isf(outside, right + 1, 100 - right)
        return float(low), float(high)

    first = next(right for right in range(60, 100) if limits(right)[0] > limits(60)[1])
    for right, apart in ((first - 1, False), (first, True)):
        found = found_in(grouped(("A", 100, 0.6), ("B", 100, right / 100)))
        assert (found.apart is not None) == apart


# Classes


def classes_of(rows: Predictions, weights: str | None = None) -> dict[str, ClassRow]:
    return {row.name: row for row in class_rows(gather_rows(rows, weights=weights))}


@WEIGHTS
def test_classes_are_counted_and_the_worst_comes_first(weights: str | None) -> None:
    rows = made(names=True)
    found, kept = classes_of(rows, weights), plain(rows, weights)
    for name, row in found.items():
        k = int(name.split()[1])
        predicted, labelled = ([r for r in kept if r[at] == k] for at in (2, 1))
        correct = math.fsum(r[4] for r in predicted if r[1] == k)
        weight = math.fsum(r[4] for r in predicted)
        confidence = math.fsum(r[4] * r[3] for r in predicted) / weight
        assert (row.labelled, row.predicted) == (len(labelled), len(predicted))
        assert row.recall == pytest.approx(correct / math.fsum(r[4] for r in labelled))
        assert row.precision == pytest.approx(correct / weight)
        assert row.gap == pytest.approx(confidence - correct / weight, abs=1e-6)
    errors = [row.ece for row in found.values()]
    assert np.mean(errors) == pytest.approx(score(rows, weights=weights).cece)
    assert errors == sorted(errors, reverse=True)


def test_a_class_that_is_never_predicted_or_labelled() -> None:
    found = classes_of(Predictions.from_logits([[2.0, 0.0, -9.0]] * 3, [0, 0, 1]))
    assert (found["2"].recall, found["2"].precision, found["2"].gap, found["2"].p_holm) == (None, None, None, 1)
    assert (found["1"].recall, found["1"].precision) == (0.0, None)
    assert found["0"].precision == pytest.approx(2 / 3)


def test_classes_are_opposed_where_they_err_in_both_directions_beyond_chance() -> None:
    probs = torch.tensor([[0.8, 0.2]] * 500 + [[0.3, 0.7]] * 500, dtype=torch.float64)
    for wrong, right, wanted in ((200, 450, ["0", "1"]), (105, 352, None), (200, 350, None)):
        labels = torch.tensor([1] * wrong + [0] * (500 - wrong) + [1] * right + [0] * (500 - right))
        found = opposed_classes(list(classes_of(Predictions.from_probs(probs, labels)).values()), 0.95)
        assert (found and [row.name for row in found]) == wanted
        if found:
            assert [row.gap for row in found] == pytest.approx([0.2, -0.2])


# Curves


@WEIGHTS
def test_bins_have_limits_and_a_band(weights: str | None) -> None:
    rows = made()
    found, kept = reliability(score(rows, weights=weights).top_bins, 0.9), plain(rows, weights)
    assert sum(row["count"] for row in found) == len(kept)
    for row in found:
        inside = [r for r in kept if row["low"] < r[3] <= row["high"]]
        weight = math.fsum(r[4] for r in inside)
        n = weight**2 / math.fsum(r[4] ** 2 for r in inside)
        accuracy = math.fsum(r[4] for r in inside if r[1] == r[2]) / weight
        confidence = math.fsum(r[4] * r[3] for r in inside) / weight
        assert row["count"] == len(inside)
        assert row["strength"] == pytest.approx(weight / math.fsum(r[4] for r in kept))
        assert (row["accuracy"], row["confidence"]) == pytest.approx((accuracy, confidence), abs=1e-6)
        k = accuracy * n
        low = 0.0 if k < 1e-9 else stats.beta.ppf(0.05, k, n - k + 1)
        high = 1.0 if k > n - 1e-9 else stats.beta.ppf(0.95, k + 1, n - k)
        assert row["interval"] == pytest.approx((low, high), abs=1e-6)
        whole = max(round(n), 1)
        assert row["band"] == pytest.approx(tuple(stats.binom.ppf([0.05, 0.95], whole, confidence) / whole))


def test_bars_hold_all_rows() -> None:
    found = bars(gather_rows(made(), weights="w").histogram)
    assert sum(bar["correct"] + bar["incorrect"] for bar in found) == len(plain(made(), "w"))
    assert sum(bar["correct_share"] + bar["incorrect_share"] for bar in found) == pytest.approx(1.0)
    assert all(bar["correct"] + bar["incorrect"] for bar in found)


@WEIGHTS
def test_errors_among_the_most_confident_rows(weights: str | None) -> None:
    rows = made(n=2000)
    cells = score(rows, weights=weights).top_histogram
    kept = sorted(plain(rows, weights), key=lambda row: -row[3])
    weight = np.cumsum([row[4] for row in kept])
    wrong = np.cumsum([row[4] * (row[1] != row[2]) for row in kept])
    for share, found in zip((0.95, 0.8, 0.5), risk(cells, 0.95), strict=True):
        place = int(np.searchsorted(weight, share * weight[-1] * (1 + 1e-12), side="right")) - 1
        assert found["coverage"] == pytest.approx(weight[place] / weight[-1])
        assert found["error"] == pytest.approx(wrong[place] / weight[place])
        assert found["threshold"] == pytest.approx(kept[place][3], abs=1e-6)
        assert found["interval"][0] < found["error"] < found["interval"][1]
    points = risk_points(cells)
    coverage = [point["coverage"] for point in points]
    assert len(points) <= 400
    assert (coverage[-1], points[-1]["error"]) == (1.0, pytest.approx(wrong[-1] / weight[-1]))
    assert coverage == sorted(coverage)


def test_equal_confidences_cannot_be_kept_apart() -> None:
    cells = score(Predictions.from_logits([[1.0, 0.0]] * 40, [0] * 40)).top_histogram
    assert risk(cells, 0.95) == []
    assert risk_points(cells) == [{"coverage": 1.0, "error": 0.0}]


def test_the_rows_above_nine_tenths() -> None:
    found = sure_rows(gather_rows(made(n=1000)).histogram, 0.95)
    kept = [row for row in plain(made(n=1000)) if row[3] > 0.9]
    right = sum(row[1] == row[2] for row in kept)
    assert found is not None
    assert (found["n_rows"], found["accuracy"]) == (len(kept), pytest.approx(right / len(kept)))
    ci = stats.binomtest(right, len(kept)).proportion_ci(0.95)
    assert found["interval"] == pytest.approx((ci.low, ci.high))
    assert sure_rows(gather_rows(Predictions.from_positive_probs([0.9], [1])).histogram, 0.95) is None


# Temperature


@WEIGHTS
def test_the_effect_of_a_temperature_is_that_of_cross_fitting(weights: str | None) -> None:
    weighted = weights is not None
    sample = gather_rows(made(), weights=weights).sample.predictions(weighted=weighted)
    effect = temperature_effect(sample, 999, weighted=weighted, n_bins=10, level=0.9, seed=1)
    column = "weights" if weighted else None
    fit = cross_fit(sample, "temperature", weights=column)
    assert effect.temperature == fit.calibrator.temperature  # type: ignore[attr-defined]
    assert effect.standard_error == fit.calibrator.standard_error  # type: ignore[attr-defined]
    assert (effect.n_sample, effect.n_rows, effect.failure) == (len(sample), 999, "")
    options = {"metrics": ["nll", "ece"], "weights": column, "n_bins": 10}
    card = score(sample, **options)  # type: ignore[call-overload]
    for row in compare(fit.predictions, sample, level=0.9, seed=1, **options):  # type: ignore[arg-type]
        change = effect.changes[row.metric]
        assert (change.before, change.after, change.interval) == (row.b, row.a, row.interval)
        assert change.before == pytest.approx(card[row.metric])
        assert change.before_interval == card.interval(row.metric, level=0.9, seed=1)
    assert effect.changes["nll"].better  # the rows are made with T = 2
    assert effect.temperature == pytest.approx(2.0, abs=0.4)
    assert effect.helps


def test_better_and_worse_are_beyond_chance() -> None:
    effect = temperature_effect(made().select([]), 300, weighted=False, n_bins=15, level=0.95, seed=0)
    for moved, beyond_chance, worse, helps in (
        (-0.2, True, [], True),
        (-0.2, False, [], False),
        (0.2, True, ["nll"], False),
    ):
        change = replace(effect.changes["nll"], difference=moved, beyond_chance=beyond_chance)
        changed = replace(effect, changes={"nll": change})
        assert (changed.worse, changed.helps) == (worse, helps)


def test_a_lower_level_calls_no_temperature_better() -> None:
    """Of calibrated rows; at a level of 50 % every other interval excludes 0."""
    seen = 0
    for seed in range(6):
        rows = made(n=300, seed=seed, scale=1.0).select([])
        low, usual = (
            temperature_effect(rows, 300, weighted=False, n_bins=15, level=level, seed=0) for level in (0.5, 0.95)
        )
        for name in ("nll", "ece"):
            change, other = low.changes[name], usual.changes[name]
            assert (change.beyond_chance, change.stays) == (other.beyond_chance, other.after_interval[0])
            assert change.beyond_chance == (change.p_value <= 0.05)
            seen += not change.beyond_chance and not change.interval[0] <= 0 <= change.interval[1]
    assert seen > 0


def backwards() -> Predictions:
    """Labels that are mostly the least likely class."""
    logits = 5 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    labels = (-logits).argmax(1)
    labels[:40] = logits[:40].argmax(1)
    return Predictions.from_logits(logits, labels)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        pytest.param(Predictions.from_logits([[3.0, 0.0]] * 50, [0] * 50), "fewer than 20 rows are inc", id="all"),
        pytest.param(Predictions.from_logits([[3.0, 0.0]] * 50, [1] * 50), "fewer than 20 rows are correct", id="none"),
        pytest.param(
            Predictions.from_logits([[3.0, 0.0]] * 50, [0, 1] * 25), "there are fewer than 5 different rows", id="equal"
        ),
        pytest.param(
            Predictions.from_logits([[3.0, -math.inf]] * 50, [0, 1] * 25), "25 of 50 rows have a label of", id="nought"
        ),
        pytest.param(backwards(), "the labels do not follow the logits", id="backwards"),
    ],
)  # fmt: skip
def test_why_there_is_no_temperature(rows: Predictions, why: str) -> None:
    effect = temperature_effect(rows, 50, weighted=False, n_bins=15, level=0.95, seed=0)
    assert why in effect.failure
    assert unfit(rows, None) in ("", effect.failure)
    assert (effect.temperature, effect.changes) == (None, {})
