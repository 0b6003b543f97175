"""The groups of an audit: which are miscalibrated beyond chance when all are tested at once, and whether they agree."""

from dataclasses import dataclass
from typing import Any

from calibrant.audits.verdict import Verdict, accuracy_limits, alpha, assess, calibration_tests, summed
from calibrant.metrics.exact import combined_p_value, holm
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups

MAX_JUDGED = 1_000
RELEVANT = 0.02  # difference of two gaps that is worth a calibrator of its own


@dataclass(frozen=True, slots=True)
class Group:
    """One value of a column; p-values are corrected for the number of groups (Holm)."""

    value: Any
    card: Scorecard
    verdict: Verdict
    p_holm: float  # of being calibrated, by ECE and gap
    miscalibrated: bool  # by that
    off: bool  # whether its gap is by itself beyond chance, when those of all groups are tested at once


@dataclass(frozen=True, slots=True)
class GroupFindings:
    """The groups of a column, worst first: those shown to be miscalibrated, by the least that their ECE can be."""

    by: str
    rows: tuple[Group, ...]  # at most MAX_JUDGED
    n_miscalibrated: int  # of all groups
    apart: tuple[Group, Group] | None  # the two that disagree most, beyond chance for all at once: largest gap first
    cards: Groups

    @property
    def in_sign(self) -> bool:
        """Whether those two err in different directions, each beyond chance."""
        return (
            self.apart is not None
            and all(group.off for group in self.apart)
            and (self.apart[0].verdict.gap > 0 > self.apart[1].verdict.gap)
        )


def find_groups(cards: Groups, *, level: float, seed: int) -> GroupFindings:
    """Test all groups of a column, and judge the worst."""
    limit = alpha(level)
    tested = {value: calibration_tests(card) for value, card in cards.items()}
    chances = [combined_p_value(*pair) for pair in tested.values()]
    corrected = dict(zip(cards, holm(chances), strict=True))
    off = dict(zip(cards, holm([min(1.0, 2 * p_gap) for _, p_gap in tested.values()]), strict=True))

    def judged(value: Any) -> Group:
        verdict = assess(cards[value], level=level, seed=seed, p_values=tested[value])
        p_holm = corrected[value]
        return Group(value, cards[value], verdict, p_holm, p_holm <= limit, off[value] <= limit)

    order = sorted(cards, key=lambda value: (corrected[value], combined_p_value(*tested[value]), -cards[value]["ece"]))
    rows = sorted(map(judged, order[:MAX_JUDGED]), key=_badness)
    apart = _apart(cards, limit)
    return GroupFindings(
        cards.by,
        tuple(rows),
        sum(p_holm <= limit for p_holm in corrected.values()),
        None if apart is None else (judged(apart[0]), judged(apart[1])),
        cards,
    )


def _badness(group: Group) -> tuple[bool, float, float]:
    return not group.miscalibrated, -group.verdict.interval[0] if group.miscalibrated else 0.0, group.verdict.p_value


def _apart(cards: Groups, limit: float) -> tuple[Any, Any] | None:
    """The two groups furthest apart where their intervals, wide enough for all groups at once, do not meet.

    Half of the chance of a group's test is that of its ECE.
    """
    level = 1 - limit / len(cards) / 2
    gaps, lows, highs = {}, {}, {}
    for value, card in cards.items():
        rows = summed(card.top_bins)
        confidence = float(rows.mean_confidence)
        least, most = accuracy_limits(rows, level)
        gaps[value], lows[value], highs[value] = (
            confidence - float(rows.accuracy),
            confidence - most,
            confidence - least,
        )
    largest, smallest = max(lows, key=lows.__getitem__), min(highs, key=highs.__getitem__)
    if lows[largest] <= highs[smallest] or gaps[largest] - gaps[smallest] < RELEVANT:
        return None
    return largest, smallest
