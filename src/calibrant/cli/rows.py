"""`calibrant rows`: what an experiment has found, row by row."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibrant.cli.options import File, Words
from calibrant.cli.output import finite, new_table, shown
from calibrant.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json")
IN_TABLE = ("run", "split", "calibrator", "metric", "value")  # unless told
ROWS_IN_TABLE = 50


def rows(
    folder: File,
    *,
    where: str | None = None,
    columns: Words = (),
    format: str = "table",
    limit: int | None = None,
) -> None:
    """Print the rows of an experiment: a score per run, test, calibrator and metric.

    Parameters
    ----------
    folder
        The folder of an experiment that has been run.
    where
        An SQL condition on the columns, such as "loss = 'focal' and severity >= 3 and metric = 'ece'".
    columns
        Columns to show, by default all, or those that matter most in a table.
    format
        table, csv or json.
    limit
        At most so many rows, by default 50 in a table and else all.
    """
    from calibrant._checks import check_choice, check_whole
    from calibrant.experiments.rows import read_rows
    from calibrant.experiments.rows import where as only

    check_choice("format", format, FORMATS)
    if limit is not None:
        check_whole("limit", limit, 0)
    found = read_rows(folder)
    for name in columns:
        check_choice("column", name, found.column_names)
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"columns must be named once each, got {' '.join(columns)}")
    found = found if where is None else only(found, where)
    found = found.select(columns or (IN_TABLE if format == "table" else found.column_names))
    n_rows = found.num_rows
    limit = ROWS_IN_TABLE if limit is None and format == "table" else limit
    records = records_of(found if limit is None else found.slice(0, limit))
    if format == "json":
        print(json.dumps([dict(zip(found.column_names, record, strict=True)) for record in records], indent=2))
    elif format == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows([found.column_names, *records])
    else:
        show(found.column_names, records, n_rows)


def records_of(rows: "pa.Table") -> list[list[Any]]:
    """The rows as lists; infinity, which JSON has not, as text."""
    return [list(map(finite, record)) for record in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def show(names: Sequence[str], records: Sequence[Sequence[Any]], n_rows: int) -> None:
    from rich.console import Console

    console = Console()
    table = new_table(f"{n_rows:,} rows", names, n_left=0)
    for column, name in zip(table.columns, names, strict=True):
        column.justify = "left" if any(isinstance(record[names.index(name)], str) for record in records) else "right"
        column.no_wrap = False
        column.overflow = "fold"
    for record in records:
        table.add_row(*(shown(text_of(value)) for value in record))
    if len(records) < n_rows:
        table.caption = f"the first {len(records):,}; --limit shows more"
        table.caption_justify = "left"
    console.print(table)


def text_of(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
