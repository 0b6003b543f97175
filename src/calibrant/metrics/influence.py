"""The rows of one model, and how they move a metric: the gap that each adds to, or its influence on a mean."""

from collections.abc import Callable
from dataclasses import dataclass
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
    kernel,
)
from calibrant.metrics.ranking import aurc_influence
from calibrant.metrics.sample_scores import SampleScores, softmax_rounding
from calibrant.metrics.smooth import smooth
from calibrant.predictions import Predictions


@dataclass(frozen=True)
class ScoredPredictions:
    """Predictions with the outcome and the weight of each."""

    predictions: Predictions
    outcomes: SampleScores
    weights: Tensor

    def __getitem__(self, index: Tensor) -> Self:
        outcomes = SampleScores(*(getattr(self.outcomes, name)[index] for name in SampleScores.__slots__))
        return type(self)(self.predictions[index], outcomes, self.weights[index])

    @cached_property
    def cells(self) -> tuple[Tensor, BinSums]:
        """The cell of each row, one for every confidence, and their tally."""
        rows = self.outcomes
        keys, cell = confidence_keys(rows.confidence, rows.complement, TIE_BITS[rows.confidence.dtype]).unique(
            return_inverse=True
        )
        return cell, bin_sums(cell, len(keys), rows.confidence, rows.correct, self.weights)


@dataclass(frozen=True)
class BinnedResiduals:
    """The cell and the residual of each row, and a metric as a function of the gaps of the cells."""

    cell: Tensor  # (n,)
    residual: Tensor  # (n,) weight times (confidence − correct)
    n_cells: int
    total: float  # of the weights
    linear: Callable[[Float64Array], Float64Array]  # of the gaps
    norm: Norm  # of that: the metric
    share: float = 1.0  # of a change of the norm that is left where the metric's own width follows

    def without(self, noise: Float64Array) -> tuple[Float64Array, float]:
        """The metric when noise (b, n_cells) is subtracted from the gaps, and what noise adds to it.

        For the latter, gaps that are no more than noise are taken for none.
        """
        observed = np.bincount(self.cell.numpy(), self.residual.numpy(), self.n_cells) / self.total
        gap, drawn = self.linear(observed), self.linear(noise)
        base = np.where(np.abs(gap) > SIGNIFICANT * drawn.std(0), gap, 0.0)
        added = float(self.norm(base - drawn).mean() - self.norm(base))
        return self.share * self.norm(gap - drawn), added


def bin_gaps(rows: ScoredPredictions, n_bins: int, *, norm: Norm) -> BinnedResiduals:
    confidence = rows.outcomes.confidence
    return _binned(rows, bin_numbers(confidence, n_bins, softmax_rounding(confidence.dtype)), n_bins, norm)


def equal_mass_gaps(rows: ScoredPredictions, n_bins: int, *, norm: Norm) -> BinnedResiduals:
    cell, cells = rows.cells
    return _binned(rows, equal_mass_bin_numbers(cells, n_bins)[cell], n_bins, norm)


def ks_gaps(rows: ScoredPredictions, _: int) -> BinnedResiduals:
    cell, groups = _strata(rows)
    return _gaps(rows, cell, len(groups.total), lambda gap: np.cumsum(gap, -1), LARGEST)


def smooth_gaps(rows: ScoredPredictions, _: int) -> BinnedResiduals:
    cell, groups = _strata(rows)
    cells = rows.cells[1]
    width = float(smooth(cells))
    if width == 0:
        return _gaps(rows, cell, len(groups.total), lambda gap: gap, ABSOLUTE_SUM)
    weights = kernel(groups, width)
    share = bandwidth_response(cells, width)
    return _gaps(rows, cell, len(groups.total), lambda gap: gap @ weights, ABSOLUTE_SUM, share)


def _binned(rows: ScoredPredictions, cell: Tensor, n_bins: int, norm: Norm) -> BinnedResiduals:
    mass = torch.bincount(cell, rows.weights, n_bins).numpy() / float(rows.weights.sum())
    scale = norm.scale(mass)
    return _gaps(rows, cell, n_bins, lambda gap: gap / scale, norm)


def _gaps(
    rows: ScoredPredictions,
    cell: Tensor,
    n_cells: int,
    linear: Callable[[Float64Array], Float64Array],
    norm: Norm,
    share: float = 1.0,
) -> BinnedResiduals:
    residual = rows.weights * (rows.outcomes.confidence.double() - rows.outcomes.correct.double())
    return BinnedResiduals(cell, residual, n_cells, float(rows.weights.sum()), linear, norm, share)


def _strata(rows: ScoredPredictions) -> tuple[Tensor, BinSums]:
    """The stratum of each row, and the strata."""
    cell, cells = rows.cells
    _, number = strata_numbers(cells, N_STRATA).unique(return_inverse=True)
    return number[cell], cells.merged(number, int(number.max()) + 1)


def mean_influence(rows: ScoredPredictions, column: str, value: float, *, errors: bool = False) -> Tensor:
    """What each row contributes to n times the mean of a column, over all rows or over the errors, less its value."""
    deviation: Tensor = getattr(rows.outcomes, column).double() - value
    if not errors:
        return deviation
    incorrect = (~rows.outcomes.correct).double()
    return incorrect * deviation * rows.weights.sum() / (rows.weights @ incorrect)


def area_influence(rows: ScoredPredictions) -> Tensor:
    """What each row contributes to n times the AURC, less its value."""
    cell, cells = rows.cells
    correct, incorrect = aurc_influence(cells)
    return torch.where(rows.outcomes.correct, correct[cell], incorrect[cell])
