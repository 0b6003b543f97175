"""Smooth ECE: calibration error by kernel smoothing, without bins (Błasiok & Nakkiran 2023)."""

import math

import numpy as np
import scipy.fft
import torch
from torch import Tensor

from calibrant._arrays import sum_of
from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.checks import check_outcomes
from calibrant.metrics.histogram import FineHistogram, fine_histogram

SMOOTHING_POINTS = 2**13  # of the even grid over [0, 1] on which the residuals are smoothed


def smooth_calibration_error(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Smooth ECE: the mean absolute smoothed residual, at the bandwidth that equals its own value.

    .. math:: \mathrm{smECE}_s = \int_0^1 \Bigl| \frac1n \sum_i k_s(t, r_i) (r_i - c_i) \Bigr| dt,
              \qquad \mathrm{smECE} = \mathrm{smECE}_{s^*} = s^*

    with a Gaussian kernel of standard deviation s reflected at 0 and 1.

    Args:
        confidence: (n,) probabilities of the predicted classes, in [0, 1].
        correct: (n,) whether each prediction is correct.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> round(smooth_calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([True, False])).item(), 4)
    0.25
    """
    confidence, correct, weights = check_outcomes(confidence, correct, weights)
    return smooth(fine_histogram(confidence, 1 - confidence, correct, weights).sums)


def smooth(histogram: BinSums) -> Tensor:
    transform = cosine_transform(histogram.gap.numpy(), histogram.mean_confidence.numpy())
    return torch.tensor(fixed_point(transform), dtype=torch.float64)


def cosine_transform(gap: Float64Array, position: Float64Array) -> Float64Array:
    """Cosine transform of residuals at positions in [0, 1], each split between its two neighbours on the grid.

    A convolution with a kernel that is reflected at both ends is a product of transforms.
    """
    on_grid = np.clip(position * SMOOTHING_POINTS - 0.5, 0.0, SMOOTHING_POINTS - 1.0)
    left = on_grid.astype(np.int64)
    right = np.minimum(left + 1, SMOOTHING_POINTS - 1)
    to_right = (on_grid - left) * gap
    residuals = np.bincount(left, gap - to_right, SMOOTHING_POINTS) + np.bincount(right, to_right, SMOOTHING_POINTS)
    return np.asarray(scipy.fft.dct(residuals, norm="ortho"))


def smooth_residuals(transform: Float64Array, bandwidth: float) -> Float64Array:
    """The smoothed residuals on the grid; their absolute sum is smECE at this bandwidth."""
    frequency = np.arange(transform.shape[-1])
    found = scipy.fft.idct(transform * np.exp(-0.5 * (math.pi * bandwidth * frequency) ** 2), norm="ortho")
    return np.asarray(found)


def fixed_point(transform: Float64Array) -> float:
    """The root of smECE_s = s: the left side falls with s, so there is one."""

    def excess(bandwidth: float) -> float:
        return float(np.abs(smooth_residuals(transform, bandwidth)).sum()) - bandwidth

    largest = excess(0.0)
    if largest <= 1e-12:
        return 0.0
    if excess(largest) >= -1e-12:  # residuals of one sign: smoothing cancels nothing
        return largest
    from scipy.optimize import brentq

    return float(brentq(excess, 0.0, largest, xtol=1e-9))


def smooth_bound(histogram: FineHistogram, _n_bins: int) -> float:
    """Moving a row by δ changes its kernel by at most δ·√(2/π)/s, and the root by no more than that."""
    bandwidth = float(smooth(histogram.sums))
    if bandwidth == 0:
        return 0.0
    moved = histogram.sums.mass * histogram.width() * (histogram.sums.count.sum(-1) > 1)
    return sum_of(moved) * math.sqrt(2 / math.pi) / bandwidth
