"""The groups of an audit: Holm's correction, the order, and groups that differ."""

import math

import pytest
from scipy import stats

from calibrant.audits.groups import GroupFindings, group_findings
from calibrant.audits.verdict import calibration_verdict
from calibrant.metrics import score
from calibrant.predictions import Predictions
from made.audits import make_groups


def findings(rows: Predictions, level: float = 0.95) -> GroupFindings:
    return group_findings(score(rows, by="site"), level=level, seed=0)


def test_p_values_are_corrected_and_the_worst_group_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_groups(("fine", 500, 0.8), ("bad", 500, 0.6), ("worse", 400, 0.4), ("one", 1, 0.0), ("small", 12, 0.5))
    found = findings(rows)
    groups = {group.value: group for group in found.worst_first}
    assert list(groups) == ["worse", "bad", "small", "one", "fine"]
    assert [group.miscalibrated for group in found.worst_first] == [True, True, False, False, False]
    assert (len(found.cards), found.n_miscalibrated) == (5, 2)
    assert groups["one"].verdict.p_value == pytest.approx(0.4)  # two tests of one incorrect row
    mass = [math.comb(12, k) * 0.8**k * 0.2 ** (12 - k) for k in range(13)]
    small = groups["small"]
    assert small.verdict.p_value == pytest.approx(2 * sum(mass[:7]))  # no count above is as extreme
    assert small.p_holm == pytest.approx(3 * small.verdict.p_value)
    assert (small.verdict.gap, small.verdict.ece) == (pytest.approx(0.3), pytest.approx(0.3))
    assert small.verdict == calibration_verdict(score(rows.where(site="small")))
    large, tiny = findings(make_groups(("tiny", 30, 0.4), ("large", 2000, 0.5))).worst_first  # by the lower limit
    assert (large.value, tiny.value, tiny.miscalibrated) == ("large", "tiny", True)
    assert tiny.verdict.ece > large.verdict.ece
    tiny, large = findings(make_groups(("tiny", 30, 0.4), ("large", 20_000, 0.75))).worst_first
    assert (tiny.value, large.p_holm < tiny.p_holm) == ("tiny", True)
    monkeypatch.setattr("calibrant.audits.groups.MAX_GROUP_VERDICTS", 3)
    few = findings(rows)
    assert [group.value for group in few.worst_first] == ["worse", "bad", "small"]
    assert (few.n_miscalibrated, few.worst_first[2].p_holm) == (2, small.p_holm)


@pytest.mark.parametrize(
    ("parts", "different", "opposite_signs"),
    [
        ((("a", 500, 0.6), ("b", 500, 0.95)), ["a", "b"], True),
        ((("a", 500, 0.4), ("b", 500, 0.7)), ["a", "b"], False),
        ((("a", 500, 0.6), ("b", 500, 0.82)), ["a", "b"], False),  # b is not significantly underconfident
        ((("a", 500, 0.6), ("b", 500, 0.838)), ["a", "b"], False),  # nor here, with two tests: p = 0.035
        ((("a", 500, 0.78), ("b", 500, 0.82)), None, False),
        ((("a", 3, 0.0), ("b", 500, 0.8)), None, False),
        ((("a", 60_000, 0.795), ("b", 60_000, 0.805)), None, False),  # significant, but too small
    ],
)
def test_groups_differ_in_sign_or_size(
    parts: tuple[tuple[str, int, float], ...], different: list[str] | None, opposite_signs: bool
) -> None:
    found = findings(make_groups(*parts))
    assert (found.most_different and [group.value for group in found.most_different]) == different
    assert found.opposite_signs == opposite_signs
    if found.most_different:
        assert found.most_different[0].verdict.gap > found.most_different[1].verdict.gap


def test_a_group_that_differs_from_a_calibrated_one_is_miscalibrated() -> None:
    """One group is calibrated, the other is just significant, or just not."""
    for right in range(66, 76):
        found = findings(make_groups(("a", 100, right / 100), ("b", 20_000, 0.8)))
        miscalibrated = [group.value for group in found.worst_first if group.miscalibrated]
        assert found.most_different is None or miscalibrated == ["a"]
    assert found.most_different is None


def test_two_groups_differ_if_simultaneous_intervals_do_not_overlap() -> None:
    """A is correct 60 times of 100, B just so often that the intervals do not overlap, or once less."""

    def limits(right: int) -> tuple[float, float]:
        outside = 0.05 / 2 / 2 / 2  # two groups, two tests, two sides
        low, high = stats.beta.ppf(outside, right, 101 - right), stats.beta.isf(outside, right + 1, 100 - right)
        return float(low), float(high)

    first = next(right for right in range(60, 100) if limits(right)[0] > limits(60)[1])
    for right, different in ((first - 1, False), (first, True)):
        found = findings(make_groups(("A", 100, 0.6), ("B", 100, right / 100)))
        assert (found.most_different is not None) == different
