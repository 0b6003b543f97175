"""The verdict of an audit: whether the confidences are honest, in which direction they err, and what shows it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calibrant.metrics.bins import over, under
from calibrant.metrics.intervals import RARE, share_limits
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.tally import Tally
from calibrant.report.audit.chances import error_chance

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
    floor: float  # the expected ECE of a perfectly calibrated model
    p_value: float  # of an ECE at least as large under perfect calibration
    over: float  # the part of the ECE from bins with confidence above accuracy
    under: float
    split: Split | None  # of a mixed one, if there is one
    level: float

    @property
    def shown(self) -> bool:
        """Whether it is miscalibrated beyond chance."""
        return self.p_value <= alpha(self.level)


def alpha(level: float) -> float:
    """The chance of a false alarm that a test takes: 1 − level, and never more than 5 %."""
    return min(1 - level, STRICTEST) + 1e-12  # 1 − 0.95 is a little less than 0.05


def judge(card: Scorecard, level: float, seed: int) -> Verdict | None:
    """The verdict of a scorecard; None where it was made without ECE."""
    if "ece" not in card.names:
        return None
    bins = card.top_bins
    shares = shares_of(bins, level)
    too_much, too_little = float(over(bins)), float(under(bins))
    p_value = error_chance(bins)
    split = None
    if shares.effective < FEW:
        kind: Kind = "few"
    elif p_value > alpha(level):
        kind = "unproven"
    else:
        kind = direction(bins, shares, too_much, too_little, level)
        split = split_of(bins) if kind == "mixed" else None
    interval, floor = card.interval("ece", level=level, seed=seed), card.noise_floor("ece", seed=seed)
    return Verdict(kind, shares, card["ece"], interval, floor, p_value, too_much, too_little, split, level)


def direction(bins: Tally, shares: Shares, too_much: float, too_little: float, level: float) -> Kind:
    """Of a miscalibrated model; mixed only where each direction is beyond chance by itself."""
    low, high = shares.gap_interval
    ece = too_much + too_little
    if too_much >= MOST * ece and low > 0:
        return "over"
    if too_little >= MOST * ece and high < 0:
        return "under"
    both = all(error_chance(bins, part) <= alpha(level) / 2 for part in ("over", "under"))
    return "mixed" if both else "unclear"


def shares_of(bins: Tally, level: float) -> Shares:
    total = float(bins.total.sum())
    accuracy = float(bins.weight[..., 1].sum()) / total
    effective = total**2 / float(bins.squared.sum())
    limits = share_limits(accuracy * effective, effective, level)
    return Shares(int(bins.count.sum()), effective, accuracy, limits, float(bins.confidence.sum()) / total)


def split_of(bins: Tally) -> Split | None:
    """The edge that most of either direction lies beyond, on different sides; None where they alternate."""
    too_much, too_little = (-bins.gap).clamp_min(0), bins.gap.clamp_min(0)
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
