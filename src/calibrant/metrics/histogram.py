"""The fine histogram of confidences, sorted: metrics that depend on their order are computed from it.

A bin holds the rows of one confidence. The histogram of a stream has a limit: when there are more confidences, they are
rounded to a scale, whose last bits are dropped until they fit. The scale is even in the fourth root of the distance to
0 or to 1, whichever is nearer, plus a small multiple of its logarithm: a confidence that float32 rounds to 1 keeps its
position, and data that lie close together keep more bits. The number of dropped bits depends on the set of all rows and
not on their order, so histograms can be added in any order. What must not depend on the rows at all, such as a test,
uses bins of so few bits that no set of rows needs fewer.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from calibrant._arrays import sum_of
from calibrant.metrics.bin_sums import BinSums, bin_sums

MAX_HISTOGRAM_BINS = 2**18  # of a stream
MAX_GROUP_HISTOGRAM_BINS = 2**15  # of each group in a stream
TIE_BITS = {torch.float32: 18, torch.float64: 42}  # bits of a confidence that the rounding of a softmax leaves alone
SCALE_BITS = 62  # of a number on the scale
FIXED_DROPPED = 47  # bits: with so many dropped, all confidences together have fewer bins than the histogram of a group
_SCALE = 2.0**60
_HALF = int(torch.tensor(0.5, dtype=torch.float64).view(torch.int64))
_TOP = int(0.5**0.25 * _SCALE) + (_HALF >> 4) + 1


@dataclass(frozen=True, slots=True, eq=False)
class FineHistogram:
    """Bins that are not empty, in the order of confidence."""

    key: Tensor  # (m,) int64, increasing
    sums: BinSums  # of m bins
    limit: int | None  # of the number of bins
    dropped: int = 0  # bits of the scale; 0 where every bin holds one confidence only

    @property
    def exact(self) -> bool:
        return self.dropped == 0

    def width(self) -> Tensor:
        """(m,) the widths of the bins: 4 u³ du, where u is the fourth root of the distance."""
        confidence = self.sums.mean_confidence
        root = torch.minimum(confidence, 1 - confidence).clamp_min(0) ** 0.25
        step = 2.0**self.dropped / _SCALE
        return 4 * (root + step) ** 3 * step

    def __add__(self, other: Self) -> Self:
        dropped = max(self.dropped, other.dropped)
        keys = torch.cat([histogram.rounded_key(dropped) for histogram in (self, other)])
        both = BinSums(*(torch.cat([getattr(self.sums, n), getattr(other.sums, n)]) for n in BinSums.__slots__))
        limit = min((limit for limit in (self.limit, other.limit) if limit is not None), default=None)
        order = torch.from_numpy(np.argsort(keys.numpy(), kind="stable"))  # fast: both parts are sorted
        key, run = keys[order].unique_consecutive(return_inverse=True)
        number = torch.empty_like(order).index_copy_(0, order, run)
        return type(self)(key, both.merge(number, len(key)), limit, dropped).reduce()

    def reduce(self) -> Self:
        """The same rows in at most ``limit`` bins."""
        if self.limit is None or len(self.key) <= self.limit:
            return self
        scaled = self.on_scale().numpy()
        # Neighbours stay apart while a bit is left in which they differ; those of the limit-th largest difference go.
        differences = scaled[1:] ^ scaled[:-1]
        largest = int(np.partition(differences, -self.limit)[-self.limit])
        return self.coarsen(max(self.dropped + 1, largest.bit_length()))

    def coarsen(self, dropped: int) -> Self:
        """The same rows in bins with at least as many bits dropped."""
        key, number = self.rounded_key(dropped).unique_consecutive(return_inverse=True)
        return type(self)(key, self.sums.merge_neighbours(number, len(key)), self.limit, dropped)

    def rounded_key(self, dropped: int) -> Tensor:
        """The keys with so many bits of the scale dropped; exact ones for 0."""
        return rounded_keys(self.key, self.dropped, dropped)

    def on_scale(self) -> Tensor:
        """The keys as integers on the scale."""
        return _on_scale(self.key) if self.exact else self.key


def rounded_keys(key: Tensor, dropped: int, more: int) -> Tensor:
    """Keys with so many bits of the scale dropped, with more dropped; exact ones for 0."""
    if more == 0:
        return key
    return (_on_scale(key) if dropped == 0 else key) >> more << more


def _on_scale(key: Tensor) -> Tensor:
    """Exact keys as integers on the scale."""
    low = key <= _HALF
    distance = torch.where(low, key, 2 * _HALF - key).view(torch.float64)
    octaves = distance.view(torch.int64) >> 4  # an octave is 2^-12 of the root
    side = (distance.sqrt().sqrt() * _SCALE).long() + octaves
    return torch.where(low, side, 2 * _TOP - side)


def upper_edge(key: int, dropped: int) -> float:
    """The smallest confidence above the bin of this key, from which so many bits are dropped; not for the last bin."""
    low, high = 0, 2 * _HALF  # exact keys, in the bin or below it, and above it
    while high - low > 1:
        middle = (low + high) // 2
        above = int(_on_scale(torch.tensor(middle))) >> dropped > key >> dropped
        low, high = (low, middle) if above else (middle, high)
    distance = float(torch.tensor(min(high, 2 * _HALF - high)).view(torch.float64))
    return distance if high <= _HALF else 1 - distance


def fine_histogram(
    confidence: Tensor,
    complement: Tensor,
    correct: Tensor,
    weights: Tensor | None,
    *,
    tie_bits: int | None = None,
    limit: int | None = None,
) -> FineHistogram:
    """A bin for each distinct confidence; equal are those that agree to ``tie_bits``, by default to all bits."""
    keys, order = confidence_keys(confidence, complement, tie_bits).sort()
    starts = torch.ones_like(keys, dtype=torch.bool)
    starts[1:] = keys[1:] != keys[:-1]
    number = starts.cumsum(0) - 1
    key = keys[starts]
    ordered = (confidence[order], correct[order], None if weights is None else weights[order])
    return FineHistogram(key, bin_sums(number, len(key), *ordered), limit).reduce()


def confidence_keys(confidence: Tensor, complement: Tensor, tie_bits: int | None = None) -> Tensor:
    """Integers in the order of the confidences, equal where these are: the bits of the distance to 0 or to 1."""
    confidence, complement = confidence.double(), complement.double()
    low = confidence <= complement
    bits = torch.where(low, confidence, complement).clamp_(0.0, 0.5).view(torch.int64)
    if tie_bits is not None:
        dropped = 52 - tie_bits
        bits = (bits + (1 << (dropped - 1))) >> dropped << dropped
    return torch.where(low, bits, 2 * _HALF - bits)


def equal_mass_bins(histogram: BinSums, n_bins: int) -> BinSums:
    """Bins of equal mass; rows of one confidence stay together."""
    return histogram.merge_neighbours(equal_mass_bin_numbers(histogram, n_bins), n_bins)


def equal_mass_bin_numbers(histogram: BinSums, n_bins: int) -> Tensor:
    """The bins of the published code: ⌈i·n_bins/n⌉ − 1, at least 0, where i is the weight of all lower confidences."""
    ends = histogram.total.cumsum(0)
    below = ends - histogram.total
    position = below * n_bins / ends[-1]
    return (position - 1e-9).ceil().long().sub_(1).clamp_(0, n_bins - 1)


def strata(histogram: BinSums, n_strata: int) -> BinSums:
    """At most this many strata of neighbouring bins, of about equal mass."""
    if len(histogram.total) <= n_strata:
        return histogram
    merged = histogram.merge_neighbours(strata_numbers(histogram, n_strata), n_strata)
    return merged[merged.total > 0]


def strata_numbers(histogram: BinSums, n_strata: int) -> Tensor:
    middle = histogram.total.cumsum(0) - histogram.total / 2
    return (middle * n_strata / sum_of(histogram.total)).long().clamp_(0, n_strata - 1)
