"""ECE against severity, raw and after each calibrator, a panel per loss: what mends the model where it is shifted."""

from collections.abc import Collection

import pyarrow as pa

from calibrant.errors import printable
from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import chosen, need, unsmoothed
from calibrant.report.figures.look import PAGE, Chart, Line, finished, key, losses_of, panel_width, ramp, side_by_side
from calibrant.report.figures.severity_lines import SeverityCurves, SeverityPoint, severity_curves, severity_panel
from calibrant.report.palette import label_of

LOSSES = ("cross_entropy", "focal", "maxent_mean")
REMEDY = "name some in the experiment's calibrators, as temperature"
COLUMNS = 3


def prepare(rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = ()) -> SeverityCurves:
    """Of the losses named, or of LOSSES, or where the experiment has none of those, of all. Raises: NoDataError."""
    every = unsmoothed(chosen(rows, data=data, losses=losses, calibrator=None, metric=("ece",)))
    need(every, "calibrated", "the metric ece", "ask for it in the experiment's metrics")
    kept = every if losses else [row for row in every if row["loss"] in LOSSES] or every
    need([row for row in kept if row["calibrator"] != RAW], "calibrated", "calibrated rows", REMEDY)
    return severity_curves(kept, "calibrated")


def draw(numbers: SeverityCurves) -> Chart:
    lines = _lines({point.calibrator: None for point in numbers.points})
    columns = min(COLUMNS, len(losses_of(numbers.points)))
    tops = {panel: 1.06 * max(p.high for p in numbers.points if p.panel == panel) for panel in numbers.panels}
    panels = [
        severity_panel(
            [point for point in numbers.points if (point.panel, point.loss) == (panel, loss)],
            lines,
            _label,
            title=printable(f"{panel}: {label_of(loss)}"),
            y_title="ECE",
            width=panel_width(COLUMNS, PAGE, axes=COLUMNS),
            height=150,
            top=tops[panel],
        )
        for panel in numbers.panels
        for loss in losses_of(point for point in numbers.points if point.panel == panel)
    ]
    return finished(side_by_side(panels, columns), key(lines, panel_width(1, PAGE)), note=numbers.note)


def _label(point: SeverityPoint) -> str:
    return _name(point.calibrator)


def _name(calibrator: str) -> str:
    return "raw" if calibrator == RAW else printable(calibrator)


def _lines(calibrators: Collection[str]) -> list[Line]:
    """Raw first; on a ramp of their own, for the colours of losses mean losses."""
    order = sorted(calibrators, key=lambda calibrator: calibrator != RAW)
    return ramp([_name(calibrator) for calibrator in order])
