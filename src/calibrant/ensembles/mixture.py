"""The mixture of several models' probabilities, and how far the models disagree, row by row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant._arrays import blocks


@dataclass(frozen=True, slots=True)
class Mixture:
    """The mean of the members' probabilities, and what they disagree on."""

    log_probs: Tensor  # (n, k), of the type of the first member's logits
    disagreement: Tensor  # (n,) float64, the share of the members that predict another class than the mixture
    mutual_information: Tensor  # (n,) float64, in nats


def mixture(members: Sequence[Tensor]) -> Mixture:
    r"""The arithmetic mean of the probabilities of m members, computed from their log-probabilities.

    .. math:: \bar p_k = \frac{1}{m} \sum_i p_{ik}

    The sum is taken in log space, as the logsumexp of the log-probabilities minus log m. It stays finite where one
    member gives a class no probability, or one below the smallest number, and another does. The mutual information of
    the class and the member that predicts it is the entropy of the mean minus the mean of the entropies (Depeweg et
    al. 2018): 0 where all members say the same, and at most log m. The predicted class is the most probable one, the
    first of equal ones.

    Args:
        members: Logits (n, k) of each member.

    >>> found = mixture([torch.tensor([[0.0, -math.inf]]), torch.tensor([[-math.inf, 0.0]])])
    >>> found.log_probs.exp(), found.disagreement, found.mutual_information / math.log(2)
    (tensor([[0.5000, 0.5000]]), tensor([0.5000], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    n, n_classes = members[0].shape
    log_probs = torch.empty_like(members[0])
    disagreement, information = (torch.empty(n, dtype=torch.float64) for _ in range(2))
    for rows in blocks(n, n_classes * len(members)):
        each = torch.stack([logits[rows].double().log_softmax(1) for logits in members])
        mean = each.logsumexp(0) - math.log(len(members))
        log_probs[rows] = mean.to(log_probs.dtype)
        predicted = log_probs[rows].argmax(1)
        disagreement[rows] = (each.argmax(2) != predicted).double().mean(0)
        information[rows] = (_entropy(mean) - _entropy(each).mean(0)).clamp_min(0)  # below 0 by rounding alone
    return Mixture(log_probs, disagreement, information)


def _entropy(log_probs: Tensor) -> Tensor:
    """In nats, along the last dimension; a class of probability 0 adds 0."""
    terms: Tensor = torch.special.entr(log_probs.exp())
    return terms.sum(-1)
