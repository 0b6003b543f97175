"""Hashes of the rows that a calibrator was fitted on: they recognize the set, a part of it, or a superset."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from calibrant._arrays import UNKNOWN
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

SKETCH_SIZE = 1024  # hashes that are kept
MAX_REPEATS = 0.1  # share of repeated rows up to which equal rows indicate a leak
MAX_SHARED = 0.1  # share of equal rows, beyond repeats, above which there is a leak


@dataclass(frozen=True)
class RowSketch:
    """The fingerprint of a set of rows, and a bottom-k sketch of it: the least row hashes.

    Two sets that share rows also share those of the least hashes. Labels do not count. If many rows repeat, as rounded
    probabilities do, equal rows do not indicate a leak, and only the fingerprint is compared.
    """

    fingerprint: str
    sample: tuple[int, ...]  # sorted; empty if many rows repeat
    repeats: float  # share of the rows that repeat another

    def __post_init__(self) -> None:
        if self.sample and not (min(self.sample) >= 0 and max(self.sample) < 2**64):
            raise InvalidInputError("sample must be 64-bit hashes")

    @classmethod
    def of(cls, predictions: Predictions) -> Self:
        hashes = np.sort(predictions.row_hashes[0])
        distinct = hashes[np.append(True, hashes[1:] != hashes[:-1])] if len(hashes) else hashes
        repeats = 1 - len(distinct) / max(1, len(hashes))
        sample = distinct[:SKETCH_SIZE].tolist() if repeats <= MAX_REPEATS else []
        return cls(predictions.fingerprint, tuple(sample), repeats)

    def check_disjoint(self, predictions: Predictions) -> None:
        """Raises: InvalidInputError if the predictions hold these rows."""
        self._searched(predictions).check()

    def shared_rows(self, predictions: Predictions) -> str:
        """What the predictions hold of these rows: "the rows", "rows", or "" for few or none."""
        return self._searched(predictions).shared_rows()

    def _searched(self, predictions: Predictions) -> "LeakCheck":
        leak = LeakCheck(self)
        leak.add(predictions)
        return leak


class LeakCheck:
    """Search batches of predictions for the rows of a calibrator's validation set."""

    def __init__(self, rows: RowSketch) -> None:
        self.rows = rows
        self.fingerprints: list[str] = []
        self.labelled = False
        self.sample = np.array(rows.sample, dtype=np.uint64)
        self.found = np.zeros(0, dtype=np.uint64)  # hashes that are in the sketch
        self.small = np.zeros(0, dtype=np.uint64)  # as many hashes in its range as it has

    def add(self, predictions: Predictions) -> None:
        self.fingerprints.append(predictions.fingerprint)
        self.labelled |= bool((predictions.labels != UNKNOWN).any())
        if len(self.sample):
            hashes = predictions.row_hashes[0]
            small = hashes[hashes <= self.sample[-1]]
            self.found = np.union1d(self.found, small[np.isin(small, self.sample, kind="sort")])
            self.small = np.union1d(self.small, small)[: len(self.sample)]

    def check(self) -> None:
        """Raises: InvalidInputError if the rows, or many of them, are those of the validation set."""
        if found := self.shared_rows():
            raise InvalidInputError(
                f"predictions hold {found} that it was fitted on, where its scores are too "
                "good; use other rows, cross_fit, or allow_same_rows=True (--allow-same-rows)"
            )

    def shared_rows(self) -> str:
        """What is there of the rows: "the rows" if these are all and no others, "rows" if many, else ""."""
        n, low, high = (sum(int(f[a:b], 16) for f in self.fingerprints) for a, b in ((0, 10), (10, 26), (26, 42)))
        total = f"{n:010x}{low % 2**64:016x}{high % 2**64:016x}"  # sums over batches
        digits = 42 if self.labelled else 26  # the last 16 are of the labels
        same = total[:digits] == self.rows.fingerprint[:digits]
        if not self.fingerprints:
            return ""
        return "the rows" if same else "rows" if self._share() > MAX_SHARED + 3 * self.rows.repeats else ""

    def _share(self) -> float:
        """The share of the rows with hashes in the range of the sketch that are in it."""
        return len(self.found) / max(1, len(self.small))
