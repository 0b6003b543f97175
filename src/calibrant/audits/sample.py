"""A sample of rows in bounded memory: seeded, and the same in whatever order, batches and parts they come."""

from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.predictions import Predictions

MAX_ROWS = 20_000
MAX_ELEMENTS = 2**22  # logits: 16 MB of float32
MIN_ROWS = 2_000  # however many classes there are
WEIGHTS = "weights"  # the column of the sample's weights

Block: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.float64], Tensor, Tensor]  # keys, weights, logits, labels


def sample_size(n_classes: int) -> int:
    return min(MAX_ROWS, max(MIN_ROWS, MAX_ELEMENTS // n_classes))


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows whose scrambled hashes are the smallest: each row has the same chance, and equal rows go together."""

    size: int
    blocks: tuple[Block, ...] = ()  # at most twice as many rows as the size
    last: np.uint64 | None = None  # a key that no row of the sample exceeds

    @classmethod
    def of(cls, rows: Predictions, weight: NDArray[np.float64], hashes: NDArray[np.uint64], seed: int) -> Self:
        salt, factor = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        keys = (hashes ^ salt) * (factor | np.uint64(1))
        keys ^= keys >> np.uint64(32)
        size = sample_size(rows.n_classes)
        last = np.partition(keys, size - 1)[size - 1] if len(keys) > size else None
        return cls(size, (_up_to(last, (keys, weight, rows.logits, rows.labels)),), last)

    @classmethod
    def none(cls, n_classes: int) -> Self:
        return cls(sample_size(n_classes))

    def __add__(self, other: Self) -> Self:
        last = min((last for last in (self.last, other.last) if last is not None), default=None)
        blocks = *self.blocks, *(_up_to(last, block) for block in other.blocks)
        both = replace(self, blocks=blocks, last=last)
        return both if sum(len(block[0]) for block in blocks) <= 2 * self.size else both.cut()

    def cut(self) -> Self:
        """One block of the smallest keys, in order; of equal rows, which have equal keys, the lightest first."""
        keys, weight, logits, labels = zip(*self.blocks, strict=True)
        all_keys, all_weight = np.concatenate(keys), np.concatenate(weight)
        order = np.lexsort((all_weight, all_keys))[: self.size]
        index = torch.from_numpy(order)
        block = all_keys[order], all_weight[order], torch.cat(logits)[index], torch.cat(labels)[index]
        last = block[0][-1] if len(order) == self.size else None
        return replace(self, blocks=(block,), last=last)

    def predictions(self, *, weighted: bool) -> Predictions:
        [(_, weight, logits, labels)] = self.cut().blocks
        columns = pa.table({WEIGHTS: weight})
        return Predictions(logits, labels, columns if weighted else columns.select([]))


def _up_to(last: np.uint64 | None, block: Block) -> Block:
    """The rows of a block whose keys are no larger."""
    if last is None:
        return block
    near = np.flatnonzero(block[0] <= last)
    index = torch.from_numpy(near)
    return block[0][near], block[1][near], block[2][index], block[3][index]
