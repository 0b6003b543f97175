"""Rows whose classes are the options of a question: their number may differ from row to row, and from file to file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from calibrant._paths import first_line
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.reading.columns import Request, shown

ABSENT = {"logits": -np.inf, "probs": 0.0}  # the value of an option that a row does not have: its probability is 0


@dataclass(frozen=True)
class Options:
    """The values of the options of each row, by name or in order, and the other columns of the rows."""

    path: str
    kind: str  # "logits" or "probs"
    values: Sequence[Mapping[str, float] | Sequence[float]] = field(repr=False)
    columns: Mapping[str, Sequence[Any]] = field(repr=False)
    label: str | None  # one of these columns
    found: str  # the line that a user reads
    names: tuple[str, ...] | None = None  # of all options; None where they are in order

    @property
    def width(self) -> int:
        """The largest number of options of a row."""
        return max(map(len, self.values))

    def request(self, given: Request) -> Request:
        """What the columns of `table` are, in place of those of the file, which the user may have named."""
        own: dict[str, Any] = {self.kind: (self.kind,), "label": self.label, "class_names": self.names}
        return Request(**own, nan_is_unknown=given.nan_is_unknown, text=given.text)

    def table(self, width: int) -> pa.Table:
        """The rows with the values of so many options. Raises: CorruptFileError."""
        matrix = np.full((len(self.values), width), ABSENT[self.kind])
        place = {name: number for number, name in enumerate(self.names or ())}
        for row, options in enumerate(self.values):
            if isinstance(options, Mapping):
                for name, value in options.items():
                    matrix[row, place[name]] = value
            else:
                matrix[row, : len(options)] = options
        lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), width)
        return pa.table({self.kind: lists} | {name: self._column(name) for name in self.columns})

    def _column(self, name: str) -> pa.Array:
        try:
            return pa.array(self.columns[name])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise CorruptFileError(f"{self.path}: column {name!r} must have one type: {first_line(error)}") from None


def all_names(files: Sequence[Options], given: Sequence[str] | None) -> tuple[tuple[str, ...] | None, int]:
    """The names and the number of the options of all files.

    Names are sorted, numbers as numbers, since rows may hold them in the order of their probability. Raises:
    InvalidInputError.
    """
    named = {name: file for file in reversed(files) for name in file.names or ()}
    width = max(file.width for file in files)
    if not named:
        if given is not None and len(given) < width:
            raise InvalidInputError(f"class_names must name {width} options, got {shown(given)}")
        return (None, width) if given is None else (tuple(given), len(given))
    in_order = next((file for file in files if file.names is None), None)
    if in_order is not None:
        other = next(iter(named.values()))
        raise InvalidInputError(f"{other.path} has options by name, {in_order.path} in order: read them apart")
    for name, file in named.items():
        if given is not None and name not in given:
            raise InvalidInputError(f"{file.path} has an option {name!r}, and class_names are {shown(given)}")
    names = tuple(
        given or sorted(named, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
    )
    return names, len(names)
