"""How the rows of one model move a metric: the gap that each adds to, or its influence on a mean."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics.bin_sums import BinSums, Float64Array, bin_sums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.histogram import TIE_BITS, confidence_keys, equal_mass_bin_numbers, strata_numbers
from calibrant.metrics.intervals import (
    ABSOLUTE_SUM,
    LARGEST,
    N_STRATA,
    SIGNIFICANT,
    Norm,
    bandwidth_response,
    kernel_weights,
)
from calibrant.metrics.ranking import aurc_influence
from calibrant.metrics.sample_scores import SampleScores, softmax_rounding
from calibrant.metrics.smooth import smooth
from calibrant.predictions import Predictions


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
    residual: Tensor  # (n,) weight times (confidence − correct)
    n_bins: int
    total: float  # of the weights
    linear: Callable[[Float64Array], Float64Array]  # a map of the gaps,
    norm: Norm  # whose norm is the metric
    response: float = 1.0  # derivative of the metric by that norm; below 1 where its bandwidth follows its value

    def subtract(self, noise: Float64Array) -> tuple[Float64Array, float]:
        """The metric after noise (b, n_bins) is subtracted from the gaps, and the expected part of it that is noise.

        The latter takes gaps that are not significant to be 0.
        """
        observed = np.bincount(self.number.numpy(), self.residual.numpy(), self.n_bins) / self.total
        gap, drawn = self.linear(observed), self.linear(noise)
        base = np.where(np.abs(gap) > SIGNIFICANT * drawn.std(0), gap, 0.0)
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
    mass = torch.bincount(number, rows.weights, n_bins).numpy() / float(rows.weights.sum())
    scale = norm.scale(mass)
    return _residuals(rows, number, n_bins, linear=lambda gap: gap / scale, norm=norm)


def _residuals(
    rows: ScoredPredictions,
    number: Tensor,
    n_bins: int,
    *,
    linear: Callable[[Float64Array], Float64Array],
    norm: Norm,
) -> BinnedResiduals:
    residual = rows.weights * (rows.scores.confidence.double() - rows.scores.correct.double())
    return BinnedResiduals(
        number=number, residual=residual, n_bins=n_bins, total=float(rows.weights.sum()), linear=linear, norm=norm
    )


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
    return incorrect * deviation * rows.weights.sum() / (rows.weights @ incorrect)


def aurc_row_influence(rows: ScoredPredictions) -> Tensor:
    """Influence of each row on the AURC."""
    number, histogram = rows.histogram
    correct, incorrect = aurc_influence(histogram)
    return torch.where(rows.scores.correct, correct[number], incorrect[number])
