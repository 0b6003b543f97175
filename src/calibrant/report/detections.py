"""The findings of out-of-distribution scores as a table."""

from calibrant.ood import DetectionComparison
from calibrant.report.numbers import count, interval_text, level_text, metric_text
from calibrant.report.table import Cell, Column, Table

FIGURES = {"auroc": "AUROC", "aupr": "AUPR", "fpr_at_95_tpr": "FPR at 95 % TPR"}
POSITIVE = "AUPR: average precision, outside is positive. FPR: outside rows accepted with 95 % of the inside rows."


def detection_table(found: DetectionComparison, caption: str) -> Table:
    """A line for each score, and why the others are left out."""
    columns = [Column("score", numeric=False)]
    for title in FIGURES.values():
        columns += [Column(title), Column(f"{level_text(found.detections[0].level)} interval")]
    rows = []
    for one in found.detections:
        cells = [one.method]
        for name in FIGURES:
            cells += [metric_text(getattr(one, name)), interval_text(one.intervals[name])]
        rows.append(list(map(Cell, cells)))
    sizes = f"{count(found.detections[0].n_inside, 'row')} inside, {found.detections[0].n_outside:,} outside."
    left_out = [f"{name}: {reason}" for name, reason in found.left_out.items()]
    return Table(caption, columns, rows, [f"{sizes} {POSITIVE}", *left_out])
