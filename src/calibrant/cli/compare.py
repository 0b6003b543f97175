"""`calibrant compare-calibrators`: every method fitted on one file and measured on another."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibrant.cli.options import File, Json, Switch, Words
from calibrant.cli.output import finite, new_table, shown, working
from calibrant.report.numbers import limits, number

if TYPE_CHECKING:
    from calibrant.calibrators import Comparison


def compare_calibrators(
    validation: File,
    test: File,
    *,
    by: str | None = None,
    methods: Words = (),
    metrics: Words = ("nll", "ece"),
    shift: str = "corruption",
    level: float = 0.95,
    allow_same_rows: Switch = False,
    as_json: Json = False,
) -> None:
    """Fit every calibrator on validation and measure it on test: does it help, also where the test has shifted?

    Methods that are fitted to corrupted rows are, for each type of corruption in test, fitted without it. A method
    that cannot be fitted is listed with the reason.

    Parameters
    ----------
    validation
        A Parquet file, folder, glob or URL of labelled predictions to fit on.
    test
        The same of other rows, to measure on.
    by
        A column of test to split by, such as severity.
    methods
        Names of calibrators, by default all that fit these data.
    metrics
        Names of metrics.
    shift
        The column that names each row's type of corruption.
    level
        Confidence level of the intervals.
    allow_same_rows
        Go on where test holds rows of validation.
    as_json
        Print JSON, with full precision, instead of a table.
    """
    from calibrant._checks import check_level
    from calibrant.calibrators import compare_calibrators as compared
    from calibrant.predictions import Predictions

    check_level(level)
    fitted_on, measured_on = Predictions.load(validation), Predictions.load(test)
    with working("comparing") as report:
        found = compared(
            fitted_on,
            measured_on,
            methods or None,
            by=by,
            metrics=metrics,
            shift=shift,
            level=level,
            allow_same_rows=allow_same_rows,
            report=report,
        )
    if as_json:
        print(json.dumps(finite([comparison_record(row) for row in found]), indent=2, allow_nan=False))
        return
    show(found, by, metrics, level, title=f"fitted on {validation}, measured on {test}")


def comparison_record(row: "Comparison") -> dict[str, Any]:
    plain = row.group is None or isinstance(row.group, str | int | float | bool)
    return {
        "method": row.method,
        "group": row.group if plain else str(row.group),
        "whole": row.whole,
        "n_rows": row.n_rows,
        "values": row.values,
        "intervals": {name: list(pair) for name, pair in row.intervals.items()},
        "failure": row.failure,
    }


def show(rows: "Sequence[Comparison]", by: str | None, metrics: Sequence[str], level: float, *, title: str) -> None:
    """All rows first; then, with ``by``, each group with its methods."""
    from rich.console import Console

    from calibrant.metrics.table import METRICS

    console = Console()
    whole = new_table(title, ("method", *headings(metrics, metrics, level)), n_left=1)
    for row in rows:
        if row.whole and row.failure is None:
            whole.add_row(row.method, *cells(row, metrics, metrics))
    console.print(whole)
    for row in rows:
        if row.failure is not None:
            console.print(shown(f"{row.method}: {row.failure}"))
    groups = [row for row in rows if not row.whole]
    if by is None or not groups:
        return
    with_interval = [name for name in metrics if METRICS[name].floor is not None]  # else it is too wide to read
    table = new_table(f"by {by}", ("method", by, "rows", *headings(metrics, with_interval, level)), n_left=2)
    for group in dict.fromkeys(row.group for row in groups):
        for row in groups:
            if row.group == group:
                table.add_row(row.method, shown(group), f"{row.n_rows:,}", *cells(row, metrics, with_interval))
        table.add_section()
    console.print(table)


def headings(metrics: Sequence[str], with_interval: Sequence[str], level: float) -> list[str]:
    return [part for name in metrics for part in (name, *([f"{level:.0%} interval"] if name in with_interval else []))]


def cells(row: "Comparison", metrics: Sequence[str], with_interval: Sequence[str]) -> list[str]:
    found = []
    for name in metrics:
        found.append(number(row.values[name]))
        if name in with_interval:
            found.append(limits(row.intervals[name]) if name in row.intervals else "–")
    return found
