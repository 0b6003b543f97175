"""Calibration error over equal-width bins of the confidence."""

import torch
from torch import Tensor

from calibrant._checks import check_outcomes


def expected_calibration_error(confidence: Tensor, correct: Tensor, *, n_bins: int = 15) -> Tensor:
    r"""ECE: mean over samples of the gap between accuracy and confidence of their bin.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|

    The bins are (low, high] and equally wide; a confidence of 0 joins the first. Sums are kept in float64.

    >>> expected_calibration_error(torch.tensor([1.0, 0.95]), torch.tensor([False, True]), n_bins=10)
    tensor(0.4750, dtype=torch.float64)
    """
    check_outcomes(confidence, correct, n_bins)
    if confidence.dtype in (torch.float16, torch.bfloat16):
        confidence = confidence.float()
    # In the type of the confidences: a float32 of 0.2 is a little more than 0.2 in float64, and would leave its bin.
    bins = (confidence * n_bins).ceil().long().sub_(1).clamp_(0, n_bins - 1)
    gap = torch.bincount(bins, weights=correct.double() - confidence.double(), minlength=n_bins)
    return gap.abs().sum() / len(confidence)
