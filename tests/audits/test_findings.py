"""What an audit finds: verdicts, groups, classes, curves and temperatures, each against numpy or scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from calibrant.report.audit.classes import class_rows
from calibrant.report.audit.curves import bars, reliable_bins, risk_curve
from calibrant.report.audit.groups import group_table
from calibrant.report.audit.numbers import class_trouble, shares_of_classes, sure_rows
from calibrant.report.audit.reading import read
from calibrant.report.audit.temperature import temperature_effect, unfit
from calibrant.report.audit.verdict import Kind, alpha, judge, shares_of
from calibrant.report.audit.wording import detail, headline
from scipy import stats
from test_audit_reading import made, plain

from calibrant.calibrators import cross_fit
from calibrant.metrics import compare, score
from calibrant.predictions import Predictions


def binary(confidence: np.ndarray, accuracy: np.ndarray, seed: int = 0) -> Predictions:
    """Two classes: rows of these confidences that are right with these chances."""
    right = np.random.default_rng(seed).random(len(confidence)) < accuracy
    return Predictions.from_positive_probs(torch.from_numpy(confidence), torch.from_numpy(right.astype(np.int64)))


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
        pytest.param(Predictions.from_logits([[9.0, 0.0]], [1]), "over", id="one row, nearly certain and wrong"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]] * 29, [0] * 21 + [1] * 8), "few", id="29 rows"),
        pytest.param(Predictions.from_logits([[9.0, 0.0]] * 29, [1] * 29), "over", id="29 rows, all wrong"),
        pytest.param(Predictions.from_logits([[1.4, 0.0]] * 50, [0] * 50), "under", id="all right"),
        pytest.param(Predictions.from_logits([[1.4, 0.0]] * 50, [1] * 50), "over", id="all wrong"),
        pytest.param(Predictions.from_logits([[500.0, 0.0]] * 50, [0] * 50), "unproven", id="certain and right"),
        pytest.param(Predictions.from_logits([[500.0, 0.0]] * 50, [1, *[0] * 49]), "over", id="certain, once wrong"),
    ],
)
def test_the_kind_of_a_verdict(rows: Predictions, kind: Kind) -> None:
    verdict = judge(score(rows), 0.95, 0)
    assert verdict is not None
    assert verdict.kind == kind
    assert verdict.ece == score(rows).ece
    assert verdict.over + verdict.under == pytest.approx(verdict.ece)
    assert verdict.interval[0] <= verdict.ece <= verdict.interval[1] <= 1
    assert verdict.shown == (kind not in ("unproven", "few"))


def test_an_error_that_all_bins_share_is_shown_by_the_gap_of_all_rows() -> None:
    """Each of five bins is off by no more than chance gives it, all of them in one direction."""
    confidence = np.repeat([0.55, 0.65, 0.75, 0.85, 0.95], 60)
    right = np.concatenate([np.arange(60) < n for n in (29, 36, 41, 47, 54)])
    rows = Predictions.from_positive_probs(torch.from_numpy(confidence), torch.from_numpy(right.astype(np.int64)))
    verdict = judge(score(rows), 0.95, 0)
    assert verdict is not None
    low, _ = verdict.shares.gap_interval
    assert low > 0
    assert verdict.chances.ece > 0.025
    assert verdict.chances.gap == pytest.approx(2 * stats.binom.cdf(207, 300, 0.75))
    assert verdict.p_value == pytest.approx(2 * verdict.chances.gap)
    assert verdict.kind == "over"
    assert not verdict.of_one_direction
    assert headline(verdict) == "Over-confident by 6.0 points on the whole."
    assert detail(verdict).startswith("This is confidence less accuracy (95 % interval +0.81 to +11.6); the ECE is 6.0")


def test_where_the_interval_of_the_gap_excludes_0_and_nothing_is_shown_the_page_says_why() -> None:
    rows = Predictions.from_positive_probs(torch.full((100,), 0.8, dtype=torch.float64), torch.arange(100) < 71)
    verdict = judge(score(rows), 0.95, 0)
    assert verdict is not None
    assert verdict.shares.gap_interval[0] > 0
    assert verdict.kind == "unproven"
    assert "though the 95 % interval of the latter excludes 0 (p = 0.0" in detail(verdict)
    assert "which would have to be at most 0.025, as two tests are made" in detail(verdict)


def test_a_lower_level_narrows_intervals_and_decides_nothing_else() -> None:
    for accuracy in (SPREAD, SPREAD - 0.02, SPREAD - 0.1, MIXED):
        found = [judge(score(binary(SPREAD, accuracy)), level, 0) for level in (0.5, 0.95)]
        low, usual = (verdict for verdict in found if verdict is not None)
        assert (low.kind, low.wide_interval, low.p_value) == (usual.kind, usual.interval, usual.p_value)
        assert low.interval != usual.interval


def test_both_sides_of_a_mixed_model_are_named_by_the_confidence_that_parts_them() -> None:
    verdict, reverse, waves = (judge(score(binary(SPREAD, rates)), 0.95, 0) for rates in (MIXED, REVERSED, WAVES))
    assert verdict is not None
    assert reverse is not None
    assert waves is not None
    assert verdict.split is not None
    assert verdict.split.over_above
    assert verdict.split.at == pytest.approx(0.8)
    assert reverse.split is not None
    assert not reverse.split.over_above
    assert waves.kind == "mixed"
    assert waves.split is None


def test_one_direction_needs_its_share_and_its_interval() -> None:
    """Two bins err in both directions, one of them no more than chance: neither over nor mixed."""
    confidence = np.repeat([0.6, 0.95], [60, 400])
    right = np.concatenate([np.arange(60) < 42, np.arange(400) < 360])  # 70 % of 60 %, 90 % of 95 %
    rows = Predictions.from_positive_probs(torch.from_numpy(confidence), torch.from_numpy(right.astype(np.int64)))
    verdict = judge(score(rows), 0.95, 0)
    assert verdict is not None
    assert verdict.over / verdict.ece < 0.8
    assert verdict.kind == "unclear"


def test_no_direction_is_named_where_the_gap_of_all_rows_may_be_none() -> None:
    """Ten rows in a bin of their own are all wrong, the others as often as they should be."""
    confidence = torch.tensor([0.999] * 2000 + [0.6] * 10, dtype=torch.float64)
    labels = torch.tensor([1] * 1998 + [0] * 12)
    verdict = judge(score(Predictions.from_positive_probs(confidence, labels)), 0.95, 0)
    assert verdict is not None
    assert verdict.over > 0.99 * verdict.ece
    assert verdict.chances.ece < 0.025 < verdict.chances.gap
    assert verdict.kind == "unclear"


@pytest.mark.parametrize("weighted", [False, True])
def test_accuracy_confidence_and_gap(weighted: bool) -> None:
    rows = made()
    kept = plain(rows, weighted)
    total = math.fsum(row[4] for row in kept)
    accuracy = math.fsum(row[4] for row in kept if row[1] == row[2]) / total
    confidence = math.fsum(row[4] * row[3] for row in kept) / total
    effective = total**2 / math.fsum(row[4] ** 2 for row in kept)
    weights = "w" if weighted else None
    of_bins = shares_of(score(rows, weights=weights).top_bins, 0.9)
    for shares in (of_bins, shares_of_classes(read(rows, weights=weights), 0.9)):
        assert shares.n_rows == len(kept)
        assert (shares.accuracy, shares.effective) == pytest.approx((accuracy, effective))
        assert shares.gap == pytest.approx(confidence - accuracy, abs=1e-6)
        right = accuracy * effective
        limits = stats.beta.ppf([0.05, 0.95], [right, right + 1], [effective - right + 1, effective - right])
        assert shares.gap_interval == pytest.approx((confidence - limits[1], confidence - limits[0]), abs=1e-6)


def test_weights_of_one_heavy_row_are_few_rows() -> None:
    weight = torch.ones(300, dtype=torch.float64)
    weight[0] = 1e6
    verdict = judge(score(made(w=weight), weights="w"), 0.95, 0)
    assert verdict is not None
    assert verdict.kind == "few"
    assert verdict.shares.effective == pytest.approx(1.0, abs=0.01)


def test_a_false_alarm_is_never_likelier_than_one_in_twenty() -> None:
    assert alpha(0.5) == alpha(0.95) == pytest.approx(0.05)
    assert alpha(0.99) == pytest.approx(0.01)


@pytest.mark.parametrize(("confidence", "right"), [(0.6, 0), (0.6, 1), (0.9, 0), (0.9, 1)])
def test_no_limit_is_beyond_what_is_possible(confidence: float, right: int) -> None:
    rows = Predictions.from_positive_probs(torch.tensor([confidence], dtype=torch.float64), torch.tensor([right]))
    card = score(rows)
    most = dict.fromkeys(("ece", "mce", "rmsce", "adaece"), confidence)
    for name, limit in (most | {"overconfidence": confidence, "underconfidence": 1 - confidence}).items():
        assert card.interval(name)[0] <= card[name] <= card.interval(name)[1] <= limit + 1e-12


def test_a_scorecard_without_ece_is_not_judged() -> None:
    assert judge(score(made(), metrics=["nll"]), 0.95, 0) is None
    assert group_table(score(made(), by="site", metrics=["nll"]), 0.95, 0) is None


# Groups


def grouped(*parts: tuple[str, int, float]) -> Predictions:
    """Groups of so many rows, with confidence 0.8 and this accuracy."""
    names = [name for name, n, _ in parts for _ in range(n)]
    right = [i < round(n * accuracy) for _, n, accuracy in parts for i in range(n)]
    probs = torch.full((len(names),), 0.8, dtype=torch.float64)
    return Predictions.from_positive_probs(probs, torch.tensor(right).long(), columns={"site": names})


def test_groups_are_tested_at_once_and_the_worst_comes_first() -> None:
    rows = grouped(("fine", 500, 0.8), ("bad", 500, 0.6), ("worse", 400, 0.4), ("one", 1, 0.0), ("small", 12, 0.5))
    table = group_table(score(rows, by="site"), 0.95, 0)
    assert table is not None
    assert [row.group for row in table.rows] == ["worse", "bad", "small", "one", "fine"]
    assert [table.significant(row) for row in table.rows] == [True, True, False, False, False]
    assert (table.n_groups, table.n_shown_wrong) == (5, 2)
    chances = {row.group: row.p_value for row in table.rows}
    assert chances["one"] == pytest.approx(0.4)  # twice, for two tests, that the one row is wrong
    mass = [math.comb(12, k) * 0.8**k * 0.2 ** (12 - k) for k in range(13)]
    assert chances["small"] == pytest.approx(2 * sum(mass[:7]))  # no count of right rows is as far above
    small = next(row for row in table.rows if row.group == "small")
    assert small.p_holm == pytest.approx(3 * chances["small"])
    assert small.shares.gap == pytest.approx(0.3)
    assert small.ece == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("parts", "apart", "in_sign"),
    [
        ((("a", 500, 0.6), ("b", 500, 0.95)), ("a", "b"), True),
        ((("a", 500, 0.4), ("b", 500, 0.7)), ("a", "b"), False),
        ((("a", 500, 0.6), ("b", 500, 0.82)), ("a", "b"), False),  # b is not shown to be under-confident
        ((("a", 500, 0.78), ("b", 500, 0.82)), None, None),
        ((("a", 3, 0.0), ("b", 500, 0.8)), None, None),
        ((("a", 60_000, 0.795), ("b", 60_000, 0.805)), None, None),  # beyond chance, and a trifle
    ],
)
def test_groups_disagree_in_sign_or_size(
    parts: tuple[tuple[str, int, float], ...], apart: tuple[str, str] | None, in_sign: bool | None
) -> None:
    table = group_table(score(grouped(*parts), by="site"), 0.95, 0)
    assert table is not None
    found = table.disagreement
    assert (found and (found.most, found.least)) == apart
    assert (found and found.in_sign) == in_sign


def test_groups_that_disagree_are_shown_to_be_wrong_in_the_table_too() -> None:
    """One is as it should be, the other just beyond chance, or just not."""
    for right in range(66, 76):
        rows = grouped(("a", 100, right / 100), ("b", 100_000, 0.8))
        table = group_table(score(rows, by="site", metrics=["ece"]), 0.95, 0)
        assert table is not None
        found = table.disagreement
        assert found is None or [row.group for row in table.rows if table.significant(row)] == ["a"]
    assert found is None


# Classes


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_are_counted_and_the_worst_comes_first(weighted: bool) -> None:
    rows = made(names=True)
    weights = "w" if weighted else None
    card = score(rows, weights=weights)
    found = class_rows(read(rows, weights=weights), card.classes)
    kept = plain(rows, weighted)
    for row in found:
        k = int(row.name.split()[1])
        predicted, labelled = ([r for r in kept if r[at] == k] for at in (2, 1))
        right = math.fsum(r[4] for r in predicted if r[1] == k)
        weight = math.fsum(r[4] for r in predicted)
        assert (row.labelled, row.predicted) == (len(labelled), len(predicted))
        assert row.recall == pytest.approx(right / math.fsum(r[4] for r in labelled))
        assert row.precision == pytest.approx(right / weight)
        assert row.gap == pytest.approx(math.fsum(r[4] * r[3] for r in predicted) / weight - right / weight, abs=1e-6)
    errors = [row.ece for row in found if row.ece is not None]
    assert np.mean(errors) == pytest.approx(card.cece)
    assert errors == sorted(errors, reverse=True)
    left_out = [abs(row.gap or 0.0) for row in class_rows(read(rows, weights=weights), None)]
    assert len(left_out) == 4


def test_a_class_that_is_never_predicted_or_labelled() -> None:
    found = class_rows(read(Predictions.from_logits([[2.0, 0.0, -9.0]] * 3, [0, 0, 1])), None)
    by_name = {row.name: row for row in found}
    assert (by_name["2"].recall, by_name["2"].precision, by_name["2"].gap, by_name["2"].p_holm) == (None, None, None, 1)
    assert (by_name["1"].recall, by_name["1"].precision) == (0.0, None)
    assert by_name["0"].precision == pytest.approx(2 / 3)


def test_classes_are_trouble_where_they_err_in_both_directions_beyond_chance() -> None:
    probs = torch.tensor([[0.8, 0.2]] * 500 + [[0.3, 0.7]] * 500, dtype=torch.float64)
    for wrong, right, trouble in ((200, 450, True), (105, 352, False), (200, 350, False)):
        labels = torch.tensor([1] * wrong + [0] * (500 - wrong) + [1] * right + [0] * (500 - right))
        found = class_trouble(class_rows(read(Predictions.from_probs(probs, labels)), None), 0.95)
        assert (found is not None) == trouble
        if found is not None:
            assert (found.over, found.under) == ("0", "1")
            assert (found.over_gap, found.under_gap) == pytest.approx((0.2, -0.2))


# Curves


@pytest.mark.parametrize("weighted", [False, True])
def test_bins_have_limits_and_a_band(weighted: bool) -> None:
    rows = made()
    found = reliable_bins(score(rows, weights="w" if weighted else None).top_bins, 0.9)
    kept = plain(rows, weighted)
    assert sum(row.count for row in found) == len(kept)
    for row in found:
        inside = [r for r in kept if row.low < r[3] <= row.high]
        weight = math.fsum(r[4] for r in inside)
        n = weight**2 / math.fsum(r[4] ** 2 for r in inside)
        accuracy = math.fsum(r[4] for r in inside if r[1] == r[2]) / weight
        confidence = math.fsum(r[4] * r[3] for r in inside) / weight
        assert row.count == len(inside)
        assert row.strength == pytest.approx(weight / math.fsum(r[4] for r in kept))
        assert (row.accuracy, row.confidence) == pytest.approx((accuracy, confidence), abs=1e-6)
        k = accuracy * n
        low = 0.0 if k < 1e-9 else stats.beta.ppf(0.05, k, n - k + 1)
        high = 1.0 if k > n - 1e-9 else stats.beta.ppf(0.95, k + 1, n - k)
        assert row.accuracy_interval == pytest.approx((low, high), abs=1e-6)
        whole = max(round(n), 1)
        assert row.band == pytest.approx(tuple(stats.binom.ppf([0.05, 0.95], whole, confidence) / whole))


def test_bars_hold_all_rows() -> None:
    found = bars(read(made(), weights="w"))
    assert sum(bar.right + bar.wrong for bar in found) == int((made().numbers("weights", "w") > 0).sum())
    assert sum(bar.right_share + bar.wrong_share for bar in found) == pytest.approx(1.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_among_the_surest_rows(weighted: bool) -> None:
    rows = made(n=2000)
    curve = risk_curve(score(rows, weights="w" if weighted else None).top_cells, 0.95)
    kept = sorted(plain(rows, weighted), key=lambda row: -row[3])
    weights = np.cumsum([row[4] for row in kept])
    wrong = np.cumsum([row[4] * (row[1] != row[2]) for row in kept])
    assert curve.error == pytest.approx(wrong[-1] / weights[-1])
    assert len(curve.kept) == 3
    for share, found in zip((0.95, 0.8, 0.5), curve.kept, strict=True):
        place = int(np.searchsorted(weights, share * weights[-1] * (1 + 1e-12), side="right")) - 1
        assert found.coverage == pytest.approx(weights[place] / weights[-1])
        assert found.error == pytest.approx(wrong[place] / weights[place])
        assert found.threshold == pytest.approx(kept[place][3], abs=1e-6)
        assert found.interval[0] < found.error < found.interval[1]
    coverage, error = zip(*curve.points, strict=True)
    assert len(curve.points) <= 400
    assert (coverage[-1], error[-1]) == (1.0, pytest.approx(curve.error))
    assert list(coverage) == sorted(coverage)


def test_equal_confidences_cannot_be_kept_apart() -> None:
    curve = risk_curve(score(Predictions.from_logits([[1.0, 0.0]] * 40, [0] * 40)).top_cells, 0.95)
    assert curve.kept == ()
    assert curve.points == ((1.0, 0.0),)


def test_the_rows_above_nine_tenths() -> None:
    found = sure_rows(read(made(n=1000)).sure, 0.95)
    kept = [row for row in plain(made(n=1000), False) if row[3] >= 0.9]
    right = sum(row[1] == row[2] for row in kept)
    assert found is not None
    assert (found.n_rows, found.accuracy) == (len(kept), pytest.approx(right / len(kept)))
    ci = stats.binomtest(right, len(kept)).proportion_ci(0.95)
    assert found.interval == pytest.approx((ci.low, ci.high))
    assert sure_rows(read(made(n=1000)).sure, 0.5) == found  # a lower level decides nothing
    assert sure_rows(read(Predictions.from_logits([[0.0, 0.1]], [0])).sure, 0.95) is None


# Temperature


@pytest.mark.parametrize("weighted", [False, True])
def test_the_effect_of_a_temperature_is_that_of_cross_fitting(weighted: bool) -> None:
    reading = read(made(), weights="w" if weighted else None)
    effect = temperature_effect(reading.sample, 999, weighted=weighted, n_bins=10, level=0.9, seed=1)
    weights = "weights" if weighted else None
    fit = cross_fit(reading.sample, "temperature", weights=weights)
    wanted = compare(
        fit.predictions, reading.sample, metrics=["nll", "ece"], weights=weights, n_bins=10, level=0.9, seed=1
    )
    assert effect.temperature == fit.calibrator.temperature  # type: ignore[attr-defined]
    assert effect.standard_error == fit.calibrator.standard_error  # type: ignore[attr-defined]
    assert (effect.n_sample, effect.n_rows, effect.failure) == (reading.n_rows, 999, "")
    for row in wanted:
        change = getattr(effect, row.metric)
        assert (change.before, change.after, change.interval) == (row.b, row.a, row.interval)
        card = score(reading.sample, metrics=["nll", "ece"], n_bins=10, weights=weights)
        assert change.before == pytest.approx(card[row.metric])
        assert change.before_interval == card.interval(row.metric, level=0.9, seed=1)
    assert effect.nll is not None
    assert effect.nll.better  # the rows are made with T = 2
    assert effect.temperature == pytest.approx(2.0, abs=0.4)


def test_better_and_worse_are_beyond_chance() -> None:
    change = temperature_effect(made().select([]), 300, weighted=False, n_bins=15, level=0.95, seed=0).nll
    assert change is not None
    assert change.shown
    for difference, shown, better, worse in (
        (-0.2, True, True, False),
        (-0.2, False, False, False),
        (0.2, True, False, True),
    ):
        moved = replace(change, difference=difference, shown=shown)
        assert (moved.better, moved.worse) == (better, worse)


def test_a_lower_level_calls_no_temperature_better() -> None:
    """Of calibrated rows; at a level of 50 % every other interval excludes 0."""
    seen = 0
    for seed in range(6):
        rows = made(n=300, seed=seed, scale=1.0).select([])
        low, usual = (
            temperature_effect(rows, 300, weighted=False, n_bins=15, level=level, seed=0) for level in (0.5, 0.95)
        )
        for change, other in ((low.nll, usual.nll), (low.ece, usual.ece)):
            assert change is not None
            assert other is not None
            assert (change.shown, change.stays) == (other.shown, other.after_interval[0])
            assert change.shown == (change.p_value <= 0.05)
            seen += not change.shown and not change.interval[0] <= 0 <= change.interval[1]
    assert seen > 0


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        pytest.param(Predictions.from_logits([[3.0, 0.0]] * 50, [0] * 50), "fewer than 20 rows are wrong", id="right"),
        pytest.param(Predictions.from_logits([[3.0, 0.0]] * 50, [1] * 50), "fewer than 20 rows are right", id="wrong"),
        pytest.param(
            Predictions.from_logits([[3.0, 0.0]] * 50, [0, 1] * 25),
            "there are fewer than 5 different rows",
            id="equal rows",
        ),
        pytest.param(
            Predictions.from_logits([[3.0, -math.inf]] * 50, [0, 1] * 25), "25 of 50 rows have a label of", id="nought"
        ),
    ],
)
def test_why_there_is_no_temperature(rows: Predictions, why: str) -> None:
    assert unfit(rows, None).startswith(why)
    effect = temperature_effect(rows, 50, weighted=False, n_bins=15, level=0.95, seed=0)
    assert effect.failure.startswith(why)
    assert (effect.temperature, effect.nll, effect.ece) == (None, None, None)


def test_labels_that_do_not_follow_the_logits_have_no_temperature() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(200, 3, generator=draw)
    labels = (-logits).argmax(1)
    labels[:40] = logits[:40].argmax(1)
    effect = temperature_effect(
        Predictions.from_logits(logits, labels), 200, weighted=False, n_bins=15, level=0.95, seed=0
    )
    assert effect.temperature is None
    assert "the labels do not follow the logits" in effect.failure


def test_two_groups_disagree_where_limits_for_both_at_once_do_not_meet() -> None:
    """On either side of the border: A is right 60 times of 100, and B so often that the limits just meet, or do not."""

    def limits(right: int) -> tuple[float, float]:
        outside = 0.05 / 2 / 2 / 2  # of two groups, for a test that is one of two, on either side
        return float(stats.beta.ppf(outside, right, 101 - right)), float(
            stats.beta.isf(outside, right + 1, 100 - right)
        )

    first = next(right for right in range(60, 100) if limits(right)[0] > limits(60)[1])
    for right, apart in ((first - 1, False), (first, True)):
        correct = torch.cat([torch.arange(100) < 60, torch.arange(100) < right])
        probs = torch.full((200,), 0.8, dtype=torch.float64)
        sites = ["A"] * 100 + ["B"] * 100
        rows = Predictions.from_positive_probs(probs, correct.long(), columns={"site": sites})
        table = group_table(score(rows, by="site"), 0.95, 0)
        assert table is not None
        assert (table.disagreement is not None) == apart
