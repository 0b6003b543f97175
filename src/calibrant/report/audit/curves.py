"""The curves of an audit: reliability with its limits, confidences of right and wrong rows, risk against coverage."""

from dataclasses import dataclass

import numpy as np

from calibrant.metrics.exact import count_limits, share_limits
from calibrant.metrics.tally import Tally
from calibrant.report.audit.reading import Reading

KEPT = (0.95, 0.8, 0.5)  # shares of the rows of which the error is said in words
NEAR = 0.05  # how much less may be kept where equal confidences stay together
N_POINTS = 400  # of a curve that is drawn
LEAST_KEPT = 20.0  # effective rows from which on a share of errors is drawn


@dataclass(frozen=True, slots=True)
class ReliableBin:
    """The rows of a bin of confidences, of which there is at least one."""

    low: float
    high: float
    count: int
    strength: float  # its share of all rows
    confidence: float
    accuracy: float
    accuracy_interval: tuple[float, float]  # Clopper and Pearson's
    band: tuple[float, float]  # where the accuracy of a calibrated model would be, by the binomial


def reliable_bins(bins: Tally, level: float) -> tuple[ReliableBin, ...]:
    n_bins = len(bins.total)
    filled = [b for b in range(n_bins) if float(bins.total[b]) > 0]
    return tuple(_bin(bins, b, n_bins, level) for b in filled)


def _bin(bins: Tally, b: int, n_bins: int, level: float) -> ReliableBin:
    effective = float(bins.effective[b])
    rows = max(round(effective), 1)
    accuracy = float(bins.accuracy[b])
    confidence = min(max(float(bins.mean_confidence[b]), 0.0), 1.0)
    low, high = count_limits(rows, confidence, level)
    return ReliableBin(
        b / n_bins,
        (b + 1) / n_bins,
        int(bins.count[b].sum()),
        float(bins.mass[b]),
        confidence,
        accuracy,
        share_limits(accuracy * effective, effective, level),
        (low / rows, high / rows),
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """Rows of a range of confidences."""

    low: float
    high: float
    right: int
    wrong: int
    right_share: float  # of the weight of all rows
    wrong_share: float


def bars(reading: Reading) -> tuple[Bar, ...]:
    """The histogram, without empty bars."""
    n = len(reading.bars)
    total = reading.bar_weights.sum()
    return tuple(
        Bar(b / n, (b + 1) / n, int(count[1]), int(count[0]), float(weight[1] / total), float(weight[0] / total))
        for b, (count, weight) in enumerate(zip(reading.bars, reading.bar_weights, strict=True))
        if count.sum() > 0
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left when only the surest rows are kept."""

    coverage: float
    threshold: float  # the least confidence of the rows that are kept
    error: float
    interval: tuple[float, float]  # Clopper and Pearson's


@dataclass(frozen=True, slots=True)
class RiskCurve:
    """The share of errors among the surest rows."""

    error: float  # of all rows
    points: tuple[tuple[float, float], ...]  # coverage and error, from the surest on; thinned
    kept: tuple[Kept, ...]  # near the shares `KEPT` that equal confidences allow


def risk_curve(cells: Tally, level: float) -> RiskCurve:
    total, wrong, squared = (
        values.flip(0).cumsum(0).numpy() for values in (cells.total, cells.weight[:, 0], cells.squared)
    )
    coverage, error, effective = total / total[-1], wrong / total, total**2 / squared
    threshold = cells.mean_confidence.flip(0).numpy()
    found = {}
    for share in KEPT:
        place = int(np.searchsorted(coverage, share + 1e-9, side="right")) - 1
        if place >= 0 and coverage[place] >= share - NEAR:
            n, risk = float(effective[place]), float(error[place])
            found[place] = Kept(float(coverage[place]), float(threshold[place]), risk, share_limits(risk * n, n, level))
    return RiskCurve(float(error[-1]), _thinned(coverage, error, effective), tuple(found.values()))


def _thinned(coverage: np.ndarray, error: np.ndarray, effective: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Evenly over the coverage, from the first point that rests on enough rows, and always with the last."""
    first = min(int(np.searchsorted(effective, LEAST_KEPT)), len(coverage) - 1)
    wanted = np.linspace(coverage[first], 1.0, N_POINTS)
    places = np.unique(np.minimum(np.searchsorted(coverage, wanted - 1e-12), len(coverage) - 1))
    return tuple((float(coverage[place]), float(error[place])) for place in places)
