"""Scan: predictions in files of any format that `calibrant.reading` knows, read batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import torch

from calibrant._checks import check_class_names, check_same_class_names, check_same_kind
from calibrant._names import check_choice
from calibrant._parquet import FilePart
from calibrant._progress import Say, silent
from calibrant._signatures import checked
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, without_secrets
from calibrant.predictions import LABEL_PROBS, Predictions

if TYPE_CHECKING:
    from calibrant.reading.source import PredictionSource


@dataclass(frozen=True, repr=False)
class Scan:
    """Predictions in files: an iterable of batches of at most ``batch_rows`` rows, made by `Predictions.scan`."""

    sources: "tuple[PredictionSource, ...]"
    batch_rows: int | None = None
    reorder: bool = False  # the classes of files with the same names in another order
    class_names: tuple[str, ...] | None = None  # by default those of the first file that has names
    say: Say | None = None  # called with a line for each thing that a reader should know

    def __repr__(self) -> str:
        return f"Scan({without_secrets(', '.join(self.files))})"

    def __post_init__(self) -> None:
        for source in self.sources[1:]:
            check_same_kind(self.sources[0].url, self.sources[0].layout, source.url, source.layout)
        known = [source for source in self.sources if source.n_classes is not None]
        for source in known:
            if source.n_classes != known[0].n_classes:
                where = f"in its column {source.layout.columns[0]}" if source.layout.lists else "in its columns"
                raise CorruptFileError(
                    f"{source.url} has {source.n_classes} classes {where}, {known[0].url} has {known[0].n_classes}"
                )
        first = "match_names"
        for source in self.sources:
            names = source.layout.class_names
            if self.class_names is None and names is not None:
                object.__setattr__(self, "class_names", names)
                first = source.url
            elif not (self.reorder and set(names or ()) == set(self.class_names or ())):
                check_same_class_names(first, self.class_names, source.url, names)

    @property
    def files(self) -> list[str]:
        return [source.url for source in self.sources]

    @property
    def found(self) -> list[str]:
        """What the columns of the files are, a line for each kind of file that calibrant did not write."""
        return found_lines(self.sources)

    @property
    def parts(self) -> list[FilePart]:
        """The row groups of Parquet files, and all other files, in order."""
        return [part for source in self.sources for part in source.table.parts]

    @property
    def n_rows(self) -> int:
        """The number of rows; files that do not say it are read."""
        return sum(source.n_rows for source in self.sources)

    @property
    def n_classes(self) -> int | None:
        """The number of classes, if the columns of a file say it."""
        return next((source.n_classes for source in self.sources if source.n_classes is not None), None)

    @property
    def top_label(self) -> bool:
        """Whether the files hold only the confidence of the predicted class."""
        return self.sources[0].layout.top_label

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts)

    @property
    def column_names(self) -> list[str]:
        """The user's columns that every file has."""
        first, *others = [source.column_names for source in self.sources]
        return [name for name in first if all(name in names for names in others)]

    @property
    def has_labels(self) -> bool:
        """Whether a file has a column of labels."""
        return any(source.layout.label is not None for source in self.sources)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that are equal in all files."""
        first, *others = [source.metadata for source in self.sources]
        return {key: value for key, value in first.items() if all(key in o and o[key] == value for o in others)}

    def check_labels(self) -> Self:
        """Check that the files have labels, or soft labels, before their rows are read.

        Returns:
            This scan.

        Raises:
            InvalidInputError: A file has no column of labels.
        """
        for source in self.sources:
            if source.layout.label is None and LABEL_PROBS not in source.column_names:
                raise InvalidInputError(source.without_labels)
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
    def batches(
        self, columns: Sequence[str] | None = None, *, progress: Callable[[float], None] = lambda _: None
    ) -> Iterator[Predictions]:
        """Read batch by batch.

        Args:
            columns: Read only these of the user's columns, and no features.
            progress: Called with the number of bytes read since the last call.

        Returns:
            An iterator over predictions.

        Raises:
            CorruptFileError: A file breaks the format; the message names file and row.
        """
        n_classes: int | None = None
        for part in self.parts:
            for batch in self.read_part(part, columns, progress=progress):
                if n_classes is not None and batch.n_classes != n_classes:
                    raise CorruptFileError(
                        f"{part.url} has {batch.n_classes} classes, the files before it have {n_classes}"
                    )
                n_classes = batch.n_classes
                yield batch

    def read_part(
        self,
        part: FilePart,
        columns: Sequence[str] | None = None,
        *,
        progress: Callable[[float], None] = lambda _: None,
    ) -> Iterator[Predictions]:
        """The batches of one part of a file; columns as in `batches`."""
        source = self._by_url[part.url]
        say = self.say or silent
        for batch in source.read_part(part, columns, batch_rows=self.batch_rows, say=say, progress=progress):
            if batch.class_names is None:
                yield replace(batch, class_names=check_class_names(self.class_names, batch.n_classes))
            else:
                yield batch.match_names(self.class_names)

    @cached_property
    def _by_url(self) -> "dict[str, PredictionSource]":
        return {source.url: source for source in self.sources}

    @checked
    def read_columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read some of the user's columns, and no predictions.

        Args:
            names: The columns.

        Returns:
            An iterator over tables.

        Raises:
            CorruptFileError: A file cannot be read.
            UnknownNameError: A file has no such column.
        """
        for source in self.sources:
            for name in names:
                check_choice("column", name, source.column_names)
            yield from source.read_columns(names)

    @checked
    def read(self, columns: Sequence[str] | None = None) -> Predictions:
        """Read all rows.

        Args:
            columns: Read only these of the user's columns, and no features.

        Returns:
            The rows in the order of the files.

        Raises:
            CorruptFileError: A file breaks the format, or the files have different columns.
        """
        batches = list(self.batches(columns))
        if not batches:
            return self._empty()
        try:
            return Predictions.concat(batches)
        except InvalidInputError as error:
            raise CorruptFileError(f"{', '.join(self.files)}: {error}") from None

    def _empty(self) -> Predictions:
        source, n_classes = self.sources[0], self.n_classes
        if n_classes is None:
            raise CorruptFileError(f"{source.url} has no rows, and its column does not say how many classes there are")
        if not source.table.typed:
            raise NoDataError(f"{source.url} has no rows")
        columns = source.table.schema.empty_table().select(self.column_names).replace_schema_metadata(None)
        labels = torch.empty(0, dtype=torch.int64)
        metadata = dict(source.metadata)
        logits = torch.empty(0, n_classes)
        return Predictions(logits, labels, columns, None, self.class_names, metadata, self.top_label)


def found_lines(sources: "Sequence[PredictionSource]") -> list[str]:
    """What the columns of these files are; see `Scan.found`."""
    files: dict[str, dict[str, None]] = {}
    for source in sources:
        if not source.is_own:
            files.setdefault(source.found, {})[source.url] = None
    more = {text: f" and {len(urls) - 1} more" * (len(urls) > 1) for text, urls in files.items()}
    return [f"{next(iter(urls))}{more[text]}: {text}" for text, urls in files.items()]
