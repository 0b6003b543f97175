"""Functions of whole predictions: the classwise calibration error, and the top label's confidence and correctness."""

import torch
from torch import Tensor

from calibrant._checks import check_bins, check_scored, check_top_probs
from calibrant.metrics.bins import cece
from calibrant.metrics.outcomes import outcomes


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
    _, classes = outcomes(logits, labels, n_bins=check_bins(n_bins), weights=weights)
    assert classes is not None
    return cece(classes)


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row of probabilities (n, k), and whether its class, the first of equal ones, is the label.

    >>> top_label(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
    (tensor([0.7500, 0.5000]), tensor([ True, False]))
    """
    probs, labels = check_top_probs(probs, labels)
    top = torch.from_numpy(probs.numpy().argmax(1))  # several times as fast as torch's
    return probs.gather(1, top.unsqueeze(1)).squeeze(1), top == labels
