"""The groups of an audit: which are significantly miscalibrated, and whether they differ from each other."""

from dataclasses import dataclass
from typing import Any

from calibrant.audits.verdict import (
    Verdict,
    calibration_p_values,
    calibration_verdict,
    gap_interval,
    significance_level,
)
from calibrant.metrics.exact import combined_p_value, holm
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups

MAX_GROUP_VERDICTS = 1_000
MIN_RELEVANT_GAP = 0.02  # smaller gaps, or differences of gaps, do not justify a calibrator per group or class


@dataclass(frozen=True, slots=True)
class Group:
    """The rows with one value of a column.

    Args:
        value: The value; None for missing ones.
        card: Its scorecard.
        verdict: Its verdict, with uncorrected p-values.
        p_holm: The combined p-value of ECE and gap, corrected for the number of groups (Holm).
        miscalibrated: Whether ``p_holm`` is significant.
        significant_gap: Whether the gap alone is significant, corrected for two tests and the number of groups.
    """

    value: Any
    card: Scorecard
    verdict: Verdict
    p_holm: float
    miscalibrated: bool
    significant_gap: bool


@dataclass(frozen=True, slots=True)
class GroupFindings:
    """The groups of a column.

    Args:
        by: The column.
        worst_first: The groups, at most 1,000: significantly miscalibrated ones by the lower limit of the CI of their
            ECE, then the others by their p-value.
        n_miscalibrated: Number of significantly miscalibrated groups, of all groups.
        most_different: The two groups whose gaps differ most, the larger gap first; None where no difference is both
            significant and at least 2 percentage points.
        cards: The scorecards of all groups.
    """

    by: str
    worst_first: tuple[Group, ...]
    n_miscalibrated: int
    most_different: tuple[Group, Group] | None
    cards: Groups

    @property
    def opposite_signs(self) -> bool:
        """Whether one of the most different groups is significantly overconfident, the other underconfident."""
        if self.most_different is None or not all(group.significant_gap for group in self.most_different):
            return False
        largest, smallest = self.most_different
        return largest.verdict.gap > 0 > smallest.verdict.gap


def group_findings(cards: Groups, *, level: float, seed: int) -> GroupFindings:
    """Test all groups of a column and give the worst a verdict."""
    limit = significance_level(level)
    p_values = {value: calibration_p_values(card) for value, card in cards.items()}
    combined = {value: combined_p_value(*pair) for value, pair in p_values.items()}
    p_holm = dict(zip(cards, holm(list(combined.values())), strict=True))
    p_gap_holm = dict(zip(cards, holm([min(1.0, 2 * p_gap) for _, p_gap in p_values.values()]), strict=True))

    def group(value: Any) -> Group:
        verdict = calibration_verdict(cards[value], level=level, seed=seed, p_values=p_values[value])
        return Group(
            value=value,
            card=cards[value],
            verdict=verdict,
            p_holm=p_holm[value],
            miscalibrated=p_holm[value] <= limit,
            significant_gap=p_gap_holm[value] <= limit,
        )

    def worst_first(found: Group) -> tuple[bool, float, float]:
        lower = found.verdict.ece_interval[0] if found.miscalibrated else 0.0
        return not found.miscalibrated, -lower, found.verdict.p_value

    order = sorted(cards, key=lambda value: (p_holm[value], combined[value], -cards[value]["ece"]))
    pair = _most_different(cards, limit)
    return GroupFindings(
        cards.by,
        tuple(sorted(map(group, order[:MAX_GROUP_VERDICTS]), key=worst_first)),
        sum(p_value <= limit for p_value in p_holm.values()),
        None if pair is None else (group(pair[0]), group(pair[1])),
        cards,
    )


def _most_different(cards: Groups, limit: float) -> tuple[Any, Any] | None:
    """The groups with the largest and the smallest gap, if their simultaneous intervals do not overlap.

    Half of the significance level is spent on the gaps, the other half on the ECE.
    """
    level = 1 - limit / len(cards) / 2
    gaps, lows, highs = {}, {}, {}
    for value, card in cards.items():
        gaps[value] = float(card.top_bins.gap.sum())
        lows[value], highs[value] = gap_interval(card, level)
    largest, smallest = max(lows, key=lows.__getitem__), min(highs, key=highs.__getitem__)
    if lows[largest] <= highs[smallest] or gaps[largest] - gaps[smallest] < MIN_RELEVANT_GAP:
        return None
    return largest, smallest
