"""What an experiment has found: a row per run, test, calibrator and metric, and the curves behind them, as Parquet."""

import os
import sqlite3
from pathlib import Path

import pyarrow as pa

from calibrant._files import first_line
from calibrant._parquet import read_table
from calibrant.errors import InvalidInputError, NoDataError

RAW = "none"  # the calibrator of predictions as the model made them
UNSHIFTED = "none"  # the shift of a test that is like the training images

RUN = {
    "run": pa.string(),  # the folder of the run, below that of the experiment
    "data": pa.string(),
    "model": pa.string(),
    "loss": pa.string(),
    "variant": pa.string(),  # what the grid calls runs that differ in something else, as global; "" else
    "label_smoothing": pa.float64(),
    "seed": pa.int64(),
}
TEST = {
    "split": pa.string(),  # the name of the file of predictions, as test or fog-3
    "shift": pa.string(),  # the corruption, or the name of a shift in the wild; "none"
    "severity": pa.int64(),  # 1 to 5 of corruptions, else 0
    "shifted": pa.bool_(),  # whether it counts in the mean over shifted tests
    "origin": pa.string(),  # published files, or generated here
    "calibrator": pa.string(),
    "n_rows": pa.int64(),
}
ROWS = pa.schema(
    RUN
    | TEST
    | {
        "metric": pa.string(),
        "value": pa.float64(),  # null where it is undefined
        "low": pa.float64(),  # the 95 % interval, null where none was asked for
        "high": pa.float64(),
    }
)
# reliability: of ten bins of confidence x its mean, y the accuracy, weight the count;
# risk_coverage: at 20 coverages x the error y among the most confident, weight the count
CURVES = pa.schema(
    RUN
    | TEST
    | {"curve": pa.string(), "point": pa.int64(), "x": pa.float64(), "y": pa.float64(), "weight": pa.float64()}
)


def read_rows(folder: str | os.PathLike[str]) -> pa.Table:
    """The rows of an experiment. Raises: NoDataError, CorruptFileError."""
    return _read(folder, "rows.parquet", ROWS)


def read_curves(folder: str | os.PathLike[str]) -> pa.Table:
    """The curves of an experiment. Raises: NoDataError, CorruptFileError."""
    return _read(folder, "curves.parquet", CURVES)


def _read(folder: str | os.PathLike[str], name: str, schema: pa.Schema) -> pa.Table:
    path = Path(folder) / name
    if not path.is_file():
        raise NoDataError(f"{folder} has no {name}: it is not the folder of an experiment that has been run")
    return read_table(path, schema)


def where(rows: pa.Table, condition: str) -> pa.Table:
    """The rows for which an SQL condition holds, as loss = 'maxent_mean' and severity >= 3.

    >>> table = pa.table({"loss": ["focal", "poly"], "seed": [0, 1]})
    >>> where(table, "loss like 'f%' and seed in (0, 1)").to_pylist()
    [{'loss': 'focal', 'seed': 0}]
    """
    names = rows.column_names
    base = sqlite3.connect(":memory:")
    columns = ", ".join(f'"{name}"' for name in names)
    base.execute(f"create table rows ({columns})")
    base.executemany(
        f"insert into rows values ({', '.join('?' * len(names))})",
        zip(*(rows.column(name).to_pylist() for name in names), strict=True),
    )
    base.set_authorizer(_only_reads)
    rule = f"where must be a condition on {', '.join(names)}, got {condition!r}"
    try:
        kept = [bool(holds) for (holds,) in base.execute(f"select ({condition}\n) is true from rows order by rowid")]
    except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError) as error:
        raise InvalidInputError(f"{rule}: {first_line(error)}") from None
    finally:
        base.close()
    if len(kept) != rows.num_rows:
        raise InvalidInputError(f"{rule}: it is more than that")
    return rows.filter(pa.array(kept, pa.bool_()))


def _only_reads(action: int, *_about: str | None) -> int:
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
