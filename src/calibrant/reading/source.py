"""A table of predictions: its columns found, its rows read as `Predictions` batch by batch."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from calibrant._arrays import UNKNOWN, as_logits, first_null, floats, list_matrix, two_classes
from calibrant._checks import check_class_names, check_columns, check_dense, check_features16, check_probabilities
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.predictions import METADATA_KEY, Predictions
from calibrant.reading.columns import Layout, Request, find_layout, with_class_names
from calibrant.reading.labels import LabelReader
from calibrant.reading.rounding import Rounding
from calibrant.reading.tables import TableSource, frame_table, open_table

Say = Callable[[str], None]


@dataclass(frozen=True)
class PredictionSource:
    """Predictions in one file or data frame, made by `open_source`: an iterable of batches in bounded memory.

    Attributes:
        table: The table.
        layout: What its columns are; as text, one line for a reader.
        metadata: Those of a table that calibrant wrote.
    """

    table: TableSource
    layout: Layout
    metadata: Mapping[str, Any]

    def __iter__(self) -> Iterator[Predictions]:
        return self.batches()

    @checked
    def batches(self, say: Say = lambda _: None) -> Iterator[Predictions]:
        """Read batch by batch.

        Args:
            say: Called at the end with a line for each thing that a reader should know, such as rescaled rows.

        Returns:
            An iterator over predictions.

        Raises:
            CalibrantError: A row breaks its rule; the message names the file, the column and the row.
        """
        first_row, rounding = 0, Rounding()
        for batch in self.table.read(self._types()):
            if batch.num_rows:
                with _Naming(self.table.name):
                    predictions = self._predictions(batch, first_row, rounding)
                yield replace(predictions, metadata=dict(self.metadata))
                first_row += batch.num_rows
        if first_row == 0:
            raise InvalidInputError(f"{self.table.name} has no rows")
        with _Naming(self.table.name):
            rounding.check(self._argument)
        if str(rounding):
            say(f"{self.table.name}: {rounding}")

    @checked
    def read(self, say: Say = lambda _: None) -> Predictions:
        """Read all rows.

        Args:
            say: As for `batches`.

        Returns:
            The rows in the order of the table.

        Raises:
            CalibrantError: A row breaks its rule; the message names the file, the column and the row.
        """
        return Predictions.concat(list(self.batches(say)))

    @property
    def _argument(self) -> str:
        columns = self.layout.columns
        return columns[0] if len(columns) == 1 else f"{columns[0]} … {columns[-1]}"

    def _types(self) -> dict[str, pa.DataType]:
        """The types of all columns of a file that has none."""
        if self.table.typed:
            return {}
        schema, layout = self.table.schema, self.layout
        types = {column.name: column.type for column in schema}
        for name in layout.columns:
            types[name] = pa.list_(pa.float64()) if layout.lists else pa.float64()
        if layout.label is not None and self.table.is_text:
            types[layout.label] = pa.dictionary(pa.int32(), pa.string())
        return types | dict.fromkeys(layout.request.text, pa.string())

    def _predictions(self, batch: pa.RecordBatch, first_row: int, rounding: Rounding) -> Predictions:
        layout = self.layout
        values = _values(batch, layout, first_row)
        n, n_classes = values.shape
        names = check_class_names(layout.class_names, n_classes)
        labels = torch.full((n,), UNKNOWN)
        if layout.label is not None:
            reader = LabelReader(layout.label, n_classes, names, layout.numbered, layout.request.nan_is_unknown)
            labels = reader.read(batch.column(layout.label), first_row)
        if layout.kind == "probs":
            check_in_range(layout, values, first_row)
            rounding.add(values, first_row)
            logits = values.log()
        else:
            logits = as_logits(layout.kind, values, self._argument, first_row)
        others = [name for name in layout.others if name != "features"]
        columns = {name: _plain(batch.column(name)) for name in others}
        features = None
        if "features" in layout.others:
            features = check_features16(
                list_matrix(batch.column("features"), "features", first_row, None), n, (), first_row
            )
        return Predictions(logits, labels, check_columns(columns, n, ()), features, names)


class _Naming:
    """Puts the name of a table before an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, InvalidInputError | UnknownNameError) and not str(error).startswith(self.name):
            raise type(error)(f"{self.name}: {error}") from None


def check_in_range(layout: Layout, probs: Tensor, first_row: int) -> None:
    """Raise where a probability is not in [0, 1], with its column and row."""
    if bool(((probs >= 0) & (probs <= 1)).all()):
        return
    if layout.lists:
        check_probabilities(layout.columns[0], probs, first_row, total=None)
    for name, column in zip(layout.columns, probs.T, strict=True):
        check_probabilities(name, column.unsqueeze(1).contiguous(), first_row, total=None)


def _values(batch: pa.RecordBatch, layout: Layout, first_row: int) -> Tensor:
    """The numbers of the predictions, (n, k)."""
    if layout.lists:
        matrix = list_matrix(_float_lists(batch.column(layout.columns[0])), layout.columns[0], first_row, None)
        check_dense(layout.columns[0], matrix)
        return matrix
    columns = [_numbers(batch.column(name), name, first_row) for name in layout.columns]
    if layout.kind == "positive_probs":
        return two_classes(columns[0], layout.columns[0], first_row)
    return torch.stack(columns, dim=1)


def _numbers(column: pa.Array, name: str, first_row: int) -> Tensor:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidInputError(f"{name} must be numbers, got {column.type}")
    if column.null_count:
        raise InvalidInputError(f"{name} must not be null, got null at row {first_row + first_null(column)}")
    return floats(name, column if pa.types.is_floating(column.type) else column.cast(pa.float64(), safe=False))


def _float_lists(column: pa.Array) -> pa.Array:
    """Lists of integers, as of one-hot probabilities, as lists of floats."""
    if pa.types.is_nested(column.type) and pa.types.is_integer(column.type.value_type):
        return column.cast(pa.list_(pa.float64()))
    return column


def _plain(column: pa.Array) -> pa.Array:
    """Texts as one type, whatever the writer: categories and large texts as strings."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column


def open_table_source(table: TableSource, request: Request) -> PredictionSource:
    """The predictions of a table. Raises: InvalidInputError, UnknownNameError."""
    names, metadata = _own_metadata(table.schema)
    layout = with_class_names(find_layout(table.name, table.schema, request, is_text=table.is_text), names)
    return PredictionSource(table, layout, metadata)


def _own_metadata(schema: pa.Schema) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names and metadata of a table that calibrant wrote; nothing of others."""
    try:
        content = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
        names = content.get("class_names")
        return check_class_names(names, len(names or ())), dict(content.get("metadata") or {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None, {}


def open_path(path: str, request: Request) -> PredictionSource:
    """The predictions of a file. Raises: as `open_table` and `open_table_source`."""
    label = request.label if path.lower().endswith(".npy") else None
    if label is not None and label.lower().endswith(".npy"):
        request = replace(request, label=os.path.splitext(os.path.basename(label))[0])
    elif label is not None:
        raise InvalidInputError(f"{path} holds one array: --label must name the .npy file of its labels, got {label}")
    return open_table_source(open_table(path, label), request)


def open_frame(frame: Any, request: Request) -> PredictionSource:
    """The predictions of a data frame. Raises: InvalidInputError, UnknownNameError."""
    return open_table_source(frame_table(frame), request)
