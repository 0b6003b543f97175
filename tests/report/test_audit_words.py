"""What to do, case by case: each sentence names the number that it follows from."""

import math
from dataclasses import replace

import pytest

from calibrant.metrics import score
from calibrant.metrics.compare import Difference
from calibrant.predictions import Predictions
from calibrant.report.audit.advice import ClassTrouble, Situation, Sure, advice
from calibrant.report.audit.content import lead_kind
from calibrant.report.audit.curves import RiskCurve
from calibrant.report.audit.groups import Disagreement
from calibrant.report.audit.tables import difference_table, scorecard_table
from calibrant.report.audit.temperature import Change, TemperatureEffect
from calibrant.report.audit.verdict import Chances, Kind, Shares, Split, Verdict
from calibrant.report.audit.wording import detail, difference_sentence, headline, kept_sentences, points

SHARES = Shares(5000, 5000.0, 0.88, (0.87, 0.89), 0.92)


def verdict(kind: Kind = "over", **changes: object) -> Verdict:
    chances = Chances(0.2, 0.4) if kind in ("unproven", "few") else Chances(1e-9, 1e-9)
    limits = changes.get("interval", (0.032, 0.05))
    whole = Verdict(kind, SHARES, 0.041, limits, limits, 0.009, chances, 0.04, 0.001, None, 0.95)  # type: ignore[arg-type]
    return replace(whole, **changes)  # type: ignore[arg-type]


def change(before: float, after: float, *, shown: bool = True) -> Change:
    return Change(before, (0.0, 1.0), after, (0.0, 1.0), after - before, (-1.0, 1.0), 0.01, shown, 0.0)


def apart(most: object, most_gap: float, least: object, least_gap: float, reach: float = 0.01) -> Disagreement:
    return Disagreement(most, most_gap, most_gap > reach, least, least_gap, abs(least_gap) > reach)


BETTER = TemperatureEffect(5000, 5000, 1.42, 0.05, change(0.5, 0.45), change(0.041, 0.012))


@pytest.mark.parametrize(
    ("situation", "wanted"),
    [
        pytest.param(
            Situation(verdict("few", shares=replace(SHARES, n_rows=12, effective=12.0), interval=(0.1, 0.4))),
            ["Collect more rows before anything else: on 12 rows the ECE may be anything from 10.0 to 40.0 points."],
            id="few",
        ),
        pytest.param(
            Situation(verdict("unproven", ece=0.004, interval=(0.0, 0.008))),
            ["Nothing needs to be mended on the whole: the ECE is at most 0.80 points"],
            id="nothing",
        ),
        pytest.param(
            Situation(verdict("unproven", interval=(0.0, 0.04))),
            [
                "Nothing is shown that a calibrator should mend on the whole: the ECE of 4.1 points is not beyond what "
                "chance gives a calibrated model (0.90 on average; p = 0.400), though up to 4.0 could hide."
            ],
            id="nothing shown",
        ),
        pytest.param(
            Situation(verdict("unproven", interval=(0.0, 0.06))),
            [
                "Nothing is shown",
                "Collect more rows: the 95 % interval of the ECE is 6.0 points wide on 5,000 rows; about four ",
            ],
            id="wide",
        ),
        pytest.param(
            Situation(verdict(ece=0.004, interval=(0.002, 0.006)), BETTER),
            ["On the whole the error is beyond chance but small: an ECE of 0.40 points, at most 0.60"],
            id="small",
        ),
        pytest.param(
            Situation(verdict(), BETTER),
            ["Scale by a temperature: T = 1.42 moves the ECE from 4.1 to 1.2 points and the NLL from 0.5000 to 0.4500"],
            id="temperature",
        ),
        pytest.param(
            Situation(
                verdict(), replace(BETTER, nll=change(0.5, 0.4, shown=False), ece=change(0.041, 0.04, shown=False))
            ),
            ["A temperature does not mend this: T = 1.42"],
            id="no temperature helps",
        ),
        pytest.param(
            Situation(verdict(), replace(BETTER, ece=change(0.041, 0.06))),
            ["A temperature does not mend this"],
            id="the ECE becomes worse",
        ),
        pytest.param(
            Situation(verdict(), TemperatureEffect(5000, 5000, failure="all are right")),
            ["Recalibrate: the ECE of 4.1 points is beyond chance. What a temperature would change could"],
            id="not fitted",
        ),
        pytest.param(
            Situation(verdict("unproven"), BETTER, (("hospital ward", apart("A", 0.08, None, -0.02)),)),
            [
                "Nothing is shown",
                "Recalibrate per hospital ward: its groups disagree in sign beyond chance: hospital ward A is "
                "over-confident by 8.0 points and hospital ward (no value) is under-confident by 2.0 points",
            ],
            id="groups of two signs",
        ),
        pytest.param(
            Situation(verdict(), BETTER, (("site", apart("A", 0.08, "B", 0.02)),)),
            [
                "On the whole one temperature would help: T = 1.42 moves the ECE from 4.1 to 1.2 points and the NLL "
                "from 0.5000 to 0.4500 on rows that it was not fitted on; but one calibrator is not right for all "
                "groups of site.",
                "Recalibrate per site: its groups disagree in size beyond chance: site A is over-confident by 8.0 "
                "points and site B is over-confident by 2.0 points (confidence less accuracy), so",
            ],
            id="groups of two sizes",
        ),
        pytest.param(
            Situation(verdict(), None, (("site", apart("A", 0.08, "B", -0.005)),)),
            [
                "On the whole the ECE of 4.1 points is beyond chance, but one calibrator is not right for all groups",
                "Recalibrate per site: its groups disagree in size beyond chance: site A is over-confident by 8.0 "
                "points and site B is not shown to be off in either direction (-0.50 points) (confidence less",
            ],
            id="one group is not shown to be off",
        ),
        pytest.param(
            Situation(verdict(), replace(BETTER, ece=change(0.041, 0.06)), (("site", apart("A", 0.08, "B", -0.05)),)),
            [
                "On the whole one temperature does not mend this: T = 1.42",
                "Recalibrate per site: its groups disagree in sign beyond chance",
            ],
            id="no temperature helps, and groups disagree",
        ),
        pytest.param(
            Situation(verdict(chances=Chances(0.2, 0.001)), None),
            ["Recalibrate: confidence less accuracy of +4.0 points is beyond chance. What a temperature"],
            id="shown by the gap",
        ),
        pytest.param(
            Situation(verdict(), BETTER, classes=ClassTrouble("cat", 0.07, "dog", -0.03)),
            [
                "Scale",
                "Look at the classes: where cat is predicted, confidence exceeds accuracy by 7.0 points, where dog",
            ],
            id="classes",
        ),
        pytest.param(
            Situation(verdict(), BETTER, sure=Sure(412, 0.81, (0.77, 0.85))),
            [
                "Scale",
                "Do not threshold at 0.9 to be right 9 times in 10: of the 412 rows with a confidence of at least 0.9",
            ],
            id="threshold",
        ),
        pytest.param(
            Situation(verdict(), BETTER, sure=Sure(412, 0.88, (0.84, 0.91))), ["Scale"], id="threshold may hold"
        ),
    ],
)
def test_advice(situation: Situation, wanted: list[str]) -> None:
    found = advice(situation)
    assert [sentence[: len(start)] for sentence, start in zip(found, wanted, strict=True)] == wanted
    assert all(sentence.endswith(".") and any(letter.isdigit() for letter in sentence) for sentence in found)


def test_what_would_stay_is_said() -> None:
    left = replace(BETTER, ece=replace(change(0.041, 0.02), after_interval=(0.015, 0.03), stays=0.011))
    stays = "At least 1.1 points of ECE would stay (lower limit of the 95 % interval)."
    for level in (0.5, 0.95):
        assert advice(Situation(verdict(level=level), left))[0].endswith(stays)
    assert "would stay" not in advice(Situation(verdict(), BETTER))[0]


def test_commands_are_quoted() -> None:
    situation = Situation(verdict(), BETTER, (("a; rm -rf x", apart("A", 0.08, "B", 0.02)),))
    assert "--domain 'a; rm -rf x' -o" in advice(situation)[1]


# Words of the verdict


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (verdict("over"), "Over-confident by 4.1 points."),
        (verdict("over", chances=Chances(0.2, 0.001)), "Over-confident by 4.0 points on the whole."),
        (verdict("over", under=0.02, over=0.021), "Over-confident by 4.0 points on the whole."),
        (verdict("under"), "Under-confident by 4.1 points."),
        (verdict("unclear"), "Miscalibrated by 4.1 points, in no clear direction."),
        (verdict("unproven"), "No miscalibration can be shown."),
        (verdict("few"), "Too few rows to say."),
        (verdict("mixed"), "Mixed: over-confident at some confidences, under-confident at others."),
        (
            verdict("mixed", split=Split(0.8, over_above=True)),
            "Mixed: over-confident where it is sure (above a confidence of 0.80), under-confident where it is not.",
        ),
        (
            verdict("mixed", split=Split(0.8, over_above=False)),
            "Mixed: under-confident where it is sure (above a confidence of 0.80), over-confident where it is not.",
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, Verdict) else "",
)
def test_headlines(found: Verdict, wanted: str) -> None:
    assert headline(found) == wanted


def test_details() -> None:
    evidence = "95 % interval 3.2 to 5.0; a perfectly calibrated model would show 0.90 on as many rows; p < 0.0001"
    parts = "the ECE is 4.1 points, 4.0 of them over-confident, 0.10 under-confident"
    assert detail(verdict("over")) == f"This is the ECE ({evidence})."
    whole = detail(verdict("over", chances=Chances(0.2, 1e-9)))
    assert whole == f"This is confidence less accuracy (95 % interval +3.0 to +5.0); {parts} ({evidence})."
    assert detail(verdict("mixed")) == f"T{parts[1:]} ({evidence})."
    assert "up to 5.0 points could still hide (the upper limit of the 95 % interval)" in detail(verdict("unproven"))
    few = verdict("few", shares=replace(SHARES, n_rows=400, effective=1.04))
    assert "on 400 rows, whose weights make them worth 1.0 equal ones" in detail(few)
    assert "neither it nor confidence less accuracy is beyond chance (p = 0.400)" in detail(few)


def test_no_model_is_the_better_one_for_being_more_confident() -> None:
    row = Difference("confidence", None, True, 50, 0.9, 0.8, 0.1, (0.05, 0.15), 0.02, 1e-6, 1e-6)
    assert difference_sentence(row, 0.95).startswith("In confidence the two models differ beyond chance: this one has")
    assert "the two models do not differ beyond" in difference_sentence(replace(row, p_value=0.3), 0.95)
    kinds = {
        name: difference_table(None, [replace(row, metric=name)], 0.95).rows[0][3].kind
        for name in ("confidence", "entropy", "nll", "accuracy")
    }
    assert kinds == {"confidence": "", "entropy": "", "nll": "bad", "accuracy": "good"}


def test_intervals_are_sorted_by_their_lower_limits() -> None:
    card = score(Predictions.from_logits([[2.0, 0.0]] * 30 + [[0.5, 0.0]] * 30, [0, 0, 1] * 20))
    for row in scorecard_table(card, 0.9, 0).rows:
        if (value := card.get(row[0].text)) is not None:
            assert row[3].value == pytest.approx(card.interval(row[0].text, level=0.9)[0], rel=1e-5), value
    row = Difference("nll", None, True, 50, 0.9, 0.8, 0.1, (-0.05, 0.15), 0.02, 1e-6, 1e-6)
    assert difference_table(None, [row], 0.95).rows[0][4].value == -0.05
    assert difference_table(None, [replace(row, interval=(-math.inf, math.inf))], 0.95).rows[0][4].value is None


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (verdict("unproven", interval=(0.0, 0.008)), "good"),
        (verdict("unproven", interval=(0.0, 0.012)), ""),
        (verdict("few", interval=(0.0, 0.008)), ""),
        (verdict("over", interval=(0.001, 0.008)), "bad"),
    ],
    ids=["small", "could hide", "few", "shown"],
)
def test_the_lead_is_green_only_where_no_error_that_matters_can_hide(found: Verdict, kind: str) -> None:
    assert lead_kind(found) == kind
    assert lead_kind(found, n_wrong_groups=1) == "bad"


def test_words_at_the_ends() -> None:
    assert kept_sentences(RiskCurve(0.0, ((1.0, 0.0),), ()), 0.95) == [
        "No threshold on the confidence keeps about 95, 80 or 50 % of these rows."
    ]
    assert [points(x) for x in (0.99988, 1.0, 0.00999, 0.000996)] == ["99.988", "100.0", "1.0", "0.10"]
