"""The groups of an audit: which are miscalibrated beyond chance when all are tested at once, and whether they agree."""

from dataclasses import dataclass, replace
from typing import Any

from calibrant.metrics.exact import holm, share_limits
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups
from calibrant.report.audit.verdict import Shares, alpha, chances_of, shares_of

MOST_SHOWN = 1_000
RELEVANT = 0.02  # difference of two groups' gaps that is worth a calibrator of its own


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One value of a column."""

    group: Any
    shares: Shares
    ece: float
    interval: tuple[float, float]
    floor: float
    p_value: float  # of being calibrated, by ECE and gap
    p_holm: float  # the same, corrected for the number of groups


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The two groups whose confidence errs most differently, beyond chance for all groups at once."""

    most: Any
    most_gap: float
    most_shown: bool  # whether its own gap is beyond chance, too, when those of all groups are tested at once (Holm)
    least: Any
    least_gap: float
    least_shown: bool

    @property
    def in_sign(self) -> bool:
        return self.most_shown and self.least_shown and self.most_gap > 0 > self.least_gap


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The groups of a column, worst first: those shown to be miscalibrated, by the least that their ECE can be."""

    by: str
    rows: tuple[GroupRow, ...]
    n_groups: int
    n_shown_wrong: int  # groups that are miscalibrated beyond chance
    disagreement: Disagreement | None
    level: float

    def significant(self, row: GroupRow) -> bool:
        return row.p_holm <= alpha(self.level)


def group_table(groups: Groups, level: float, seed: int) -> GroupTable | None:
    """The table of a column; None where the scorecards were made without ECE."""
    if "ece" not in groups.overall.names:
        return None
    chances = [chances_of(card.top_bins, shares_of(card.top_bins, level)).both for card in groups.values()]
    tested = list(zip(groups.items(), chances, holm(chances), strict=True))
    tested.sort(key=lambda found: (found[2], found[1], -found[0][1]["ece"]))
    rows = [_row(*item, p_value, p_holm, level, seed) for item, p_value, p_holm in tested[:MOST_SHOWN]]
    limit = alpha(level)
    rows.sort(key=lambda row: (row.p_holm > limit, -row.interval[0] if row.p_holm <= limit else 0.0, row.p_value))
    n_wrong = sum(p_holm <= limit for _, _, p_holm in tested)
    return GroupTable(groups.by, tuple(rows), len(groups), n_wrong, disagreement(groups, limit), level)


def _row(group: Any, card: Scorecard, p_value: float, p_holm: float, level: float, seed: int) -> GroupRow:
    shares = shares_of(card.top_bins, level)
    interval, floor = card.interval("ece", level=level, seed=seed), card.noise_floor("ece", seed=seed)
    return GroupRow(group, shares, card["ece"], interval, floor, p_value, p_holm)


def disagreement(groups: Groups, limit: float) -> Disagreement | None:
    """The two groups furthest apart where their intervals, wide enough for all groups at once, do not meet.

    What is said of a group by itself, half of the chance of its test being that of the ECE, is in the table as well.
    """
    outside = limit / len(groups) / 2
    shares = [(group, _widened(shares_of(card.top_bins, 0.5), outside)) for group, card in groups.items()]
    most, least = max(shares, key=_lower), min(shares, key=_upper)
    apart = most[1].gap - least[1].gap
    if _lower(most) <= _upper(least) or apart < RELEVANT:
        return None
    corrected = holm(
        [min(1.0, 2 * chances_of(card.top_bins, shares_of(card.top_bins, 0.5)).gap) for card in groups.values()]
    )
    shown = {group: p_holm <= limit for group, p_holm in zip(groups, corrected, strict=True)}
    (upper, over), (lower, under) = most, least
    return Disagreement(upper, over.gap, shown[upper], lower, under.gap, shown[lower])


def _widened(shares: Shares, outside: float) -> Shares:
    limits = share_limits(shares.accuracy * shares.effective, shares.effective, 1 - outside)
    return replace(shares, accuracy_interval=limits)


def _lower(found: tuple[Any, Shares]) -> float:
    return found[1].gap_interval[0]


def _upper(found: tuple[Any, Shares]) -> float:
    return found[1].gap_interval[1]
