"""The sentences of an audit, case by case."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from calibrant.audits import (
    ClassRow,
    DecisionFindings,
    Group,
    GroupFindings,
    HandedOver,
    MetricChange,
    TemperatureEffect,
    audit,
)
from calibrant.audits.advice import advise
from calibrant.audits.verdict import VerdictKind
from calibrant.metrics import score
from calibrant.metrics.compare import Difference
from calibrant.predictions import Predictions
from calibrant.report.audit_words import (
    accuracy_sentence,
    advice_command,
    advice_sentence,
    certified_sentence,
    decision_commands,
    decision_sentence,
    decomposition_sentence,
    difference_sentence,
    evidence,
    group_sentence,
    headline,
    risk_sentences,
    summary,
)
from calibrant.report.numbers import points
from made.audits import make_groups, make_rows, make_verdict


def change(before: float, after: float, *, significant: bool = True, lower: float = 0.0) -> MetricChange:
    return MetricChange(before, (0.0, 1.0), after, (0.0, 1.0), after - before, (-1.0, 1.0), 0.01, significant, lower)


def different_groups(by: str, first: tuple[object, float], second: tuple[object, float]) -> GroupFindings:
    """Two groups with these gaps, which are significant beyond 1 percentage point."""
    cards = score(make_groups(("a", 1, 1.0)), by="site")
    largest, smallest = (
        Group(value, cards["a"], make_verdict(accuracy=0.92 - gap), 0.01, True, abs(gap) > 0.01)
        for value, gap in (first, second)
    )
    return GroupFindings(by, (largest, smallest), 1, (largest, smallest), cards)


BETTER = TemperatureEffect(
    5000, 5000, 1.42, (1.35, 1.5), 800.0, {"nll": change(0.5, 0.45), "ece": change(0.041, 0.012)}
)
REMAINING = replace(BETTER, changes={**BETTER.changes, "ece": change(0.041, 0.02, lower=0.011)})
WORSE = replace(BETTER, changes={**BETTER.changes, "ece": change(0.041, 0.06)})
BOTH_WORSE = replace(BETTER, changes={"nll": change(0.5, 0.6), "ece": change(0.041, 0.06)})
NEITHER = replace(
    BETTER, changes={"nll": change(0.5, 0.4, significant=False), "ece": change(0.041, 0.04, significant=False)}
)
NOT_FITTED = TemperatureEffect(5000, 5000, failure="all are correct")
CLASSES = (
    ClassRow("cat", 9, 9, 0.5, 0.8, 0.87, 0.1, 0.001),
    ClassRow("dog", 9, 9, 0.5, 0.83, 0.8, 0.1, 0.001),
)
FIT = "calibrant fit val.parquet --calibrator"
CHANGES = (
    "in 5-fold cross-validation it changes the ECE from 4.1 to {} percentage points and the NLL from 0.5000 to {} "
    "(T = 1.42 on all rows)"
)
RECALIBRATE = f"Recalibrate with temperature scaling: {CHANGES}."
FIT_TEMPERATURE = f" Fit it on a separate validation set: {FIT} temperature -o t.json"


def above(accuracy: float, interval: tuple[float, float]) -> dict[str, Any]:
    return {"threshold": 0.9, "n_rows": 412, "accuracy": accuracy, "interval": interval}


GROUPS = (
    "One calibrator for all rows would not fix the groups by site: confidence − accuracy differs significantly between "
    "them. On all rows together, "
)
LARGER = (
    "the ECE of 4.1 percentage points is significantly larger than expected of a perfectly calibrated model on these "
    "rows"
)
SEPARATELY = "separately: confidence − accuracy differs significantly between them"
PER_GROUP = f"Recalibrate the groups by site {SEPARATELY}{{}}: site = A is "
NOT_ENOUGH = f"Temperature scaling is not enough: {CHANGES}; "
ADVICE: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "too few rows": (
        (make_verdict("too_few_rows", n_rows=12, n_effective=12.0, ece_interval=(0.1, 0.4)), NOT_FITTED),
        ["Collect more labelled rows before drawing conclusions: with 12 rows, the 95 % CI of the ECE is 10.0 to 40.0"],
    ),
    "no action": (
        (make_verdict("no_evidence", ece=0.004, ece_interval=(0.0, 0.008)), NOT_FITTED),
        ["No recalibration is needed overall: the 95 % CI of the ECE ends at 0.80 percentage points."],
    ),
    "no evidence, wide": (
        (make_verdict("no_evidence", ece_interval=(0.0, 0.06)), NOT_FITTED),
        ["Recalibration is not indicated overall: there is no evidence of miscalibration (p = 0.400), although an ECE "
         "of up to 6.0 percentage points cannot be ruled out",
         "Collect more labelled rows: with 5,000 rows the 95 % CI of the ECE is 6.0 percentage points wide; about four "
         "times as many (20,000) would halve"],
    ),
    "negligible": (
        (make_verdict(ece=0.004, ece_interval=(0.002, 0.006)), BETTER),
        ["Recalibration would change little overall: the miscalibration is significant but small, with an ECE of 0.40 "
         "percentage points, whose 95 % CI ends at 0.60."],
    ),
    "temperature": ((make_verdict(), BETTER), [RECALIBRATE.format("1.2", "0.4500") + FIT_TEMPERATURE]),
    "remaining": (
        (make_verdict(level=0.5), REMAINING),
        [RECALIBRATE.format("2.0", "0.4500") + " After scaling, an ECE of at least 1.1 percentage "
         f"points remains (lower limit of the 95 % CI).{FIT_TEMPERATURE}"],
    ),
    "no improvement": (
        (make_verdict(), NEITHER),
        [NOT_ENOUGH.format("4.0", "0.4000") + "neither decreases significantly. Fit a more flexible calibrator on a "
         f"separate validation set: {FIT} spline -o s.json"],
    ),
    "worse ECE": ((make_verdict(), WORSE), [NOT_ENOUGH.format("6.0", "0.4500") + "the ECE increases significantly."]),
    "both worse": ((make_verdict(), BOTH_WORSE), [NOT_ENOUGH.format("6.0", "0.6000") + "the NLL and ECE increase sig"]),
    "not fitted": (
        (make_verdict(), NOT_FITTED),
        [f"Recalibrate: {LARGER}. The effect of temperature scaling could not be measured on these rows; fit a "
         f"temperature on a separate validation set: {FIT} temperature -o t.json"],
    ),
    "significant gap": (
        (make_verdict(p_ece=0.2, p_gap=0.001), NOT_FITTED),
        ["Recalibrate: confidence − accuracy of +4.0 percentage points differs significantly from 0."],
    ),
    "groups of opposite signs, with a name that needs quotes": (
        (make_verdict("no_evidence"), BETTER, [different_groups("a; rm -rf x", ("A", 0.08), (None, -0.02))]),
        ["Recalibration is not indicated",
         f"Recalibrate the groups by a; rm -rf x {SEPARATELY}, with opposite signs: a; rm -rf x = A is overconfident "
         "by 8.0 percentage points and a; rm -rf x = (no value) is underconfident by 2.0 percentage points. Fit a "
         f"temperature for each group: {FIT} domain_temperature --domain 'a; rm -rf x' -o d.json"],
    ),
    "groups of different size": (
        (make_verdict(), BETTER, [different_groups("site", ("A", 0.08), ("B", 0.02))]),
        [f"{GROUPS}temperature scaling helps: {CHANGES.format('1.2', '0.4500')}.",
         PER_GROUP.format("") + "overconfident by 8.0 percentage points and site = B is overconfident by 2.0 "],
    ),
    "one group without significance": (
        (make_verdict(), NOT_FITTED, [different_groups("site", ("A", 0.08), ("B", -0.005))]),
        [f"{GROUPS}{LARGER}.",
         PER_GROUP.format("") + "overconfident by 8.0 percentage points and site = B has no significant deviation "
         "(−0.50 percentage points)."],
    ),
    "groups, and no improvement": (
        (make_verdict(), WORSE, [different_groups("site", ("A", 0.08), ("B", -0.05))]),
        [f"{GROUPS}temperature scaling does not help: {CHANGES.format('6.0', '0.4500')}; the ECE increases",
         PER_GROUP.format(", with opposite signs")],
    ),
    "classes": (
        (make_verdict(), BETTER, [], CLASSES),
        ["Recalibrate with",
         "Consider a calibrator with parameters per class: where cat is predicted, confidence exceeds accuracy by 7.0 "
         "percentage points; where dog is predicted, accuracy exceeds confidence by 3.0. One temperature "
         f"changes both in the same direction; vector scaling may correct both: {FIT} vector -o v.json"],
    ),
    "threshold": (
        (make_verdict(), BETTER, [], (), above(0.81, (0.77, 0.85))),
        ["Recalibrate with",
         "Do not use a confidence threshold of 90 % to obtain an accuracy of 90 %: of 412 rows with a higher "
         "confidence, 81.0 % are correct (95 % CI 77.0 to 85.0 %)."],
    ),
    "threshold holds": ((make_verdict(), BETTER, [], (), above(0.88, (0.84, 0.91))), ["Recalibrate with"]),
}  # fmt: skip


@pytest.mark.parametrize(("found", "wanted"), ADVICE.values(), ids=ADVICE)
def test_advice(found: tuple[Any, ...], wanted: list[str]) -> None:
    sentences = [f"{advice_sentence(advice)} {advice_command(advice)}".strip() for advice in advise(*found)]
    assert [sentence[: len(start)] for sentence, start in zip(sentences, wanted, strict=True)] == wanted
    assert all(sentence.endswith((".", ".json")) for sentence in sentences)


@pytest.mark.parametrize(
    ("kind", "changes", "wanted"),
    [
        ("overconfident", {"gap_interval": (0.03, 0.05)},
         "Overconfident: mean confidence exceeds accuracy by 4.0 percentage points (95 % CI 3.0 to 5.0)."),
        ("underconfident", {"accuracy": 0.96, "gap_interval": (-0.06, -0.03)},
         "Underconfident: accuracy exceeds mean confidence by 4.0 percentage points (95 % CI 3.0 to 6.0)."),
        ("no_direction", {}, "Miscalibrated, in no consistent direction."),
        ("no_evidence", {}, "No evidence of miscalibration (p = 0.400)."),
        ("too_few_rows", {}, "Too few rows to assess calibration."),
        ("mixed", {}, "Miscalibrated: overconfident at some confidences, underconfident at others."),
        ("mixed", {"crossing": 0.8, "overconfident_above": True},
         "Miscalibrated: overconfident at confidences above 0.80, underconfident below."),
        ("mixed", {"crossing": 0.8}, "Miscalibrated: underconfident at confidences above 0.80, overconfident below."),
    ],
)  # fmt: skip
def test_headlines(kind: VerdictKind, changes: dict[str, Any], wanted: str) -> None:
    verdict = make_verdict(kind, **changes)
    assert headline(verdict) == wanted
    assert ("confidence − accuracy is +4.0" in accuracy_sentence(verdict)) == (not kind.endswith("confident"))


def test_evidence() -> None:
    ece = "The expected calibration error (ECE) is 4.1 percentage points"
    floor = "noise floor 0.90: what a perfectly calibrated model would show on average)"
    with_interval = f"{ece} (95 % CI 3.2 to 5.0; {floor}"
    tested = "Joint test of ECE and confidence − accuracy: p"
    parts = "4.0 from overconfident and 0.10 from underconfident bins"
    assert evidence(make_verdict("overconfident")) == f"{with_interval}. {tested} < 0.0001."
    overall, mixed = (make_verdict("overconfident", p_ece=0.2), make_verdict("mixed"))
    assert evidence(overall) == evidence(mixed) == f"{with_interval}, {parts}. {tested} < 0.0001."
    limit = "An ECE of up to 5.0 percentage points cannot be ruled out (upper limit of the 95 % CI)."
    assert evidence(make_verdict("no_evidence", level=0.9)) == f"{ece} ({floor}. {limit}"
    few = make_verdict("too_few_rows", n_rows=400, n_effective=1.04)
    assert evidence(few) == f"{ece} ({floor}. {tested} = 0.400."
    assert "on 400 rows (effective sample size 1.0 after weighting): confidence" in accuracy_sentence(few)


def test_the_evidence_explains_an_interval_of_the_gap_that_excludes_0_without_significance() -> None:
    rows = Predictions.from_positive_probs(torch.full((100,), 0.8, dtype=torch.float64), torch.arange(100) < 71)
    found = audit(rows).verdict
    assert found.gap_interval[0] > 0
    assert found.kind == "no_evidence"
    assert "The 95 % CI of confidence − accuracy excludes 0 (p = 0.040), but with two tests" in evidence(found)
    assert "significance requires p ≤ 0.025." in evidence(found)


def test_the_summary_has_the_numbers_of_the_scorecard() -> None:
    found = audit(make_rows(n=1000), by="site", gates=["ece > 0", "nll > 99"])
    card, sentences = found.scorecard, summary(found, ["ece"])
    low, high = card.interval("ece")
    gap = card.confidence - card.accuracy
    assert sentences[0].startswith(f"Overconfident: mean confidence exceeds accuracy by {100 * gap:.1f} percentage")
    assert f"is {100 * card.ece:.1f} percentage points (95 % CI {100 * low:.1f} to {100 * high:.1f};" in sentences[1]
    shares = f"Accuracy is {100 * card.accuracy:.1f} % and mean confidence {100 * card.confidence:.1f} % on 1,000 rows."
    assert sentences[2] == shares
    assert sentences[3] == decomposition_sentence(found.temperature, 0.95)
    assert sentences[4] == decision_sentence(found)
    assert sentences[5].startswith(
        "3 of 3 groups by site are significantly miscalibrated (Holm-corrected). The worst, by the lower limit of "
    )
    assert sentences[6:] == ["The audit fails 1 of 2 gates (--fail-if)."]
    for accuracy, finding in ((0.6, "is significantly miscalibrated (p < 0.0001"), (0.8, "shows no evidence of")):
        only = audit(make_groups(("a", 400, accuracy)), by="site").groups["site"]
        assert group_sentence(only).startswith(f"The only group by site {finding}")
    groups = audit(make_rows(n=400, scale=1.0), by="site").groups["site"]
    smallest = groups.worst_first[0]
    assert group_sentence(groups).startswith(
        f"No evidence of miscalibration in any of 3 groups by site. The smallest p-value ({smallest.p_holm:.4f}, "
        f"Holm-corrected) is that of site = {smallest.value}, with an ECE of {100 * smallest.verdict.ece:.1f}"
    )


@pytest.mark.parametrize(
    ("metric", "p_value", "wanted"),
    [
        ("confidence", 1e-6, "Mean confidence: the models differ significantly (this model 0.9000, the other 0.8000;"),
        ("confidence", 0.3, "Mean confidence: no significant difference between the models ("),
        ("nll", 1e-6, "NLL: the other model is significantly better ("),
        ("accuracy", 1e-6, "Accuracy: this model is significantly better ("),
        ("kse", 0.3, "Kolmogorov-Smirnov error: no significant difference between the models ("),
    ],
)
def test_differences(metric: str, p_value: float, wanted: str) -> None:
    row = Difference(metric, None, True, 50, 0.9, 0.8, 0.1, (0.05, 0.15), 0.02, p_value, p_value)
    assert difference_sentence(row, 0.95).startswith(wanted)
    assert "; difference +0.1000, 95 % CI +0.0500 to +0.1500; p " in difference_sentence(row, 0.95)


def test_what_recalibration_removes_of_the_nll() -> None:
    effect = audit(make_rows(n=1000)).temperature
    change = effect.changes["nll"]
    low, high = change.interval
    assert decomposition_sentence(effect, 0.95) == (
        f"Of the NLL of {change.before:.4f}, {change.before - change.after:.4f} (95 % CI {-high:.4f} to {-low:.4f}) "
        "could be removed by recalibration with a temperature."
    )
    worse = replace(change, before=0.5, difference=0.01, interval=(-0.02, 0.04))
    part = replace(effect, n_sample=50_000, n_rows=10**6, changes={"nll": worse})
    assert decomposition_sentence(part, 0.9) == (
        "Recalibration removes nothing of the NLL of 0.5000 (random sample of 50,000 rows): temperature scaling adds "
        "0.0100 (90 % CI −0.0200 to 0.0400)."
    )
    unmeasured = audit(make_rows(n=30))
    assert not unmeasured.temperature.changes
    assert not any("NLL" in sentence for sentence in summary(unmeasured, ["ece"]))


@pytest.mark.parametrize(("other", "difference"), [(0.5, math.inf), (math.inf, math.nan)])
def test_an_infinite_nll_is_not_compared(other: float, difference: float) -> None:
    row = Difference("nll", None, True, 50, math.inf, other, difference, (-math.inf, math.inf), math.inf, 1.0, 1.0)
    values = f"this model ∞, the other {'∞' if math.isinf(other) else '0.5000'}"
    assert difference_sentence(row, 0.95) == (
        f"NLL: the models cannot be compared, because a label has probability 0 ({values})."
    )


def decision(**changes: Any) -> DecisionFindings:
    """Of 1,000 rows 400 are accepted; these fields are changed."""
    fields: dict[str, Any] = {"max_error": 0.05, "confidence": 0.95, "void": None, "threshold": 0.8931}
    fields |= {"overall": HandedOver(None, 1000, 400, 9), "rows_needed": None, "groups": {}, "sets": (), **changes}
    return DecisionFindings(**fields)


def test_what_is_certified() -> None:
    rows = "The 40.0 % of rows with a confidence of at least 0.894 can be accepted"
    promise = "at most 5 % of them are wrong (95 % confidence)"
    assert certified_sentence(decision()) == f"{rows}: {promise}."
    assert certified_sentence(decision(threshold=0.0)) == f"All rows can be accepted: {promise}."
    none = "No confidence threshold is certified to keep the error at 5 % (95 % confidence)"
    for n, needed, reason in (
        (1000, None, "too many of the most confident rows are wrong"),
        (1000, 1234, "it would take about 1,234 rows"),
        (58, 84, "that takes at least 59 rows, none of them wrong"),
    ):
        found = decision(threshold=None, overall=HandedOver(None, n, 0, 0), rows_needed=needed)
        assert certified_sentence(found) == f"{none}: {reason}."


def test_the_sentence_of_the_decision_says_when_nothing_is_certified() -> None:
    both = "No threshold is certified and no set measured, because rows"
    patients = make_rows(patient_id=[i // 2 for i in range(300)])
    assert (
        decision_sentence(audit(make_rows(), weights="w"))
        == f"{both} have weights: both are for rows that count alike."
    )
    assert decision_sentence(audit(patients, cluster="patient_id")) == f"{both} of one patient_id are not independent."
    sure = {"patient_id": [i // 2 for i in range(300)]}
    rows = Predictions.from_positive_probs([0.99] * 300, [1] * 300, columns=sure)
    promise = "at most 5 % of them are wrong (95 % confidence, if rows are independent)"
    sets = "Sets of 1.00 classes on average hold 95 % of the labels."
    assert decision_sentence(audit(rows)) == f"All rows can be accepted: {promise}. {sets}"


def test_the_commands_have_the_confidence_of_the_audit() -> None:
    certify, sets = decision_commands(decision())
    assert certify == "calibrant certify val.parquet --max-error 0.05 -o threshold.json"
    assert sets == "calibrant sets fit val.parquet --method lac --coverage 0.9 -o sets.json"
    assert "--max-error 0.05 --level 0.99 -o" in decision_commands(decision(confidence=0.99))[0]


def test_no_threshold_and_numbers_at_the_ends() -> None:
    assert risk_sentences([], 0.0, 0.95)[0].startswith("No threshold keeps close to 95, 80 or 50 % of the rows: ")
    risk = {"coverage": 0.8, "threshold": 0.72, "error": 0.05, "interval": (0.03, 0.07)}
    rows = "the most confident 80.0 % of rows (confidence ≥ 0.720)"
    start = f"Among {rows}, the error rate is 5.00 % (95 % CI 3.00 to 7.00 %)"
    assert risk_sentences([risk], 0.2, 0.95) == [f"{start}, compared with 20.0 % among all rows."]
    assert risk_sentences([risk], 0.05, 0.95) == [f"{start}, as among all rows."]
    assert [points(x) for x in (0.99988, 1.0, 0.00999, 0.000996)] == ["99.988", "100.0", "1.0", "0.10"]
