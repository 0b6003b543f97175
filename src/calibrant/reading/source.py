"""A table of predictions: its columns found, its parts read as `Predictions` batch by batch."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from calibrant._arrays import UNKNOWN, as_lists, as_logits, first_null, floats, list_matrix, two_classes
from calibrant._checks import (
    PRIOR_TOLERANCE,
    check_class_names,
    check_columns,
    check_confidence,
    check_dense,
    check_distributions,
    check_features16,
    check_probabilities,
    plain_texts,
)
from calibrant._names import check_choice
from calibrant._parquet import BATCH_ELEMENTS, FilePart
from calibrant._progress import Say, silent
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.predictions import LABEL_PROBS, METADATA_KEY, TOP_LABEL_COLUMNS, Predictions
from calibrant.reading.columns import OF_ONE_COLUMN, Layout, Request, find_layout, with_class_names
from calibrant.reading.labels import LabelReader
from calibrant.reading.nested import flattened
from calibrant.reading.options import ABSENT
from calibrant.reading.outcomes import match_labels, read_correct
from calibrant.reading.rounding import Rounding
from calibrant.reading.tables import Batches, TableSource, Wanted, frame_table

MAX_JOINED_BYTES = 2**23  # of batches that are joined


@dataclass(frozen=True)
class PredictionSource:
    """Predictions in one file or data frame."""

    table: TableSource
    layout: Layout
    metadata: Mapping[str, Any]
    is_own: bool  # whether calibrant wrote it

    @property
    def url(self) -> str:
        return self.table.name

    @property
    def found(self) -> str:
        """The line that a user reads before anything is computed."""
        return str(self.layout) if self.table.options is None else self.table.options.found

    @property
    def n_classes(self) -> int | None:
        """The number of classes, if the columns say it."""
        layout = self.layout
        if layout.kind in OF_ONE_COLUMN:
            return 2
        if not layout.lists:
            return len(layout.columns)
        kind = self.table.schema.field(layout.columns[0]).type
        return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else None

    @cached_property
    def n_rows(self) -> int:
        """The number of rows; a file that does not say it is read."""
        counts = [part.n_rows for part in self.table.parts]
        if None in counts:
            first = self.table.schema.names[:1]
            return sum(batch.num_rows for batch in self.table.read(Wanted(first, self._types(first))))
        return sum(count or 0 for count in counts)

    @property
    def without_labels(self) -> str:
        """That it has no column of labels, and what to type."""
        others = ", ".join(self.layout.others)
        where = f"its other columns are {others}" if others else "it has no other columns than those of predictions"
        name = "correct" if self.layout.top_label else "label"
        return f"{self.url} has no column {name}: type --{name} with that of its labels ({where})"

    @property
    def column_names(self) -> list[str]:
        """The columns besides labels, predictions and features."""
        return [name for name in self.layout.others if name != "features"]

    def read_part(
        self,
        part: FilePart,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int | None = None,
        say: Say = silent,
        progress: Callable[[float], None] = lambda _: None,
    ) -> Iterator[Predictions]:
        """The batches of one part, with these of the user's columns and no features, or with all.

        Raises: CorruptFileError with the file, the column and the row.
        """
        layout, n_classes, rounding = self.layout, self.n_classes, Rounding()
        wanted = None
        if columns is not None:
            wanted = [*layout.columns, *self._outcome]
            wanted += [check_choice("column", name, self.column_names) for name in columns]
        width = (n_classes or 100) + (self._n_features if wanted is None else 0)
        n_rows, first_row = batch_rows or max(1, BATCH_ELEMENTS // width), part.first_row
        try:
            for whole, n_bytes in _joined(self.table.reader(part, Wanted(wanted, self._types(wanted), n_rows)), n_rows):
                for start in range(0, whole.num_rows, n_rows):
                    batch = whole.slice(start, n_rows)
                    predictions = self._predictions(batch, first_row, n_classes, rounding)
                    n_classes = predictions.n_classes
                    yield replace(predictions, metadata=dict(self.metadata))
                    first_row += batch.num_rows
                progress(n_bytes)
            rounding.check(self._argument)
        except InvalidInputError as error:
            raise CorruptFileError(f"{part.url}: {error}") from None
        if str(rounding):
            say(f"{part.url}: {rounding}")

    def read(self) -> Predictions:
        """All rows. Raises: CorruptFileError with the file, the column and the row; InvalidInputError without rows."""
        batches = [batch for part in self.table.parts for batch in self.read_part(part)]
        if not batches:
            raise InvalidInputError(f"{self.url} has no rows")
        return Predictions.concat(batches)

    def read_columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """These of the user's columns, read without the predictions."""
        for batch in self.table.read(Wanted(names, self._types(names))):
            yield pa.table({name: plain_texts(batch.column(name)) for name in names})

    @property
    def _outcome(self) -> list[str]:
        """The columns that labels are made from."""
        return [name for name in (self.layout.label, self.layout.prediction) if name is not None]

    @property
    def _n_features(self) -> int:
        if "features" not in self.layout.others:
            return 0
        kind = self.table.schema.field("features").type
        return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 1000

    @property
    def _argument(self) -> str:
        columns = self.layout.columns
        return columns[0] if len(columns) == 1 else f"{columns[0]} … {columns[-1]}"

    def _types(self, names: Sequence[str] | None) -> dict[str, pa.DataType]:
        """The types of these columns, or of all, in a file that has none."""
        if self.table.typed:
            return {}
        layout = self.layout
        types = {column.name: column.type for column in self.table.schema}
        for name in layout.columns:
            types[name] = pa.list_(pa.float64()) if layout.lists else pa.float64()
        if layout.soft_labels is not None:
            types[LABEL_PROBS] = pa.list_(pa.float64())
        if self.table.is_text:
            types |= dict.fromkeys(self._outcome, pa.dictionary(pa.int32(), pa.string()))
        types |= dict.fromkeys(layout.request.text, pa.string())
        return types if names is None else {name: types[name] for name in names}

    def _predictions(
        self, batch: pa.RecordBatch, first_row: int, n_classes: int | None, rounding: Rounding
    ) -> Predictions:
        layout = self.layout
        values = _values(batch, layout, first_row, n_classes)
        n, n_classes = values.shape
        names = check_class_names(layout.class_names, n_classes)
        labels = torch.full((n,), UNKNOWN)
        if layout.label is not None:
            of_label = None if self.is_own and layout.label == "label" else names  # calibrant writes numbers
            labels = _labels(batch, layout, first_row, n_classes, of_label)
            if self.table.options is not None:
                check_own_options(layout.label, labels, values == ABSENT[layout.kind], first_row)
        if layout.kind == "probs":
            check_in_range(layout, values, first_row)
            rounding.add(values, first_row)
            logits = values.log()
        else:
            logits = as_logits(layout.kind.removeprefix("positive_"), values, self._argument, first_row)
        present = batch.schema.names
        columns = {name: plain_texts(batch.column(name)) for name in self.column_names if name in present}
        if layout.soft_labels is not None and LABEL_PROBS in columns:
            columns[LABEL_PROBS] = _soft_labels(columns[LABEL_PROBS], layout.soft_labels, first_row, n_classes)
        features = None
        if "features" in layout.others and "features" in present:
            matrix = list_matrix(batch.column("features"), "features", first_row, None)
            features = check_features16(matrix, n, (), first_row)
        table = check_columns(columns, n, TOP_LABEL_COLUMNS if layout.top_label else ())
        return Predictions(logits, labels, table, features, names, top_label=layout.top_label)


def _labels(
    batch: pa.RecordBatch, layout: Layout, first_row: int, n_classes: int, class_names: tuple[str, ...] | None
) -> Tensor:
    """The numbers of classes; of a confidence, whether its prediction is correct."""
    assert layout.label is not None
    column, unknown = batch.column(layout.label), layout.request.nan_is_unknown
    if layout.prediction is not None:
        names = layout.prediction, layout.label
        options = {"texts": not {*names}.isdisjoint(layout.request.text), "nan_is_unknown": unknown}
        return match_labels(names, batch.column(layout.prediction), column, first_row, **options)
    if layout.top_label:
        return read_correct(layout.label, column, first_row, nan_is_unknown=unknown)
    reader = LabelReader(layout.label, n_classes, class_names, layout.numbered, unknown)
    return reader.read(column, first_row)


def _soft_labels(column: pa.Array, name: str, first_row: int, n_classes: int) -> pa.Array:
    """Distributions of labels, as lists of floats."""
    soft = list_matrix(_float_lists(column), name, first_row, n_classes)
    if soft.shape[1] != n_classes:
        raise InvalidInputError(f"{name} must have {n_classes} numbers in every row, got {soft.shape[1]}")
    check_distributions(name, soft, first_row)
    return as_lists(soft)  # as they are: rows divide by their sums once, when they are asked for


def _joined(batches: Batches, n_rows: int) -> Batches:
    """The same with small batches joined, up to so many rows: whoever adds them up has less to do."""
    held: list[pa.RecordBatch] = []
    n_held, n_bytes = 0, 0.0
    for batch, read in batches:
        full = n_held + batch.num_rows > n_rows or sum(each.nbytes for each in held) > MAX_JOINED_BYTES
        if held and full:
            yield _join(held), n_bytes
            held, n_held, n_bytes = [], 0, 0.0
        held.append(batch)
        n_held, n_bytes = n_held + batch.num_rows, n_bytes + read
    if held:
        yield _join(held), n_bytes


def _join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def check_in_range(layout: Layout, probs: Tensor, first_row: int) -> None:
    """Raise where a probability is not in [0, 1], with its column and row, and what it may be instead.

    One that is larger than 1 by rounding is for the sum of its row to judge, as in memory.
    """
    if bool(((probs >= 0) & (probs <= 1 + PRIOR_TOLERANCE)).all()):
        return
    try:
        if layout.lists:
            check_probabilities(layout.columns[0], probs, first_row, total=None)
        for name, column in zip(layout.columns, probs.T, strict=True):
            check_probabilities(name, column.unsqueeze(1).contiguous(), first_row, total=None)
    except InvalidInputError as error:
        if bool(probs.isnan().any()):
            raise
        percent = bool(((probs >= 0) & (probs <= 100)).all())
        advice = (
            "divide percentages by 100"
            if percent
            else f"type --logits {' '.join(layout.columns[:8])} if these are logits"
        )
        raise InvalidInputError(f"{error}: {advice}") from None


def check_own_options(name: str, labels: Tensor, absent: Tensor, first_row: int) -> None:
    """Raise where a label is an option that its row does not have, or that has probability 0."""
    known = labels != UNKNOWN
    wrong = known & absent.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidInputError(
            f"{name} must be one of the options of its row with a probability, got option {int(labels[row])} "
            f"(counted from 0) at row {first_row + row}"
        )


def _values(batch: pa.RecordBatch, layout: Layout, first_row: int, n_classes: int | None) -> Tensor:
    """The numbers of the predictions, (n, k)."""
    if layout.lists:
        matrix = list_matrix(_float_lists(batch.column(layout.columns[0])), layout.columns[0], first_row, n_classes)
        check_dense(layout.columns[0], matrix)
        return matrix
    columns = [_numbers(batch.column(name), name, first_row) for name in layout.columns]
    if layout.top_label:
        check_confidence(layout.columns[0], columns[0], first_row)
    if layout.kind in OF_ONE_COLUMN:
        return two_classes(layout.kind, columns[0], layout.columns[0], first_row)[1]
    return torch.stack(columns, dim=1)


def _numbers(column: pa.Array, name: str, first_row: int) -> Tensor:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
        raise InvalidInputError(f"{name} must be numbers, got {column.type}")
    if column.null_count:
        raise InvalidInputError(f"{name} must not be null, got null at row {first_row + first_null(column)}")
    return floats(name, column if pa.types.is_floating(column.type) else column.cast(pa.float64(), safe=False))


def _float_lists(column: pa.Array) -> pa.Array:
    """Lists of integers, as of one-hot probabilities, and of decimals, as of databases, as lists of floats."""
    value = column.type.value_type if pa.types.is_nested(column.type) else column.type
    if pa.types.is_integer(value) or pa.types.is_decimal(value):
        return column.cast(pa.list_(pa.float64()))
    return column


def open_table_source(table: TableSource, request: Request) -> PredictionSource:
    """The predictions of a table. Raises: InvalidInputError, UnknownNameError, CorruptFileError."""
    names, metadata = _own_metadata(table)
    own = is_own(table)
    if table.options is not None:
        request = table.options.request(request)
    layout = find_layout(table.name, table.schema, request, is_text=table.is_text, is_own=own)
    if layout.soft_labels is not None and layout.soft_labels not in layout.others:
        table = _renamed(table, layout.soft_labels, LABEL_PROBS)
        layout = replace(layout, others=(*layout.others, LABEL_PROBS))
    return PredictionSource(table, with_class_names(layout, names), metadata, own)


def _renamed(table: TableSource, name: str, other: str) -> TableSource:
    """The table with another name for one of its columns."""
    schema = pa.schema([column.with_name(other) if column.name == name else column for column in table.schema])
    reader = partial(_read_renamed, table.reader, name, other)
    return replace(table, schema=schema.with_metadata(table.schema.metadata), reader=reader)


def _read_renamed(
    reader: Callable[[FilePart, Wanted], Batches], name: str, other: str, part: FilePart, wanted: Wanted
) -> Batches:
    columns = wanted.columns and [name if each == other else each for each in wanted.columns]
    types = {name if each == other else each: kind for each, kind in wanted.types.items()}
    for batch, n_bytes in reader(part, replace(wanted, columns=columns, types=types)):
        yield batch.rename_columns([other if each == name else each for each in batch.schema.names]), n_bytes


def is_own(table: TableSource) -> bool:
    """Whether calibrant wrote it."""
    return METADATA_KEY in (table.schema.metadata or {})


def _own_metadata(table: TableSource) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names and metadata of a table that calibrant wrote; nothing of others."""
    try:
        content = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        names = content.get("class_names")
        return check_class_names(names, len(names or ())), dict(content.get("metadata") or {})
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptFileError(f"{table.name} has metadata that cannot be read: {error}") from None


def open_frame(frame: Any, request: Request) -> PredictionSource:
    """The predictions of a data frame. Raises: InvalidInputError, UnknownNameError."""
    return open_table_source(flattened(frame_table(frame)), request)
