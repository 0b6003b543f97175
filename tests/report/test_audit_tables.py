"""The tables of an audit: cells, order and notes."""

import math
from dataclasses import replace

import pytest

from calibrant.audits import Audit, audit
from calibrant.metrics.compare import Difference
from calibrant.predictions import Predictions
from calibrant.report import audit_tables as tables
from made.audits import make_rows

DIFFERENCE = Difference("nll", None, True, 50, 0.9, 0.8, 0.1, (-0.05, 0.15), 0.02, 1e-6, 1e-6)


@pytest.fixture(scope="module")
def small() -> Audit:
    return audit(make_rows(n=60))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"metric": "confidence"}, ""),
        ({"metric": "entropy"}, ""),
        ({"metric": "nll"}, "bad"),
        ({"metric": "accuracy"}, "good"),
        ({"metric": "nll", "p_holm": 0.3}, ""),
    ],
)
def test_only_a_better_or_worse_model_is_marked(small: Audit, changes: dict[str, object], kind: str) -> None:
    row = replace(DIFFERENCE, **changes)  # type: ignore[arg-type]
    [table] = tables.comparison_tables(replace(small, comparison={None: [row]}), [row.metric])
    assert table.rows[0][3].kind == kind


def test_intervals_are_sorted_by_their_lower_limits(small: Audit) -> None:
    found = audit(Predictions.from_logits([[2.0, 0.0]] * 30 + [[0.5, 0.0]] * 30, [0, 0, 1] * 20), level=0.9)
    for row in tables.scorecard_table(found, found.names()).rows:
        wanted = found.scorecard.interval(row[0].text, level=0.9)[0]
        assert row[3].value == pytest.approx(wanted, rel=1e-5), row[0].text
    for interval, value in (((-0.05, 0.15), -0.05), ((-math.inf, math.inf), None)):
        comparison = {None: [replace(DIFFERENCE, interval=interval)]}
        [table] = tables.comparison_tables(replace(small, comparison=comparison), ["nll"])
        assert table.rows[0][4].value == value


def test_the_difference_of_infinite_values_is_a_dash(small: Audit) -> None:
    row = replace(DIFFERENCE, a=math.inf, b=math.inf, difference=math.nan, standard_error=math.inf, p_holm=1.0)
    found = replace(small, comparison={None: [row]})
    [table] = tables.comparison_tables(found, ["nll"])
    assert [cell.text for cell in table.rows[0][1:4]] == ["∞", "∞", "–"]
    assert found.to_dict(["nll"])["comparison"][0]["difference"] is None


def test_truncated_tables_have_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_TABLE_CLASSES", 3)
    monkeypatch.setattr("calibrant.audits.groups.MAX_GROUP_VERDICTS", 2)
    found = audit(make_rows(), by="site")
    groups = found.groups["site"]
    assert tables.class_table(found).notes == ["The 3 worst of 4 classes."]
    assert tables.groups_table(groups).notes[-1] == "The 2 worst of 3 groups; all groups were tested."
    assert [column.heading for column in tables.groups_table(groups, ["ece", "brier"]).columns][8:] == ["brier"]
