"""Error among the most confident predictions against how many are kept: what a model gains by keeping silent."""

from collections.abc import Collection
from dataclasses import asdict, dataclass

import altair as alt
import pyarrow as pa

from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import Points, at_severity, chosen, need, pooled, shared_tests, unsmoothed
from calibrant.report.figures.look import (
    PERCENT,
    Chart,
    Line,
    colour,
    dash,
    finished,
    grid_of,
    key,
    line_of,
    losses_of,
    said,
    side_by_side,
    values,
)
from calibrant.report.figures.reliability import tests_needed
from calibrant.report.palette import label_of

REMEDY = "its curves.parquet must hold risk_coverage curves of shifted tests"


@dataclass(frozen=True, slots=True)
class Risk:
    """The error among the most confident predictions of a test, mean over tests and seeds."""

    panel: str
    loss: str
    coverage: float
    error: float


def prepare(
    curves: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str = RAW,
    severity: int | None = None,
) -> Points[Risk]:
    """Means over all shifted tests and seeds, or over the tests of one severity. Raises: NoDataError."""
    kept = chosen(curves, data=data, losses=losses, calibrator=calibrator, curve=("risk_coverage",))
    tests, note = shared_tests(at_severity(unsmoothed(kept), severity))
    need(tests, "risk_coverage", tests_needed(severity), REMEDY)
    found = pooled(tests, "panel", "loss")
    points = (Risk(panel, loss, at.x, at.y) for (panel, loss), curve in found.items() for at in curve.values())
    return Points(tuple(points), note)


def draw(numbers: Points[Risk]) -> Chart:
    lines = [line_of(loss) for loss in losses_of(numbers.points)]
    columns, width, whole = grid_of(len(numbers.panels))
    panels = [
        _panel([point for point in numbers.points if point.panel == panel], lines, panel, width)
        for panel in numbers.panels
    ]
    return finished(side_by_side(panels, columns), key(lines, whole, points=False), note=numbers.note)


def _panel(points: list[Risk], lines: list[Line], title: str, width: int) -> alt.Chart:
    axis = alt.Axis(format=PERCENT, tickCount=5)
    chart: alt.Chart = (
        alt.Chart(values([{**asdict(point), "line": label_of(point.loss)} for point in points]))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("coverage:Q", title="Coverage", axis=axis, scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("error:Q", title="Error", axis=axis, scale=alt.Scale(zero=True)),
            color=colour(lines),
            strokeDash=dash(lines),
            description=said("line"),
        )
        .properties(width=width, height=200, title=title)
    )
    return chart
