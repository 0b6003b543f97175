"""Calibration error over bins of the confidence: ECE and its relatives, and the reliability curve."""

from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.checks import check_outcomes
from calibrant.metrics.histogram import equal_mass, fine_histogram


def bin_numbers(confidence: Tensor, n_bins: int, slack: float = 0.0) -> Tensor:
    """Equal-width bins (low, high], 0 in the first; a confidence less than ``slack`` above an edge is on it.

    Decided in the type of the confidences: a float32 of 0.2 is a little more than 0.2 in float64, and would leave its
    bin.
    """
    scaled = confidence * n_bins
    if slack:
        scaled = scaled.sub_(slack * n_bins)
    return scaled.ceil_().long().sub_(1).clamp_(0, n_bins - 1)


def ece(bins: BinSums) -> Tensor:
    return bins.gap.abs().sum(-1)


def mce(bins: BinSums) -> Tensor:
    return torch.where(bins.total > 0, bins.gap.abs() / bins.mass, 0.0).amax(-1)


def rmsce(bins: BinSums) -> Tensor:
    return torch.where(bins.total > 0, bins.gap**2 / bins.mass, 0.0).sum(-1).sqrt()


def over(bins: BinSums) -> Tensor:
    return bins.gap.clamp_min(0).sum(-1)


def under(bins: BinSums) -> Tensor:
    return (-bins.gap).clamp_min(0).sum(-1)


def debiased(bins: BinSums) -> Tensor:
    return _without_bias(bins).clamp_min(0).sqrt()


def _without_bias(bins: BinSums) -> Tensor:
    """The squared error less what chance adds to it; bins of fewer than two rows say nothing."""
    rows = bins.rows.sum(-1)
    enough = rows > 2 - 1e-9
    chance = bins.accuracy * (1 - bins.accuracy) / (rows - 1)
    terms = bins.mass * ((bins.mean_confidence - bins.accuracy) ** 2 - chance)
    return torch.where(enough, terms, 0.0).sum(-1)


def reliability_bins(
    confidence: Tensor, correct: Tensor, n_bins: int, equal_mass_bins: bool, weights: Tensor | None
) -> BinSums:
    """The checked tally behind every function of this file."""
    confidence, correct, weights = check_outcomes(confidence, correct, weights, n_bins)
    if equal_mass_bins:
        return equal_mass(fine_histogram(confidence, 1 - confidence, correct, weights).sums, n_bins)
    return bin_sums(bin_numbers(confidence, n_bins), n_bins, confidence, correct, weights)


def expected_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""ECE: mean over samples of the gap between accuracy and confidence of their bin.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|

    The bins are (low, high] and equally wide, a confidence of 0 joins the first; or of equal mass, then it is the
    adaptive ECE.

    >>> expected_calibration_error(torch.tensor([1.0, 0.95]), torch.tensor([False, True]), n_bins=10)
    tensor(0.4750, dtype=torch.float64)
    """
    return ece(reliability_bins(confidence, correct, n_bins, equal_mass, weights))


def maximum_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""MCE: the largest gap :math:`|\mathrm{acc}_b - \mathrm{conf}_b|` of a bin that is not empty.

    >>> maximum_calibration_error(torch.tensor([0.75, 0.5]), torch.tensor([True, True]))
    tensor(0.5000, dtype=torch.float64)
    """
    return mce(reliability_bins(confidence, correct, n_bins, equal_mass, weights))


def rms_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""RMS-CE: root of the mean squared gap, :math:`\sqrt{\sum_b \frac{n_b}{n} (\mathrm{acc}_b - \mathrm{conf}_b)^2}`.

    >>> rms_calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([True, True]))
    tensor(0.2500, dtype=torch.float64)
    """
    return rmsce(reliability_bins(confidence, correct, n_bins, equal_mass, weights))


def overconfidence(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""The part of the ECE from bins whose confidence exceeds their accuracy.

    >>> overconfidence(torch.tensor([0.75, 0.25]), torch.tensor([False, True]))
    tensor(0.3750, dtype=torch.float64)
    """
    return over(reliability_bins(confidence, correct, n_bins, equal_mass, weights))


def underconfidence(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""The part of the ECE from bins whose accuracy exceeds their confidence.

    >>> underconfidence(torch.tensor([0.75, 0.25]), torch.tensor([False, True]))
    tensor(0.3750, dtype=torch.float64)
    """
    return under(reliability_bins(confidence, correct, n_bins, equal_mass, weights))


def adaptive_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, weights: Tensor | None = None
) -> Tensor:
    r"""Adaptive ECE: the ECE over bins of equal mass; equal confidences stay together.

    >>> adaptive_calibration_error(torch.tensor([0.5, 0.75, 1.0]), torch.tensor([False, True, True]), n_bins=2)
    tensor(0.0833, dtype=torch.float64)
    """
    return ece(reliability_bins(confidence, correct, n_bins, True, weights))


def debiased_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, weights: Tensor | None = None
) -> Tensor:
    r"""L2 calibration error over bins of equal mass, without what chance adds (Kumar et al. 2019).

    .. math:: \sqrt{\max\bigl(0, \sum_b \tfrac{n_b}{n} [(\mathrm{conf}_b - \mathrm{acc}_b)^2
              - \mathrm{acc}_b (1 - \mathrm{acc}_b) / (n_b - 1)]\bigr)}

    A bin of fewer than two rows contributes 0. Weights count as numbers of rows.

    >>> debiased_calibration_error(torch.tensor([0.5, 0.5]), torch.tensor([True, True]))
    tensor(0.5000, dtype=torch.float64)
    """
    return debiased(reliability_bins(confidence, correct, n_bins, True, weights))


@dataclass(frozen=True)
class ReliabilityCurve:
    """One point for each bin that is not empty; ``strength`` is its share of the rows (the bin-strength plot)."""

    confidence: Tensor
    accuracy: Tensor
    strength: Tensor
    count: Tensor


def reliability(bins: BinSums) -> ReliabilityCurve:
    filled = bins[bins.total > 0]
    return ReliabilityCurve(filled.mean_confidence, filled.accuracy, filled.mass, filled.count.sum(-1))


def reliability_curve(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> ReliabilityCurve:
    """Accuracy against mean confidence of each bin, for the reliability and the bin-strength plot."""
    return reliability(reliability_bins(confidence, correct, n_bins, equal_mass, weights))
