"""How often the values of a column repeat, from one pass in bounded memory."""

from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant._arrays import value_hashes

MAX_COUNTED_VALUES = 4096
MIN_REPEATED_SHARE = 0.05  # of the rows that share their value with another one; with fewer, no warning


@cache
def _no_value() -> np.uint64:
    """The hash of a null."""
    (value,) = value_hashes("", pa.chunked_array([pa.nulls(1, pa.string())])).tolist()
    return np.uint64(value)


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """The rows of the values with the smallest hashes: of all values, up to 4,096.

    A value among them is among those of every part that has it, so adding two of them gives the counts of all rows.
    """

    hashes: NDArray[np.uint64]  # increasing
    counts: NDArray[np.int64]
    n_rows: int  # that have a value

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray) -> Self:
        hashes = value_hashes(name, column)
        hashes, counts = np.unique(hashes[hashes != _no_value()], return_counts=True)
        return cls(hashes[:MAX_COUNTED_VALUES], counts[:MAX_COUNTED_VALUES], int(counts.sum()))

    def __add__(self, other: Self) -> Self:
        hashes, number = np.unique(np.concatenate([self.hashes, other.hashes]), return_inverse=True)
        counts = np.bincount(number, np.concatenate([self.counts, other.counts])).astype(np.int64)
        n_rows = self.n_rows + other.n_rows
        return type(self)(hashes[:MAX_COUNTED_VALUES], counts[:MAX_COUNTED_VALUES], n_rows)

    @property
    def n_values(self) -> int:
        """The number of values; from 4,096 on an estimate."""
        return round(self.n_rows * len(self.counts) / self.counts.sum()) if len(self.counts) else 0

    @property
    def repeats(self) -> bool:
        """Whether there are several values, and at least 5 % of the rows share theirs with another row."""
        if len(self.counts) < 2:
            return False
        return bool(self.counts[self.counts > 1].sum() >= MIN_REPEATED_SHARE * self.counts.sum())
