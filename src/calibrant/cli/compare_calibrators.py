"""`calibrant compare-calibrators`: calibrators fitted on one file and scored on another."""

from typing import TYPE_CHECKING

from calibrant._names import check_choice, known_names
from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Json, Switch, Words
from calibrant.cli.output import print_json, print_tables, status
from calibrant.report.numbers import MISSING, interval_text, metric_text
from calibrant.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibrant.calibrators import Comparison


def compare_calibrators(
    validation: File,
    test: File,
    *,
    by: str | None = None,
    calibrators: Words = (),
    metrics: Words = (),
    shift: str = "corruption",
    sets: Words = (),
    reference: Files = (),
    level: float = 0.95,
    match_names: Switch = False,
    allow_same_rows: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Fit calibrators on validation and score them on test, also under corruptions that they were not fitted on.

    Calibrators of corrupted rows are fitted once for each type of corruption in test, without that type. A calibrator
    that cannot be fitted or applied is listed with the reason.

    Parameters
    ----------
    validation
        A file, folder, glob or URL of labelled predictions to fit on.
    test
        The same for other rows, to score.
    by
        A column of test to group by, such as severity.
    calibrators
        Names of calibrators, by default all.
    metrics
        Names of metrics, by default nll and ece, or ece where test has the confidence alone.
    shift
        The column of corruption types.
    sets
        Columns of test that define the sets of set_temperature; by default those of shift, severity and by that test
        has, but not a by that the labels decide, such as the class.
    reference
        Predictions with features to measure distances from, for set_temperature and density_aware.
    level
        Confidence level of the intervals.
    match_names
        Reorder the classes of files that have the same class names in another order.
    allow_same_rows
        Continue if test holds rows of validation.
    as_json
        Print JSON, with full precision, instead of a table.
    """
    for name in calibrators:
        check_choice("calibrator", name, known_names("CALIBRATORS"))
    for name in metrics:
        check_choice("metric", name, known_names("METRICS"))
    check_exists(validation, test, *reference, columns.columns)
    from calibrant._checks import check_level
    from calibrant.calibrators import compare_calibrators as compare
    from calibrant.calibrators.comparison import default_metrics, default_sets
    from calibrant.calibrators.sets import SetTemperature
    from calibrant.metrics.scoring import no_labels

    check_level(level)
    inputs = [validation, test, *([reference] if reference else [])]
    scans = columns.scans(*inputs, match_names=match_names)
    if not scans[1].has_labels:
        raise no_labels(scans[1])
    rows, test_rows, *distant = (scan.read() for scan in (scans[0].check_labels(), *scans[1:]))
    test_rows = test_rows.match_names(rows.class_names) if match_names else test_rows
    metrics = metrics or default_metrics(test_rows)
    set_columns = sets or default_sets(test_rows, shift, by)
    with status("comparing") as progress:
        found = compare(
            rows,
            test_rows,
            calibrators or None,
            by=by,
            metrics=metrics,
            shift=shift,
            sets=set_columns or None,
            reference=distant[0] if distant else None,
            level=level,
            allow_same_rows=allow_same_rows,
            progress=progress,
        )
    if as_json:
        print_json([row.to_dict() for row in found])
        return
    from calibrant.metrics.table import METRICS

    notes = [f"{row.calibrator}: {row.failure}" for row in found if row.failure is not None]
    overall = [row for row in found if row.overall and row.failure is None]
    if any(row.calibrator == SetTemperature.name for row in overall):
        how = f"sets by {', '.join(set_columns)}" if set_columns else "all rows as one set"
        notes.insert(0, f"{SetTemperature.name}: {how}")
    caption = f"fitted on {validation}, scored on {test}"
    tables = [Table(caption, *comparison_table(overall, None, dict.fromkeys(metrics, True), level), notes)]
    groups = [row for row in found if not row.overall]
    if groups:
        order = list(dict.fromkeys(row.group for row in groups))
        groups.sort(key=lambda row: order.index(row.group))
        with_interval = {name: METRICS[name].floor is not None for name in metrics}  # all would be too wide to read
        tables.append(Table(f"by {by}", *comparison_table(groups, by, with_interval, level)))
    print_tables(*tables)


def comparison_table(
    rows: "Sequence[Comparison]", by: str | None, with_interval: dict[str, bool], level: float
) -> tuple[list[Column], list[list[Cell]]]:
    """Columns and cells: a line for each comparison, with its group if ``by`` names the column, and its metrics."""
    columns = [Column("calibrator", numeric=False)]
    columns += [] if by is None else [Column(by, numeric=False), Column("rows")]
    for name, interval in with_interval.items():
        columns += [Column(name), Column(f"{level:.0%} interval")] if interval else [Column(name)]
    lines = []
    for row in rows:
        cells = [row.calibrator] if by is None else [row.calibrator, str(row.group), f"{row.n_rows:,}"]
        for name, interval in with_interval.items():
            cells.append(metric_text(row.values[name]))
            if interval:
                cells.append(interval_text(row.intervals[name]) if name in row.intervals else MISSING)
        lines.append(list(map(Cell, cells)))
    return columns, lines
