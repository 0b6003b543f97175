"""Metrics of the order of the confidences: the Kolmogorov-Smirnov error and the risk-coverage curve.

Each comes with a rigorous bound of what it may be off by when the cells of a stream, which hold more than one
confidence, stand for the rows.
"""

import math
from dataclasses import dataclass

import torch
from scipy.special import ndtri
from torch import Tensor

from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import debiased
from calibrant.metrics.checks import check_outcomes
from calibrant.metrics.histogram import FineHistogram, equal_mass, equal_mass_bin_numbers, fine_histogram


def ks_error(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Largest gap between cumulative accuracy and cumulative confidence (Gupta et al., ICLR 2021).

    .. math:: \mathrm{KS} = \max_t \Bigl| \frac1n \sum_{i : r_i \le t} (r_i - c_i) \Bigr|

    Samples of equal confidence enter the sum together, so the value does not depend on their order.

    >>> ks_error(torch.tensor([0.9, 0.6, 0.6]), torch.tensor([True, False, True]))
    tensor(0.0667, dtype=torch.float64)
    """
    confidence, correct, weights = check_outcomes(confidence, correct, weights)
    return ks(fine_histogram(confidence, 1 - confidence, correct, weights).sums)


def ks(cells: BinSums) -> Tensor:
    return cells.gap.cumsum(0).abs().amax()


def ks_bound(cells: FineHistogram) -> float:
    """Inside a cell the sum can rise or fall by the lesser of all its rises and all its falls, beyond both its ends."""
    rise, fall = _rise_and_fall(cells)
    return float(torch.minimum(rise, fall).amax())


def _rise_and_fall(cells: FineHistogram) -> tuple[Tensor, Tensor]:
    """By how much the incorrect rows of each cell raise the sum of gaps, and the correct ones lower it."""
    share = cells.sums.weight / cells.sums.weight.sum()
    return share[:, 0] * cells.sums.mean_confidence, share[:, 1] * (1 - cells.sums.mean_confidence)


def adaptive_bound(cells: FineHistogram, n_bins: int) -> float:
    """A bin that ends inside a cell could take or leave its rows: twice all that they rise and fall."""
    rise, fall = _rise_and_fall(cells)
    return 2 * float((rise + fall)[_split_by_bins(cells, n_bins)].sum())


def debiased_bound(cells: FineHistogram, n_bins: int) -> float:
    """The same for the root of Σ g²/m less chance, whose slope in g is at most 2, and in the mass m at most 1."""
    split, value = _split_by_bins(cells, n_bins), float(debiased(equal_mass(cells.sums, n_bins)))
    rise, fall = _rise_and_fall(cells)
    moved = float((4 * (rise + fall) + 2 * cells.sums.mass)[split].sum())
    if moved == 0:
        return 0.0
    moved += n_bins / float(cells.sums.rows.sum())
    return min(math.sqrt(moved), moved / value if value > 0 else math.inf)


def _split_by_bins(cells: FineHistogram, n_bins: int) -> Tensor:
    """FineHistogram of several rows whose first and last place are in different bins of equal mass."""
    ends = cells.sums.total.cumsum(0)
    count = cells.sums.count.sum(-1)
    last = ends - cells.sums.total / count  # where the last of equal rows would begin
    last_bin = (last * n_bins / ends[-1]).ceil().long() - 1
    return (count > 1) & (last_bin.clamp(0, n_bins - 1) != equal_mass_bin_numbers(cells.sums, n_bins))


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Share of errors among the most confident, against their share of all rows; one point for each confidence."""

    coverage: Tensor
    risk: Tensor


def risk_coverage(cells: BinSums) -> RiskCoverageCurve:
    total, errors = cells.total.flip(0).cumsum(0), cells.weight[:, 0].flip(0).cumsum(0)
    return RiskCoverageCurve(total / total[-1], errors / total)


def risk_coverage_curve(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> RiskCoverageCurve:
    """Error rate among the most confident, for every share of the rows that a confidence separates."""
    confidence, correct, weights = check_outcomes(confidence, correct, weights)
    return risk_coverage(fine_histogram(confidence, 1 - confidence, correct, weights).sums)


def area_under_risk_coverage(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""AURC: the mean over :math:`i = 1, …, n` of the error rate among the i most confident samples.

    Samples of equal confidence come in random order: the value is the mean over all orders. A sample of weight 2 is
    two samples.

    >>> area_under_risk_coverage(torch.tensor([0.9, 0.8]), torch.tensor([True, False]))
    tensor(0.2500, dtype=torch.float64)
    """
    confidence, correct, weights = check_outcomes(confidence, correct, weights)
    return aurc(fine_histogram(confidence, 1 - confidence, correct, weights).sums)


def aurc(cells: BinSums) -> Tensor:
    """Errors spread evenly over the places of their cell: a sum of 1/i over these places, by harmonic numbers."""
    places, ends, errors, harmonic = _from_most_confident(cells)
    rate = errors / places
    area = errors + (errors.cumsum(0) - errors - rate * (ends - places)) * harmonic
    return area.sum() / ends[-1]


def aurc_bound(cells: FineHistogram) -> float:
    """The errors of a cell may all come first or last: at most correct·incorrect/all away from even."""
    places, ends, errors, harmonic = _from_most_confident(cells.sums)
    away = errors * (places - errors) / places
    return float((away * harmonic).sum() / ends[-1])


def _from_most_confident(cells: BinSums) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Number of places of each cell, the last of them, the errors in it, and the sum of 1/i over its places."""
    errors, correct = cells.rows.flip(0).unbind(1)
    places = errors + correct
    ends = places.cumsum(0)
    harmonic = _harmonic(ends)
    harmonic[1:] -= harmonic[:-1].clone()
    harmonic[0] -= torch.digamma(torch.ones((), dtype=torch.float64))
    return places, ends, errors, harmonic


def _harmonic(x: Tensor) -> Tensor:
    """1 + 1/2 + … + 1/x, less Euler's constant: the digamma function at x + 1, by its series where that converges."""
    inverse = 1 / x.clamp_min(32)
    series = x.clamp_min(32).log() + inverse * (1 / 2 - inverse * (1 / 12 - inverse**2 * (1 / 120 - inverse**2 / 252)))
    few = x < 32
    series[few] = torch.digamma(x[few] + 1)
    return series


def aurc_influence(cells: BinSums) -> tuple[Tensor, Tensor]:
    r"""What one more correct or incorrect row of each cell adds to n·AURC.

    With u the coverage at which a row enters and e(u) the error rate there, AURC = −∫ e ln u du, and a row with
    outcome e contributes :math:`-e \ln u - \int_u^1 e(v)/v\, dv + \bar e - \mathrm{AURC}`.
    """
    total, errors = cells.total.flip(0), cells.weight[:, 0].flip(0)
    ends = total.cumsum(0) / total.sum()
    middle = ends - total / total.sum() / 2
    beyond = (errors / total.sum() / middle).flip(0).cumsum(0).flip(0) - errors / total.sum() / middle / 2
    shared = -beyond + errors.sum() / total.sum() - aurc(cells)
    return shared.flip(0), (shared - middle.log()).flip(0)


def aurc_interval(cells: BinSums, level: float) -> tuple[float, float]:
    """Normal limits, from the variance of the influence of a row; with half a row more of either outcome.

    Without that, rows that are all correct would seem to know their error rate for certain.
    """
    correct, incorrect = aurc_influence(cells)
    unit = cells.squared / cells.total
    half = cells.mass * unit / 2
    squares = (cells.weight[:, 1] + half) * correct**2 + (cells.weight[:, 0] + half) * incorrect**2
    variance = (squares * unit).sum() / cells.total.sum() ** 2
    value, reach = float(aurc(cells)), float(ndtri((1 + level) / 2)) * math.sqrt(float(variance))
    return max(value - reach, 0.0), min(value + reach, 1.0)
