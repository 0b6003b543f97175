"""The scores of a run, one row per test and metric."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from calibrant._parquet import write_table
from calibrant.metrics import score
from calibrant.predictions import Predictions

SCHEMA = pa.schema(
    {
        "split": pa.string(),
        "corruption": pa.string(),
        "severity": pa.int64(),
        "origin": pa.string(),
        "n_rows": pa.int64(),
        "metric": pa.string(),
        "value": pa.float64(),
    }
)


def write_metrics(path: Path, files: Iterable[Path], described: dict[str, Any]) -> None:
    """Score files of predictions and write every metric of each; where it is undefined its value is null."""
    rows = [row for file in files for row in metric_rows(file.stem, Predictions.load(file))]
    columns = {name: pa.array([value] * len(rows)) for name, value in described.items()}
    table = pa.Table.from_pylist(rows, SCHEMA)
    for position, (name, values) in enumerate(columns.items()):
        table = table.add_column(position, name, values)
    write_table(path, table)


def metric_rows(split: str, predictions: Predictions) -> list[dict[str, Any]]:
    shared = {name: predictions.column(name)[0].as_py() for name in ("corruption", "severity", "origin")}
    shared |= {"split": split, "n_rows": len(predictions)}
    values = score(predictions).values()
    return [{**shared, "metric": name, "value": value} for name, value in values.items()]
