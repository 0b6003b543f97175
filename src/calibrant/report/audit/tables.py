"""The tables of an audit's page: headings, and cells with what they are sorted by."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from calibrant._files import without_secrets
from calibrant.metrics.compare import Difference
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS
from calibrant.report.audit.classes import ClassRow
from calibrant.report.audit.groups import GroupRow, GroupTable
from calibrant.report.audit.reading import Reading
from calibrant.report.audit.temperature import Change, TemperatureEffect
from calibrant.report.audit.verdict import alpha
from calibrant.report.audit.wording import (
    MISSING,
    NO_WINNER,
    between,
    group_name,
    level_text,
    n_rows,
    number,
    percent,
    points,
    to,
)
from calibrant.report.table import Cell
from calibrant.report.table import Column as Heading

MOST_CLASSES = 2_000
MARK = "● "  # of what is beyond chance
LONG_PATH = 40  # letters of a file's name, the last ones


class Shown(NamedTuple):
    """A table as the page shows it; a note says what it leaves out."""

    caption: str
    headings: list[Heading]
    rows: list[list[Cell]]
    note: str = ""


def cell(value: float | None, text: str, kind: str = "") -> Cell:
    """A number with what it is sorted by; or nothing."""
    if value is None:
        return Cell(MISSING, None, "faint")
    return Cell(text, float(f"{value:.6g}"), kind)


def count(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def scorecard_table(card: Scorecard, level: float, seed: int) -> Shown:
    bounds = {name: card.error_bound(name) for name in card.names}
    some = any(bounds.values())
    headings = [
        Heading("Metric", numeric=False),
        Heading("What it is", numeric=False),
        Heading("Value"),
        Heading(f"{level_text(level)} interval"),
        Heading(
            "Noise floor", title="Expected for a perfectly calibrated model with these confidences on as many rows"
        ),
        *([Heading("Off by at most", title="Values that are read from a histogram of the stream")] if some else []),
    ]
    rows = []
    for name in card.names:
        value = card.get(name)
        floor = None if METRICS[name].floor is None else card.noise_floor(name, seed=seed)
        row = [
            Cell(name),
            Cell(METRICS[name].title),
            cell(value, number(value)),
            cell(None, MISSING) if value is None else limits_cell(card.interval(name, level=level, seed=seed)),
            cell(floor, number(floor)),
        ]
        rows.append([*row, *([cell(bounds[name], number(bounds[name]))] if some else [])])
    return Shown("Every metric with its interval and noise floor", headings, rows)


def limits_cell(pair: tuple[float, float]) -> Cell:
    return cell(pair[0], f"{number(pair[0])} to {number(pair[1])}")


def between_cell(pair: tuple[float, float]) -> Cell:
    """Limits of a difference; without limits it is sorted to the end."""
    return Cell(between(pair)) if math.isinf(pair[0]) else cell(pair[0], between(pair))


def groups_table(table: GroupTable) -> Shown:
    headings = [
        Heading(table.by, numeric=False),
        Heading("Rows"),
        Heading("Accuracy"),
        Heading("Confidence"),
        Heading("Gap", title="Confidence less accuracy, in points"),
        Heading("ECE", title=f"In points, with its {level_text(table.level)} interval"),
        Heading("Noise floor", title="ECE of a perfectly calibrated model on as many rows, in points"),
        Heading(
            "p (Holm)", title="Chance of so large an ECE or gap if the group were calibrated, corrected for all groups"
        ),
    ]
    rows = [_group_row(row, significant=table.significant(row)) for row in table.rows]
    left = table.n_groups - len(rows)
    note = f"The {len(rows):,} worst of {table.n_groups:,} groups; all were tested." if left else ""
    return Shown(f"Groups of {table.by}, worst first", headings, rows, note)


def _group_row(row: GroupRow, *, significant: bool) -> list[Cell]:
    shares = row.shares
    return [
        Cell(group_name(row.group)),
        count(shares.n_rows),
        cell(shares.accuracy, percent(shares.accuracy)),
        cell(shares.confidence, percent(shares.confidence)),
        cell(shares.gap, points(shares.gap, "+")),
        cell(row.ece, f"{points(row.ece)} ({to(row.interval)})", "bad" if significant else ""),
        cell(row.floor, points(row.floor)),
        p_cell(row.p_holm, MARK if significant else ""),
    ]


def p_cell(p_value: float, mark: str = "") -> Cell:
    return cell(p_value, f"{mark}{'< 0.0001' if p_value < 1e-4 else f'{p_value:.4f}'}", "bad" if mark else "")


def class_table(classes: Sequence[ClassRow], level: float) -> Shown:
    with_error = any(row.ece is not None for row in classes)
    headings = [
        Heading("Class", numeric=False),
        Heading("Labelled", title="Rows with this label"),
        Heading("Predicted", title="Rows predicted to be this class"),
        Heading("Recall", title="Share of the labelled rows that are predicted to be it"),
        Heading("Precision", title="Accuracy where it is predicted"),
        Heading("Confidence", title="Mean where it is predicted"),
        Heading("Gap", title="Confidence less precision, in points; ● beyond chance for all classes at once"),
        *([Heading("Classwise ECE", title="ECE of its probability over all rows, in points")] if with_error else []),
    ]
    shown = classes[:MOST_CLASSES]
    rows = []
    for row in shown:
        shares = [cell(value, percent(value or 0.0)) for value in (row.recall, row.precision, row.confidence)]
        kind = "bad" if row.p_holm <= alpha(level) else ""
        cells = [Cell(row.name), count(row.labelled), count(row.predicted), *shares]
        cells.append(cell(row.gap, f"{MARK if kind else ''}{points(row.gap or 0.0, '+')}", kind))
        rows.append([*cells, *([cell(row.ece, points(row.ece or 0.0))] if with_error else [])])
    note = f"The {len(shown):,} worst of {len(classes):,} classes." if len(shown) < len(classes) else ""
    return Shown("Classes, worst first", headings, rows, note)


def changes_table(effect: TemperatureEffect, level: float) -> Shown:
    assert effect.nll is not None
    assert effect.ece is not None
    interval = f"{level_text(level)} interval"
    headings = [Heading("Metric", numeric=False), Heading("Before"), Heading(interval), Heading("After")]
    headings += [Heading(interval), Heading("Change"), Heading(interval), Heading("p")]
    rows = [_change(name, change) for name, change in (("NLL", effect.nll), ("ECE", effect.ece))]
    return Shown("NLL and ECE before and after temperature scaling, on rows it was not fitted on", headings, rows)


def _change(name: str, change: Change) -> list[Cell]:
    kind = "good" if change.better else "bad" if change.worse else ""
    return [
        Cell(name),
        cell(change.before, number(change.before)),
        limits_cell(change.before_interval),
        cell(change.after, number(change.after)),
        limits_cell(change.after_interval),
        cell(change.difference, f"{change.difference:+.4f}", kind),
        between_cell(change.interval),
        p_cell(change.p_value),
    ]


def error_table(reading: Reading) -> Shown:
    files = any(row.file for row in reading.errors)
    headings = [
        *([Heading("File", numeric=False)] if files else []),
        Heading("Row", title="From 0, in its file"),
        *(Heading(name, numeric=False) for name in reading.id_columns),
        Heading("Label", numeric=False),
        Heading("Predicted", numeric=False),
        Heading("Confidence"),
    ]
    rows = [
        [
            *([file_cell(row.file)] if files else []),
            count(row.row),
            *(Cell(text) for text in row.ids),
            Cell(reading.class_name(row.label)),
            Cell(reading.class_name(row.predicted)),
            Cell(percent(1 - row.doubt), -row.doubt),
        ]
        for row in reading.errors
    ]
    return Shown(
        f"The {n_rows(len(rows))} of highest confidence whose predicted class is not the label", headings, rows
    )


def file_cell(file: str) -> Cell:
    name = without_secrets(file)
    return Cell(_end(name), name)


def _end(path: str) -> str:
    return path if len(path) <= LONG_PATH else f"…{path[1 - LONG_PATH :]}"


def difference_table(by: str | None, differences: Sequence[Difference], level: float) -> Shown:
    headings = [
        Heading("Metric", numeric=False),
        *([] if by is None else [Heading(by, numeric=False)]),
        Heading("This"),
        Heading("Other"),
        Heading("Difference"),
        Heading(f"{level_text(level)} interval"),
        Heading("p" if by is None else "p (Holm)"),
    ]
    rows = [
        [
            Cell(row.metric),
            *([] if by is None else [Cell(group_name(row.group))]),
            cell(row.a, number(row.a)),
            cell(row.b, number(row.b)),
            cell(row.difference, f"{row.difference:+.4f}", _won(row, level)),
            between_cell(row.interval),
            p_cell(row.p_holm),
        ]
        for row in differences
    ]
    return Shown("This model less the other" + ("" if by is None else f", by {by}"), headings, rows)


def _won(row: Difference, level: float) -> str:
    """Whether this model is better or worse beyond chance."""
    if row.metric in NO_WINNER or row.p_holm > alpha(level) or math.isinf(row.standard_error):
        return ""
    return "good" if (row.difference > 0) == METRICS[row.metric].higher_is_better else "bad"
