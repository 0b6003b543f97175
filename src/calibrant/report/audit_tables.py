"""The tables of an audit, for its page, and the whole audit as text for the terminal."""

import math
import textwrap
from collections.abc import Sequence

from calibrant._files import without_secrets
from calibrant.audits import Audit
from calibrant.audits.groups import Group, GroupFindings
from calibrant.audits.record import compared, metric_record
from calibrant.audits.temperature import Change, TemperatureEffect
from calibrant.audits.verdict import alpha
from calibrant.errors import printable
from calibrant.metrics.compare import Difference
from calibrant.metrics.table import METRICS
from calibrant.report.audit_words import advice_sentence, group_name, summary
from calibrant.report.formats import as_text
from calibrant.report.numbers import count, level_text, limits, number, p_number, percent, points, points_limits
from calibrant.report.table import Cell, Column, Table, number_cell

MAX_CLASSES = 2_000
MARK = "● "  # of what is beyond chance
MAX_PATH = 40  # characters of a file's name, the last ones
IN_GROUPS = ("nll",)  # what the groups show beside accuracy, confidence and ECE, unless told


def audit_text(audit: Audit, names: Sequence[str], width: int) -> str:
    """The audit as a terminal of this width shows it, with these metrics."""
    card = audit.scorecard
    what = audit.files[0] if len(audit.files) == 1 else f"{len(audit.files):,} files"
    lines = [f"{what}: {count(card.n_rows, 'row')}, {card.n_classes} classes", *summary(audit, names)]
    lines += ["What to do:", *(f"- {advice_sentence(advice)}" for advice in audit.advice)]
    text = "\n".join(textwrap.fill(printable(line), width, subsequent_indent="  ") for line in lines)
    tables = [
        scorecard_table(audit, names),
        *(groups_table(found, shown(audit, names)) for found in audit.groups.values()),
        *comparison_tables(audit, names),
    ]
    return "\n\n".join([text, *(as_text(table, width).rstrip() for table in tables)])


def shown(audit: Audit, names: Sequence[str]) -> Sequence[str]:
    """The metrics of the groups: those asked for, or few."""
    return IN_GROUPS if tuple(names) == audit.scorecard.names else names


def count_cell(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def limits_cell(pair: Sequence[float] | None, sign: str = "") -> Cell:
    """Sorted by the lower limit; without limits to the end."""
    if pair is None:
        return number_cell(None, "")
    text = limits((pair[0], pair[1]), sign)
    return Cell(text) if math.isinf(pair[0]) else number_cell(pair[0], text)


def p_cell(p_value: float, *, marked: bool = False) -> Cell:
    return number_cell(p_value, f"{MARK if marked else ''}{p_number(p_value)}", "bad" if marked else "")


def scorecard_table(audit: Audit, names: Sequence[str]) -> Table:
    records = {name: metric_record(audit.scorecard, name, audit.level, audit.seed) for name in names}
    bounded = any(record["error_bound"] for record in records.values())
    columns = [
        Column("Metric", numeric=False),
        Column("What it is", numeric=False),
        Column("Value"),
        Column(f"{level_text(audit.level)} interval"),
        Column("Noise floor", title="Expected for a perfectly calibrated model with these confidences on as many rows"),
        *([Column("Off by at most", title="Values that are read from a histogram of the stream")] if bounded else []),
    ]
    rows = [
        [
            Cell(name),
            Cell(METRICS[name].title),
            number_cell(record["value"], number(record["value"])),
            limits_cell(record["interval"]),
            number_cell(record["noise_floor"], number(record["noise_floor"])),
            *([number_cell(record["error_bound"], number(record["error_bound"]))] if bounded else []),
        ]
        for name, record in records.items()
    ]
    return Table("Every metric with its interval and noise floor", columns, rows)


def groups_table(found: GroupFindings, names: Sequence[str] = IN_GROUPS) -> Table:
    """The groups, worst first, with these metrics beside what the verdict rests on."""
    more = [name for name in names if name not in ("accuracy", "confidence", "ece")]
    level = level_text(found.rows[0].verdict.level)
    columns = [
        Column(found.by, numeric=False),
        Column("Rows"),
        Column("Accuracy"),
        Column("Confidence"),
        Column("Gap", title="Confidence − accuracy, in percentage points"),
        Column("ECE", title=f"In percentage points, with its {level} interval"),
        Column("Noise floor", title="ECE of a perfectly calibrated model on as many rows, in percentage points"),
        Column("p (Holm)", title="Chance of so large an ECE or gap if the group were calibrated, for all groups"),
        *(Column(name, title=METRICS[name].title) for name in more),
    ]
    rows = [[*_group_cells(group), *_metric_cells(group, more)] for group in found.rows]
    notes = []
    if found.n_miscalibrated:
        notes.append(f"{MARK.strip()}: miscalibrated beyond chance when all groups are tested at once.")
    if len(rows) < len(found.cards):
        notes.append(f"The {len(rows):,} worst of {len(found.cards):,} groups; all were tested.")
    return Table(f"Groups of {found.by}, worst first", columns, rows, notes)


def _group_cells(group: Group) -> list[Cell]:
    verdict, marked = group.verdict, group.miscalibrated
    ece = f"{points(verdict.ece)} ({points_limits(verdict.interval)})"
    return [
        Cell(group_name(group.value)),
        count_cell(verdict.n_rows),
        number_cell(verdict.accuracy, percent(verdict.accuracy)),
        number_cell(verdict.confidence, percent(verdict.confidence)),
        number_cell(verdict.gap, points(verdict.gap, "+")),
        number_cell(verdict.ece, ece, "bad" if marked else ""),
        number_cell(verdict.noise_floor, points(verdict.noise_floor)),
        p_cell(group.p_holm, marked=marked),
    ]


def _metric_cells(group: Group, names: Sequence[str]) -> list[Cell]:
    return [number_cell(group.card.get(name), number(group.card.get(name))) for name in names]


def class_table(audit: Audit) -> Table:
    columns = [
        Column("Class", numeric=False),
        Column("Labelled", title="Rows with this label"),
        Column("Predicted", title="Rows predicted to be this class"),
        Column("Recall", title="Share of the labelled rows that are predicted to be it"),
        Column("Precision", title="Accuracy where it is predicted"),
        Column("Confidence", title="Mean where it is predicted"),
        Column("Gap", title="Confidence − precision, in percentage points; ● beyond chance for all classes at once"),
        Column("Classwise ECE", title="ECE of its probability over all rows, in percentage points"),
    ]
    shown = audit.classes[:MAX_CLASSES]
    rows = []
    for row in shown:
        marked = row.p_holm <= alpha(audit.level)
        gap = f"{MARK if marked else ''}{points(row.gap or 0.0, '+')}"
        shares = [number_cell(value, percent(value or 0.0)) for value in (row.recall, row.precision, row.confidence)]
        cells = [Cell(row.name), count_cell(row.labelled), count_cell(row.predicted), *shares]
        rows.append([*cells, number_cell(row.gap, gap, "bad" if marked else ""), number_cell(row.ece, points(row.ece))])
    left = len(audit.classes) - len(shown)
    notes = [f"The {len(shown):,} worst of {len(audit.classes):,} classes."] if left else []
    return Table("Classes, worst first", columns, rows, notes)


def changes_table(effect: TemperatureEffect, level: float) -> Table:
    interval = f"{level_text(level)} interval"
    columns = [Column("Metric", numeric=False)]
    columns += map(Column, ["Before", interval, "After", interval, "Change", interval, "p"])
    rows = [_change_cells(name.upper(), effect.changes[name]) for name in ("nll", "ece")]
    return Table("NLL and ECE before and after temperature scaling, on rows it was not fitted on", columns, rows)


def _change_cells(name: str, change: Change) -> list[Cell]:
    return [
        Cell(name),
        number_cell(change.before, number(change.before)),
        limits_cell(change.before_interval),
        number_cell(change.after, number(change.after)),
        limits_cell(change.after_interval),
        number_cell(
            change.difference, f"{change.difference:+.4f}", "good" if change.better else "bad" if change.worse else ""
        ),
        limits_cell(change.interval, "+"),
        p_cell(change.p_value),
    ]


def error_table(audit: Audit) -> Table:
    rows = audit.rows
    files = any(row.file for row in rows.errors)
    columns = [
        *([Column("File", numeric=False)] if files else []),
        Column("Row", title="From 0, in its file"),
        *(Column(name, numeric=False) for name in audit.id_columns),
        Column("Label", numeric=False),
        Column("Predicted", numeric=False),
        Column("Confidence"),
    ]
    cells = [
        [
            *([_file_cell(row.file)] if files else []),
            count_cell(row.row),
            *map(Cell, row.ids),
            Cell(rows.class_name(row.label)),
            Cell(rows.class_name(row.predicted)),
            Cell(percent(1 - row.doubt), -row.doubt),
        ]
        for row in rows.errors
    ]
    many = count(len(cells), "row")
    return Table(f"The {many} of highest confidence whose predicted class is not the label", columns, cells)


def _file_cell(file: str) -> Cell:
    name = without_secrets(file)
    return Cell(name if len(name) <= MAX_PATH else f"…{name[1 - MAX_PATH :]}", name)


def comparison_tables(audit: Audit, names: Sequence[str]) -> list[Table]:
    """This model − the other: on all rows, then by each column."""
    rows = compared(audit, tuple(names))
    return [
        _difference_table(column, [row for by, row in rows if by == column], audit.level)
        for column in dict.fromkeys([None, *audit.comparison] if audit.comparison else [])
    ]


def _difference_table(by: str | None, differences: Sequence[Difference], level: float) -> Table:
    columns = [
        Column("Metric", numeric=False),
        *([] if by is None else [Column(by, numeric=False)]),
        *map(Column, ["This", "Other", "Difference", f"{level_text(level)} interval"]),
        Column("p" if by is None else "p (Holm)"),
    ]
    rows = [
        [
            Cell(row.metric),
            *([] if by is None else [Cell(group_name(row.group))]),
            number_cell(row.a, number(row.a)),
            number_cell(row.b, number(row.b)),
            number_cell(row.difference, f"{row.difference:+.4f}", _winner(row, level)),
            limits_cell(row.interval, "+"),
            p_cell(row.p_holm),
        ]
        for row in differences
    ]
    return Table(f"This model − the other, {'on all rows' if by is None else f'by {by}'}", columns, rows)


def _winner(row: Difference, level: float) -> str:
    """Whether this model is better or worse beyond chance."""
    if METRICS[row.metric].better is None or row.p_holm > alpha(level) or math.isinf(row.standard_error):
        return ""
    return "good" if (row.difference > 0) == METRICS[row.metric].higher_is_better else "bad"
