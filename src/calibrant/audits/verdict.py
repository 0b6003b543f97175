"""The verdict of an audit: whether the confidences are calibrated, in which direction they err, and the evidence."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calibrant._checks import check_integer, check_level, check_number
from calibrant._signatures import checked
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.clusters import clustered_ece_p_value
from calibrant.metrics.exact import (
    GapDirection,
    clopper_pearson,
    combined_p_value,
    ece_p_value,
    gap_limits,
    gap_p_value,
)
from calibrant.metrics.scorecard import Scorecard

SINGLE_DIRECTION_SHARE = 0.8  # share of the ECE in one direction from which the verdict names that direction
MIN_EFFECTIVE_ROWS = 30  # with fewer, a verdict without significance is "too_few_rows"
MAX_SIGNIFICANCE = 0.05
MIN_OUTCOME_ROWS = 20  # correct or incorrect effective rows, below which little can be said of these

VerdictKind = Literal["overconfident", "underconfident", "mixed", "no_direction", "no_evidence", "too_few_rows"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether some rows are calibrated, and the evidence.

    Intervals have the level ``level``, except ``decision_interval``.

    Args:
        kind: "overconfident" or "underconfident"; "mixed": each at other confidences; "no_direction": miscalibrated in
            no consistent direction; "no_evidence" of miscalibration; "too_few_rows" for evidence.
        n_rows: Rows of positive weight.
        n_effective: Effective sample size: (Σw)² / Σw², and with clusters the number of independent rows that they are
            worth; equals ``n_rows`` without either.
        accuracy: Share of correct predictions.
        accuracy_interval: Its Clopper-Pearson interval.
        confidence: Mean confidence.
        gap_interval: The interval of ``gap`` for fixed confidences; it excludes 0 where ``p_gap`` is at most 1 − level.
        ece: Expected calibration error.
        ece_interval: Its interval.
        decision_interval: Its interval at a level of at least 95 %, which decisions are based on.
        noise_floor: Expected ECE of a perfectly calibrated model with these confidences.
        overconfidence: The part of the ECE from bins whose confidence is above their accuracy.
        underconfidence: The part of the ECE from the other bins.
        p_ece: P-value of the ECE: the probability that a calibrated model has at least this ECE.
        p_gap: P-value of ``gap``, two-sided.
        crossing: For "mixed": the confidence where overconfidence changes to underconfidence, if there is one.
        overconfident_above: Whether the overconfidence is above ``crossing``.
        level: Confidence level.
    """

    kind: VerdictKind
    n_rows: int
    n_effective: float
    accuracy: float
    accuracy_interval: tuple[float, float]
    confidence: float
    gap_interval: tuple[float, float]
    ece: float
    ece_interval: tuple[float, float]
    decision_interval: tuple[float, float]
    noise_floor: float
    overconfidence: float
    underconfidence: float
    p_ece: float
    p_gap: float
    crossing: float | None
    overconfident_above: bool
    level: float

    @property
    def gap(self) -> float:
        """Mean confidence − accuracy: positive when overconfident."""
        return self.confidence - self.accuracy

    @property
    def p_value(self) -> float:
        """Combined p-value of ECE and gap: twice the smaller one (Bonferroni)."""
        return combined_p_value(self.p_ece, self.p_gap)

    @property
    def miscalibrated(self) -> bool:
        """Whether the combined p-value is significant."""
        return self.p_value <= significance_level(self.level)

    @property
    def significant_ece(self) -> bool:
        """Whether the ECE alone is significant, corrected for two tests."""
        return self.p_ece <= significance_level(self.level) / 2

    @property
    def single_direction(self) -> bool:
        """Whether the ECE is significant and at least 80 % of it has one direction."""
        return (
            self.significant_ece and max(self.overconfidence, self.underconfidence) >= SINGLE_DIRECTION_SHARE * self.ece
        )

    @property
    def few_outcomes(self) -> bool:
        """Whether there are so few errors, or so few correct predictions, that resampled intervals are too narrow."""
        return min(self.accuracy, 1 - self.accuracy) * self.n_effective < MIN_OUTCOME_ROWS


def significance_level(level: float) -> float:
    """Largest significant p-value: 1 − level, and never more than 5 %."""
    return min(1 - level, MAX_SIGNIFICANCE) + 1e-12  # 1 − 0.95 is a little less than 0.05


def decision_level(level: float) -> float:
    """Level of the intervals that decisions are based on: at least 95 %."""
    return max(level, 1 - MAX_SIGNIFICANCE)


@checked
def calibration_verdict(
    card: Scorecard, *, level: float = 0.95, seed: int = 0, p_values: tuple[float, float] | None = None
) -> Verdict:
    """The verdict of a scorecard.

    Args:
        card: A scorecard with every metric, as `score` makes it by default.
        level: Confidence level of the intervals. Below 95 % it narrows them and changes no decision.
        seed: Seed of the draws behind the intervals.
        p_values: P-values of ECE and gap, if already computed.

    Returns:
        The verdict.

    Raises:
        InvalidInputError: An argument breaks its rule.
    """
    check_level(level)
    check_integer("seed", seed, 0)
    p_ece, p_gap = (check_number("p_values", p, minimum=0, maximum=1) for p in p_values or calibration_p_values(card))
    total, n_effective = sum_bins(card.top_bins), card.n_effective
    kind: VerdictKind = "too_few_rows" if n_effective < MIN_EFFECTIVE_ROWS else "no_evidence"
    if combined_p_value(p_ece, p_gap) <= significance_level(level):
        kind = _direction(card, p_gap, level)
    crossing, overconfident_above = _crossing(card.top_bins) if kind == "mixed" else (None, False)
    return Verdict(
        kind=kind,
        n_rows=card.n_rows,
        n_effective=n_effective,
        accuracy=float(total.accuracy),
        accuracy_interval=card.interval("accuracy", level=level),
        confidence=float(total.mean_confidence),
        gap_interval=gap_interval(card, level),
        ece=card["ece"],
        ece_interval=card.interval("ece", level=level, seed=seed),
        decision_interval=card.interval("ece", level=decision_level(level), seed=seed),
        noise_floor=card.noise_floor("ece", seed=seed),
        overconfidence=card["overconfidence"],
        underconfidence=card["underconfidence"],
        p_ece=p_ece,
        p_gap=p_gap,
        crossing=crossing,
        overconfident_above=overconfident_above,
        level=level,
    )


def sum_bins(bins: BinSums) -> BinSums:
    """The sums over all rows as one bin."""
    return BinSums(bins.count.sum(0), bins.weight.sum(0), bins.confidence.sum(), bins.squared.sum())


def accuracy_interval(sums: BinSums, level: float) -> tuple[float, float]:
    """The Clopper-Pearson interval of the accuracy of one bin."""
    n_effective = float(sums.effective)
    return clopper_pearson(float(sums.accuracy) * n_effective, n_effective, level)


def calibration_p_values(card: Scorecard) -> tuple[float, float]:
    """The p-values of the ECE and of confidence − accuracy, for the hypothesis that the model is calibrated."""
    return _ece_p_value(card, "both"), gap_p_value(*card.gap_rows())


def _ece_p_value(card: Scorecard, direction: GapDirection) -> float:
    if card.clusters is None:
        return ece_p_value(card.top_bins, direction)
    return clustered_ece_p_value(card.clusters, card.top_bins, direction)


def gap_interval(card: Scorecard, level: float) -> tuple[float, float]:
    """The limits of confidence − accuracy over all rows."""
    histogram, freedom = card.gap_rows()
    return gap_limits(histogram, level, freedom)


def _direction(card: Scorecard, p_gap: float, level: float) -> VerdictKind:
    """The direction of the gap, if it is significant; "mixed" only where both parts of the ECE are significant."""
    limit = significance_level(level) / 2
    over, under = card["overconfidence"], card["underconfidence"]
    single_direction = max(over, under) >= SINGLE_DIRECTION_SHARE * (over + under)
    parts: tuple[GapDirection, GapDirection] = ("over", "under")
    both = all(_ece_p_value(card, part) <= limit for part in parts)
    if both and not (p_gap <= limit and single_direction):
        return "mixed"
    if p_gap > limit:
        return "no_direction"
    total = sum_bins(card.top_bins)
    return "overconfident" if total.mean_confidence > total.accuracy else "underconfident"


def _crossing(bins: BinSums) -> tuple[float | None, bool]:
    """The bin edge with most overconfidence on one side and most underconfidence on the other; is it above the edge?

    None where the directions alternate.
    """
    gap = bins.confidence - bins.weight[..., 1]
    over, under = gap.clamp_min(0), (-gap).clamp_min(0)
    for overconfident_above, above, below in ((True, over, under), (False, under, over)):
        separated = torch.minimum(_share_above(above), 1 - _share_above(below))
        if float(separated.max()) >= SINGLE_DIRECTION_SHARE:
            return int(separated.argmax()) / len(gap), overconfident_above
    return None, False


def _share_above(gaps: Tensor) -> Tensor:
    """(n + 1,) the share of the gaps in the bins above each edge."""
    from_top = torch.cat([gaps.flip(0).cumsum(0).flip(0), gaps.new_zeros(1)])
    return from_top / gaps.sum()
