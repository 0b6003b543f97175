"""A sample of rows in bounded memory: seeded, and the same in whatever order and batches they come."""

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.predictions import Predictions

MOST_ROWS = 20_000
MOST_ELEMENTS = 2**22  # logits: 16 MB of float32
LEAST_ROWS = 2_000  # however many classes there are
WEIGHTS = "weights"


def sample_size(n_classes: int) -> int:
    return min(MOST_ROWS, max(LEAST_ROWS, MOST_ELEMENTS // n_classes))


class Sample:
    """The rows whose scrambled hashes are the smallest: each row has the same chance, and equal rows go together."""

    def __init__(self, n_classes: int, seed: int) -> None:
        self.size = sample_size(n_classes)
        self.salt, factor = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self.factor = factor | np.uint64(1)
        self.kept: list[tuple[NDArray[np.uint64], NDArray[np.float64], Tensor, Tensor]] = []
        self.n_kept = 0
        self.last: np.uint64 | None = None  # a key that no row of the sample exceeds

    def add(self, rows: Predictions, weight: NDArray[np.float64], hashes: NDArray[np.uint64]) -> None:
        keys = (hashes ^ self.salt) * self.factor
        keys ^= keys >> np.uint64(32)
        near = np.arange(len(keys)) if self.last is None else np.flatnonzero(keys <= self.last)
        index = torch.from_numpy(near)
        self.kept.append((keys[near], weight[near], rows.logits[index], rows.labels[index]))
        self.n_kept += len(near)
        if self.n_kept > 2 * self.size:
            self._cut()

    def _cut(self) -> None:
        """The smallest keys, in order; of equal rows, which have equal keys, the lightest first."""
        keys, weight = (np.concatenate([part[i] for part in self.kept]) for i in (0, 1))
        order = np.lexsort((weight, keys))[: self.size]
        index = torch.from_numpy(order)
        logits = torch.cat([part[2] for part in self.kept])[index]
        labels = torch.cat([part[3] for part in self.kept])[index]
        self.kept, self.n_kept = [(keys[order], weight[order], logits, labels)], len(order)
        if len(order) == self.size:
            self.last = keys[order][-1]

    def predictions(self, *, weighted: bool) -> Predictions:
        self._cut()
        [(_, weight, logits, labels)] = self.kept
        columns = pa.table({WEIGHTS: weight}) if weighted else pa.table({"_": weight}).drop_columns("_")
        return Predictions(logits, labels, columns)
