"""One more pass over the rows of an audit, in bounded memory: what its page shows and a scorecard does not keep.

Rows of weight 0 are left out. The result is the same for any size of the batches, to the last bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_all_labelled, check_choice, check_whole
from calibrant._files import without_secrets
from calibrant.errors import InvalidInputError
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.outcomes import Outcomes, outcomes, rounding, top_class
from calibrant.metrics.scorecard import NO_ROWS, row_weights
from calibrant.predictions import Predictions
from calibrant.report.audit.sample import Sample
from calibrant.scan import Scan

N_ERRORS = 25
N_BARS = 50  # of the histogram
SURE = 0.9
MOST_IDS, LONGEST = 3, 80  # columns that say which row it is, and letters of what they say
IDS = ("id", "path", "file", "image", "name")

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Report = Callable[[float], None]  # called with the number of bytes that have been read since it was called


class Block(NamedTuple):
    """Consecutive rows of a file; of predictions in memory the file is empty."""

    file: str
    first_row: int
    rows: Predictions
    n_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row whose predicted class is not its label."""

    file: str
    row: int  # in its file, from 0
    ids: tuple[str, ...]  # what the columns that say which row it is hold
    label: int
    predicted: int
    doubt: float  # 1 − confidence, which keeps its digits where the confidence rounds to 1


@dataclass(frozen=True, slots=True)
class Share:
    """Rows of which a part is right."""

    count: int = 0
    weight: float = 0.0
    squared: float = 0.0  # the sum of squared weights
    right: float = 0.0  # the weight of the right ones
    confidence: float = 0.0  # the weighted sum

    @property
    def effective(self) -> float:
        """The number of equally weighted rows that would tell as much."""
        return self.weight**2 / self.squared if self.squared else 0.0


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums for each class (k,): of the rows labelled with it, and of those predicted to be it."""

    labelled: Counts
    labelled_weight: Floats
    predicted: Counts
    weight: Floats
    squared: Floats
    right: Floats
    confidence: Floats

    @classmethod
    def none(cls, n_classes: int) -> Self:
        labelled, predicted = np.zeros((2, n_classes), np.int64)
        labelled_weight, weight, squared, right, confidence = np.zeros((5, n_classes))
        return cls(labelled, labelled_weight, predicted, weight, squared, right, confidence)


@dataclass(frozen=True, eq=False)
class Reading:
    """What the pass has found."""

    n_rows: int  # that count
    n_left_out: int  # of weight 0
    classes: ClassSums
    bars: Counts  # (N_BARS, 2): rows by confidence, wrong and right
    bar_weights: Floats  # the same by weight
    sure: Share  # the rows with a confidence of at least SURE
    errors: tuple[ErrorRow, ...]  # the most confident ones, these first
    id_columns: tuple[str, ...]
    sample: Predictions  # with a column ``weights`` where rows have weights
    class_names: tuple[str, ...] | None
    names_differ: bool  # between files
    fingerprint: str  # that of `Predictions.fingerprint`, of all rows, whatever their order and their weight

    def class_name(self, number: int) -> str:
        return str(number) if self.class_names is None else self.class_names[number]


def read(
    source: Scan | Predictions, *, weights: str | None = None, seed: int = 0, report: Report = lambda _: None
) -> Reading:
    """Read all rows once. Raises: InvalidInputError, also where a row has no label; CorruptFileError."""
    check_whole("seed", seed, 0)
    known = source.column_names if isinstance(source, Scan) else source.columns.column_names
    if weights is not None:
        check_choice("column", weights, known)
    ids = id_columns([name for name in known if name != weights])
    collected: _Collected | None = None
    for block in _blocks(source, list(dict.fromkeys([*ids, *([] if weights is None else [weights])]))):
        if collected is None:
            collected = _Collected(block.rows.n_classes, ids, weights, seed)
        try:
            collected.add(block)
        except InvalidInputError as error:
            where = f", counting rows from {block.first_row}" if block.first_row else ""
            file = without_secrets(block.file)
            raise InvalidInputError(f"{file}{where}: {error}" if file else str(error)) from None
        report(block.n_bytes)
    if collected is None or collected.n_rows == 0:
        raise InvalidInputError(NO_ROWS)
    return collected.reading()


def id_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that seem to say which row it is, at most three.

    >>> id_columns(["site", "Patient_ID", "path"])
    ('Patient_ID', 'path')
    """
    found = [name for name in names if name.lower() in IDS or name.lower().endswith("_id")]
    return tuple(found[:MOST_IDS])


def _blocks(source: Scan | Predictions, columns: list[str]) -> Iterator[Block]:
    if isinstance(source, Predictions):
        yield Block("", 0, source.select(columns))
        return
    for part in source.parts:
        first_row = part.first_row
        for batch in source.read_part(part, columns):
            yield Block(part.url, first_row, batch, part.n_bytes * len(batch) / part.n_rows)
            first_row += len(batch)


class _Collected:
    """What has been read so far. Sums are made row by row, so that they do not know where a batch ended."""

    def __init__(self, n_classes: int, ids: tuple[str, ...], weights: str | None, seed: int) -> None:
        self.ids, self.weights = ids, weights
        self.n_rows = self.n_left_out = 0
        self.classes = ClassSums.none(n_classes)
        self.bars, self.bar_weights = np.zeros((N_BARS, 2), np.int64), np.zeros((N_BARS, 2))
        self.sure_count, self.sure = 0, np.zeros(4)
        self.errors: list[ErrorRow] = []
        self.sample = Sample(n_classes, seed)
        self.hashes = [0, 0]
        self.all_names: set[tuple[str, ...] | None] = set()

    def add(self, block: Block) -> None:
        rows = block.rows
        for place, hashes in enumerate(rows.row_hashes):
            self.hashes[place] = (self.hashes[place] + int(hashes.sum(dtype=np.uint64))) % 2**64
        self.all_names.add(rows.class_names)
        number = np.arange(block.first_row, block.first_row + len(rows))
        keys = rows.row_hashes[1]
        weight = np.ones(len(rows))
        if self.weights is not None:
            weight = row_weights(rows, self.weights).numpy()
            counts = weight > 0
            self.n_left_out += int((~counts).sum())
            rows, weight, number, keys = rows[counts], weight[counts], number[counts], keys[counts]
        if len(rows) == 0:
            return
        check_all_labelled(rows.labels == UNKNOWN)
        self.n_rows += len(rows)
        found, _ = outcomes(rows.logits, rows.labels)
        predicted = top_class(rows.logits).numpy()
        self._sum(found, rows.labels.numpy(), predicted, weight)
        self._keep_errors(block, rows, found, predicted, number)
        self.sample.add(rows, weight, keys)

    def _sum(self, found: Outcomes, labels: Counts, predicted: Counts, weight: Floats) -> None:
        correct, confidence = found.correct.numpy(), found.confidence.numpy().astype(np.float64)
        c = self.classes
        np.add.at(c.labelled, labels, 1)
        np.add.at(c.labelled_weight, labels, weight)
        np.add.at(c.predicted, predicted, 1)
        for total, values in (
            (c.weight, weight),
            (c.squared, weight**2),
            (c.right, weight * correct),
            (c.confidence, weight * confidence),
        ):
            np.add.at(total, predicted, values)
        slack = rounding(found.confidence.dtype)
        place = (bin_numbers(found.confidence, N_BARS, slack).numpy(), correct.astype(np.int64))
        np.add.at(self.bars, place, 1)
        np.add.at(self.bar_weights, place, weight)
        sure = confidence >= SURE - slack
        self.sure_count += int(sure.sum())
        terms = np.stack([weight, weight**2, weight * correct, weight * confidence], axis=1)[sure]
        np.add.at(self.sure, (np.tile(np.arange(4), len(terms)),), terms.reshape(-1))

    def _keep_errors(self, block: Block, rows: Predictions, found: Outcomes, predicted: Counts, number: Counts) -> None:
        """Of equally confident ones the first."""
        doubt = found.doubt.numpy()
        wrong = np.flatnonzero(~found.correct.numpy())
        chosen = wrong[np.argsort(doubt[wrong], kind="stable")[:N_ERRORS]]
        said = rows.columns.select(list(self.ids)).take(pa.array(chosen)).to_pylist()
        texts = said or [{}] * len(chosen)
        new = [
            ErrorRow(
                block.file,
                int(number[i]),
                tuple(_short(values[name]) for name in self.ids),
                int(rows.labels[i]),
                int(predicted[i]),
                float(doubt[i]),
            )
            for i, values in zip(chosen, texts, strict=True)
        ]
        self.errors = sorted([*self.errors, *new], key=lambda row: row.doubt)[:N_ERRORS]

    def reading(self) -> Reading:
        n_all = self.n_rows + self.n_left_out
        names = next(iter(self.all_names)) if len(self.all_names) == 1 else None
        return Reading(
            self.n_rows,
            self.n_left_out,
            self.classes,
            self.bars,
            self.bar_weights,
            Share(self.sure_count, *self.sure.tolist()),
            tuple(self.errors),
            self.ids,
            self.sample.predictions(weighted=self.weights is not None),
            names,
            len(self.all_names) > 1,
            f"{n_all:010x}{self.hashes[0]:016x}{self.hashes[1]:016x}",
        )


def _short(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
