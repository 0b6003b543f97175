"""Classwise ECE: the mean over classes of the ECE of each class's probability; its interval and floor."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betainc, gammainc, gammaincc, ndtr
from torch import Tensor

from calibrant._arrays import sum_of
from calibrant._checks import check_n_bins
from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.checks import check_scored
from calibrant.metrics.hypotheses import Bins, Limits, invert, limits_of, ray_gaps
from calibrant.metrics.intervals import ABSOLUTE_SUM, binned_interval
from calibrant.metrics.sample_scores import sample_scores

FEW_ERRORS = 20.0


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
    _, classes = sample_scores(logits, labels, n_bins=check_n_bins(n_bins), weights=weights)
    assert classes is not None
    return cece(classes)


def cece(classes: BinSums) -> Tensor:
    """Of (n_classes, n_bins): every row counts once in every class, so the sum of all gaps is a mean over classes."""
    return torch.tensor(sum_of(classes.gap.abs()), dtype=torch.float64)


def classwise_interval(classes: BinSums, level: float, seed: int, *, multilabel: bool) -> Limits:
    """The classwise errors under all hypotheses of one ray that the observed one does not contradict.

    As in `calibrant.metrics.intervals`, but the distribution of a sum over so many gaps is taken to be a gamma
    distribution instead of drawn. The classes of a row are not independent: their probabilities sum to 1. Of two
    classes, one is enough; of more, the covariance of gaps above ½ with those below is included. Classes of a
    multi-label model are assumed to be fully correlated, which gives the widest limits.
    """
    observed = float(cece(classes))
    if not multilabel and len(classes.total) == 2:
        low, high = binned_interval(classes[1], level, seed, norm=ABSOLUTE_SUM)
        return min(low, observed), max(high, observed)
    flat = _flat(classes)
    bins = Bins.of(flat)
    number = torch.arange(len(flat.total))[flat.total > 0] // classes.total.shape[1]
    n_effective = sum_of(classes.total[0]) ** 2 / sum_of(classes.squared[0])
    step = (1.0 if multilabel else 2 / len(classes.total)) / n_effective  # an error moves the gaps of two classes
    errors = _errors(bins, bins.correct)
    found: list[Float64Array] = []
    for sign, gaps in zip((1, -1), ray_gaps(bins), strict=True):
        mean, deviation = np.array([_moments(bins, gap, number.numpy(), multilabel=multilabel) for gap in gaps]).T
        shape = (mean / np.maximum(deviation, 1e-6 * mean + 1e-300)) ** 2
        usual = max(observed, mean[0] - deviation[0])  # as in `invert_drawn`
        below, above = (gammainc(shape, np.maximum(x, 0) * shape / mean) for x in (observed - step / 2, usual + step))
        if sign < 0:  # as in `invert_drawn`
            in_direction = float(np.sign(gaps[-1]) @ bins.gap)
            above = ndtr((in_direction - np.abs(gaps).sum(1)) / np.maximum(deviation, 1e-300))
        if errors < FEW_ERRORS:  # no continuous distribution knows how often there are so few
            expected = np.array([_errors(bins, bins.rows * bins.accuracy(gap)) for gap in gaps])
            above = np.maximum(above, gammaincc(errors + 1, expected))
        found += invert(gaps, 1 - below, above, (mean - mean[0]) / max(4 * deviation[0], 1e-12), level)
    low, high = limits_of(found, lambda gap: float(np.abs(gap).sum()))
    return min(low, observed), max(high, observed)


def classwise_floor(classes: BinSums) -> float:
    """The sum over classes and bins of the mean absolute gap of a calibrated model."""
    bins = Bins.of(_flat(classes))
    deviation = mean_absolute_deviation(bins.rows * bins.confidence, bins.rows, bins.confidence)
    return float((bins.stretch * deviation * bins.mass / bins.rows).sum())


def _errors(bins: Bins, labelled: Float64Array) -> float:
    """About the number of errors: rows of the rarer outcome of each bin, of which an error makes two."""
    return float(np.minimum(labelled, bins.rows - labelled).sum()) / 2


def _flat(classes: BinSums) -> BinSums:
    """The bins of all classes in one dimension."""
    return BinSums(*(getattr(classes, name).flatten(0, 1) for name in BinSums.__slots__))


def _moments(bins: Bins, gap: Float64Array, number: NDArray[np.int64], *, multilabel: bool) -> tuple[float, float]:
    """Mean and standard deviation of the sum of absolute gaps where these are the true ones.

    Those of each absolute gap are exact for a binomial count; ``number`` is the class of each bin.
    """
    n, p, expected = bins.rows, bins.accuracy(gap), bins.rows * bins.confidence
    unit = bins.mass / n
    first = mean_absolute_deviation(expected, n, p)
    variance = np.maximum(n * p * (1 - p) + (n * p - expected) ** 2 - first**2, 0.0) * (bins.stretch * unit) ** 2
    first = np.abs(gap) + bins.stretch * (first * unit - np.abs(gap))
    deviation = float(np.sqrt(np.bincount(number, variance)).sum())
    if not multilabel:
        deviation = float(np.sqrt(variance.sum() + _shared_variance(bins, gap, variance)))
    return max(float(first.sum()), 1e-12), deviation


def mean_absolute_deviation(a: Float64Array, n: Float64Array, p: Float64Array) -> Float64Array:
    """E|X − a| of a binomial count X: np − a + 2 (a P(X ≤ m) − np P(X′ ≤ m − 1)), m = ⌊a⌋, X′ one row less."""
    m = np.floor(a)
    at_most, one_less = _binomial_cdf(m, n, p), _binomial_cdf(m - 1, n - 1, p)
    return np.asarray(np.maximum(n * p - a + 2 * (a * at_most - n * p * one_less), 0.0))


def _binomial_cdf(m: Float64Array, n: Float64Array, p: Float64Array) -> Float64Array:
    inside = betainc(np.maximum(n - m, 1.0), np.maximum(m + 1, 1.0), 1 - p)
    return np.asarray(np.where(m >= n, 1.0, np.where(m < 0, 0.0, inside)))


def _shared_variance(bins: Bins, gap: Float64Array, variance: Float64Array) -> float:
    """Twice the covariance of the absolute gaps above ½ with those below, from the effect of one more labelled row."""
    n, p, expected = bins.rows - 1, bins.accuracy(gap), bins.rows * bins.confidence
    m = np.floor(expected)
    at_most, below = _binomial_cdf(m, n, p), _binomial_cdf(m - 1, n, p)
    effect = 1 - at_most - below + (1 - 2 * (expected - m)) * (at_most - below)
    low = bins.confidence < 0.5
    labelled = (bins.rows * p)[low]
    of_low = float((effect[low] * labelled).sum() / max(labelled.sum(), 1e-300))
    return max(-2.0 * of_low * float((effect[~low] * variance[~low]).sum()), 0.0)
