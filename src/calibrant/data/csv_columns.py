"""Columns of a CSV file, read as text and checked when they are converted."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

from calibrant._files import read_error
from calibrant._paths import first_line
from calibrant.errors import CorruptFileError

INTEGER = r"^-?[0-9]{1,15}(\.0*)?$"  # pandas writes integers as 3.0 where one of them was missing


@dataclass(frozen=True)
class CsvColumns:
    """Columns of a file; rows are counted from 0, below the header."""

    path: Path
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def text(self, name: str) -> pa.StringArray:
        return pa.concat_arrays(self.table.column(name).chunks)

    def integers(self, name: str) -> np.ndarray:
        """The integers of a column, int64."""
        text = self.text(name)
        self.require(name, mask(pc.match_substring_regex(text, INTEGER)), "an integer")
        return np.asarray(text.cast(pa.float64()).cast(pa.int64()))

    def require(self, name: str, good: np.ndarray, rule: str) -> None:
        """Raise CorruptFileError with the first row whose value is not good."""
        if not good.all():
            row = int(good.argmin())
            value = self.table.column(name)[row].as_py()
            raise CorruptFileError(f"{self.path}: {name} must be {rule}, got {value!r} at row {row}")


def read_csv_columns(path: Path, names: Sequence[str], *, others: bool = False) -> CsvColumns:
    """Read these columns of a file as text; ``others``: and all others, each as what its values are."""
    text = {name: pa.string() for name in names}
    included = None if others else list(names)
    try:
        _check_header(path, names)
        table = read_csv(
            path,
            parse_options=ParseOptions(newlines_in_values=True),
            convert_options=ConvertOptions(include_columns=included, column_types=text, strings_can_be_null=others),
        )
    except OSError as error:
        raise read_error(path, error) from None
    except (pa.ArrowInvalid, csv.Error) as error:
        raise CorruptFileError(f"{path} cannot be read as CSV: {first_line(error)}") from None
    if table.num_rows == 0:
        raise CorruptFileError(f"{path} has no rows")
    return CsvColumns(path, table)


def _check_header(path: Path, names: Sequence[str]) -> None:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(file), [])
    missing = [name for name in names if name not in header]
    if missing:
        raise CorruptFileError(f"{path} has no column {missing[0]!r}")


def mask(values: pa.BooleanArray) -> np.ndarray:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
