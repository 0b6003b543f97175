"""The Brier score as reliability − resolution + uncertainty, over the bins of every class (Murphy 1973)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from calibrant._arrays import sum_of
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.hypotheses import Limits

TERMS = ("reliability", "resolution", "uncertainty", "within_bins")


@dataclass(frozen=True, slots=True)
class BrierDecomposition:
    """score = reliability − resolution + uncertainty + within_bins, exactly.

    Args:
        score: The Brier score.
        reliability: Mean squared gap between probability and frequency of a bin, without its bias; 0 where calibrated.
        resolution: Variance of the frequencies between bins, without its bias: how much the bins tell of the label.
        uncertainty: Variance of the labels, without its bias: the Brier score of the class frequencies.
        within_bins: What the other terms leave out because probabilities of a bin differ; small for narrow bins.
        reliability_bias: What was subtracted: the expected reliability of as many rows of a calibrated model.
        resolution_bias: What was subtracted from the resolution.
        intervals: Confidence intervals of the four terms, where they were computed from rows.
    """

    score: float
    reliability: float
    resolution: float
    uncertainty: float
    within_bins: float
    reliability_bias: float
    resolution_bias: float
    intervals: Mapping[str, Limits] = field(default_factory=dict)


def murphy_decomposition(classes: BinSums, score: float) -> BrierDecomposition:
    r"""The terms of a Brier score, a sum over classes, from the bins (K, n_bins) of each class's probability.

    With the mass m, the mean probability p and the frequency o of a bin, and the frequency of its class over all bins
    :math:`\bar o`:

    .. math:: \sum m (p - o)^2 - \sum m (o - \bar o)^2 + \sum_k \bar o (1 - \bar o)

    Bins of the confidence do not decompose this score: they do not see the classes that are not predicted. What is left
    is within_bins, Σ m (Var p − 2 Cov(p, label)) in each bin (Stephenson, Coelho and Jolliffe 2008). The plug-in terms
    of n rows are biased, since the frequency of a bin varies by o (1 − o) / (n_b − 1) (Bröcker 2012; Ferro and Fricker
    2012). A bin of one row does not tell how much, and counts as 0. The corrected reliability may be negative.
    """
    filled = classes.total > 0
    mass = classes.total / classes.total.sum(-1, keepdim=True)
    frequency = torch.where(filled, classes.accuracy, 0.0)
    gap = torch.where(filled, classes.mean_confidence, 0.0) - frequency
    overall = (mass * frequency).sum(-1, keepdim=True)
    reliability, resolution = sum_of(mass * gap.square()), sum_of(mass * (frequency - overall).square())
    uncertainty = sum_of(overall * (1 - overall))
    noise = sum_of(mass * _mean_variance(frequency, classes.effective))
    n_effective = classes.total.sum(-1, keepdim=True) ** 2 / classes.squared.sum(-1, keepdim=True)
    of_labels = sum_of(_mean_variance(overall, n_effective))
    return BrierDecomposition(
        score=score,
        reliability=reliability - noise,
        resolution=resolution - noise + of_labels,
        uncertainty=uncertainty + of_labels,
        within_bins=score - (reliability - resolution + uncertainty),
        reliability_bias=noise,
        resolution_bias=noise - of_labels,
    )


def _mean_variance(frequency: torch.Tensor, n_effective: torch.Tensor) -> torch.Tensor:
    """The estimated variance of frequencies of so many rows; 0 of a single one."""
    return torch.where(n_effective > 1, frequency * (1 - frequency) / (n_effective - 1), 0.0)
