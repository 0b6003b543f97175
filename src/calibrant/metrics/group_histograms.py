"""The fine histograms of many groups of rows, one after another in the same tensors."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.histogram import FineHistogram, confidence_keys, rounded_keys


@dataclass(frozen=True, slots=True, eq=False)
class GroupHistograms:
    """Bins that are not empty, in the order of group and confidence; indexed by the number of a group."""

    group: Tensor  # (m,) int64, ascending
    key: Tensor  # (m,) int64, increasing within each group; as of `FineHistogram`
    sums: BinSums  # of m bins
    limit: int | None  # of the number of bins of a group
    dropped: Tensor  # (groups,) int64: bits of the scale

    def __getitem__(self, index: int) -> FineHistogram:
        start, end = torch.searchsorted(self.group, torch.tensor([index, index + 1])).tolist()
        return FineHistogram(self.key[start:end], self.sums[start:end], self.limit, int(self.dropped[index]))

    def renumber(self, number: Tensor, n_groups: int) -> Self:
        """The same histograms with the group i as number ``number[i]`` of ``n_groups``."""
        dropped = torch.zeros(n_groups, dtype=torch.int64).index_copy_(0, number, self.dropped)
        return replace(self, group=number[self.group], dropped=dropped)

    def __add__(self, other: Self) -> Self:
        """Of the same groups."""
        dropped = torch.maximum(self.dropped, other.dropped)
        key = torch.cat([self._rounded_key(dropped), other._rounded_key(dropped)])
        group = torch.cat([self.group, other.group])
        order = _order(group, key)
        sums = BinSums(*(torch.cat([getattr(self.sums, n), getattr(other.sums, n)])[order] for n in BinSums.__slots__))
        return self._merge(group[order], key[order], sums, dropped).reduce()

    def reduce(self) -> Self:
        """The same rows in at most ``limit`` bins for each group."""
        if self.limit is None:
            return self
        large = (torch.bincount(self.group, minlength=len(self.dropped)) > self.limit).nonzero().squeeze(1).tolist()
        if not large:
            return self
        dropped = self.dropped.clone()
        for index in large:
            dropped[index] = self[index].reduce().dropped
        return self._merge(self.group, self._rounded_key(dropped), self.sums, dropped)

    def _rounded_key(self, dropped: Tensor) -> Tensor:
        """The keys with so many bits of the scale dropped for each group."""
        key = self.key
        for was, now in set(zip(self.dropped.tolist(), dropped.tolist(), strict=True)):
            if now > 0:
                rows = ((self.dropped == was) & (dropped == now))[self.group]
                key = key.masked_scatter(rows, rounded_keys(key[rows], was, now))
        return key

    def _merge(self, group: Tensor, key: Tensor, sums: BinSums, dropped: Tensor) -> Self:
        """Neighbours with the same group and key become one bin."""
        number, starts = _number_runs(group, key)
        merged = sums.merge_neighbours(number, len(starts))
        return replace(self, group=group[starts], key=key[starts], sums=merged, dropped=dropped)


def group_histograms(
    confidence: Tensor,
    complement: Tensor,
    correct: Tensor,
    weights: Tensor | None,
    groups: Tensor,
    n_groups: int,
    *,
    tie_bits: int,
    limit: int | None,
) -> GroupHistograms:
    """`fine_histogram` of each group of rows, which ``groups`` numbers."""
    keys = confidence_keys(confidence, complement, tie_bits)
    order = _order(groups, keys)
    groups, keys = groups[order], keys[order]
    number, starts = _number_runs(groups, keys)
    ordered = (confidence[order], correct[order], None if weights is None else weights[order])
    sums = bin_sums(number, len(starts), *ordered)
    exact = torch.zeros(n_groups, dtype=torch.int64)
    return GroupHistograms(groups[starts], keys[starts], sums, limit, exact).reduce()


def _order(group: Tensor, key: Tensor) -> Tensor:
    """The order by group, and by key within a group; fast where both are sorted, or two sorted parts."""
    pairs = np.empty(len(key), dtype=np.complex128)  # compared by the real part first
    pairs.real, pairs.imag = group.numpy(), key.view(torch.float64).numpy()  # positive floats: in the order of the bits
    return torch.from_numpy(np.argsort(pairs, kind="stable"))


def _number_runs(group: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the run of equal pairs that each row belongs to, and the row where each run starts."""
    begins = torch.ones_like(key, dtype=torch.bool)
    begins[1:] = (key[1:] != key[:-1]) | (group[1:] != group[:-1])
    return begins.cumsum(0) - 1, begins.nonzero().squeeze(1)
