"""`calibrant compare-calibrators`: every method fitted on one file and measured on another."""

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from calibrant.cli.options import File, Json, Switch, Words
from calibrant.cli.output import finite, new_table, shown, working
from calibrant.report.numbers import limits, number

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

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

    Methods that learn from corrupted rows are, for each type of corruption in test, fitted without it. A method
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
        Continue where test holds rows of validation.
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
        print(json.dumps(finite([row.to_dict() for row in found]), indent=2, allow_nan=False))
        return
    show(found, by, metrics, level, title=f"fitted on {validation}, measured on {test}")


def show(rows: "Sequence[Comparison]", by: str | None, metrics: Sequence[str], level: float, *, title: str) -> None:
    """All rows first, then the methods that failed; then, with ``by``, each group with its methods."""
    from rich.console import Console

    from calibrant.metrics.table import METRICS

    console = Console()
    whole = [row for row in rows if row.whole and row.failure is None]
    console.print(table_of(whole, title, (), dict.fromkeys(metrics, True), level))
    for row in rows:
        if row.failure is not None:
            console.print(shown(f"{row.method}: {row.failure}"))
    groups = [row for row in rows if not row.whole]
    if groups:
        order = list(dict.fromkeys(row.group for row in groups))
        groups.sort(key=lambda row: order.index(row.group))
        columns = {name: METRICS[name].floor is not None for name in metrics}  # all intervals are too wide to read
        console.print(table_of(groups, f"by {by}", (str(by), "rows"), columns, level))


def table_of(
    rows: "Sequence[Comparison]", title: str, group: tuple[str, ...], metrics: dict[str, bool], level: float
) -> "Table":
    """A line for each row, its metrics with interval or without; ``group``: headings of the group and its size."""
    headings = [part for name, wide in metrics.items() for part in (name, *[f"{level:.0%} interval"] * wide)]
    table = new_table(title, ("method", *group, *headings), n_left=1 + len(group[:1]))
    for row, following in zip_longest(rows, rows[1:]):
        cells: list[Text | str] = [shown(row.group), f"{row.n_rows:,}"] if group else []
        for name, wide in metrics.items():
            interval = limits(row.intervals[name]) if name in row.intervals else "–"
            cells += [number(row.values[name]), *[interval] * wide]
        table.add_row(row.method, *cells, end_section=bool(group and following and following.group != row.group))
    return table
