"""Classwise ECE: the mean over classes of the ECE of each class's probability; its interval, floor and influence."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from calibrant._arrays import blocks
from calibrant._checks import check_integer
from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.checks import check_scored
from calibrant.metrics.exact import binomial_pmf, clopper_pearson
from calibrant.metrics.influence import ScoredPredictions
from calibrant.metrics.intervals import (
    ABSOLUTE_SUM,
    MIN_OUTCOME_ROWS,
    SIGNIFICANT,
    Limits,
    cover_overall_gap,
    draw_noise,
    lower_limit,
    norm_interval,
)
from calibrant.metrics.sample_scores import sample_scores, softmax_rounding

INFLUENCE_BLOCK = 2**20  # numbers at a time


def classwise_calibration_error(
    logits: Tensor, labels: Tensor, *, n_bins: int = 15, weights: Tensor | None = None
) -> Tensor:
    r"""Classwise ECE: the mean over all K classes of the ECE of each class's probability.

    .. math:: \frac1K \sum_k \sum_b \frac{n_{bk}}{n} |\overline{p_k} - \overline{1[y = k]}|

    Classes without a labelled row count too.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        n_bins: The number of bins.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> classwise_calibration_error(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000, dtype=torch.float64)
    """
    logits, labels, weights = check_scored(logits, labels, weights)
    _, classes = sample_scores(logits, labels, n_bins=check_integer("n_bins", n_bins, 1), weights=weights)
    assert classes is not None
    return cece(classes)


def cece(classes: BinSums) -> Tensor:
    """Of (n_classes, n_bins): every row counts once in every class, so the sum of all gaps is a mean over classes."""
    return classes.gap.abs().sum()


def classwise_interval(classes: BinSums, level: float, seed: int, *, multilabel: bool) -> Limits:
    """The limits of `norm_interval` for a sum over so many gaps that it is nearly normal.

    The classes of a row are not independent: their probabilities sum to 1. The covariance of the predicted class (bins
    above ½) with the label of an incorrect row (bins below) is included; of two classes, one is enough. Classes of a
    multi-label model are assumed to be fully correlated, which gives the widest limits.
    """
    observed = float(cece(classes))
    if not multilabel and len(classes.total) == 2:
        limits = norm_interval(observed, draw_noise(classes[1], seed), ABSOLUTE_SUM, level)
        return cover_overall_gap(limits, classes[1], ABSOLUTE_SUM, level)
    calibrated, bootstrap = _calibrated_variance(classes), _bootstrap_variance(classes)
    significant = _significant(classes)
    noise = np.where(significant, 0.0, _calibrated_deviation(classes))
    shared = _shared_variance(classes, bootstrap, significant)

    def deviation(variances: Float64Array) -> float:
        if multilabel:
            return float(np.sqrt(variances.sum(1)).sum())
        return float(np.sqrt(variances.sum() + shared))

    near = deviation(np.where(significant, bootstrap, np.maximum(calibrated - noise**2, 0.0)))
    low = lower_limit(observed, *(noise.sum() + ndtri([(1 - level) / 2, level, (1 + level) / 2]) * near))
    high = observed + float(ndtri((1 + level) / 2)) * deviation(bootstrap)
    down, up = _rare_outcome_margins(classes, level, multilabel=multilabel)
    return min(low, max(observed - down, 0.0)), min(max(high, observed + up), 1.0)


def classwise_floor(classes: BinSums) -> float:
    """The sum over classes and bins of the mean absolute gap of a calibrated model."""
    return float(_calibrated_deviation(classes).sum())


def classwise_noise(classes: BinSums) -> float:
    """Expected part of the classwise error that is noise, if gaps that are not significant are 0."""
    return float(_calibrated_deviation(classes)[~_significant(classes)].sum())


def _significant(classes: BinSums) -> NDArray[np.bool_]:
    deviation = np.sqrt(np.maximum(_bootstrap_variance(classes), _calibrated_variance(classes)))
    return np.asarray(np.abs(classes.gap.numpy()) > SIGNIFICANT * deviation)


def _rare_outcome_margins(classes: BinSums, level: float, *, multilabel: bool) -> Limits:
    """Margins below and above a classwise error that few rare outcomes determine; (0, 0) where there are enough.

    The rare outcome of a bin is the one of fewer rows: labelled with its class, or not. An incorrect row is at most two
    of them in a single-label model, and moves the gap of each by one row.
    """
    n_classes = len(classes.total)
    together = n_classes if multilabel else 2  # rare outcomes of one row, at most
    total, squared = float(classes.total.sum()) / n_classes, float(classes.squared.sum()) / n_classes
    rate, effective = float(classes.weight.amin(-1).sum()) / together / total, total**2 / squared
    if rate * effective >= MIN_OUTCOME_ROWS:
        return 0.0, 0.0
    low, high = clopper_pearson(min(rate, 1.0) * effective, effective, level)
    return (rate - low) * together / n_classes, (high - rate) * together / n_classes


def _calibrated_variance(classes: BinSums) -> Float64Array:
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    return (classes.squared * confidence * (1 - confidence) / classes.total.sum() ** 2).numpy()


def _bootstrap_variance(classes: BinSums) -> Float64Array:
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    accuracy = torch.nan_to_num(classes.accuracy)
    second = accuracy * (1 - confidence) ** 2 + (1 - accuracy) * confidence**2
    return (classes.squared * second / classes.total.sum() ** 2).numpy()


def _calibrated_deviation(classes: BinSums) -> Float64Array:
    """Mean absolute deviation of a binomial count from its mean (De Moivre): 2 m (1 − p) P(m), m = ⌊np⌋ + 1."""
    p = torch.nan_to_num(classes.mean_confidence).clamp(0, 1).numpy()
    n = np.maximum(np.rint(classes.effective.numpy()), 1)
    m = np.floor(n * p) + 1
    deviation = np.where(m <= n, 2 * m * (1 - p) * binomial_pmf(np.minimum(m, n), n, p), 0.0)
    return np.asarray(deviation * classes.total.numpy() / n / float(classes.total.sum()))


def _shared_variance(classes: BinSums, variance: Float64Array, significant: NDArray[np.bool_]) -> float:
    """Twice the covariance of the absolute gaps above ½ with those below, from their signs."""
    sign = np.where(significant, np.sign(classes.gap.numpy()), 0.0)
    middle = (sign.shape[1] + 1) // 2
    labelled = classes.weight[:, :middle, 1].numpy()
    below = float((sign[:, :middle] * labelled).sum() / max(labelled.sum(), 1e-300))
    return max(-2.0 * below * float((sign[:, middle:] * variance[:, middle:]).sum()), 0.0)


def classwise_influence(scored: ScoredPredictions, classes: BinSums) -> Tensor:
    """Influence of each row on the classwise error."""
    logits, labels, weights = scored.predictions.logits, scored.predictions.labels, scored.weights
    sign = classes.gap.sign().flatten()
    (n, k), n_bins = logits.shape, classes.total.shape[1]
    values = torch.empty(n, dtype=torch.float64)
    for rows in blocks(n, k, size=INFLUENCE_BLOCK):
        probs = logits[rows].softmax(1)
        numbers = bin_numbers(probs, n_bins, softmax_rounding(probs.dtype)) + torch.arange(k) * n_bins
        residual = probs.double()
        residual[torch.arange(len(probs)), labels[rows]] -= 1
        values[rows] = (sign[numbers] * residual).sum(1) / k
    return values - weights @ values / weights.sum()
