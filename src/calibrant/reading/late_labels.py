"""Labels that came later: a table of ids and labels, joined with the predictions that wait for them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN, Hashes, check_distinct, id_text, value_hashes
from calibrant._files import check_output
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.errors import CorruptFileError, InvalidInputError, without_secrets
from calibrant.predictions import Paths, Predictions, check_replaceable
from calibrant.reading.columns import CORRECT, LABELS
from calibrant.reading.labels import LabelReader
from calibrant.reading.opening import open_scans
from calibrant.reading.tables import TableSource, Wanted, open_table
from calibrant.scan import Scan

LABELLED = "labelled"  # the key of the metadata of what `save_labelled` wrote


@dataclass(frozen=True)
class LabelCounts:
    """What a join found.

    Attributes:
        n_rows: Rows of predictions.
        n_new: Rows that got their label.
        n_unlabelled: Rows that still have none.
        n_unknown_ids: Labels whose id no row has.
    """

    n_rows: int
    n_new: int
    n_unlabelled: int
    n_unknown_ids: int


@dataclass(frozen=True)
class KnownLabels:
    """Ids with their labels, each id once."""

    source: str
    name: str
    ids: pa.ChunkedArray
    hashes: Hashes  # sorted
    labels: NDArray[np.int64]  # in the order of the hashes, with UNKNOWN behind the last
    order: NDArray[np.int64]  # the row of each hash

    @classmethod
    def of(cls, source: str, name: str, ids: pa.ChunkedArray, labels: NDArray[np.int64]) -> "KnownLabels":
        """Raises: InvalidInputError where an id occurs twice or is null."""
        hashes = check_distinct(source, name, ids)
        order = np.argsort(hashes)
        return cls(source, name, ids, hashes[order], np.append(labels[order], UNKNOWN), order)

    def places(self, hashes: Hashes) -> NDArray[np.int64]:
        """The place of each id among these, or the one behind the last."""
        place = np.searchsorted(self.hashes, hashes)
        found = np.append(self.hashes, np.uint64(0))[place] == hashes
        return np.where(found & (place < len(self.hashes)), place, len(self.hashes))


@checked
def save_labelled(
    predictions: Scan | Paths,
    labels: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    id: str,
    label: str | None = None,
) -> LabelCounts:
    """Write predictions with labels that came later, in bounded memory.

    Args:
        predictions: Files of predictions, as for `Predictions.scan`, or a scan of them, with an id in every row.
        labels: A table of ids and labels in any format that `calibrant.read` knows.
        output: The Parquet file to write; another kind of file, or an input, is not replaced.
        id: The column of the ids, of the same name in both.
        label: The column of the labels; by default the one whose name says so.

    Returns:
        How many rows got their label, how many still have none, and how many labels have an id that no row has.

    Raises:
        InvalidInputError: An id occurs twice or is missing, a label is no class, or contradicts the one that is known.
        UnknownNameError: There is no such column.
    """
    scan = predictions if isinstance(predictions, Scan) else open_scans([predictions], ids=[id])[0]
    name = check_choice("column", id, scan.column_names)
    check_output(output, "a Parquet file", [*scan.files, os.fspath(labels)])
    check_replaceable(output, LABELLED)
    n_classes = scan.n_classes or next((batch.n_classes for batch in scan), 2)
    table = open_table(os.fspath(labels))
    if scan.top_label:
        known = read_labels(table, name, _correct_column(table, label), 2, None)
    else:
        known = read_labels(table, name, label, n_classes, scan.class_names)
    hashes = _row_ids(scan, name)
    record = {LABELLED: {"labels": without_secrets(os.fspath(labels)), "id": name}}
    counts = {"n_new": 0, "n_unlabelled": 0}

    def labelled() -> Iterator[Predictions]:
        for batch in scan:
            rows, new = _labelled(batch, name, known)
            counts["n_new"] += new
            counts["n_unlabelled"] += int((rows.labels == UNKNOWN).sum())
            yield replace(rows, metadata={**rows.metadata, **record})

    n_rows = Predictions.save_all(output, labelled())
    return LabelCounts(n_rows, n_unknown_ids=int((~np.isin(known.hashes, hashes)).sum()), **counts)


def _correct_column(table: TableSource, given: str | None) -> str:
    """The column that says whether predictions are correct; a label would need what was predicted."""
    names = [given] if given is not None else table.schema.names
    found = [name for name in names if name.lower() in CORRECT]
    if len(found) != 1:
        raise InvalidInputError(
            f"{table.name} must have a column correct of true and false, for the predictions hold only the confidence; "
            f"its columns are {', '.join(table.schema.names)}"
        )
    return found[0]


def read_labels(
    table: TableSource, name: str, label: str | None, n_classes: int, class_names: tuple[str, ...] | None
) -> KnownLabels:
    """The ids whose label is known. Raises: InvalidInputError, UnknownNameError, CorruptFileError."""
    names = table.schema.names
    if name not in names:
        check_choice(f"column of {table.name}", name, names)
    found = [each for each in names if each.lower() in LABELS] if label is None else [label]
    if len(found) != 1:
        what = f"has labels in {' and '.join(found)}" if found else f"has the columns {', '.join(names)}"
        raise InvalidInputError(f"{table.name} {what}: type --label with the one that holds them")
    column = check_choice(f"column of {table.name}", found[0], names)
    reader = LabelReader(column, n_classes, class_names, numbered=True, nan_is_unknown=True)
    ids, labels, first_row = [], [], 0
    # Ids are compared as text: those of a text file are not read as numbers, which would lose leading zeros.
    types = {each: pa.string() if table.is_text else table.schema.field(each).type for each in (name, column)}
    for batch in table.read(Wanted((name, column), {} if table.typed else types)):
        try:
            values = reader.read(batch.column(column), first_row).numpy()
        except InvalidInputError as error:
            raise InvalidInputError(f"{table.name}: {error}") from None
        rows = np.flatnonzero(values != UNKNOWN)
        ids.append(batch.column(name).take(pa.array(rows)))
        labels.append(values[rows])
        first_row += batch.num_rows
    if first_row == 0:
        raise InvalidInputError(f"{table.name} has no rows")
    return KnownLabels.of(table.name, name, pa.chunked_array(ids), np.concatenate(labels))


def _row_ids(scan: Scan, name: str) -> Hashes:
    """The hashes of the ids of all rows. Raises: InvalidInputError where one occurs twice or is null."""
    chunks = [chunk for table in scan.read_columns([name]) for chunk in table.column(name).chunks]
    try:
        column = pa.chunked_array(chunks or [pa.array([], pa.string())])
    except pa.ArrowException:
        raise CorruptFileError(f"{', '.join(scan.files)} have different types in {name!r}") from None
    return check_distinct(", ".join(scan.files), name, column)


def _labelled(batch: Predictions, name: str, known: KnownLabels) -> tuple[Predictions, int]:
    """The rows with their labels, and how many are new. Raises: InvalidInputError where one contradicts."""
    ids, labels = batch.column(name), batch.labels.numpy()
    places = known.places(value_hashes(name, ids))
    given = known.labels[places]
    other = np.flatnonzero((given != UNKNOWN) & (labels != UNKNOWN) & (given != labels))
    if len(other):
        row = other[0]
        now, before = (batch.class_names[each] if batch.class_names else each for each in (given[row], labels[row]))
        raise InvalidInputError(
            f"{known.source} contradicts the label of {id_text(ids, row)} in {name!r}: {now} after {before}"
        )
    new = (labels == UNKNOWN) & (given != UNKNOWN)
    return replace(batch, labels=torch.from_numpy(np.where(new, given, labels))), int(new.sum())
