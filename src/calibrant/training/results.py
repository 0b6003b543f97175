"""The scores of a run as rows: one per test, calibrator and metric."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from calibrant._parquet import read_table, write_table
from calibrant.data import DataSet
from calibrant.metrics import score
from calibrant.metrics.jackknife import jackknife, jackknife_groups
from calibrant.predictions import Predictions
from calibrant.run_tables import ROWS
from calibrant.runs import RAW, UNSHIFTED, RunFolder, RunKey

CLUSTERS = ("patient", "location")  # columns of WILDS: images of one patient or camera are not independent


def write_metrics(run: RunFolder, names: Iterable[str], data: DataSet, key: RunKey) -> None:
    """Score the uncalibrated predictions of a run by every metric."""
    rows: list[dict[str, Any]] = []
    for name in names:
        test = Predictions.load(run.prediction(name))
        shared = key.columns() | split_columns(name, test, data) | {"calibrator": RAW}
        rows += [shared | scored for scored in score_rows(test)]
    write_rows(run.metrics, rows)


def write_rows(
    path: Path, rows: list[dict[str, Any]], schema: pa.Schema = ROWS, metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """Write rows or curves; the file is replaced atomically."""
    write_table(path, pa.Table.from_pylist(rows, schema.with_metadata(metadata)))


def split_columns(name: str, test: Predictions, data: DataSet) -> dict[str, Any]:
    """The columns that describe a test, and whether it counts in the mean over shifted tests."""
    corruption, severity, origin = (test.column(column)[0].as_py() for column in ("corruption", "severity", "origin"))
    shifted = name in data.shifts
    return {
        "split": name,
        # of a natural shift, only the name is known
        "corruption": name if shifted and corruption == UNSHIFTED else corruption,
        "severity": severity,
        "shifted": shifted,
        "origin": origin,
        "n_rows": len(test),
        "majority": float(torch.bincount(test.labels).max()) / len(test),
    }


def score_rows(
    test: Predictions, metrics: Iterable[str] | None = None, intervals: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The columns metric, value, low, high and jackknife for each metric, by default all; None where undefined."""
    card = score(test, metrics=metrics)
    cluster = next((name for name in CLUSTERS if name in test.columns.column_names), None)
    without = jackknife(test, card, jackknife_groups(test, cluster))
    rows = []
    for name, value in card.values().items():
        low, high = card.interval(name) if name in intervals and value is not None else (None, None)
        rows.append({"metric": name, "value": value, "low": low, "high": high, "jackknife": without.get(name)})
    return rows


def chance_warning(run: RunFolder, keep: str) -> str | None:
    """One line where the weights that a run keeps are no more accurate than a constant prediction, else None."""
    log, _ = run.read_log()
    key, sign = {"last": ("epoch", 1), "accuracy": ("val_accuracy", 1), "nll": ("val_nll", -1)}[keep]
    line = max(log, key=lambda line: sign * line[key], default={})
    if not line.get("val_at_chance"):
        return None
    same = ", and all predictions are the same class" if line["val_constant"] else ""
    return (
        f"the validation accuracy of {line['val_accuracy']:.4f} is at chance: always predicting the most frequent "
        f"class has {line['val_majority']:.4f}{same}; try another lr, or a longer lr_warmup"
    )


def mean_scores(run: RunFolder) -> dict[str, dict[str, float | None]]:
    """Uncalibrated scores of a run: of each split, and means over the tests of each severity.

    The keys are the split, or as "severity 3", then the metric; "tests" is the number of tests. A mean is None where
    the score of any test is undefined.
    """
    rows = read_table(run.metrics, ROWS)
    rows = rows.filter(pc.equal(rows["calibrator"], RAW))
    severity = pc.binary_join_element_wise("severity", rows["severity"].cast(pa.string()), " ")
    rows = rows.append_column("test", pc.if_else(pc.equal(rows["severity"], 0), rows["split"], severity))
    means = rows.group_by(["severity", "test", "metric"], use_threads=False).aggregate(
        [
            ("value", "mean", pc.ScalarAggregateOptions(skip_nulls=False)),
            ("value", "count", pc.CountOptions(mode="all")),
        ]
    )
    found: dict[str, dict[str, float | None]] = {}
    for row in means.sort_by([("severity", "ascending"), ("test", "ascending")]).to_pylist():
        found.setdefault(row["test"], {"tests": row["value_count"]})[row["metric"]] = row["value_mean"]
    return found
