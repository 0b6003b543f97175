"""A random sample of rows in bounded memory: the same rows for any order, batches and parts."""

from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.predictions import Predictions

MAX_SAMPLE_ROWS = 20_000
MAX_SAMPLE_LOGITS = 2**22  # 16 MB of float32
MIN_SAMPLE_ROWS = 2_000  # for any number of classes
SAMPLE_WEIGHTS, SAMPLE_CLUSTER = "weights", "cluster"  # the columns of the weights and of the hashes of the clusters

# keys, weights, clusters, logits, labels
SampleBlock: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64], Tensor, Tensor]


def sample_size(n_classes: int) -> int:
    return min(MAX_SAMPLE_ROWS, max(MIN_SAMPLE_ROWS, MAX_SAMPLE_LOGITS // n_classes))


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows with the smallest keys, which are seeded hashes: each row has the same chance; equal rows stay together.

    Adding two samples gives the sample of all rows of both.
    """

    size: int
    blocks: tuple[SampleBlock, ...] = ()  # at most twice as many rows as the size
    max_key: np.uint64 | None = None  # no row of the final sample has a larger key

    @classmethod
    def empty(cls, n_classes: int) -> Self:
        return cls(sample_size(n_classes))

    @classmethod
    def from_rows(
        cls,
        rows: Predictions,
        weight: NDArray[np.float64],
        cluster: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        seed: int,
    ) -> Self:
        salt, factor = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        keys = (hashes ^ salt) * (factor | np.uint64(1))
        keys ^= keys >> np.uint64(32)
        size = sample_size(rows.n_classes)
        max_key = np.partition(keys, size - 1)[size - 1] if len(keys) > size else None
        return cls(size, (_drop_larger(max_key, (keys, weight, cluster, rows.logits, rows.labels)),), max_key)

    def __add__(self, other: Self) -> Self:
        max_key = min((key for key in (self.max_key, other.max_key) if key is not None), default=None)
        blocks = *self.blocks, *(_drop_larger(max_key, block) for block in other.blocks)
        total = replace(self, blocks=blocks, max_key=max_key)
        return total if sum(len(block[0]) for block in blocks) <= 2 * self.size else total.truncate()

    def truncate(self) -> Self:
        """One block of the smallest keys, in order; among equal rows, which have equal keys, the lightest first."""
        if not self.blocks:
            return self
        *columns, logits, labels = zip(*self.blocks, strict=True)
        keys, weight, cluster = map(np.concatenate, columns)
        order = np.lexsort((cluster, weight, keys))[: self.size]
        index = torch.from_numpy(order)
        block = keys[order], weight[order], cluster[order], torch.cat(logits)[index], torch.cat(labels)[index]
        max_key = block[0][-1] if len(order) == self.size else None
        return replace(self, blocks=(block,), max_key=max_key)

    def predictions(self) -> Predictions:
        """The rows, with the columns of their weights and of the hashes of their clusters."""
        [(_, weight, cluster, logits, labels)] = self.truncate().blocks
        return Predictions(logits, labels, pa.table({SAMPLE_WEIGHTS: weight, SAMPLE_CLUSTER: cluster}))


def _drop_larger(max_key: np.uint64 | None, block: SampleBlock) -> SampleBlock:
    """The rows of a block with keys of at most ``max_key``."""
    if max_key is None:
        return block
    kept = np.flatnonzero(block[0] <= max_key)
    index = torch.from_numpy(kept)
    return block[0][kept], block[1][kept], block[2][kept], block[3][index], block[4][index]
