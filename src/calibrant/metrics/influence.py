"""How the rows of one model move a metric: the gap that each adds to, or its influence on a mean."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from calibrant._arrays import blocks, sum_of
from calibrant.metrics.bin_sums import BinSums, Float64Array, bin_sums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.histogram import TIE_BITS, confidence_keys, equal_mass_bin_numbers, strata_numbers
from calibrant.metrics.hypotheses import SIGNIFICANT
from calibrant.metrics.intervals import (
    ABSOLUTE_SUM,
    LARGEST,
    N_STRATA,
    Norm,
    bandwidth_response,
    kernel_weights,
)
from calibrant.metrics.ranking import aurc_influence
from calibrant.metrics.sample_scores import SampleScores, softmax_rounding
from calibrant.metrics.smooth import smooth
from calibrant.predictions import Predictions

INFLUENCE_BLOCK = 2**20  # numbers at a time
SIGNIFICANT_OVERALL = 2.0  # standard deviations from which the overall gap is taken to be more than noise


@dataclass(frozen=True)
class ScoredPredictions:
    """Predictions with the scores and the weight of each row."""

    predictions: Predictions
    scores: SampleScores
    weights: Tensor

    def __getitem__(self, index: Tensor) -> Self:
        scores = SampleScores(*(getattr(self.scores, name)[index] for name in SampleScores.__slots__))
        return type(self)(self.predictions[index], scores, self.weights[index])

    @cached_property
    def histogram(self) -> tuple[Tensor, BinSums]:
        """The bin of each row, one for every distinct confidence, and the sums of the bins."""
        confidence = self.scores.confidence
        keys = confidence_keys(confidence, self.scores.complement, TIE_BITS[confidence.dtype])
        distinct, number = keys.unique(return_inverse=True)
        return number, bin_sums(number, len(distinct), confidence, self.scores.correct, self.weights)


@dataclass(frozen=True)
class BinnedResiduals:
    """The bin and the residual of each row, and a metric as a function of the gaps of the bins."""

    number: Tensor  # (n,) the bin of each row
    residual: Tensor  # (n,) weight times (confidence − correct), as a share of the sum of all weights
    mass: Float64Array  # (n_bins,)
    linear: Callable[[Float64Array], Float64Array]  # a map of the gaps,
    norm: Norm  # whose norm is the metric
    response: float = 1.0  # derivative of the metric by that norm; below 1 where its bandwidth follows its value

    @property
    def n_bins(self) -> int:
        return len(self.mass)

    @property
    def gap(self) -> Float64Array:
        """The sum of the residuals of each bin."""
        return np.asarray(torch.bincount(self.number, self.residual, self.n_bins).numpy())

    def subtract(self, noise: Float64Array) -> tuple[Float64Array, float]:
        """The metric after noise (b, n_bins) is subtracted from the gaps, and the expected part of it that is noise.

        The latter takes gaps that are not significant to be their share of the overall gap, or 0 where that is not
        significant: the bins of an overconfident model may each have a gap that is lost in its noise.
        """
        gap, drawn, overall = self.linear(self.gap), self.linear(noise), self.gap.sum()
        significant = abs(overall) > SIGNIFICANT_OVERALL * noise.sum(1).std()
        base = np.where(
            np.abs(gap) > SIGNIFICANT * drawn.std(0), gap, self.linear(self.mass * overall) if significant else 0.0
        )
        added = float(self.norm(base - drawn).mean() - self.norm(base))
        return self.response * self.norm(gap - drawn), added


def bin_gaps(rows: ScoredPredictions, n_bins: int, *, norm: Norm) -> BinnedResiduals:
    confidence = rows.scores.confidence
    return _binned(rows, bin_numbers(confidence, n_bins, softmax_rounding(confidence.dtype)), n_bins, norm)


def equal_mass_gaps(rows: ScoredPredictions, n_bins: int, *, norm: Norm) -> BinnedResiduals:
    number, histogram = rows.histogram
    return _binned(rows, equal_mass_bin_numbers(histogram, n_bins)[number], n_bins, norm)


def ks_gaps(rows: ScoredPredictions, _n_bins: int) -> BinnedResiduals:
    number, strata = _strata(rows)
    return _residuals(rows, number, len(strata.total), linear=lambda gap: np.cumsum(gap, -1), norm=LARGEST)


def smooth_gaps(rows: ScoredPredictions, _n_bins: int) -> BinnedResiduals:
    number, strata = _strata(rows)
    histogram = rows.histogram[1]
    bandwidth = float(smooth(histogram))
    if bandwidth == 0:
        return _residuals(rows, number, len(strata.total), linear=lambda gap: gap, norm=ABSOLUTE_SUM)
    weights = kernel_weights(strata, bandwidth)
    response = bandwidth_response(histogram, bandwidth)
    residuals = _residuals(rows, number, len(strata.total), linear=lambda gap: gap @ weights, norm=ABSOLUTE_SUM)
    return replace(residuals, response=response)


def _binned(rows: ScoredPredictions, number: Tensor, n_bins: int, norm: Norm) -> BinnedResiduals:
    scale = norm.scale(_mass(rows, number, n_bins))
    return _residuals(rows, number, n_bins, linear=lambda gap: gap / scale, norm=norm)


def _mass(rows: ScoredPredictions, number: Tensor, n_bins: int) -> Float64Array:
    return np.asarray(torch.bincount(number, rows.weights / sum_of(rows.weights), n_bins).numpy())


def _residuals(
    rows: ScoredPredictions,
    number: Tensor,
    n_bins: int,
    *,
    linear: Callable[[Float64Array], Float64Array],
    norm: Norm,
) -> BinnedResiduals:
    residual = rows.weights * (rows.scores.confidence.double() - rows.scores.correct.double()) / sum_of(rows.weights)
    return BinnedResiduals(number, residual, _mass(rows, number, n_bins), linear, norm)


def _strata(rows: ScoredPredictions) -> tuple[Tensor, BinSums]:
    """The stratum of each row, and the sums of the strata."""
    number, histogram = rows.histogram
    _, stratum = strata_numbers(histogram, N_STRATA).unique(return_inverse=True)
    return stratum[number], histogram.merge(stratum, int(stratum.max()) + 1)


def mean_influence(rows: ScoredPredictions, column: str, value: float, *, errors: bool = False) -> Tensor:
    """Influence of each row on the mean of a column, over all rows or over the errors."""
    deviation: Tensor = getattr(rows.scores, column).double() - value
    if not errors:
        return deviation
    incorrect = (~rows.scores.correct).double()
    return incorrect * deviation * (sum_of(rows.weights) / sum_of(rows.weights * incorrect))


def aurc_row_influence(rows: ScoredPredictions) -> Tensor:
    """Influence of each row on the AURC."""
    number, histogram = rows.histogram
    correct, incorrect = aurc_influence(histogram)
    return torch.where(rows.scores.correct, correct[number], incorrect[number])


def classwise_row_influence(rows: ScoredPredictions, classes: BinSums) -> Tensor:
    """Influence of each row on the classwise ECE.

    An absolute gap that is smaller than its noise varies less than the gap: its sign is multiplied by the ratio of
    their standard deviations.
    """
    logits, labels, weights = rows.predictions.logits, rows.predictions.labels, rows.weights
    gap, deviation = classes.gap.numpy(), _class_deviation(classes)
    variance = gap**2 + deviation**2 - (np.abs(gap) + _added_by_noise(gap, deviation)) ** 2
    slope = torch.from_numpy(np.sign(gap) * np.sqrt(np.maximum(variance, 0.0)) / deviation).flatten()
    (n, k), n_bins = logits.shape, classes.total.shape[1]
    values = torch.empty(n, dtype=torch.float64)
    for block in blocks(n, k, size=INFLUENCE_BLOCK):
        probs = logits[block].softmax(1)
        numbers = bin_numbers(probs, n_bins, softmax_rounding(probs.dtype)) + torch.arange(k) * n_bins
        residual = probs.double()
        residual[torch.arange(len(probs)), labels[block]] -= 1
        values[block] = (slope[numbers] * residual).sum(1) / k
    return values - sum_of(weights * values) / sum_of(weights)


def classwise_noise(classes: BinSums) -> float:
    """Expected part of the classwise ECE that is noise.

    Gaps that are not significant are taken to be their share of the gap of all classes in that bin, or 0 where that is
    not significant.
    """
    gap, mass, deviation = classes.gap.numpy(), classes.mass.numpy(), _class_deviation(classes)
    pooled = gap.sum(0)
    significant = np.abs(pooled) > SIGNIFICANT_OVERALL * np.sqrt((deviation**2).sum(0))
    shared = np.where(significant, pooled, 0.0) * mass / np.maximum(mass.sum(0), 1e-300)
    base = np.where(np.abs(gap) > SIGNIFICANT * deviation, gap, shared)
    return float(_added_by_noise(base, deviation).sum())


def _class_deviation(classes: BinSums) -> Float64Array:
    """Standard deviation of the gap of each class and bin: of outcomes as observed, or as predicted if that is more."""
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    accuracy = torch.nan_to_num(classes.accuracy)
    second = accuracy * (1 - confidence) ** 2 + (1 - accuracy) * confidence**2
    variance = classes.squared * torch.maximum(second, confidence * (1 - confidence)) / sum_of(classes.total) ** 2
    return np.asarray(np.maximum(variance.sqrt().numpy(), 1e-12))


def _added_by_noise(gap: Float64Array, deviation: Float64Array) -> Float64Array:
    """Mean of |gap + normal noise| minus |gap|."""
    ratio = np.abs(gap) / deviation
    density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(2 * deviation * (density - ratio * ndtr(-ratio)))
