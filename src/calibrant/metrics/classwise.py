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
    interval,
    lower_limit,
)
from calibrant.metrics.sample_scores import sample_scores, softmax_rounding

INFLUENCES = 2**20  # of a row on the gap of a class, at a time


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
    _, classes = sample_scores(logits, labels, n_bins=check_integer("n_bins", n_bins, 1), weights=weights)
    assert classes is not None
    return cece(classes)


def cece(classes: BinSums) -> Tensor:
    """Of (n_classes, n_bins): every class has the whole weight, so that the sum of all gaps is a mean over classes."""
    return classes.gap.abs().sum()


def classwise_interval(classes: BinSums, level: float, seed: int, *, multilabel: bool) -> Limits:
    """The limits of `interval` for a sum over so many gaps that it is nearly normal.

    The classes of a row are not independent: what one class has too much, the others have too little. A row's
    likeliest class (its bins above ½) and its label otherwise (below) are taken together; of two classes, either says
    all. Classes that do not exclude each other are taken to vary together, which is the widest.
    """
    observed = float(cece(classes))
    if not multilabel and len(classes.total) == 2:
        limits = interval(observed, draw_noise(classes[1], seed), ABSOLUTE_SUM, level)
        return cover_overall_gap(limits, classes[1], ABSOLUTE_SUM, level)
    perfect, anew = _perfect_variance(classes), _anew_variance(classes)
    plain = _plain(classes)
    chance = np.where(plain, 0.0, _perfect_deviation(classes))
    shared = _shared_variance(classes, anew, plain)

    def deviation(variances: Float64Array) -> float:
        if multilabel:
            return float(np.sqrt(variances.sum(1)).sum())
        return float(np.sqrt(variances.sum() + shared))

    spread = deviation(np.where(plain, anew, np.maximum(perfect - chance**2, 0.0)))
    low = lower_limit(observed, *(chance.sum() + ndtri([(1 - level) / 2, level, (1 + level) / 2]) * spread))
    high = observed + float(ndtri((1 + level) / 2)) * deviation(anew)
    down, up = _rare_reach(classes, level, multilabel=multilabel)
    return min(low, max(observed - down, 0.0)), min(max(high, observed + up), 1.0)


def classwise_floor(classes: BinSums) -> float:
    """The sum over classes and bins of the mean absolute gap of a perfect model."""
    return float(_perfect_deviation(classes).sum())


def classwise_noise(classes: BinSums) -> float:
    """What noise adds to the classwise error where gaps that are no more than noise are taken for none."""
    return float(_perfect_deviation(classes)[~_plain(classes)].sum())


def _plain(classes: BinSums) -> NDArray[np.bool_]:
    """Which gaps are more than noise."""
    spread = np.sqrt(np.maximum(_anew_variance(classes), _perfect_variance(classes)))
    return np.asarray(np.abs(classes.gap.numpy()) > SIGNIFICANT * spread)


def _rare_reach(classes: BinSums, level: float, *, multilabel: bool) -> Limits:
    """How far down and up a classwise error may be that rests on few surprises; (0, 0) where there are enough.

    A surprise is a row that is of a class in whose bin few are, or not of one in whose bin most are. An incorrect row
    of exclusive classes is two of them, each of which moves the gap of its class by a row.
    """
    n_classes = len(classes.total)
    together = n_classes if multilabel else 2  # surprises that come at once, at most
    total, squared = float(classes.total.sum()) / n_classes, float(classes.squared.sum()) / n_classes
    share, effective = float(classes.weight.amin(-1).sum()) / together / total, total**2 / squared
    if share * effective >= MIN_OUTCOME_ROWS:
        return 0.0, 0.0
    low, high = clopper_pearson(min(share, 1.0) * effective, effective, level)
    return (share - low) * together / n_classes, (high - share) * together / n_classes


def _perfect_variance(classes: BinSums) -> Float64Array:
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    return (classes.squared * confidence * (1 - confidence) / classes.total.sum() ** 2).numpy()


def _anew_variance(classes: BinSums) -> Float64Array:
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    accuracy = torch.nan_to_num(classes.accuracy)
    second = accuracy * (1 - confidence) ** 2 + (1 - accuracy) * confidence**2
    return (classes.squared * second / classes.total.sum() ** 2).numpy()


def _perfect_deviation(classes: BinSums) -> Float64Array:
    """Mean absolute deviation of a binomial count from its mean (De Moivre): 2 m (1 − p) P(m), m = ⌊np⌋ + 1."""
    p = torch.nan_to_num(classes.mean_confidence).clamp(0, 1).numpy()
    n = np.maximum(np.rint(classes.effective.numpy()), 1)
    m = np.floor(n * p) + 1
    deviation = np.where(m <= n, 2 * m * (1 - p) * binomial_pmf(np.minimum(m, n), n, p), 0.0)
    return np.asarray(deviation * classes.total.numpy() / n / float(classes.total.sum()))


def _shared_variance(classes: BinSums, variance: Float64Array, plain: NDArray[np.bool_]) -> float:
    """Twice the covariance of the absolute gaps above ½ with those below, from their signs."""
    sign = np.where(plain, np.sign(classes.gap.numpy()), 0.0)
    middle = (sign.shape[1] + 1) // 2
    labelled = classes.weight[:, :middle, 1].numpy()
    below = float((sign[:, :middle] * labelled).sum() / max(labelled.sum(), 1e-300))
    return max(-2.0 * below * float((sign[:, middle:] * variance[:, middle:]).sum()), 0.0)


def classwise_influence(scored: ScoredPredictions, classes: BinSums) -> Tensor:
    """What each row contributes to n times the classwise error, less its value."""
    logits, labels, weights = scored.predictions.logits, scored.predictions.labels, scored.weights
    sign = classes.gap.sign().flatten()
    (n, k), n_bins = logits.shape, classes.total.shape[1]
    found = torch.empty(n, dtype=torch.float64)
    for rows in blocks(n, k, size=INFLUENCES):
        probs = logits[rows].softmax(1)
        cell = bin_numbers(probs, n_bins, softmax_rounding(probs.dtype)) + torch.arange(k) * n_bins
        residual = probs.double()
        residual[torch.arange(len(probs)), labels[rows]] -= 1
        found[rows] = (sign[cell] * residual).sum(1) / k
    return found - weights @ found / weights.sum()
