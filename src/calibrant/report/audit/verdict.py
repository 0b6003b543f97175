"""The verdict of an audit: whether the confidences are honest, in which direction they err, and what shows it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calibrant.metrics.bins import over, under
from calibrant.metrics.exact import combined_p_value, ece_p_value, share_limits, share_p_value
from calibrant.metrics.intervals import RARE
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.tally import Tally

MOST = 0.8  # share of the ECE that makes it of one direction
FEW = 30  # effective rows below which nothing is said
STRICTEST = 0.05  # chance of a false alarm that is never exceeded

Kind = Literal["over", "under", "mixed", "unclear", "unproven", "few"]


@dataclass(frozen=True, slots=True)
class Shares:
    """Accuracy and mean confidence of some rows, and their difference."""

    n_rows: int
    effective: float  # the number of equally weighted rows that would tell as much
    accuracy: float
    accuracy_interval: tuple[float, float]  # Clopper and Pearson's
    confidence: float

    @property
    def gap(self) -> float:
        """Confidence less accuracy: positive where the model is over-confident on the whole."""
        return self.confidence - self.accuracy

    @property
    def gap_interval(self) -> tuple[float, float]:
        """The confidences taken as given."""
        low, high = self.accuracy_interval
        return self.confidence - high, self.confidence - low

    @property
    def rare(self) -> bool:
        """Whether so few rows are wrong, or right, that intervals from draws of rows are too narrow."""
        return min(self.accuracy, 1 - self.accuracy) * self.effective < RARE


@dataclass(frozen=True, slots=True)
class Chances:
    """How often a perfectly calibrated model with these confidences errs at least as much."""

    ece: float
    gap: float  # confidence less accuracy of all rows, in either direction

    @property
    def both(self) -> float:
        """That it does in one of them, at most."""
        return combined_p_value(self.ece, self.gap)


@dataclass(frozen=True, slots=True)
class Split:
    """A confidence that parts the bins that err in one direction from those that err in the other."""

    at: float
    over_above: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said of the calibration of some rows, and the numbers it rests on."""

    kind: Kind
    shares: Shares
    ece: float
    interval: tuple[float, float]
    wide_interval: tuple[float, float]  # at a level of at least 95 %: what is decided does not rest on a narrow one
    floor: float  # the expected ECE of a perfectly calibrated model
    chances: Chances
    over: float  # the part of the ECE from bins with confidence above accuracy
    under: float
    split: Split | None  # of a mixed one, if there is one
    level: float

    @property
    def p_value(self) -> float:
        return self.chances.both

    @property
    def shown(self) -> bool:
        """Whether it is miscalibrated beyond chance."""
        return self.p_value <= alpha(self.level)

    @property
    def by_ece(self) -> bool:
        """Whether the ECE is beyond chance by itself."""
        return self.chances.ece <= alpha(self.level) / 2

    @property
    def of_one_direction(self) -> bool:
        """Whether the ECE is beyond chance, and nearly all of it of one direction."""
        return self.by_ece and max(self.over, self.under) >= MOST * self.ece


def alpha(level: float) -> float:
    """The chance of a false alarm that a test takes: 1 − level, and never more than 5 %."""
    return min(1 - level, STRICTEST) + 1e-12  # 1 − 0.95 is a little less than 0.05


def strict(level: float) -> float:
    """The level of intervals that something is decided by: never less than 95 %."""
    return max(level, 1 - STRICTEST)


def judge(card: Scorecard, level: float, seed: int) -> Verdict | None:
    """The verdict of a scorecard; None where it was made without ECE."""
    if "ece" not in card.names:
        return None
    bins = card.top_bins
    shares = shares_of(bins, level)
    too_much, too_little = float(over(bins)), float(under(bins))
    chances = chances_of(bins, shares)
    kind: Kind = "few" if shares.effective < FEW else "unproven"
    if chances.both <= alpha(level):
        kind = direction(bins, shares, chances, level)
    split = split_of(bins) if kind == "mixed" else None
    interval, wide = (card.interval("ece", level=at, seed=seed) for at in (level, strict(level)))
    floor = card.noise_floor("ece", seed=seed)
    return Verdict(kind, shares, card["ece"], interval, wide, floor, chances, too_much, too_little, split, level)


def chances_of(bins: Tally, shares: Shares) -> Chances:
    expected = min(max(shares.confidence, 0.0), 1.0)
    return Chances(ece_p_value(bins), share_p_value(shares.accuracy * shares.effective, shares.effective, expected))


def direction(bins: Tally, shares: Shares, chances: Chances, level: float) -> Kind:
    """Of a miscalibrated model: that of its whole gap; mixed only where each direction is beyond chance by itself."""
    limit = alpha(level) / 2
    too_much, too_little = float(over(bins)), float(under(bins))
    one_sided = max(too_much, too_little) >= MOST * (too_much + too_little)
    whole = chances.gap <= limit
    both = all(ece_p_value(bins, part) <= limit for part in ("over", "under"))
    if both and not (whole and one_sided):
        return "mixed"
    if not whole:
        return "unclear"
    return "over" if shares.gap > 0 else "under"


def shares_of(bins: Tally, level: float) -> Shares:
    total = float(bins.total.sum())
    accuracy = float(bins.weight[..., 1].sum()) / total
    effective = total**2 / float(bins.squared.sum())
    limits = share_limits(accuracy * effective, effective, level)
    return Shares(int(bins.count.sum()), effective, accuracy, limits, float(bins.confidence.sum()) / total)


def split_of(bins: Tally) -> Split | None:
    """The edge that most of either direction lies beyond, on different sides; None where they alternate."""
    too_much, too_little = bins.gap.clamp_min(0), (-bins.gap).clamp_min(0)
    n_bins = len(too_much)
    for over_above, above, below in ((True, too_much, too_little), (False, too_little, too_much)):
        parted = torch.minimum(_share_above(above), 1 - _share_above(below))
        if float(parted.max()) >= MOST:
            return Split(int(parted.argmax()) / n_bins, over_above)
    return None


def _share_above(gaps: Tensor) -> Tensor:
    """(n + 1,) the share of the gaps in the bins above each edge."""
    from_top = torch.cat([gaps.flip(0).cumsum(0).flip(0), gaps.new_zeros(1)])
    return from_top / gaps.sum()
