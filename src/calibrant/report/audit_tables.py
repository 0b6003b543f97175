"""The tables of an audit, and the text of an audit for the terminal."""

import math
import textwrap
from collections.abc import Sequence

from calibrant.audits import Audit, Group, GroupFindings, HandedOver, SetSize, TemperatureEffect
from calibrant.audits.groups import MAX_GROUP_VERDICTS
from calibrant.audits.record import metric_record
from calibrant.audits.temperature import CHANGED_METRICS
from calibrant.audits.unlabelled import UnlabelledAudit
from calibrant.audits.verdict import significance_level
from calibrant.errors import printable
from calibrant.metrics.compare import Difference
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups
from calibrant.metrics.table import METRICS
from calibrant.report.audit_words import advice_command, advice_sentence, group_name, summary
from calibrant.report.formats import as_text
from calibrant.report.numbers import (
    MISSING,
    count,
    interval_text,
    level_text,
    metric_text,
    p_value_text,
    percent,
    percent_limits,
    points,
    points_limits,
)
from calibrant.report.table import Cell, Column, Table, number_cell

MAX_TABLE_CLASSES = 2_000
SIGNIFICANT_MARK = "● "
MAX_PATH_CHARACTERS = 40
NOISE_FLOOR_TITLE = "Expected value for a perfectly calibrated model with the same confidences and number of rows"
APPROXIMATION_TITLE = "Largest error from computing the value on binned confidences"
GROUP_METRICS = ("nll",)  # shown for groups by default, besides accuracy, confidence and ECE


def audit_text(audit: Audit, names: Sequence[str], width: int) -> str:
    """The audit with these metrics, for a terminal of this width."""
    card = audit.scorecard
    what = audit.files[0] if len(audit.files) == 1 else f"{len(audit.files):,} files"
    kind = "confidence of the predicted class" if audit.top_label else f"{card.n_classes} classes"
    lines = [f"{what}: {count(card.n_rows, 'row')}, {kind}", *summary(audit, names)]
    lines.append("Recommendations:")
    for advice in audit.advice:
        lines.append(f"- {advice_sentence(advice)}")
        if command := advice_command(advice):
            lines.append(f"  {command}")
    text = "\n".join(textwrap.fill(printable(line), width, subsequent_indent="  ") for line in lines)
    tables = [
        scorecard_table(audit, names),
        *(groups_table(found, group_metrics(audit, names)) for found in audit.groups.values()),
        *comparison_tables(audit, names),
    ]
    return "\n\n".join([text, *(as_text(table, width).rstrip() for table in tables)])


def group_metrics(audit: Audit, names: Sequence[str]) -> Sequence[str]:
    """The metrics of a table of groups: the requested ones, or by default few."""
    default = () if audit.top_label else GROUP_METRICS
    return default if tuple(names) == audit.scorecard.names else names


def count_cell(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def metric_cell(value: float | None) -> Cell:
    return number_cell(value, metric_text(value))


def share_cell(value: float | None) -> Cell:
    return number_cell(value, percent(value or 0.0))


def limits_cell(pair: Sequence[float] | None, sign: str = "") -> Cell:
    """A cell sorted by the lower limit; unbounded intervals come last."""
    if pair is None:
        return number_cell(None, "")
    text = interval_text((pair[0], pair[1]), sign)
    return Cell(text) if math.isinf(pair[0]) else number_cell(pair[0], text)


def p_cell(p_value: float, *, marked: bool = False) -> Cell:
    return number_cell(p_value, f"{SIGNIFICANT_MARK if marked else ''}{p_value_text(p_value)}", "bad" if marked else "")


def unlabelled_text(audit: UnlabelledAudit, width: int) -> str:
    """The metrics of rows without labels, for a terminal of this width."""
    card = audit.scorecard
    what = audit.files[0] if len(audit.files) == 1 else f"{len(audit.files):,} files"
    line = f"{what}: {count(card.n_rows, 'row')} without a label, {card.n_classes} classes"
    tables = [metrics_table(card, card.names, audit.level, audit.seed), *map(_unlabelled_groups, audit.groups)]
    text = textwrap.fill(printable(line), width, subsequent_indent="  ")
    return "\n\n".join([text, *(as_text(table, width).rstrip() for table in tables)])


def _unlabelled_groups(found: Groups) -> Table:
    names = found.overall.names
    columns = [Column(found.by, numeric=False), Column("Rows"), *map(Column, names)]
    rows = [
        [Cell(group_name(value)), count_cell(card.n_rows), *(metric_cell(card.get(name)) for name in names)]
        for value, card in found.items()
    ]
    return Table(f"Groups by {found.by}", columns, rows)


def scorecard_table(audit: Audit, names: Sequence[str]) -> Table:
    return metrics_table(audit.scorecard, names, audit.level, audit.seed)


def metrics_table(card: Scorecard, names: Sequence[str], level: float, seed: int) -> Table:
    records = {name: metric_record(card, name, level, seed) for name in names}
    bounded = any(record["error_bound"] for record in records.values())
    columns = [
        Column("Metric", numeric=False),
        Column("Description", numeric=False),
        Column("Value"),
        Column(f"{level_text(level)} CI"),
        Column("Noise floor", tooltip=NOISE_FLOOR_TITLE),
        *([Column("Approximation error", tooltip=APPROXIMATION_TITLE)] if bounded else []),
    ]
    rows = [
        [
            Cell(name),
            Cell(METRICS[name].title),
            metric_cell(record["value"]),
            limits_cell(record["interval"]),
            metric_cell(record["noise_floor"]),
            *([metric_cell(record["error_bound"])] if bounded else []),
        ]
        for name, record in records.items()
    ]
    return Table("Metrics with confidence intervals (CI) and noise floors", columns, rows)


def groups_table(found: GroupFindings, names: Sequence[str] = GROUP_METRICS) -> Table:
    """The groups, worst first, with these metrics besides those of the verdict."""
    more = [name for name in names if name not in ("accuracy", "confidence", "ece")]
    level = level_text(found.worst_first[0].verdict.level)
    columns = [
        Column(found.by, numeric=False),
        Column("Rows"),
        Column("Accuracy"),
        Column("Confidence"),
        Column("Gap", tooltip="Confidence − accuracy, in percentage points"),
        Column("ECE", tooltip=f"Expected calibration error in percentage points, with its {level} CI"),
        Column("Noise floor", tooltip=f"{NOISE_FLOOR_TITLE}, in percentage points"),
        Column("p (Holm)", tooltip="Holm-adjusted p-value of the joint test of ECE and gap"),
        *(Column(name, tooltip=METRICS[name].title) for name in more),
    ]
    rows = [
        [*_group_cells(group), *(metric_cell(group.card.get(name)) for name in more)] for group in found.worst_first
    ]
    notes = []
    if found.n_miscalibrated:
        notes.append(f"{SIGNIFICANT_MARK.strip()}: significantly miscalibrated after Holm's correction.")
    if len(rows) < len(found.cards):
        notes.append(f"The {len(rows):,} worst of {len(found.cards):,} groups; all groups were tested.")
    return Table(f"Groups by {found.by}, worst first", columns, rows, notes)


def _group_cells(group: Group) -> list[Cell]:
    verdict, marked = group.verdict, group.miscalibrated
    ece = f"{points(verdict.ece)} ({points_limits(verdict.ece_interval)})"
    return [
        Cell(group_name(group.value)),
        count_cell(verdict.n_rows),
        share_cell(verdict.accuracy),
        share_cell(verdict.confidence),
        number_cell(verdict.gap, points(verdict.gap, "+")),
        number_cell(verdict.ece, ece, "bad" if marked else ""),
        number_cell(verdict.noise_floor, points(verdict.noise_floor)),
        p_cell(group.p_holm, marked=marked),
    ]


def handed_over_table(by: str, found: Sequence[HandedOver], level: float) -> Table:
    columns = [
        Column(by, numeric=False),
        Column("Rows"),
        Column("Handed over", tooltip="Share of the rows below the certified threshold"),
        Column("Error of accepted", tooltip="Share of the rows above the threshold that are wrong"),
        Column(f"{level_text(level)} CI", tooltip="Clopper-Pearson interval of this error"),
    ]
    shown = found[:MAX_GROUP_VERDICTS]
    rows = [
        [
            Cell(group_name(row.value)),
            count_cell(row.n_rows),
            share_cell(row.share),
            number_cell(row.error, MISSING if row.error is None else percent(row.error)),
            Cell("" if row.error is None else percent_limits(row.interval(level))),
        ]
        for row in shown
    ]
    notes = [f"The first {len(shown):,} of {len(found):,} groups."] if len(shown) < len(found) else []
    return Table(f"Handed over by {by}, the most first", columns, rows, notes)


def sets_table(found: Sequence[SetSize]) -> Table:
    columns = [
        Column("Coverage", tooltip="Probability that the set of a new row like these holds its label"),
        Column("Mean size", tooltip="Mean number of classes in a set; below 1 where some sets are empty"),
        Column("Probability above", tooltip="The classes of a larger probability are in the set"),
        Column("Covered", tooltip="Share of these rows whose set holds the label"),
    ]
    rows = [
        [
            Cell(level_text(row.coverage), row.coverage),
            number_cell(row.mean_size, f"{row.mean_size:.2f}"),
            number_cell(row.above, percent(row.above)),
            share_cell(row.covered),
        ]
        for row in found
    ]
    return Table("Sets of classes that hold the label", columns, rows)


def class_table(audit: Audit) -> Table:
    columns = [
        Column("Class", numeric=False),
        Column("Labelled", tooltip="Rows with this label"),
        Column("Predicted", tooltip="Rows predicted to be this class"),
        Column("Recall", tooltip="Share of the rows with this label that are predicted to be this class"),
        Column("Precision", tooltip="Share of the rows predicted to be this class that have this label"),
        Column("Confidence", tooltip="Mean confidence of the rows predicted to be this class"),
        Column("Gap", tooltip="Confidence − precision, in percentage points; ●: significant after Holm's correction"),
        Column("Classwise ECE", tooltip="ECE of the probability of this class over all rows, in percentage points"),
    ]
    rows = []
    for row in audit.classes[:MAX_TABLE_CLASSES]:
        marked = row.p_holm <= significance_level(audit.level)
        gap = f"{SIGNIFICANT_MARK if marked else ''}{points(row.gap or 0.0, '+')}"
        shares = map(share_cell, (row.recall, row.precision, row.confidence))
        cells = [Cell(row.name), count_cell(row.labelled), count_cell(row.predicted), *shares]
        rows.append([*cells, number_cell(row.gap, gap, "bad" if marked else ""), number_cell(row.ece, points(row.ece))])
    n_classes = len(audit.classes)
    notes = [f"The {len(rows):,} worst of {n_classes:,} classes."] if len(rows) < n_classes else []
    return Table("Classes, worst first", columns, rows, notes)


def changes_table(effect: TemperatureEffect, level: float) -> Table:
    interval = f"{level_text(level)} CI"
    columns = [Column("Metric", numeric=False)]
    columns += map(Column, ["Before", interval, "After", interval, "Change", interval, "p"])
    rows = []
    for name in CHANGED_METRICS:
        change = effect.changes[name]
        kind = "good" if change.improved else "bad" if change.worsened else ""
        before = [Cell(name.upper()), metric_cell(change.before), limits_cell(change.before_interval)]
        after = [metric_cell(change.after), limits_cell(change.after_interval)]
        difference = number_cell(change.difference, metric_text(change.difference, "+"), kind)
        rows.append([*before, *after, difference, limits_cell(change.interval, "+"), p_cell(change.p_value)])
    return Table("NLL and ECE before and after temperature scaling, by cross-validation", columns, rows)


def error_table(audit: Audit) -> Table:
    statistics = audit.statistics
    files = any(row.file for row in statistics.errors)
    columns = [
        *([Column("File", numeric=False)] if files else []),
        Column("Row", tooltip="Index in its file, from 0"),
        *(Column(name, numeric=False) for name in audit.id_columns),
        *([] if audit.top_label else [Column("Label", numeric=False), Column("Predicted", numeric=False)]),
        Column("Confidence"),
    ]
    cells = [
        [
            *([_file_cell(row.file)] if files else []),
            count_cell(row.row),
            *map(Cell, row.ids),
            *([] if audit.top_label else [Cell(statistics.class_name(k)) for k in (row.label, row.predicted)]),
            Cell(percent(1 - row.complement), -row.complement),
        ]
        for row in statistics.errors
    ]
    return Table(f"Most confident errors ({count(len(cells), 'row')})", columns, cells)


def _file_cell(file: str) -> Cell:
    return Cell(file if len(file) <= MAX_PATH_CHARACTERS else f"…{file[1 - MAX_PATH_CHARACTERS :]}", file)


def comparison_tables(audit: Audit, names: Sequence[str]) -> list[Table]:
    """The differences between this model and the other: on all rows, then by each column."""
    rows = audit.differences(names)
    return [
        _difference_table(column, [row for by, row in rows if by == column], audit.level)
        for column in dict.fromkeys([None, *audit.comparison] if audit.comparison else [])
    ]


def _difference_table(by: str | None, differences: Sequence[Difference], level: float) -> Table:
    columns = [
        Column("Metric", numeric=False),
        *([] if by is None else [Column(by, numeric=False)]),
        *map(Column, ["This model", "Other model", "Difference", f"{level_text(level)} CI"]),
        Column("p" if by is None else "p (Holm)"),
    ]
    rows = [
        [
            Cell(row.metric),
            *([] if by is None else [Cell(group_name(row.group))]),
            metric_cell(row.a),
            metric_cell(row.b),
            _difference_cell(row, level),
            limits_cell(row.interval, "+"),
            p_cell(row.p_holm),
        ]
        for row in differences
    ]
    return Table(
        f"Difference between this model and the other, {'all rows' if by is None else f'by {by}'}", columns, rows
    )


def _difference_cell(row: Difference, level: float) -> Cell:
    """A dash where both values are infinite."""
    difference = None if math.isnan(row.difference) else row.difference
    return number_cell(difference, metric_text(difference, "+"), _difference_class(row, level))


def _difference_class(row: Difference, level: float) -> str:
    """Whether this model is significantly better ("good") or worse ("bad")."""
    if METRICS[row.metric].better is None or row.p_holm > significance_level(level) or math.isinf(row.standard_error):
        return ""
    return "good" if (row.difference > 0) == METRICS[row.metric].higher_is_better else "bad"
