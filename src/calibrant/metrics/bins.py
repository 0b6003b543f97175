"""Calibration errors over bins of the confidence: ECE and its variants, and the reliability curve."""

from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant._checks import check_flag
from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.checks import check_outcomes
from calibrant.metrics.histogram import equal_mass_bins, fine_histogram


def bin_numbers(confidence: Tensor, n_bins: int, slack: float = 0.0) -> Tensor:
    """Equal-width bins (low, high], 0 in the first; a confidence less than ``slack`` above an edge is on it.

    Computed in the type of the confidences: a float32 of 0.2 is a little more than 0.2 in float64.
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
    rows = bins.rows.sum(-1)
    bias = bins.accuracy * (1 - bins.accuracy) / (rows - 1)
    terms = bins.mass * ((bins.mean_confidence - bins.accuracy) ** 2 - bias)
    return torch.where(rows > 2 - 1e-9, terms, 0.0).sum(-1).clamp_min(0).sqrt()


def reliability_bins(
    confidence: Tensor, correct: Tensor, *, n_bins: int, equal_mass: bool = False, weights: Tensor | None = None
) -> BinSums:
    """The sums behind every function of this module, of checked arguments."""
    confidence, correct, weights = check_outcomes(confidence, correct, weights, n_bins)
    if check_flag("equal_mass", equal_mass):
        return equal_mass_bins(fine_histogram(confidence, 1 - confidence, correct, weights).sums, n_bins)
    return bin_sums(bin_numbers(confidence, n_bins), n_bins, confidence, correct, weights)


def expected_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""Expected calibration error (ECE): the mean over samples of the absolute gap of their bin.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|

    Bins are (low, high]; a confidence of 0 belongs to the first.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        equal_mass: Whether bins have equal mass, as in the adaptive ECE, instead of equal width.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> expected_calibration_error(torch.tensor([1.0, 0.95]), torch.tensor([False, True]), n_bins=10)
    tensor(0.4750, dtype=torch.float64)
    """
    return ece(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=equal_mass, weights=weights))


def maximum_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""Maximum calibration error (MCE): the largest gap :math:`|\mathrm{acc}_b - \mathrm{conf}_b|` of a bin.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        equal_mass: Whether bins have equal mass instead of equal width.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> maximum_calibration_error(torch.tensor([0.75, 0.5]), torch.tensor([True, True]))
    tensor(0.5000, dtype=torch.float64)
    """
    return mce(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=equal_mass, weights=weights))


def rms_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    r"""Root mean square calibration error, :math:`\sqrt{\sum_b \frac{n_b}{n} (\mathrm{acc}_b - \mathrm{conf}_b)^2}`.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        equal_mass: Whether bins have equal mass instead of equal width.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> rms_calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([True, True]))
    tensor(0.2500, dtype=torch.float64)
    """
    return rmsce(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=equal_mass, weights=weights))


def overconfidence(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    """Overconfident part of the ECE: the sum over bins whose confidence exceeds their accuracy.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        equal_mass: Whether bins have equal mass instead of equal width.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> overconfidence(torch.tensor([0.75, 0.25]), torch.tensor([False, True]))
    tensor(0.3750, dtype=torch.float64)
    """
    return over(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=equal_mass, weights=weights))


def underconfidence(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, equal_mass: bool = False, weights: Tensor | None = None
) -> Tensor:
    """Underconfident part of the ECE: the sum over bins whose accuracy exceeds their confidence.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        equal_mass: Whether bins have equal mass instead of equal width.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> underconfidence(torch.tensor([0.75, 0.25]), torch.tensor([False, True]))
    tensor(0.3750, dtype=torch.float64)
    """
    return under(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=equal_mass, weights=weights))


def adaptive_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, weights: Tensor | None = None
) -> Tensor:
    """Adaptive ECE: the ECE over bins of equal mass; equal confidences stay in one bin.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> adaptive_calibration_error(torch.tensor([0.5, 0.75, 1.0]), torch.tensor([False, True, True]), n_bins=2)
    tensor(0.0833, dtype=torch.float64)
    """
    return ece(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=True, weights=weights))


def debiased_calibration_error(
    confidence: Tensor, correct: Tensor, *, n_bins: int = 15, weights: Tensor | None = None
) -> Tensor:
    r"""Debiased L2 calibration error over bins of equal mass (Kumar et al. 2019).

    .. math:: \sqrt{\max\bigl(0, \sum_b \tfrac{n_b}{n} [(\mathrm{conf}_b - \mathrm{acc}_b)^2
              - \mathrm{acc}_b (1 - \mathrm{acc}_b) / (n_b - 1)]\bigr)}

    A bin of fewer than two rows contributes 0. Weights count as numbers of rows.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> debiased_calibration_error(torch.tensor([0.5, 0.5]), torch.tensor([True, True]))
    tensor(0.5000, dtype=torch.float64)
    """
    return debiased(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=True, weights=weights))


@dataclass(frozen=True)
class ReliabilityCurve:
    """One point for each bin that is not empty.

    Args:
        confidence: Mean confidence.
        accuracy: Accuracy.
        strength: The proportion of rows in the bin.
        count: The number of rows in the bin.
    """

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
    """Accuracy against mean confidence of each bin, for the reliability diagram.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        n_bins: The number of bins.
        equal_mass: Whether bins have equal mass instead of equal width.
        weights: (n,) row weights; 1 by default.

    Returns:
        The curve.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.
    """
    return reliability(reliability_bins(confidence, correct, n_bins=n_bins, equal_mass=equal_mass, weights=weights))
