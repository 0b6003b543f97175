"""Events: probabilities of something that then happened or not, as the tallies of one question."""

from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.histogram import TIE_BITS, FineHistogram, fine_histogram
from calibrant.metrics.sample_scores import softmax_rounding


@dataclass(frozen=True, eq=False)
class Events:
    """Probabilities of something that then happened or not: the tallies of one question."""

    bins: BinSums | None = None
    cells: FineHistogram | None = None

    def __add__(self, other: Self) -> Self:
        return type(self)(plus(self.bins, other.bins), plus(self.cells, other.cells))


def events(
    confidence: Tensor,
    complement: Tensor,
    happened: Tensor,
    weights: Tensor | None,
    n_bins: int,
    parts: set[str],
    limit: int | None,
) -> Events:
    """The tallies of computed probabilities, whose last digits are rounding."""
    bins = cells = None
    if "bins" in parts:
        numbers = bin_numbers(confidence, n_bins, softmax_rounding(confidence.dtype))
        bins = bin_sums(numbers, n_bins, confidence, happened, weights)
    if "cells" in parts:
        tie_bits = TIE_BITS[confidence.dtype]
        cells = fine_histogram(confidence, complement, happened, weights, tie_bits=tie_bits, limit=limit)
    return Events(bins, cells)


def plus(a: Any, b: Any) -> Any:
    """The sum of two parts of a scorecard, if there are such parts."""
    return None if a is None else a + b
