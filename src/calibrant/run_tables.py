"""The columns of the rows and curves of runs, and the runs that a table has."""

import pyarrow as pa

from calibrant.errors import InvalidInputError
from calibrant.runs import RunKey

_RUN = {
    "run": pa.string(),  # the folder of the run
    "data": pa.string(),
    "model": pa.string(),
    "loss": pa.string(),
    "variant": pa.string(),
    "label_smoothing": pa.float64(),
    "seed": pa.int64(),
}
_TEST = {
    "split": pa.string(),  # the name of the file of predictions: test, fog-3
    "corruption": pa.string(),  # "none" of the unshifted test; of a natural shift, the name of the split
    "severity": pa.int64(),  # 1 to 5 of corruptions, else 0
    "shifted": pa.bool_(),  # whether it counts in the mean over shifted tests
    "origin": pa.string(),  # published files, or generated
    "calibrator": pa.string(),
    "n_rows": pa.int64(),
}
ROWS = pa.schema(
    _RUN
    | _TEST
    | {
        "majority": pa.float64(),  # the share of the most frequent label: the accuracy of a constant prediction
        "metric": pa.string(),
        "value": pa.float64(),  # null where it is undefined
        "low": pa.float64(),  # the 95 % interval, null where none was computed
        "high": pa.float64(),
        "jackknife": pa.list_(pa.float32()),  # the value without each of 20 groups of images, null where undefined
    }
)
# reliability: of ten bins of confidence x its mean, y the accuracy, weight the count;
# risk_coverage: at 20 coverages x the error y among the most confident, weight the count
CURVES = pa.schema(
    _RUN
    | _TEST
    | {"curve": pa.string(), "point": pa.int64(), "x": pa.float64(), "y": pa.float64(), "weight": pa.float64()}
)


def check_rows(rows: pa.Table) -> None:
    """Check that a table has the columns of the rows of an experiment. Raises: InvalidInputError."""
    if lacking := [name for name in ROWS.names if name not in rows.column_names]:
        raise InvalidInputError(f"rows must have the columns of an experiment, and have no {lacking[0]}")


def run_keys(rows: pa.Table) -> dict[str, RunKey]:
    """The keys of the runs in a table of rows or curves, by name, in order of appearance.

    >>> run_keys(pa.table({"run": ["a", "a"], "data": ["d"] * 2, "model": ["m"] * 2, "loss": ["l"] * 2,
    ...                   "variant": [""] * 2, "label_smoothing": [0.0] * 2, "seed": [3, 3]}))
    {'a': RunKey(data='d', model='m', loss='l', variant='', label_smoothing=0.0, seed=3)}
    """
    columns = ["run", *RunKey._fields]
    found = rows.select(columns).group_by(columns, use_threads=False).aggregate([]).to_pylist()
    return {row["run"]: RunKey(*(row[name] for name in RunKey._fields)) for row in found}
