"""One pass over the rows of an audit, in bounded memory: what it keeps of each part merges by addition.

Parts are read in this process, in local processes or on Ray, and added in their order: the result has the same bits for
any number of workers. Within a part, sums by class and by confidence are made row by row, so they do not know where a
batch ended. Rows of weight 0 do not count; only the fingerprint is of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_all_labelled
from calibrant._files import without_secrets
from calibrant._names import check_choice
from calibrant._parquet import FilePart
from calibrant.audits.sample import Sample
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.histogram import MAX_HISTOGRAM_BINS
from calibrant.metrics.sample_scores import SampleScores, sample_scores, softmax_rounding, top_class
from calibrant.metrics.scorecard import NO_ROWS, Scorecard, row_weights
from calibrant.metrics.scoring import Groups, score_batch
from calibrant.parallel import BytesDone, map_parts, one_thread
from calibrant.predictions import Predictions
from calibrant.scan import Scan

N_ERRORS = 25
N_BARS = 50  # of the histogram of confidences
MAX_IDS, MAX_CHARACTERS = 3, 80  # columns that say which row it is, and characters of what they say
IDS = ("id", "path", "file", "image", "name")

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row whose predicted class is not its label."""

    file: str  # empty of predictions in memory
    row: int  # in its file, from 0
    ids: tuple[str, ...]  # what the columns that say which row it is hold
    label: int
    predicted: int
    doubt: float  # 1 − confidence, which keeps its digits where the confidence rounds to 1


@dataclass(frozen=True, eq=False)
class Gathered:
    """What the pass keeps of some rows; ``a + b`` is what it keeps of both, those of a first."""

    n_rows: int  # all of them, also those of weight 0
    hashes: tuple[int, int]  # sums of the hashes of rows
    class_names: frozenset[tuple[str, ...] | None]  # that the files give
    scores: tuple[Any, ...]  # the scorecard, then the groups of each column; empty where no row counts
    labelled: BinSums  # (k,) the rows labelled with each class
    predicted: BinSums  # (k,) the rows predicted to be each class
    histogram: BinSums  # (N_BARS,) the rows by confidence
    errors: tuple[ErrorRow, ...]  # the most confident ones, these first
    sample: Sample

    def __add__(self, other: Self) -> Self:
        low, high = ((a + b) % 2**64 for a, b in zip(self.hashes, other.hashes, strict=True))
        return type(self)(
            self.n_rows + other.n_rows,
            (low, high),
            self.class_names | other.class_names,
            _added(self.scores, other.scores),
            self.labelled + other.labelled,
            self.predicted + other.predicted,
            self.histogram + other.histogram,
            _most_confident((*self.errors, *other.errors)),
            self.sample + other.sample,
        )

    @property
    def card(self) -> Scorecard:
        card: Scorecard = self.scores[0]
        return card

    @property
    def groups(self) -> tuple[Groups, ...]:
        return self.scores[1:]

    @property
    def fingerprint(self) -> str:
        """That of `Predictions.fingerprint`, of all rows, whatever their order and their weight."""
        return f"{self.n_rows:010x}{self.hashes[0]:016x}{self.hashes[1]:016x}"

    def class_name(self, number: int) -> str:
        """The number itself where files give none, or differ."""
        names = next(iter(self.class_names)) if len(self.class_names) == 1 else None
        return str(number) if names is None else names[number]


def _added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True)) if a and b else a or b


def _most_confident(errors: Sequence[ErrorRow]) -> tuple[ErrorRow, ...]:
    """Of equally confident ones the first."""
    return tuple(sorted(errors, key=lambda row: row.doubt)[:N_ERRORS])


def gather_rows(
    source: Scan | Predictions,
    *,
    by: Sequence[str] = (),
    weights: str | None = None,
    n_bins: int = 15,
    seed: int = 0,
    jobs: int = 1,
    ray: str | None = None,
    report: BytesDone = lambda n_bytes: None,
) -> Gathered:
    """Read all rows once; arguments as of `audit`.

    Raises:
        InvalidInputError: Where a row has no label, or none counts.
        CorruptFileError: Where a file cannot be read to its end.
    """
    known = column_names(source)
    columns = list(dict.fromkeys([*by, *([] if weights is None else [weights])]))
    for name in columns:
        _check_everywhere(source, name)
        check_choice("column", name, known)
    ids = id_columns(known, weights)
    options = {"by": tuple(by), "ids": ids, "weights": weights, "n_bins": n_bins, "seed": seed}
    total: Gathered | None = None
    if isinstance(source, Predictions):
        with one_thread():
            total = _of_rows(source, **options)
    else:
        work = partial(_of_part, source, list(dict.fromkeys([*columns, *ids])), options)
        for part, found in zip(
            source.parts, map_parts(work, source.parts, jobs=jobs, ray=ray, progress=report), strict=True
        ):
            total = _checked_sum(total, found, part)
    if total is None or not total.scores:
        raise InvalidInputError(NO_ROWS)
    return total


def column_names(source: Scan | Predictions) -> list[str]:
    """The user's columns."""
    return source.column_names if isinstance(source, Scan) else source.columns.column_names


def _check_everywhere(source: Scan | Predictions, name: str) -> None:
    """A column that only some files have is not unknown: the first file without it is named."""
    having = [name in footer.schema.names for footer in source.footers] if isinstance(source, Scan) else []
    if any(having) and not all(having):
        file = without_secrets(source.files[having.index(False)])  # type: ignore[union-attr]
        raise InvalidInputError(f"{file} has no column {name}; other files have it")


def id_columns(names: Sequence[str], weights: str | None = None) -> tuple[str, ...]:
    """The columns that seem to say which row it is, at most three, and never the weights.

    >>> id_columns(["site", "Patient_ID", "path"])
    ('Patient_ID', 'path')
    """
    found = [name for name in names if name.lower() in IDS or name.lower().endswith("_id")]
    return tuple(name for name in found if name != weights)[:MAX_IDS]


def _of_rows(rows: Predictions, **options: Any) -> Gathered:
    collected = _Collected(rows.n_classes, stream=False, **options)
    collected.add("", 0, rows)
    return collected.gathered()


def _of_part(
    scan: Scan, columns: list[str], options: dict[str, Any], part: FilePart, report: BytesDone
) -> Gathered | None:
    """What a worker does; None where the part has no rows."""
    collected: _Collected | None = None
    first_row = part.first_row
    for batch in scan.read_part(part, columns):
        collected = collected or _Collected(batch.n_classes, stream=True, **options)
        try:
            collected.add(part.url, first_row, batch)
        except InvalidInputError as error:
            where = f", counting rows from {first_row}" if first_row else ""
            raise InvalidInputError(f"{without_secrets(part.url)}{where}: {error}") from None
        first_row += len(batch)
        report(part.n_bytes * len(batch) / part.n_rows)
    return None if collected is None else collected.gathered()


def _checked_sum(total: Gathered | None, found: Gathered | None, part: FilePart) -> Gathered | None:
    if total is None or found is None:
        return total or found
    sizes = len(found.predicted.total), len(total.predicted.total)
    if sizes[0] != sizes[1]:
        got = f"{sizes[0]} classes, the files before it have {sizes[1]}"
        raise CorruptFileError(f"{without_secrets(part.url)} has {got}")
    return total + found


class _Collected:
    """What has been kept of a part so far."""

    def __init__(
        self,
        n_classes: int,
        *,
        stream: bool,
        by: Sequence[str],
        ids: Sequence[str],
        weights: str | None,
        n_bins: int,
        seed: int,
    ) -> None:
        self.stream, self.by, self.ids, self.weights, self.n_bins, self.seed = stream, by, ids, weights, n_bins, seed
        self.n_rows, self.hashes = 0, [0, 0]
        self.class_names: set[tuple[str, ...] | None] = set()
        self.scores: tuple[Any, ...] = ()
        self.labelled, self.predicted, self.histogram = _empty(n_classes), _empty(n_classes), _empty(N_BARS)
        self.errors: tuple[ErrorRow, ...] = ()
        self.sample: Sample | None = None

    def add(self, file: str, first_row: int, rows: Predictions) -> None:
        """Take the next rows of the part."""
        self.n_rows += len(rows)
        for place, hashes in enumerate(rows.row_hashes):
            self.hashes[place] = (self.hashes[place] + int(hashes.sum(dtype=np.uint64))) % 2**64
        self.class_names.add(rows.class_names)
        number, keys = np.arange(first_row, first_row + len(rows)), rows.row_hashes[1]
        weight = None
        if self.weights is not None:
            weight = row_weights(rows, self.weights).numpy()
            counts = weight > 0
            rows, weight, number, keys = rows[counts], weight[counts], number[counts], keys[counts]
        if len(rows) == 0:
            return
        check_all_labelled(rows.labels == UNKNOWN)
        weights = None if weight is None else torch.from_numpy(weight)
        scored = sample_scores(rows.logits, rows.labels, n_bins=self.n_bins, weights=weights)
        self._score(rows, scored)
        self._count(file, rows, number, scored[0], weight)
        sample = Sample.of(rows, np.ones(len(rows)) if weight is None else weight, keys, self.seed)
        self.sample = sample if self.sample is None else self.sample + sample

    def _score(self, rows: Predictions, scored: tuple[SampleScores, BinSums | None]) -> None:
        most = MAX_HISTOGRAM_BINS if self.stream else None
        card = Scorecard.of(rows, n_bins=self.n_bins, weights=self.weights, max_histogram_bins=most, scored=scored)
        groups = [
            score_batch(
                rows,
                by=by,
                metrics=None,
                n_bins=self.n_bins,
                weights=self.weights,
                stream=self.stream,
                overall=card,
            )
            for by in self.by
        ]
        self.scores = _added(self.scores, (card, *groups))

    def _count(
        self, file: str, rows: Predictions, number: Indices, scored: SampleScores, weight: Floats | None
    ) -> None:
        confidence, correct = scored.confidence.double().numpy(), scored.correct.numpy()
        wrong = np.flatnonzero(~correct)
        labels = rows.labels.numpy()
        predicted = labels.copy()
        predicted[wrong] = top_class(rows.logits[torch.from_numpy(wrong)]).numpy()
        bars = bin_numbers(scored.confidence, N_BARS, softmax_rounding(scored.confidence.dtype)).numpy()
        for tally, cells in ((self.labelled, labels), (self.predicted, predicted), (self.histogram, bars)):
            _add_rows(tally, cells, confidence, correct, weight)
        doubt = scored.complement.numpy()
        chosen = wrong[np.argsort(doubt[wrong], kind="stable")[:N_ERRORS]]
        ids = rows.columns.select(self.ids).take(pa.array(chosen)).to_pylist() or [{}] * len(chosen)
        errors = [
            ErrorRow(
                file,
                int(number[i]),
                tuple(_short(values[name]) for name in self.ids),
                int(labels[i]),
                int(predicted[i]),
                float(doubt[i]),
            )
            for i, values in zip(chosen, ids, strict=True)
        ]
        self.errors = _most_confident((*self.errors, *errors))

    def gathered(self) -> Gathered:
        low, high = self.hashes
        n_classes = len(self.predicted.total)
        return Gathered(
            self.n_rows,
            (low, high),
            frozenset(self.class_names),
            self.scores,
            self.labelled,
            self.predicted,
            self.histogram,
            self.errors,
            Sample.none(n_classes) if self.sample is None else self.sample.cut(),
        )


def _empty(n_cells: int) -> BinSums:
    count, weight = torch.zeros(n_cells, 2, dtype=torch.int64), torch.zeros(n_cells, 2, dtype=torch.float64)
    return BinSums(count, weight, *torch.zeros(2, n_cells, dtype=torch.float64))


def _add_rows(
    total: BinSums, cells: Indices, confidence: Floats, correct: NDArray[np.bool_], weight: Floats | None
) -> None:
    """Add to a tally in place, row by row."""
    slot = 2 * cells + correct
    count = torch.from_numpy(np.bincount(slot, minlength=2 * len(total.count))).view(-1, 2)
    total.count.add_(count)
    if weight is None:
        total.weight.add_(count)
        total.squared.add_(count.sum(1))
        np.add.at(total.confidence.numpy(), cells, confidence)
        return
    np.add.at(total.weight.numpy().reshape(-1), slot, weight)
    np.add.at(total.squared.numpy(), cells, weight * weight)
    np.add.at(total.confidence.numpy(), cells, weight * confidence)


def _short(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
