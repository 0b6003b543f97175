"""`calibrant compare-calibrators`: every calibrator fitted on one file and measured on another."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrant.cli.options import File, Json, Switch, Words
from calibrant.cli.output import finite, working
from calibrant.report.formats import as_text
from calibrant.report.numbers import MISSING, limits, number
from calibrant.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from calibrant.calibrators import Comparison


def compare_calibrators(
    validation: File,
    test: File,
    *,
    by: str | None = None,
    calibrators: Words = (),
    metrics: Words = ("nll", "ece"),
    shift: str = "corruption",
    level: float = 0.95,
    allow_same_rows: Switch = False,
    as_json: Json = False,
) -> None:
    """Fit every calibrator on validation and measure it on test: does it help, also where the test has shifted?

    Calibrators that learn from corrupted rows are, for each type of corruption in test, fitted without it. A calibrator
    that cannot be fitted is listed with the reason.

    Parameters
    ----------
    validation
        A Parquet file, folder, glob or URL of labelled predictions to fit on.
    test
        The same of other rows, to measure on.
    by
        A column of test to split by, such as severity.
    calibrators
        Names of calibrators, by default all that fit these data.
    metrics
        Names of metrics.
    shift
        The column that names each row's type of corruption.
    level
        Confidence level of the intervals.
    allow_same_rows
        Continue where test holds rows of validation.
    as_json
        Print JSON, with full precision, instead of a table.
    """
    from calibrant._checks import check_level
    from calibrant.calibrators import compare_calibrators as compared
    from calibrant.predictions import Predictions

    check_level(level)
    fitted_on, measured_on = Predictions.load(validation), Predictions.load(test)
    with working("comparing") as progress:
        found = compared(
            fitted_on,
            measured_on,
            calibrators or None,
            by=by,
            metrics=metrics,
            shift=shift,
            level=level,
            allow_same_rows=allow_same_rows,
            progress=progress,
        )
    if as_json:
        print(json.dumps(finite([row.to_dict() for row in found]), indent=2, allow_nan=False))
        return
    from rich.console import Console

    for table in tables_of(found, by, metrics, level, caption=f"fitted on {validation}, measured on {test}"):
        print(as_text(table, Console().width))


def tables_of(
    rows: "Sequence[Comparison]", by: str | None, metrics: Sequence[str], level: float, *, caption: str
) -> list[Table]:
    """All rows, with the calibrators that failed as notes; then, with ``by``, each group with its calibrators."""
    from calibrant.metrics.table import METRICS

    overall = [row for row in rows if row.overall and row.failure is None]
    failures = [f"{row.calibrator}: {row.failure}" for row in rows if row.failure is not None]
    tables = [Table(caption, *table_of(overall, [], dict.fromkeys(metrics, True), level), failures)]
    if by is not None:
        groups = [row for row in rows if not row.overall]
        order = list(dict.fromkeys(row.group for row in groups))
        groups.sort(key=lambda row: order.index(row.group))
        wide = {name: METRICS[name].floor is not None for name in metrics}  # all intervals are too wide to read
        heads = [Column(by, numeric=False), Column("rows")]
        tables += [Table(f"by {by}", *table_of(groups, heads, wide, level))] if groups else []
    return tables


def table_of(
    rows: "Sequence[Comparison]", group: list[Column], metrics: dict[str, bool], level: float
) -> tuple[list[Column], list[list[Cell]]]:
    """A line for each row, its metrics with interval or without; ``group``: the heads of the group and its size."""
    headings = [part for name, wide in metrics.items() for part in (name, *[f"{level:.0%} interval"] * wide)]
    lines = []
    for row in rows:
        cells = [row.calibrator, *([str(row.group), f"{row.n_rows:,}"] if group else [])]
        for name, wide in metrics.items():
            interval = limits(row.intervals[name]) if name in row.intervals else MISSING
            cells += [number(row.values[name]), *[interval] * wide]
        lines.append(list(map(Cell, cells)))
    return [Column("calibrator", numeric=False), *group, *map(Column, headings)], lines
