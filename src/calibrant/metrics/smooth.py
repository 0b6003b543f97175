"""Smooth ECE: calibration error without bins (Błasiok & Nakkiran 2023)."""

import math

import numpy as np
import scipy.fft
import scipy.optimize
import torch
from torch import Tensor

from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.checks import check_outcomes
from calibrant.metrics.histogram import FineHistogram, fine_histogram

SMOOTHING_POINTS = 2**13  # of the even grid over [0, 1] on which the residuals are smooth_residuals


def smooth_calibration_error(confidence: Tensor, correct: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""smECE: mean absolute residual after smoothing, at the width that equals its own result.

    .. math:: \mathrm{smECE}_s = \int_0^1 \Bigl| \frac1n \sum_i k_s(t, r_i) (r_i - c_i) \Bigr| dt,
              \qquad \mathrm{smECE} = \mathrm{smECE}_{s^*} = s^*

    with a Gaussian kernel of standard deviation s reflected at 0 and 1.

    >>> round(smooth_calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([True, False])).item(), 4)
    0.25
    """
    confidence, correct, weights = check_outcomes(confidence, correct, weights)
    return smooth(fine_histogram(confidence, 1 - confidence, correct, weights).sums)


def smooth(cells: BinSums) -> Tensor:
    return torch.tensor(
        fixed_point(cosine_transform(cells.gap.numpy(), cells.mean_confidence.numpy())), dtype=torch.float64
    )


def cosine_transform(gap: Float64Array, position: Float64Array) -> Float64Array:
    """Cosine transform of residuals at positions in [0, 1], each shared by its two neighbours on the grid.

    In it a kernel that is reflected at both ends is a product.
    """
    place = np.clip(position * SMOOTHING_POINTS - 0.5, 0.0, SMOOTHING_POINTS - 1.0)
    left = place.astype(np.int64)
    share = (place - left) * gap
    on_grid = np.bincount(left, gap - share, SMOOTHING_POINTS) + np.bincount(
        np.minimum(left + 1, SMOOTHING_POINTS - 1), share, SMOOTHING_POINTS
    )
    return np.asarray(scipy.fft.dct(on_grid, norm="ortho"))


def smooth_residuals(transform: Float64Array, width: float) -> Float64Array:
    """The smooth_residuals residuals on the grid; their absolute sum is smECE at this width."""
    frequency = np.arange(transform.shape[-1])
    found = scipy.fft.idct(transform * np.exp(-0.5 * (math.pi * width * frequency) ** 2), norm="ortho")
    return np.asarray(found)


def fixed_point(transform: Float64Array) -> float:
    """The root of smECE_s = s: the left side falls with s, so there is one."""

    def excess(width: float) -> float:
        return float(np.abs(smooth_residuals(transform, width)).sum()) - width

    most = excess(0.0)
    if most <= 1e-12:
        return 0.0
    if excess(most) >= -1e-12:  # residuals of one sign: smoothing cancels nothing
        return most
    return float(scipy.optimize.brentq(excess, 0.0, most, xtol=1e-9))


def smooth_bound(cells: FineHistogram) -> float:
    """Moving a row by δ changes its kernel by at most δ·√(2/π)/s, and the root by no more than that."""
    width = float(smooth(cells.sums))
    if width == 0:
        return 0.0
    moved = cells.sums.mass * cells.width() * (cells.sums.count.sum(-1) > 1)
    return float(moved.sum()) * math.sqrt(2 / math.pi) / width
