"""Which rows a calibrator was fitted on: enough to recognise them again, whole, in part or among others."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from calibrant._arrays import Hashes
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

SAMPLE = 256  # rows that are remembered, by hash


@dataclass(frozen=True)
class Rows:
    """The fingerprint of a set of rows, and the least of their hashes.

    The rows of another set whose hashes are as small must be among them where it is a part of this one, and they must
    be among its rows where it holds this one. Where rows repeat, as rounded probabilities do, equal rows are no sign of
    a leak, and only the fingerprint counts.
    """

    fingerprint: str
    sample: tuple[int, ...]  # sorted; empty where rows repeat

    @classmethod
    def of(cls, predictions: Predictions) -> Self:
        hashes = _hashes(predictions)
        distinct = np.unique(hashes)
        return cls(predictions.fingerprint, tuple(distinct[:SAMPLE].tolist()) if len(distinct) == len(hashes) else ())


class Watch:
    """Looks at rows, batch by batch, for those of a calibrator's validation set."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.fingerprints: list[str] = []
        self.small: list[Hashes] = []

    def see(self, predictions: Predictions) -> None:
        self.fingerprints.append(predictions.fingerprint)
        if self.rows.sample:
            hashes = _hashes(predictions)
            self.small.append(hashes[hashes <= np.uint64(self.rows.sample[-1])])

    def check(self) -> None:
        """Raises: InvalidInputError where the rows were those of the validation set, or most of either of the other."""
        if not self.fingerprints:
            return
        if _sum(self.fingerprints) == self.rows.fingerprint:
            raise InvalidInputError(_message("the rows that it was fitted on"))
        small = np.concatenate(self.small) if self.small else np.zeros(0, dtype=np.uint64)
        if len(small) == 0 or len(np.unique(small)) < len(small):
            return
        found = int(np.isin(small, np.array(self.rows.sample, dtype=np.uint64)).sum())
        if 2 * found > min(len(small), len(self.rows.sample)):
            raise InvalidInputError(_message("rows that it was fitted on"))


def _hashes(predictions: Predictions) -> Hashes:
    return predictions.row_hashes[0]


def _sum(fingerprints: Iterable[str]) -> str:
    """The fingerprint of all rows from those of the batches: sums, part by part."""
    n, low, high = (sum(int(f[a:b], 16) for f in fingerprints) for a, b in ((0, 10), (10, 26), (26, 42)))
    return f"{n:010x}{low % 2**64:016x}{high % 2**64:016x}"


def _message(what: str) -> str:
    return (
        f"predictions hold {what}, where any calibrator looks better than it is; take other rows, or cross_fit, or say "
        "allow_same_rows=True (--allow-same-rows)"
    )
