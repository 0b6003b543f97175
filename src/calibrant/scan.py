"""Scan: predictions in Parquet files, by any writer, read batch by batch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
import torch
from torch import Tensor

from calibrant._arrays import UNKNOWN, as_logits, first_null, floats, label_column, list_matrix, two_classes
from calibrant._checks import (
    check_class_names,
    check_columns,
    check_dense,
    check_features16,
    check_label_range,
    check_same_class_names,
    repeated_name,
)
from calibrant._names import check_choice
from calibrant._parquet import BATCH_ELEMENTS, FilePart, ParquetFile, read_part
from calibrant._signatures import checked
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, without_secrets
from calibrant.predictions import METADATA_KEY, PREDICTION_COLUMNS, RESERVED, Predictions


@dataclass(frozen=True, repr=False)
class Scan:
    """Predictions in files: an iterable of batches of at most ``batch_rows`` rows, made by `Predictions.scan`."""

    footers: tuple[ParquetFile, ...]
    batch_rows: int | None = None
    reorder: bool = False  # the classes of files with the same names in another order
    class_names: tuple[str, ...] | None = None  # by default those of the first file that has names

    def __repr__(self) -> str:
        return f"Scan({self.n_rows:,} rows in {without_secrets(', '.join(self.files))})"

    def __post_init__(self) -> None:
        sizes = {footer.url: _file_classes(footer) for footer in self.footers}
        known = {url: size for url, size in sizes.items() if size is not None}
        (first, size), *others = list(known.items()) or [("", 0)]
        for url, other in others:
            if other != size:
                kind = _kind(self._by_url[url].schema, url)
                raise CorruptFileError(f"{url} has {other} classes in its column {kind}, {first} has {size}")
        first = "match_names"
        for footer in self.footers:
            names = _read_metadata(footer)[0]
            if self.class_names is None and names is not None:
                object.__setattr__(self, "class_names", names)
                first = footer.url
            elif not (self.reorder and set(names or ()) == set(self.class_names or ())):
                check_same_class_names(first, self.class_names, footer.url, names)

    @cached_property
    def _by_url(self) -> dict[str, ParquetFile]:
        return {footer.url: footer for footer in self.footers}

    @property
    def files(self) -> list[str]:
        return [footer.url for footer in self.footers]

    @property
    def parts(self) -> list[FilePart]:
        """The row groups of all files, in order."""
        return [part for footer in self.footers for part in footer.parts]

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    @property
    def n_classes(self) -> int | None:
        """The number of classes, if the schema of a file says it."""
        return next((size for footer in self.footers if (size := _file_classes(footer)) is not None), None)

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts)

    @property
    def column_names(self) -> list[str]:
        """The user's columns that every file has."""
        schemas = [footer.schema.names for footer in self.footers]
        return [name for name in schemas[0] if name not in RESERVED and all(name in names for names in schemas)]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that are equal in all files."""
        first, *others = [_read_metadata(footer)[1] for footer in self.footers]
        return {key: value for key, value in first.items() if all(key in o and o[key] == value for o in others)}

    def check_labels(self) -> Self:
        """Check that the files have labels, before their rows are read.

        Returns:
            This scan.

        Raises:
            InvalidInputError: A file has no column label.
        """
        for footer in self.footers:
            if "label" not in footer.schema.names:
                names = ", ".join(footer.schema.names)
                raise InvalidInputError(f"{footer.url} has no column label (its columns are {names})")
        return self

    @checked
    def match_names(self, class_names: Sequence[str] | None) -> Self:
        """The same files with the classes in another order, as by `Predictions.match_names`."""
        if class_names is None or self.class_names is None:
            return self
        return replace(self, class_names=tuple(class_names), reorder=True)

    def __iter__(self) -> Iterator[Predictions]:
        return self.batches()

    @checked
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Predictions]:
        """Read batch by batch.

        Args:
            columns: Read only these of the user's columns, and no features.

        Returns:
            An iterator over predictions.

        Raises:
            CorruptFileError: A file breaks the format; the message names file and row.
        """
        n_classes: int | None = None
        for part in self.parts:
            for batch in self.read_part(part, columns):
                if n_classes is not None and batch.n_classes != n_classes:
                    raise CorruptFileError(
                        f"{part.url} has {batch.n_classes} classes, the files before it have {n_classes}"
                    )
                n_classes = batch.n_classes
                yield batch

    def read_part(self, part: FilePart, columns: Sequence[str] | None = None) -> Iterator[Predictions]:
        """The batches of one row group; columns as in `batches`."""
        footer = self._by_url[part.url]
        names, metadata = _read_metadata(footer)
        names = self.class_names if names is None else names
        kind = _kind(footer.schema, footer.url)
        wanted = None
        if columns is not None:
            wanted = [name for name in (kind, "label") if name in footer.schema.names]
            wanted += [check_choice("column", name, footer.schema.names) for name in columns]
        n_classes = _file_classes(footer)
        width = (n_classes or 100) + (_n_features(footer) if wanted is None else 0)
        for first_row, batch in read_part(part, wanted, self.batch_rows or max(1, BATCH_ELEMENTS // width)):
            try:
                predictions = _from_batch(batch, first_row, kind, n_classes, names)
            except CalibrantError as error:
                raise CorruptFileError(f"{part.url}: {error}") from None
            n_classes = predictions.n_classes
            yield replace(predictions.match_names(self.class_names), metadata=metadata)

    def read(self) -> Predictions:
        """Read all rows.

        Returns:
            The rows in the order of the files.

        Raises:
            CorruptFileError: A file breaks the format, or the files have different columns.
        """
        batches = list(self)
        if not batches:
            return self._empty()
        try:
            return Predictions.concat(batches)
        except InvalidInputError as error:
            raise CorruptFileError(f"{', '.join(self.files)}: {error}") from None

    def _empty(self) -> Predictions:
        footer = self.footers[0]
        n_classes = _file_classes(footer)
        if n_classes is None:
            raise CorruptFileError(f"{footer.url} has no rows, and its column does not say how many classes there are")
        columns = footer.schema.empty_table().select(self.column_names).replace_schema_metadata(None)
        labels, metadata = torch.empty(0, dtype=torch.int64), _read_metadata(footer)[1]
        return Predictions(torch.empty(0, n_classes), labels, columns, None, self.class_names, metadata)


def _kind(schema: pa.Schema, url: str) -> str:
    """The column of a file with the predictions."""
    if (twice := repeated_name(schema.names)) is not None:
        raise CorruptFileError(f"{url} has more than one column {twice}")
    present = [name for name in PREDICTION_COLUMNS if name in schema.names]
    if len(present) != 1:
        got = f"it has {' and '.join(present)}" if present else f"its columns are {', '.join(schema.names) or 'none'}"
        raise CorruptFileError(f"{url} must have exactly one of the columns {', '.join(PREDICTION_COLUMNS)}; {got}")
    return present[0]


def _file_classes(footer: ParquetFile) -> int | None:
    """The number of classes, if the schema determines it."""
    name = _kind(footer.schema, footer.url)
    kind = footer.schema.field(name).type
    if name == "positive_probs":
        return 2
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise CorruptFileError(f"{footer.url} must have lists of numbers in its column {name}, got {kind}")
    return None


def _n_features(footer: ParquetFile) -> int:
    if "features" not in footer.schema.names:
        return 0
    kind = footer.schema.field("features").type
    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 1000


def _read_metadata(footer: ParquetFile) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names and metadata, which files of other writers may lack."""
    text = (footer.schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return None, {}
    try:
        content = json.loads(text)
        names = content.get("class_names")
        return check_class_names(names, len(names or ())), dict(content.get("metadata") or {})
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptFileError(f"{footer.url} has metadata that cannot be read: {error}") from None


def _from_batch(
    batch: pa.RecordBatch, first_row: int, kind: str, n_classes: int | None, names: tuple[str, ...] | None
) -> Predictions:
    values = _read_values(batch.column(kind), kind, first_row, n_classes)
    n_classes = values.shape[1]
    labels = torch.full((len(values),), UNKNOWN)
    if "label" in batch.schema.names:
        labels = label_column(batch.column("label"), "label", n_classes, first_row)
        check_label_range(labels, n_classes, None, UNKNOWN, argument="label", first_row=first_row)
    logits = as_logits(kind, values, kind, first_row)
    class_names = check_class_names(names, n_classes)
    features = None
    if "features" in batch.schema.names:
        matrix = list_matrix(batch.column("features"), "features", first_row, None)
        features = check_features16(matrix, len(matrix), (), first_row)
    kept = [name for name in batch.schema.names if name not in RESERVED]
    columns = pa.Table.from_batches([batch.select(kept)]) if kept else check_columns(None, len(values), ())
    return Predictions(logits, labels, columns.replace_schema_metadata(None), features, class_names)


def _read_values(column: pa.Array, kind: str, first_row: int, n_classes: int | None) -> Tensor:
    if kind != "positive_probs":
        matrix = list_matrix(column, kind, first_row, n_classes)
        check_dense(kind, matrix)
        return matrix
    if not pa.types.is_floating(column.type):
        raise InvalidInputError(f"{kind} must be floating point, got {column.type}")
    if column.null_count:
        raise InvalidInputError(f"{kind} must not be null, got null at row {first_row + first_null(column)}")
    return two_classes(floats(kind, column), kind, first_row)
