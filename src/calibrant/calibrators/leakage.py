"""Which rows a calibrator was fitted on: enough to recognise them again, whole, in part or among others."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from calibrant._arrays import Hashes

SAMPLE = 1024  # rows that are remembered, by hash
MAX_REPEATS = 0.1  # share of rows that repeat, from which on equal rows are no sign of a leak
MIN_SHARE = 0.1  # of rows that are the same, beyond what chance repeats, from which on they are a leak


@dataclass(frozen=True)
class RowSketch:
    """The fingerprint of a set of rows, and the least of their hashes.

    The rows of another set whose hashes are as small must be among them where it is a part of this one, and they must
    be among its rows where it holds this one; labels do not count. Where many rows repeat, as rounded probabilities do,
    equal rows are no sign of a leak, and only the fingerprint counts.
    """

    fingerprint: str
    sample: tuple[int, ...]  # sorted; empty where many rows repeat
    repeats: float  # share of the rows that repeat another

    def __post_init__(self) -> None:
        if self.sample and not (min(self.sample) >= 0 and max(self.sample) < 2**64):
            raise InvalidInputError("sample must be 64-bit hashes")

    @classmethod
    def of(cls, predictions: Predictions) -> Self:
        hashes = np.sort(predictions.row_hashes[0])
        distinct = hashes[np.append(True, hashes[1:] != hashes[:-1])] if len(hashes) else hashes
        repeats = 1 - len(distinct) / max(1, len(hashes))
        sample = distinct[:SAMPLE].tolist() if repeats <= MAX_REPEATS else []
        return cls(predictions.fingerprint, tuple(sample), repeats)

    def check_disjoint(self, predictions: Predictions) -> None:
        """Raises: InvalidInputError where the predictions hold these rows."""
        leak = LeakCheck(self)
        leak.add(predictions)
        leak.check()


class LeakCheck:
    """Looks for the rows of a calibrator's validation set in others, batch by batch."""

    def __init__(self, rows: RowSketch) -> None:
        self.rows = rows
        self.fingerprints: list[str] = []
        self.small: list[Hashes] = []

    def add(self, predictions: Predictions) -> None:
        self.fingerprints.append(predictions.fingerprint)
        if self.rows.sample:
            hashes = predictions.row_hashes[0]
            self.small.append(hashes[hashes <= np.uint64(self.rows.sample[-1])])

    def check(self) -> None:
        """Raises: InvalidInputError where the rows are those of the validation set, or many of them are."""
        n, low, high = (sum(int(f[a:b], 16) for f in self.fingerprints) for a, b in ((0, 10), (10, 26), (26, 42)))
        same = f"{n:010x}{low % 2**64:016x}{high % 2**64:016x}" == self.rows.fingerprint  # that of all batches: sums
        if self.fingerprints and (same or self._share() > MIN_SHARE + 3 * self.rows.repeats):
            raise InvalidInputError(
                f"predictions hold {'the rows' if same else 'rows'} that it was fitted on, where any calibrator looks "
                "better than it is; take other rows, or cross_fit, or say allow_same_rows=True (--allow-same-rows)"
            )

    def _share(self) -> float:
        """Of the rows whose hashes are as small as those of the sample, how many are in it."""
        distinct = np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *self.small]))
        found = int(np.isin(distinct, np.array(self.rows.sample, dtype=np.uint64)).sum())
        return found / max(1, min(len(distinct), len(self.rows.sample)))
