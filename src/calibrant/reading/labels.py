"""Labels of any type as numbers of classes: whole numbers, booleans, names; each distinct value is read once."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from calibrant._arrays import UNKNOWN, as_tensor
from calibrant._checks import check_boolean_labels
from calibrant._names import brief, common_start, suggestion
from calibrant._paths import first_line
from calibrant.errors import InvalidInputError

MISSING = ("", "NA", "null", "NULL", "None")  # texts for a label that is not known, unless a class has this name
NAN = ("nan", "NaN", "NAN")
BOOLEANS = {"true": 1, "false": 0}


class LabelReader:
    """Reads a column of labels.

    Args:
        column: Its name, for messages.
        n_classes: The number of classes.
        class_names: Their names.
        numbered: Whether a whole number is the number of a class, counted from 0.
        nan_is_unknown: Whether NaN is a label that is not known.
    """

    def __init__(
        self, column: str, n_classes: int, class_names: Sequence[str] | None, numbered: bool, nan_is_unknown: bool
    ) -> None:
        self.column, self.n_classes, self.numbered = column, n_classes, numbered
        self.nan_is_unknown = nan_is_unknown
        self.classes = {name: number for number, name in enumerate(class_names or ())}
        # Names that are whole numbers are what the labels are.
        self.by_name = bool(self.classes) and all(_is_whole(name) for name in self.classes)

    def read(self, column: pa.Array, first_row: int) -> Tensor:
        """The labels (n,), UNKNOWN where they are null or not known.

        Raises: InvalidInputError with the first row whose label is no class.
        """
        if pa.types.is_null(column.type):
            return as_tensor(np.full(len(column), UNKNOWN))
        try:
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        except (pa.ArrowException, NotImplementedError) as error:
            raise InvalidInputError(f"{self.column} must be labels, got {column.type}: {first_line(error)}") from None
        indices = encoded.indices.cast(pa.int64()).fill_null(len(encoded.dictionary)).to_numpy()
        used = np.unique(indices)
        numbers = np.full(len(encoded.dictionary) + 1, UNKNOWN)
        values = encoded.dictionary
        for place in used[used < len(values)]:
            try:
                numbers[place] = self._class(values[int(place)].as_py())
            except InvalidInputError as error:
                row = first_row + int(np.flatnonzero(indices == place)[0])
                raise InvalidInputError(f"{error} at row {row}{self._advice(values[int(place)].as_py())}") from None
        return as_tensor(numbers[indices])

    def _class(self, value: Any) -> int:
        if isinstance(value, str) and value in self.classes:
            return self.classes[value]
        if isinstance(value, bool) or (isinstance(value, str) and value.lower() in BOOLEANS):
            if str(value) in self.classes:
                return self.classes[str(value)]
            check_boolean_labels(self.column, self.n_classes)
            return BOOLEANS[str(value).lower()]
        if value is None or (isinstance(value, str) and value in MISSING):
            return UNKNOWN
        if (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and value in NAN):
            if self.nan_is_unknown:
                return UNKNOWN
            raise InvalidInputError(f"{self.column} must not be NaN, got NaN")
        if not _is_whole(value):
            rule = "be a class" if self.classes else f"be whole numbers from 0 to {self.n_classes - 1}"
            raise InvalidInputError(f"{self.column} must {rule}, got {brief(value)}")
        return self._numbered_class(int(float(value)))

    def _numbered_class(self, number: int) -> int:
        if self.by_name:
            if str(number) not in self.classes:
                raise InvalidInputError(f"{self.column} must be a class, got {number}")
            return self.classes[str(number)]
        if not self.numbered:
            raise InvalidInputError(f"{self.column} must be class names, got {number}")
        if number == UNKNOWN:
            raise InvalidInputError(f"{self.column} must be null (in text: empty) where not known, got {UNKNOWN}")
        if not 0 <= number < self.n_classes:
            raise InvalidInputError(f"{self.column} must lie in [0, {self.n_classes - 1}], got {number}")
        return number

    def _advice(self, value: Any) -> str:
        """What follows the row of a label that is no class."""
        if (isinstance(value, float) and math.isnan(value)) or value in NAN:
            return ": type --nan-is-unknown if it is not known yet"
        if isinstance(value, str) and not _is_whole(value):
            if (start := self._start(value)) is not None:
                return f": type '{start}*' for the columns if the classes are what stands behind {start}"
            if self.classes:
                return f"; {suggestion(value, self.classes)}"
            return f": type --class-names with the names of the {self.n_classes} classes in the order of the columns"
        if not self.by_name and self.numbered and value in (self.n_classes, str(self.n_classes)):
            names = [str(number + 1) for number in range(self.n_classes)]
            return f": type --class-names {' '.join(names[:8])}{' …' * (len(names) > 8)} if labels count from 1"
        return f"; {suggestion(str(value), self.classes)}" if self.by_name else ""

    def _start(self, value: str) -> str | None:
        """What all class names begin with, if the label is what follows it in one of them."""
        start = common_start(self.classes)
        return start if start and start + value in self.classes else None


def _is_whole(value: object) -> bool:
    """Whether a number, or the text of one, is whole: 3, 3.0 or "3"."""
    try:
        return float(value).is_integer() and abs(float(value)) < 2**53  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
