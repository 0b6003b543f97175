"""An audit in sentences and tables, case by case: each sentence names the number that it follows from."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from calibrant.audits import Audit, audit
from calibrant.audits.advice import advise
from calibrant.audits.classes import ClassRow
from calibrant.audits.groups import Group, GroupFindings
from calibrant.audits.temperature import Change, TemperatureEffect
from calibrant.audits.verdict import Kind, Verdict
from calibrant.metrics import score
from calibrant.metrics.compare import Difference
from calibrant.predictions import Predictions
from calibrant.report import audit_tables as tables
from calibrant.report.audit import lead_kind
from calibrant.report.audit_words import (
    advice_sentence,
    detail,
    difference_sentence,
    group_sentence,
    headline,
    kept_sentences,
    summary,
)
from calibrant.report.numbers import points
from made.audits import grouped, made


def verdict(kind: Kind = "over", **changes: Any) -> Verdict:
    p_values = (0.2, 0.4) if kind in ("unproven", "few") else (1e-9, 1e-9)
    limits = changes.get("interval", (0.032, 0.05))
    whole = Verdict(
        kind, 5000, 5000.0, 0.88, (0.87, 0.89), 0.92, 0.041, limits, limits, 0.009, 0.04, 0.001,
        *p_values, None, False, 0.95,
    )  # fmt: skip
    return replace(whole, **changes)


def change(before: float, after: float, *, beyond_chance: bool = True, stays: float = 0.0) -> Change:
    return Change(before, (0.0, 1.0), after, (0.0, 1.0), after - before, (-1.0, 1.0), 0.01, beyond_chance, stays)


def apart(
    by: str, most: object, most_gap: float, least: object, least_gap: float, reach: float = 0.01
) -> GroupFindings:
    """Two groups that disagree; each is off by itself where its gap is beyond the reach."""
    cards = score(grouped(("a", 1, 1.0)), by="site")

    def group(value: object, gap: float) -> Group:
        return Group(value, cards["a"], verdict(accuracy=0.92 - gap), 0.01, True, abs(gap) > reach)

    pair = group(most, most_gap), group(least, least_gap)
    return GroupFindings(by, pair, 1, pair, cards)


BETTER = TemperatureEffect(5000, 5000, 1.42, 0.05, {"nll": change(0.5, 0.45), "ece": change(0.041, 0.012)})
WORSE = replace(BETTER, changes={**BETTER.changes, "ece": change(0.041, 0.06)})
NEITHER = replace(
    BETTER, changes={"nll": change(0.5, 0.4, beyond_chance=False), "ece": change(0.041, 0.04, beyond_chance=False)}
)
UNKNOWN = TemperatureEffect(5000, 5000, failure="all are correct")
CLASSES = (
    ClassRow("cat", 9, 9, 0.5, 0.8, 0.87, 0.1, 0.001),
    ClassRow("dog", 9, 9, 0.5, 0.83, 0.8, 0.1, 0.001),
)
FIT = "calibrant fit val.parquet --calibrator"


def sure(accuracy: float, interval: tuple[float, float]) -> dict[str, Any]:
    return {"confidence": 0.9, "n_rows": 412, "accuracy": accuracy, "interval": interval}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(
            (verdict("few", n_rows=12, effective=12.0, interval=(0.1, 0.4)), UNKNOWN),
            ["Collect more rows before anything else: on 12 rows the ECE may be anything from 10.0 to 40.0 points."],
            id="few",
        ),
        pytest.param(
            (verdict("unproven", ece=0.004, interval=(0.0, 0.008)), UNKNOWN),
            ["Nothing needs to be calibrated on the whole: the ECE is at most 0.80 points (upper limit of the 95 %"],
            id="nothing",
        ),
        pytest.param(
            (verdict("unproven", interval=(0.0, 0.06)), UNKNOWN),
            [
                "Nothing is shown that a calibrator should correct on the whole: the ECE of 4.1 points is not beyond "
                "what chance gives a calibrated model (0.90 on average; p = 0.400), though up to 6.0 could hide.",
                "Collect more rows: the 95 % interval of the ECE is 6.0 points wide on 5,000 rows; about four times as "
                "many (20,000) would halve it.",
            ],
            id="nothing shown, wide",
        ),
        pytest.param(
            (verdict(ece=0.004, interval=(0.002, 0.006)), BETTER),
            ["On the whole the error is beyond chance but small: an ECE of 0.40 points, at most 0.60"],
            id="small",
        ),
        pytest.param(
            (verdict(), BETTER),
            [
                "Scale by a temperature: T = 1.42 moves the ECE from 4.1 to 1.2 points and the NLL from 0.5000 to "
                f"0.4500 on rows that it was not fitted on. Fit it on a separate validation set: {FIT} temperature -o "
                "t.json."
            ],
            id="temperature",
        ),
        pytest.param(
            (verdict(level=0.5), replace(BETTER, changes={**BETTER.changes, "ece": change(0.041, 0.02, stays=0.011)})),
            [
                "Scale by a temperature: T = 1.42 moves the ECE from 4.1 to 2.0 points and the NLL from 0.5000 to "
                f"0.4500 on rows that it was not fitted on. Fit it on a separate validation set: {FIT} temperature -o "
                "t.json. At least 1.1 points of ECE would stay (lower limit of the 95 % interval)."
            ],
            id="what would stay",
        ),
        pytest.param(
            (verdict(), NEITHER),
            ["A temperature does not calibrate this: T = 1.42 moves the ECE from 4.1 to 4.0 points and the NLL from "
             "0.5000 to 0.4000 on rows that it was not fitted on, and neither is better beyond chance. Try a "
             f"calibrator with more freedom on a validation set: {FIT} spline -o s.json."],
            id="no temperature helps",
        ),
        pytest.param((verdict(), WORSE), ["A temperature does not calibrate this"], id="the ECE becomes worse"),
        pytest.param(
            (verdict(), UNKNOWN),
            ["Recalibrate: the ECE of 4.1 points is beyond chance. What a temperature would change could"],
            id="not fitted",
        ),
        pytest.param(
            (verdict(p_ece=0.2, p_gap=0.001), UNKNOWN),
            ["Recalibrate: confidence − accuracy of +4.0 points is beyond chance. What a temperature"],
            id="shown by the gap",
        ),
        pytest.param(
            (verdict("unproven"), BETTER, [apart("a; rm -rf x", "A", 0.08, None, -0.02)]),
            [
                "Nothing is shown",
                "Recalibrate per a; rm -rf x: its groups disagree in sign beyond chance: a; rm -rf x A is "
                "overconfident by 8.0 points and a; rm -rf x (no value) is underconfident by 2.0 points (confidence − "
                "accuracy), so one calibrator for all does not suit both; a temperature for each: "
                f"{FIT} domain_temperature --domain 'a; rm -rf x' -o d.json.",
            ],
            id="groups of two signs, and a name that a shell would obey",
        ),
        pytest.param(
            (verdict(), BETTER, [apart("site", "A", 0.08, "B", 0.02)]),
            [
                "On the whole one temperature would help: T = 1.42 moves the ECE from 4.1 to 1.2 points and the NLL "
                "from 0.5000 to 0.4500 on rows that it was not fitted on; but one calibrator does not suit all groups "
                "of site.",
                "Recalibrate per site: its groups disagree in size beyond chance: site A is overconfident by 8.0 "
                "points and site B is overconfident by 2.0 points (confidence − accuracy), so",
            ],
            id="groups of two sizes",
        ),
        pytest.param(
            (verdict(), UNKNOWN, [apart("site", "A", 0.08, "B", -0.005)]),
            [
                "On the whole the ECE of 4.1 points is beyond chance, but one calibrator does not suit all groups",
                "Recalibrate per site: its groups disagree in size beyond chance: site A is overconfident by 8.0 "
                "points and site B is not shown to be off in either direction (-0.50 points) (confidence −",
            ],
            id="one group is not shown to be off",
        ),
        pytest.param(
            (verdict(), WORSE, [apart("site", "A", 0.08, "B", -0.05)]),
            [
                "On the whole one temperature does not calibrate this: T = 1.42",
                "Recalibrate per site: its groups disagree in sign beyond chance",
            ],
            id="no temperature helps, and groups disagree",
        ),
        pytest.param(
            (verdict(), BETTER, [], CLASSES),
            [
                "Scale",
                "Look at the classes: where cat is predicted, confidence exceeds accuracy by 7.0 points, where dog is, "
                "it falls short by 3.0.",
            ],
            id="classes",
        ),
        pytest.param(
            (verdict(), BETTER, [], (), sure(0.81, (0.77, 0.85))),
            [
                "Scale",
                "Do not threshold at 0.9 to be correct 9 times in 10: of the 412 rows with a confidence above 0.9, "
                "81.0 % are correct (95 % interval 77.0 to 85.0 %).",
            ],
            id="threshold",
        ),
        pytest.param((verdict(), BETTER, [], (), sure(0.88, (0.84, 0.91))), ["Scale"], id="threshold may hold"),
    ],
)  # fmt: skip
def test_advice(found: tuple[Any, ...], wanted: list[str]) -> None:
    said = list(map(advice_sentence, advise(*found)))
    assert [sentence[: len(start)] for sentence, start in zip(said, wanted, strict=True)] == wanted
    assert all(sentence.endswith(".") and any(letter.isdigit() for letter in sentence) for sentence in said)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (verdict("over"), "Overconfident by 4.1 percentage points."),
        (verdict("over", p_ece=0.2, p_gap=0.001), "Overconfident by 4.0 percentage points on the whole."),
        (verdict("over", underconfidence=0.02, overconfidence=0.021), "Overconfident by 4.0 percentage points on"),
        (verdict("under"), "Underconfident by 4.1 percentage points."),
        (verdict("unclear"), "Miscalibrated by 4.1 percentage points, in no clear direction."),
        (verdict("unproven"), "No miscalibration can be shown."),
        (verdict("few"), "Too few rows to say."),
        (verdict("mixed"), "Mixed: overconfident at some confidences, underconfident at others."),
        (verdict("mixed", split=0.8, over_above=True),
         "Mixed: overconfident above a confidence of 0.80, underconfident below it."),
        (verdict("mixed", split=0.8), "Mixed: underconfident above a confidence of 0.80, overconfident below it."),
    ],
    ids=lambda value: value.kind if isinstance(value, Verdict) else "",
)  # fmt: skip
def test_headlines(found: Verdict, wanted: str) -> None:
    assert headline(found).startswith(wanted)


def test_details() -> None:
    evidence = "95 % interval 3.2 to 5.0; a perfectly calibrated model would show 0.90 on as many rows; p < 0.0001"
    parts = "the ECE is 4.1 points, 4.0 of them overconfident, 0.10 underconfident"
    assert detail(verdict("over")) == f"This is the ECE ({evidence})."
    whole = detail(verdict("over", p_ece=0.2, p_gap=1e-9))
    assert whole == f"This is confidence − accuracy (95 % interval +3.0 to +5.0); {parts} ({evidence})."
    assert detail(verdict("mixed")) == f"T{parts[1:]} ({evidence})."
    assert "up to 5.0 points could still hide (the upper limit of the 95 % interval)" in detail(verdict("unproven"))
    few = verdict("few", n_rows=400, effective=1.04)
    assert "on 400 rows, whose weights make them worth 1.0 equal ones" in detail(few)
    assert "neither it nor confidence − accuracy is beyond chance (p = 0.400)" in detail(few)


def test_where_the_interval_of_the_gap_excludes_0_and_nothing_is_shown_the_words_say_why() -> None:
    rows = Predictions.from_positive_probs(torch.full((100,), 0.8, dtype=torch.float64), torch.arange(100) < 71)
    found = audit(rows).verdict
    assert found.gap_interval[0] > 0
    assert found.kind == "unproven"
    assert "though the 95 % interval of the latter excludes 0 (p = 0.0" in detail(found)
    assert "which would have to be at most 0.025, as two tests are made" in detail(found)


def test_the_summary_says_the_numbers_of_the_scorecard() -> None:
    rows = made(n=1000)
    found = audit(rows, by="site", gates=["ece > 0", "nll > 99"])
    card, said = found.scorecard, summary(found, ["ece"])
    low, high = card.interval("ece")
    assert said[0].startswith(f"Overconfident by {100 * card.ece:.1f} percentage points. This is the ECE (95 % ")
    assert f"{100 * low:.1f} to {100 * high:.1f}; a perfectly calibrated model would show" in said[0]
    shares = f"Accuracy is {100 * card.accuracy:.1f} % and mean confidence {100 * card.confidence:.1f} % on 1,000 rows"
    assert said[1].startswith(shares)
    assert said[2].startswith("Of 3 groups of site, 3 are miscalibrated beyond chance; the worst by the lower limit")
    assert said[3] == "1 of 2 conditions of --fail-if hold: the gate fails."
    calm = audit(made(n=400, scale=1.0), by="site").groups["site"]
    assert group_sentence(calm).startswith("None of 3 groups of site is miscalibrated beyond chance when all are")


def test_no_model_is_the_better_one_for_being_more_confident() -> None:
    row = Difference("confidence", None, True, 50, 0.9, 0.8, 0.1, (0.05, 0.15), 0.02, 1e-6, 1e-6)
    assert difference_sentence(row, 0.95).startswith("In confidence the two models differ beyond chance: this one has")
    assert "the two models do not differ beyond" in difference_sentence(replace(row, p_value=0.3), 0.95)
    assert difference_sentence(replace(row, metric="nll"), 0.95).startswith("In NLL the other model is better beyond")
    kinds = {}
    for name in ("confidence", "entropy", "nll", "accuracy"):
        [table] = tables.comparison_tables(compared(replace(row, metric=name)), [name])
        kinds[name] = table.rows[0][3].kind
    assert kinds == {"confidence": "", "entropy": "", "nll": "bad", "accuracy": "good"}
    [table] = tables.comparison_tables(compared(replace(row, metric="nll", p_holm=0.3)), ["nll"])
    assert table.rows[0][3].kind == ""


def compared(row: Difference) -> Audit:
    """An audit of a few rows, with this comparison."""
    return replace(audit(made(n=60)), comparison={None: [row]})


def test_intervals_are_sorted_by_their_lower_limits() -> None:
    found = audit(Predictions.from_logits([[2.0, 0.0]] * 30 + [[0.5, 0.0]] * 30, [0, 0, 1] * 20), level=0.9)
    for row in tables.scorecard_table(found, found.names()).rows:
        wanted = found.scorecard.interval(row[0].text, level=0.9)[0]
        assert row[3].value == pytest.approx(wanted, rel=1e-5), row[0].text
    row = Difference("nll", None, True, 50, 0.9, 0.8, 0.1, (-0.05, 0.15), 0.02, 1e-6, 1e-6)
    for interval, value in (((-0.05, 0.15), -0.05), ((-math.inf, math.inf), None)):
        [table] = tables.comparison_tables(compared(replace(row, interval=interval)), ["nll"])
        assert table.rows[0][4].value == value


def test_tables_that_leave_something_out_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_CLASSES", 3)
    monkeypatch.setattr("calibrant.audits.groups.MAX_JUDGED", 2)
    found = audit(made(), by="site")
    assert tables.class_table(found).notes == ["The 3 worst of 4 classes."]
    assert tables.groups_table(found.groups["site"]).notes[-1] == "The 2 worst of 3 groups; all were tested."
    assert [column.heading for column in tables.groups_table(found.groups["site"], ["ece", "brier"]).columns][8:] == [
        "brier"
    ]


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (verdict("unproven", interval=(0.0, 0.008)), "good"),
        (verdict("unproven", interval=(0.0, 0.012)), ""),
        (verdict("few", interval=(0.0, 0.008)), ""),
        (verdict("over", interval=(0.001, 0.008)), "bad"),
    ],
    ids=["small", "could hide", "few", "miscalibrated"],
)
def test_the_lead_is_green_only_where_no_error_that_matters_can_hide(found: Verdict, kind: str) -> None:
    whole = replace(audit(made(n=20)), verdict=found)
    assert lead_kind(whole) == kind
    assert lead_kind(replace(whole, groups={"site": apart("site", "A", 0.1, "B", 0.0)})) == "bad"


def test_words_at_the_ends() -> None:
    nothing = "No threshold on the confidence keeps about 95, 80 or 50 % of these rows."
    assert kept_sentences([], 0.0, 0.95) == [nothing]
    assert [points(x) for x in (0.99988, 1.0, 0.00999, 0.000996)] == ["99.988", "100.0", "1.0", "0.10"]
