"""Accuracy versus uncertainty: the AvUC and Soft-AvUC terms of a batch.

Four sums split the batch into accurate or inaccurate (A, I) and certain or uncertain (C, U). The terms reward
predictions that are certain when correct and uncertain when incorrect.
"""

import math

import torch
from torch import Tensor

from calibrant.losses.batchwise import BatchStatistics

N_THRESHOLDS = 21


def avuc(batch: BatchStatistics, *, threshold: float | None) -> Tensor:
    r"""−log of the accuracy-versus-uncertainty score (Krishnan & Tickoo 2020).

    .. math:: AvU(t) = \frac{n_{AC} + n_{IU}}{n_{AC} + n_{AU} + n_{IC} + n_{IU}}

    with a sample counted as certain where its entropy h is at most t, and sums
    :math:`n_{AC} = \sum r (1-\tanh h)`, :math:`n_{AU} = \sum r \tanh h` over the correct samples,
    :math:`n_{IC} = \sum (1-r)(1-\tanh h)`, :math:`n_{IU} = \sum (1-r) \tanh h` over the others (r the confidence).
    The score is AvU at the given threshold, or the area under AvU over 21 thresholds between the batch's least and
    greatest entropy. Each prediction is compared with its own label (the published code compares all with the first).
    """
    thresholds = _entropy_thresholds(batch) if threshold is None else batch.entropy.new_tensor([threshold])
    strength = batch.weights * torch.where(batch.correct, batch.confidence, batch.one_minus_confidence)
    certain_part, uncertain_part = _certainty(batch.entropy)
    # Sums over the samples between neighbouring thresholds, by correctness; then cumulative sums over the thresholds.
    slot = 2 * torch.bucketize(_rounded_down(batch.entropy.detach()), thresholds) + batch.correct
    parts = torch.stack([certain_part, uncertain_part], dim=1) * strength.unsqueeze(1)
    sums = parts.new_zeros(2 * len(thresholds) + 2, 2).index_add(0, slot, parts).unflatten(0, (-1, 2))
    n_ic, n_ac = sums[:-1, :, 0].cumsum(0).unbind(1)
    n_iu, n_au = sums[1:, :, 1].flip(0).cumsum(0).flip(0).unbind(1)
    good = n_ac + n_iu
    score = good / (good + n_au + n_ic).clamp_min(torch.finfo(parts.dtype).tiny)
    area: Tensor = score[0] if len(score) == 1 else (score[1:] + score[:-1]).mean() / 2
    return -area.clamp_min(torch.finfo(parts.dtype).eps).log()


def _certainty(entropy: Tensor) -> tuple[Tensor, Tensor]:
    """1 − tanh h, which must not vanish by cancellation where the entropy is large, and tanh h."""
    return 2 * (-2 * entropy).sigmoid(), entropy.tanh()


def _rounded_down(entropy: Tensor) -> Tensor:
    """The entropy minus its rounding: entropies that are equal but for rounding lie on one side of a threshold."""
    return entropy - 16 * torch.finfo(entropy.dtype).eps * (1 + entropy)


def _entropy_thresholds(batch: BatchStatistics) -> Tensor:
    """Evenly spaced between the least and greatest entropy of the samples that count."""
    entropy, counts = batch.entropy.detach(), batch.weights > 0
    low = torch.where(counts, entropy, torch.finfo(entropy.dtype).max).amin()
    high = torch.where(counts, entropy, 0.0).amax()
    return torch.lerp(low, high, torch.linspace(0, 1, N_THRESHOLDS, dtype=entropy.dtype, device=entropy.device))


def soft_avuc(batch: BatchStatistics, n_classes: int, *, temperature: float, kappa: float) -> Tensor:
    r""":math:`\log(1 + (n_{AU} + n_{IC}) / (n_{AC} + n_{IU}))` with soft counts (Karandikar et al. 2021).

    A sample is uncertain to the degree :math:`t(u) = \sigma(\frac1T \log\frac{u(1-\kappa)}{(1-u)\kappa})` of its
    relative entropy :math:`u = h / \log K`; with the paper's T = 0.01 this is nearly a step at u = κ. The sums are
    those of :func:`avuc` without the factor r.
    """
    smallest = torch.finfo(batch.entropy.dtype).eps
    u = (batch.entropy / math.log(n_classes)).clamp(smallest, 1 - smallest)
    uncertain = ((u.logit() - math.log(kappa / (1 - kappa))) / temperature).sigmoid()
    certain_part, uncertain_part = _certainty(batch.entropy)
    as_certain = batch.weights * (1 - uncertain) * certain_part
    as_uncertain = batch.weights * uncertain * uncertain_part
    bad = torch.where(batch.correct, as_uncertain, as_certain).sum()
    good = torch.where(batch.correct, as_certain, as_uncertain).sum()
    return torch.log1p(bad / good.clamp_min(smallest))
