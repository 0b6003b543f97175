"""Functions of whole predictions: the classwise calibration error, and the top label's confidence and correctness."""

import torch
from torch import Tensor

from calibrant._checks import check_labelled, check_probabilities, check_scored, check_whole
from calibrant.metrics.bins import cece
from calibrant.metrics.outcomes import BLOCK, SMALL, by_class, outcomes, top_class


def classwise_calibration_error(
    logits: Tensor, labels: Tensor, *, n_bins: int = 15, weights: Tensor | None = None
) -> Tensor:
    r"""Classwise ECE: the mean over all K classes of the ECE of each class's probability.

    .. math:: \frac1K \sum_k \sum_b \frac{n_{bk}}{n} |\overline{p_k} - \overline{1[y = k]}|

    Classes that no row is labelled with count too.

    >>> classwise_calibration_error(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000, dtype=torch.float64)
    """
    logits, labels, weights = check_scored(logits, labels, weights)
    _, classes = outcomes(logits, labels, n_bins=check_whole("n_bins", n_bins, 1), weights=weights)
    assert classes is not None
    return cece(classes)


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row of probabilities (n, k), and whether its class, the first of equal ones, is the label.

    >>> top_label(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
    (tensor([0.7500, 0.5000]), tensor([ True, False]))
    """
    probs, labels = check_labelled("probs", probs, labels)
    confidence, correct = probs.new_empty(len(probs)), torch.empty_like(labels, dtype=torch.bool)
    step = max(1, 4 * BLOCK // probs.shape[1])
    for start in range(0, len(probs), step):
        rows = slice(start, start + step)
        find = _top_of_few if probs.shape[1] < SMALL else _top_of_many
        confidence[rows], correct[rows] = find(probs[rows], labels[rows], start)
    return confidence, correct


def _top_of_many(probs: Tensor, labels: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    check_probabilities("probs", probs, first_row, total=1.0)
    top = top_class(probs)
    return probs.gather(1, top.unsqueeze(1)).squeeze(1), top == labels


def _top_of_few(probs: Tensor, labels: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    """The same from a copy whose columns lie together in memory: the label's probability against the others'."""
    columns = by_class(probs).t()
    check_probabilities("probs", columns, first_row, total=1.0)
    label = labels.unsqueeze(1)
    of_label = probs.gather(1, label).squeeze(1)
    of_others = columns.scatter_(1, label, -1.0).amax(1)
    correct = of_label > of_others
    tied = (of_label == of_others).nonzero().squeeze(1)
    correct[tied] = top_class(probs[tied]) == labels[tied]
    return torch.maximum(of_label, of_others), correct
