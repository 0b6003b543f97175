"""The verdict of an audit: whether the confidences are calibrated, in which direction they err, and what shows it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.exact import binomial_p_value, clopper_pearson, combined_p_value, ece_p_value
from calibrant.metrics.intervals import MIN_OUTCOME_ROWS
from calibrant.metrics.scorecard import Scorecard

ONE_SIDED = 0.8  # share of the ECE that makes it of one direction
MIN_ROWS = 30  # effective rows below which nothing is said
MAX_ALPHA = 0.05  # chance of a false alarm that is never exceeded

Kind = Literal["over", "under", "mixed", "unclear", "unproven", "few"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said of the calibration of some rows, and the numbers it rests on.

    The kinds: overconfident (over), underconfident (under), either at different confidences (mixed), miscalibrated in
    no clear direction (unclear), not shown to be miscalibrated (unproven), too few rows to show anything (few).
    """

    kind: Kind
    n_rows: int
    effective: float  # the number of equally weighted rows that would tell as much
    accuracy: float
    accuracy_interval: tuple[float, float]  # Clopper and Pearson's
    confidence: float
    ece: float
    interval: tuple[float, float]  # of the ECE
    wide_interval: tuple[float, float]  # at a level of at least 95 %: what is decided does not rest on a narrow one
    noise_floor: float  # the expected ECE of a perfectly calibrated model
    overconfidence: float  # the part of the ECE from bins with confidence above accuracy
    underconfidence: float
    p_ece: float  # how often a calibrated model with these confidences has an ECE at least as large,
    p_gap: float  # and a gap of all rows, in either direction
    split: float | None  # of a mixed one: the confidence that parts its directions, if one does
    over_above: bool  # whether it is overconfident above the split
    level: float

    @property
    def gap(self) -> float:
        """Confidence − accuracy: positive where the model is overconfident on the whole."""
        return self.confidence - self.accuracy

    @property
    def gap_interval(self) -> tuple[float, float]:
        """The confidences taken as given."""
        low, high = self.accuracy_interval
        return self.confidence - high, self.confidence - low

    @property
    def p_value(self) -> float:
        """Of both tests."""
        return combined_p_value(self.p_ece, self.p_gap)

    @property
    def miscalibrated(self) -> bool:
        """Whether it is, beyond chance."""
        return self.p_value <= alpha(self.level)

    @property
    def by_ece(self) -> bool:
        """Whether the ECE is beyond chance by itself."""
        return self.p_ece <= alpha(self.level) / 2

    @property
    def of_one_direction(self) -> bool:
        """Whether the ECE is beyond chance, and nearly all of it of one direction."""
        return self.by_ece and max(self.overconfidence, self.underconfidence) >= ONE_SIDED * self.ece

    @property
    def few_outcomes(self) -> bool:
        """Whether so few rows are incorrect, or correct, that intervals from draws of rows are too narrow."""
        return min(self.accuracy, 1 - self.accuracy) * self.effective < MIN_OUTCOME_ROWS


def alpha(level: float) -> float:
    """The chance of a false alarm that a test takes: 1 − level, and never more than 5 %."""
    return min(1 - level, MAX_ALPHA) + 1e-12  # 1 − 0.95 is a little less than 0.05


def strict(level: float) -> float:
    """The level of intervals that something is decided by: never less than 95 %."""
    return max(level, 1 - MAX_ALPHA)


def assess(
    card: Scorecard, *, level: float = 0.95, seed: int = 0, p_values: tuple[float, float] | None = None
) -> Verdict:
    """The verdict of a scorecard.

    Args:
        card: With every metric, as `score` makes it by default.
        level: Of the intervals; a low one decides nothing.
        seed: Of the draws behind the intervals.
        p_values: Those of `calibration_tests`, where they are known.
    """
    p_ece, p_gap = p_values or calibration_tests(card)
    whole = summed(card.top_bins)
    kind: Kind = "few" if whole.effective < MIN_ROWS else "unproven"
    if combined_p_value(p_ece, p_gap) <= alpha(level):
        kind = _direction(card, p_gap, level)
    split, over_above = _split(card.top_bins) if kind == "mixed" else (None, False)
    interval, wide = (card.interval("ece", level=at, seed=seed) for at in (level, strict(level)))
    return Verdict(
        kind,
        card.n_rows,
        float(whole.effective),
        float(whole.accuracy),
        accuracy_limits(whole, level),
        float(whole.mean_confidence),
        card["ece"],
        interval,
        wide,
        card.noise_floor("ece", seed=seed),
        card["overconfidence"],
        card["underconfidence"],
        p_ece,
        p_gap,
        split,
        over_above,
        level,
    )


def summed(bins: BinSums) -> BinSums:
    """All rows as one cell."""
    return BinSums(bins.count.sum(0), bins.weight.sum(0), bins.confidence.sum(), bins.squared.sum())


def accuracy_limits(rows: BinSums, level: float) -> tuple[float, float]:
    """Clopper and Pearson's, of one cell."""
    effective = float(rows.effective)
    return clopper_pearson(float(rows.accuracy) * effective, effective, level)


def calibration_tests(card: Scorecard) -> tuple[float, float]:
    """The p-values of a calibrated model: of its ECE, and of confidence − accuracy of all rows."""
    return ece_p_value(card.top_bins), gap_p_value(summed(card.top_bins))


def gap_p_value(rows: BinSums) -> float:
    """How often a calibrated model is so far off with its accuracy on these rows, of one cell."""
    effective = float(rows.effective)
    return binomial_p_value(
        float(rows.accuracy) * effective, effective, min(max(float(rows.mean_confidence), 0.0), 1.0)
    )


def _direction(card: Scorecard, p_gap: float, level: float) -> Kind:
    """Of a miscalibrated model: that of its whole gap; mixed only where each direction is beyond chance by itself."""
    limit = alpha(level) / 2
    over, under = card["overconfidence"], card["underconfidence"]
    one_sided = max(over, under) >= ONE_SIDED * (over + under)
    whole = p_gap <= limit
    both = all(ece_p_value(card.top_bins, part) <= limit for part in ("over", "under"))
    if both and not (whole and one_sided):
        return "mixed"
    if not whole:
        return "unclear"
    rows = summed(card.top_bins)
    return "over" if rows.mean_confidence > rows.accuracy else "under"


def _split(bins: BinSums) -> tuple[float | None, bool]:
    """The edge that most of either direction lies beyond, on different sides, and whether overconfidence is above it.

    None where the directions alternate.
    """
    gap = bins.confidence - bins.weight[..., 1]
    over, under = gap.clamp_min(0), (-gap).clamp_min(0)
    for over_above, above, below in ((True, over, under), (False, under, over)):
        parted = torch.minimum(_share_above(above), 1 - _share_above(below))
        if float(parted.max()) >= ONE_SIDED:
            return int(parted.argmax()) / len(gap), over_above
    return None, False


def _share_above(gaps: Tensor) -> Tensor:
    """(n + 1,) the share of the gaps in the bins above each edge."""
    from_top = torch.cat([gaps.flip(0).cumsum(0).flip(0), gaps.new_zeros(1)])
    return from_top / gaps.sum()
