"""Calibration terms of a whole batch: MMCE and MDCA, and the statistics of each sample that such terms share.

Each weighs its samples: weight 2 is the sample twice, weight 0 is the sample left out.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.losses.fused import is_traced


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """One number per sample for the terms of a batch."""

    log_p: Tensor  # (n,) log-probability of the sample's class
    confidence: Tensor  # (n,) probability of the predicted class
    one_minus_confidence: Tensor  # (n,) the probability of all other classes, without cancellation
    entropy: Tensor  # (n,) in nats
    correct: Tensor  # (n,) bool, whether the predicted class is the sample's
    weights: Tensor  # (n,), their sum is 1 (or 0, where no sample counts)


def batch_statistics(logits: Tensor, classes: Tensor, weights: Tensor | None) -> BatchStatistics:
    """From logits (n, k) and the class of each sample (n,)."""
    predicted = logits.argmax(1)
    if is_traced() or not (logits.requires_grad and torch.is_grad_enabled()):
        statistics = _statistics(logits, classes, predicted)
    else:
        statistics = _Statistics.apply(logits, classes, predicted)  # type: ignore[no-untyped-call]
    return BatchStatistics(*statistics, correct=predicted == classes, weights=normalized_weights(logits, weights))


def normalized_weights(logits: Tensor, weights: Tensor | None) -> Tensor:
    """Weights (n,) that sum to 1; all 0 where no sample counts."""
    if weights is None:
        return logits.new_full((len(logits),), 1 / max(len(logits), 1))
    return weights / weights.sum().clamp_min(torch.finfo(weights.dtype).tiny)


def _statistics(logits: Tensor, classes: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The definition: log-probability of the class, confidence, 1 − confidence and entropy."""
    log_probs = F.log_softmax(logits, dim=1)
    probs = log_probs.exp()
    picked = log_probs.gather(1, torch.stack([classes, predicted], dim=1))
    rest = probs.scatter(1, predicted.unsqueeze(1), 0.0).sum(1)
    return picked[:, 0], picked[:, 1].exp(), rest, -(probs * log_probs).sum(1)


class _Statistics(torch.autograd.Function):
    r"""The same with the gradient in closed form, and with one exponential per logit.

    For gradients :math:`g^p, g^r, g^h` in log-probability, confidence r (minus that in 1 − r) and entropy h,
    the gradient in the logits is :math:`g^p([k=y] - p_k) + g^r r ([k=j] - p_k) - g^h p_k (\log p_k + h)`, with j the
    predicted class.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        picked = logits.gather(1, torch.stack([classes, predicted], dim=1))
        shifted = logits - picked[:, 1:]  # by the largest logit
        probs = shifted.exp()
        others = probs.scatter_(1, predicted.unsqueeze(1), 0.0).sum(1)
        probs.scatter_(1, predicted.unsqueeze(1), 1.0)
        log_total = others.log1p()
        confidence = (others + 1).reciprocal()
        probs.mul_(confidence.unsqueeze(1))
        log_p = picked[:, 0] - picked[:, 1] - log_total
        rest, entropy = others * confidence, log_total - torch.linalg.vecdot(probs, shifted)
        ctx.save_for_backward(logits, classes, predicted, probs, shifted, confidence, rest, entropy - log_total)
        return log_p, confidence, rest, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, classes, predicted, probs, shifted, confidence, rest, offset = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            outputs = _statistics(logits, classes, predicted)
            return torch.autograd.grad(outputs, logits, gradients, create_graph=True)[0], None, None
        of_log_p, of_confidence, of_rest, of_entropy = gradients
        of_confidence = (of_confidence - of_rest) * confidence
        pull = of_log_p + of_entropy * offset  # log p_k + h = shifted_k + offset
        all_pull = (pull + of_confidence).unsqueeze(1)
        gradient = torch.addcmul(all_pull, shifted, of_entropy.unsqueeze(1)).mul_(probs).neg_()
        at_predicted = of_confidence * rest - pull * confidence  # 1 − p_j without cancellation
        gradient.scatter_(1, predicted.unsqueeze(1), at_predicted.unsqueeze(1))
        gradient.scatter_add_(1, classes.unsqueeze(1), of_log_p.unsqueeze(1))
        return gradient, None, None


def mmce(batch: BatchStatistics, *, width: float) -> Tensor:
    r"""Kernel calibration error of the batch (Kumar et al. 2018).

    .. math:: \sqrt{\frac1{n^2} \sum_{ij} (c_i-r_i)(c_j-r_j) e^{-|r_i-r_j|/w}}

    The Laplace kernel splits at the sorted confidences, so cumulative sums give the double sum in O(n log n), exactly;
    samples of equal confidence enter together. The root is 0, with gradient 0, where the sum is not positive.
    """
    confidence, order = batch.confidence.sort()
    gap = (batch.weights * torch.where(batch.correct, batch.one_minus_confidence, -batch.confidence))[order]
    rise, fall = (confidence / width).exp(), (-confidence / width).exp()
    first = torch.searchsorted(confidence.detach(), confidence.detach())
    last = torch.searchsorted(confidence.detach(), confidence.detach(), right=True)
    below, equal = (F.pad(part.cumsum(0), (1, 0)) for part in (gap * rise, gap))
    above = F.pad((gap * fall).flip(0).cumsum(0).flip(0), (0, 1))
    neighbours = fall * below[first] + rise * above[last] + (equal[last] - equal[first])
    squared = (gap * neighbours).sum()
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


def mdca(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    r""":math:`\frac1K \sum_k |\frac1n\sum_i p_{ik} - \frac1n\sum_i 1[y_i = k]|` (Hebbalaguppe et al. 2022)."""
    probs = F.softmax(logits, dim=1)
    targets = labels if labels.is_floating_point() else F.one_hot(labels, logits.shape[1]).to(probs.dtype)
    return (normalized_weights(logits, weights) @ (probs - targets)).abs().mean()
