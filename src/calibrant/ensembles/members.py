"""The members of an ensemble: several models' predictions for the same rows, opened, matched and read in step."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import UNKNOWN, check_distinct, id_text
from calibrant._checks import check_all_classes, check_same_class_names, first_true, in_order
from calibrant._names import check_choice
from calibrant._parquet import BATCH_ELEMENTS
from calibrant._paths import first_line
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.leakage import LeakCheck
from calibrant.errors import CorruptFileError, InvalidInputError, UnknownNameError, without_secrets
from calibrant.predictions import Predictions
from calibrant.scan import Scan

MemberLike: TypeAlias = Predictions | Scan | str | os.PathLike[str]
UNKNOWN_WIDTH = 100  # classes of a file whose schema does not say how many there are


class Rows(Protocol):
    """What has rows: predictions, or a table."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> Self: ...


R = TypeVar("R", bound=Rows)


@dataclass(frozen=True)
class Member:
    """One model's predictions."""

    name: str  # in messages
    source: Predictions | Scan
    calibrator: Calibrator | None = None  # of its rows, before they are averaged
    allow_same_rows: bool = False  # whether they may be those that the calibrator was fitted on
    order: NDArray[np.int64] | None = None  # its row for each row of the first member; None if they are in that order

    @property
    def files(self) -> list[str]:
        return self.source.files if isinstance(self.source, Scan) else []

    @property
    def n_rows(self) -> int:
        return self.source.n_rows if isinstance(self.source, Scan) else len(self.source)

    @property
    def column_names(self) -> list[str]:
        names: list[str] = (
            self.source.column_names if isinstance(self.source, Scan) else self.source.columns.column_names
        )
        return names

    @property
    def origin(self) -> dict[str, Any]:
        """What the metadata of the ensemble say of where its rows are from."""
        if isinstance(self.source, Scan):
            return {"files": [without_secrets(file) for file in self.files]}
        return {"fingerprint": self.source.fingerprint}

    def may_have_labels(self) -> bool:
        """Whether a label of it may be known, as far as the schema of its files says."""
        if isinstance(self.source, Scan):
            return self.source.has_labels
        return bool((self.source.labels != UNKNOWN).any())

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Predictions]:
        """Its rows in the order of the first member, calibrated.

        Args:
            columns: Read only these, and no features; by default all.

        Raises:
            InvalidInputError: The calibrator does not match the rows, or was fitted on them.
        """
        leak = None if self.calibrator is None or self.allow_same_rows else LeakCheck(self.calibrator.fitted.rows)
        start = 0
        for batch in self._read(columns):
            with _naming(self.name):
                if leak is not None:
                    leak.add(batch)
                rows = replace(batch, metadata=self.source.metadata)
                rows = rows if self.calibrator is None else self.calibrator.calibrate(rows, first_row=start)
            start += len(batch)
            rows = rows if columns is None else rows.select(columns)
            yield rows if self.order is None else rows[self.order]
        if leak is not None:
            with _naming(self.name):
                leak.check()

    def _read(self, columns: Sequence[str] | None) -> Iterator[Predictions]:
        """The rows as they are; at once where they are not in order, or are calibrated as one set."""
        at_once = self.order is not None or not (self.calibrator is None or self.calibrator.row_by_row)
        if isinstance(self.source, Predictions):
            yield self.source
        elif at_once or self.n_rows == 0:
            yield self.source.read()
        else:  # a calibrator may need features, and any of the columns
            yield from self.source.batches(columns if self.calibrator is None else None)

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Its columns in the order of the first member, read without the logits."""
        if isinstance(self.source, Predictions):
            tables = iter([self.source.columns.select(names)])
        else:
            tables = self.source.read_columns(names)
        if self.order is None:
            yield from tables
        else:
            yield self._concat(tables).take(pa.array(self.order))

    def ids(self, name: str) -> pa.ChunkedArray:
        """A column that names the rows. Raises: UnknownNameError, CorruptFileError."""
        with _naming(self.name):
            check_choice("column", name, self.column_names)
        return self._concat(self.tables([name])).column(name) if self.n_rows else pa.chunked_array([], pa.string())

    def _concat(self, tables: Iterator[pa.Table]) -> pa.Table:
        try:
            return pa.concat_tables(table.replace_schema_metadata(None) for table in tables)
        except pa.ArrowException as error:
            raise CorruptFileError(f"{self.name} has files of other columns: {first_line(error)}") from None


@contextmanager
def _naming(member: str) -> Iterator[None]:
    """Put the name of a member before an error."""
    try:
        yield
    except UnknownNameError as error:
        raise UnknownNameError(f"{member}: {error}") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"{member}: {error}") from None


def open_members(
    sources: Sequence[MemberLike],
    calibrators: Sequence[Calibrator] | None = None,
    *,
    match_names: bool = False,
    allow_same_rows: bool = False,
) -> list[Member]:
    """The members, whose footers alone are read. Raises: InvalidInputError where their classes differ."""
    sources = tuple(in_order("members", "predictions or files", sources))
    if not sources:
        raise InvalidInputError("members must not be empty")
    if calibrators is not None and len(calibrators) != len(sources):
        raise InvalidInputError(f"calibrators must be one for each of {len(sources)} members, got {len(calibrators)}")
    opened = [_open(source, match_names) for source in sources]
    texts = [", ".join(source.files) if isinstance(source, Scan) else "" for source in opened]
    names = [text or f"members[{number}]" for number, text in enumerate(texts)]
    for name, source in zip(names, opened, strict=True):
        check_all_classes(name, source, "be averaged")
    check_n_classes(names, [source.n_classes for source in opened])
    known = next(((name, each.class_names) for name, each in zip(names, opened, strict=True) if each.class_names), None)
    members = []
    for number, (name, source) in enumerate(zip(names, opened, strict=True)):
        if known is not None and match_names and set(source.class_names or ()) == set(known[1]):
            source = source.match_names(known[1])
        elif known is not None:
            check_same_class_names(known[0], known[1], name, source.class_names)
        if isinstance(source, Scan) and source.batch_rows is None:
            width = (source.n_classes or UNKNOWN_WIDTH) * len(sources)  # the memory does not grow with the members
            source = replace(source, batch_rows=max(1, BATCH_ELEMENTS // width))
        calibrator = None if calibrators is None else calibrators[number]
        members.append(Member(name, source, calibrator, allow_same_rows))
    return members


def _open(source: MemberLike, match_names: bool) -> Predictions | Scan:
    return source if isinstance(source, Predictions | Scan) else Predictions.scan(source, match_names=match_names)


def check_n_classes(names: Sequence[str], sizes: Sequence[int | None]) -> None:
    """Members have one number of classes, where it is known."""
    known = [(name, size) for name, size in zip(names, sizes, strict=True) if size is not None]
    for name, size in known:
        first, wanted = known[0]
        if size != wanted:
            raise InvalidInputError(f"{name} must have the {wanted} classes of {first}, got {size}")


def match_rows(members: Sequence[Member], id: str | None) -> list[Member]:
    """The members with the order of their rows: by their ids, else as they are.

    Raises:
        InvalidInputError: The numbers of rows differ; or an id is null, occurs twice, or is missing in a member.
        UnknownNameError: A member has no such column.
    """
    first, *others = members
    if id is None:
        for other in others:
            if other.n_rows != first.n_rows:
                raise InvalidInputError(
                    f"{other.name} must have the {first.n_rows} rows of {first.name}, got {other.n_rows}"
                )
        return list(members)
    column = first.ids(id)
    hashes = check_distinct(first.name, id, column)
    matched = [first]
    for other in others:
        other_column = other.ids(id)
        other_hashes = check_distinct(other.name, id, other_column)
        if not np.array_equal(hashes, other_hashes):
            _check_present(other.name, first.name, column, hashes, other_hashes)
            _check_present(first.name, other.name, other_column, other_hashes, hashes)
            order = np.empty(len(hashes), dtype=np.int64)
            order[np.argsort(hashes)] = np.argsort(other_hashes)
            other = replace(other, order=order)
        matched.append(other)
    return matched


def _check_present(
    name: str, of: str, column: pa.ChunkedArray, hashes: NDArray[np.uint64], known: NDArray[np.uint64]
) -> None:
    """Raise where a member lacks an id of another."""
    missing = np.flatnonzero(~np.isin(hashes, known))
    if len(missing):
        row = missing[0]
        raise InvalidInputError(f"{name} must have every id of {of}, and has no {id_text(column, row)} (its row {row})")


def equal_columns(members: Sequence[Member]) -> list[str]:
    """The columns of the first member that all members have, with the same values in every row."""
    names = [name for name in members[0].column_names if all(name in member.column_names for member in members)]
    for first, *others in in_step([member.tables(names) for member in members]) if names and members[1:] else ():
        names = [name for name in names if all(_are_equal(first[name], other[name]) for other in others)]
    return names


def _are_equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> bool:
    return bool(_comparable(a).equals(_comparable(b)))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Of values that equal themselves, whatever numbers a dictionary gives them."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column


def in_step(streams: Sequence[Iterator[R]]) -> Iterator[list[R]]:
    """The same rows of every stream, however each divides them; all streams are read to their ends."""
    held, used = [next(stream, None) for stream in streams], [0] * len(streams)
    while parts := [part for part in held if part is not None]:
        n = min(len(part) - start for part, start in zip(parts, used, strict=True))
        pairs = list(zip(parts, used, strict=True))
        yield [part if len(part) == n else part[start : start + n] for part, start in pairs]
        used = [start + n for start in used]
        for i, part in enumerate(parts):
            if used[i] == len(part):
                held[i], used[i] = next(streams[i], None), 0


def merge_labels(members: Sequence[Member], rows: Sequence[Predictions], first_row: int) -> Tensor:
    """The labels that any member knows. Raises: InvalidInputError where two differ."""
    labels = rows[0].labels
    for member, other in zip(members, rows, strict=True):
        differ = (labels != other.labels) & (labels != UNKNOWN) & (other.labels != UNKNOWN)
        if differ.any():
            (row,) = first_true(differ)
            got = f"{int(other.labels[row])}, not {int(labels[row])}, at row {first_row + row}"
            raise InvalidInputError(f"{member.name} must have the labels of {members[0].name}, got {got}")
        labels = torch.where(labels == UNKNOWN, other.labels, labels)
    return labels
