"""Fig. 3: error, ECE and KSE against the severity of the shift, a line per loss."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import chosen, need, unsmoothed
from calibrant.report.figures.look import (
    AXIS,
    PAGE,
    Chart,
    beside,
    finished,
    key,
    line_of,
    losses_of,
    panel_width,
    side_by_side,
)
from calibrant.report.figures.severity_lines import SeverityCurves, SeverityPoint, severity_curves, severity_panel
from calibrant.report.palette import label_of

TITLES = {"error": "Error", "ece": "ECE", "kse": "KSE"}
METRICS = ("accuracy", "ece", "kse")
HEIGHT, HIGHER = 150, 220  # pixels of a panel: of one of several metrics, and of one metric alone


def prepare(
    rows: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str = RAW,
    metrics: Sequence[str] = METRICS,
) -> SeverityCurves:
    """Means over the corruptions of each severity, then over seeds; of accuracy the error. Raises: NoDataError."""
    kept = unsmoothed(chosen(rows, data=data, losses=losses, calibrator=calibrator, metric=metrics))
    need(kept, "severity", f"the metrics {', '.join(metrics)}", "ask for them in the experiment's metrics")
    curves = severity_curves(kept, "severity")
    return replace(curves, points=tuple(map(_as_error, curves.points)))


def _as_error(point: SeverityPoint) -> SeverityPoint:
    if point.metric != "accuracy":
        return point
    return replace(point, metric="error", mean=1 - point.mean, low=1 - point.high, high=1 - point.low)


def draw(numbers: SeverityCurves) -> Chart:
    lines = [line_of(loss) for loss in losses_of(numbers.points)]
    metrics = [metric for metric in TITLES if any(point.metric == metric for point in numbers.points)]
    width = panel_width(len(metrics), PAGE, axes=len(metrics))
    rows = []
    for panel in numbers.panels:
        charts = [
            severity_panel(
                [point for point in numbers.points if (point.panel, point.metric) == (panel, metric)],
                lines,
                lambda point: label_of(point.loss),
                y_title=TITLES[metric],
                width=width,
                height=HEIGHT,
            )
            for metric in metrics
        ]
        rows.append(beside(*charts, title=panel))
    return finished(*rows, key(lines, panel_width(1, PAGE)), note=numbers.note)


def draw_metric(numbers: SeverityCurves, title: str, *, in_percent: bool = True) -> Chart:
    """One metric alone, a panel per data set."""
    lines = [line_of(loss) for loss in losses_of(numbers.points)]
    columns = min(2, len(numbers.panels))
    panels = [
        severity_panel(
            [point for point in numbers.points if point.panel == panel],
            lines,
            lambda point: label_of(point.loss),
            title=panel,
            y_title=title,
            width=panel_width(columns, PAGE, axes=columns),
            height=HIGHER,
            in_percent=in_percent,
        )
        for panel in numbers.panels
    ]
    return finished(side_by_side(panels, columns), key(lines, PAGE - AXIS), note=numbers.note)
