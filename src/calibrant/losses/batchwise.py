"""Calibration terms of a whole batch: MMCE and MDCA, and the statistics of each sample that such terms share.

Each takes an optional weight per sample: weight 2 is the sample twice, weight 0 is the sample left out.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What a batch of predictions says of itself: confidence, entropy in nats, and whether the argmax is right."""

    confidence: Tensor  # (n,)
    entropy: Tensor  # (n,)
    correct: Tensor  # (n,) bool
    weights: Tensor  # (n,)


def outcomes(logits: Tensor, classes: Tensor, weights: Tensor | None) -> Outcomes:
    """From logits (n, k) and the class of each sample (n,)."""
    log_probs = F.log_softmax(logits, dim=1)
    probs = log_probs.exp()
    predicted = logits.argmax(1)
    return Outcomes(
        confidence=probs.gather(1, predicted[:, None])[:, 0],
        entropy=-(probs * log_probs).sum(1),
        correct=predicted == classes,
        weights=torch.ones_like(logits[:, 0]) if weights is None else weights,
    )


def mmce(batch: Outcomes, *, width: float = 0.4) -> Tensor:
    r"""Kernel calibration error of the batch (Kumar et al. 2018).

    .. math:: \sqrt{\frac1{n^2} \sum_{ij} (c_i-r_i)(c_j-r_j) e^{-|r_i-r_j|/w}}

    The Laplace kernel splits at the sorted confidences, so cumulative sums give the double sum in O(n log n), exactly;
    samples of equal confidence enter together. The root is 0, with gradient 0, where the sum is not positive.
    """
    confidence, order = batch.confidence.sort()
    weights = batch.weights[order]
    gap = weights * (batch.correct[order].to(confidence.dtype) - confidence)
    rise, fall = (confidence / width).exp(), (-confidence / width).exp()
    first = torch.searchsorted(confidence.detach(), confidence.detach())
    last = torch.searchsorted(confidence.detach(), confidence.detach(), right=True)
    below, above, equal = (F.pad(part.cumsum(0), (1, 0)) for part in (gap * rise, gap * fall, gap))
    neighbours = fall * below[first] + rise * (above[-1] - above[last]) + (equal[last] - equal[first])
    squared = (gap * neighbours).sum() / weights.sum().clamp_min(1e-12) ** 2
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


def mdca(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    r""":math:`\frac1K \sum_k |\frac1n\sum_i p_{ik} - \frac1n\sum_i 1[y_i = k]|` (Hebbalaguppe et al. 2022)."""
    probs = F.softmax(logits, dim=1)
    targets = labels if labels.is_floating_point() else F.one_hot(labels, logits.shape[1]).to(probs.dtype)
    if weights is None:
        return (probs - targets).mean(0).abs().mean()
    return (weights[:, None] * (probs - targets)).sum(0).abs().mean() / weights.sum().clamp_min(1e-12)
