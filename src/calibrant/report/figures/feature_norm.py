"""Fig. 7: ECE against the mean norm of the features, a numbered point per severity, joined for each loss."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report.figures.averages import Points, chosen, need, run_means, shared_tests, step_of, unsmoothed
from calibrant.report.figures.look import (
    LETTERS,
    PERCENT,
    Chart,
    Line,
    colour,
    dash,
    finished,
    grid_of,
    key,
    layered,
    line_of,
    losses_of,
    percent,
    said,
    sentence,
    side_by_side,
)
from calibrant.report.palette import label_of

REMEDY = "the runs must keep the features of their models, whose norm is then among the rows"


@dataclass(frozen=True, slots=True)
class NormPoint:
    """Means over the tests of one step, then over seeds; steps are severities, or 0 and 1 of a shift in the wild."""

    panel: str
    loss: str
    step: int
    norm: float
    ece: float


def prepare(rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = ()) -> Points[NormPoint]:
    """Raises: NoDataError where no run has norms."""
    kept = chosen(rows, data=data, losses=losses, metric=("ece", "feature_norm"))
    tests, note = shared_tests({**row, "step": step_of(row)} for row in unsmoothed(kept))
    means = run_means(tests, "panel", "loss", "step", "metric")
    points = tuple(
        NormPoint(panel, loss, step, means[panel, loss, step, "feature_norm"].mean, ece.mean)
        for (panel, loss, step, metric), ece in means.items()
        if metric == "ece" and (panel, loss, step, "feature_norm") in means
    )
    need(points, "feature_norm", "the metrics ece and feature_norm", REMEDY)
    return Points(points, note)


def draw(numbers: Points[NormPoint]) -> Chart:
    lines = [line_of(loss) for loss in losses_of(numbers.points)]
    columns, width, whole = grid_of(len(numbers.panels))
    panels = [
        _panel([point for point in numbers.points if point.panel == panel], lines, panel, width)
        for panel in numbers.panels
    ]
    return finished(side_by_side(panels, columns), key(lines, whole, points=False), note=numbers.note)


def _panel(points: list[NormPoint], lines: list[Line], title: str, width: int) -> alt.LayerChart:
    base = alt.Chart().encode(
        x=alt.X(
            "norm:Q",
            title="Mean norm of features",
            scale=alt.Scale(zero=False, padding=12, nice=False),
            axis=alt.Axis(tickCount=6),
        ),
        y=alt.Y(
            "ece:Q",
            title="ECE",
            scale=alt.Scale(zero=True, padding=8, nice=False),
            axis=alt.Axis(format=PERCENT, tickCount=6),
        ),
        color=colour(lines),
        description=said(),
    )
    joined = base.mark_line(strokeWidth=1.2).encode(
        order=alt.Order("step:Q"), strokeDash=dash(lines), description=said("line")
    )
    discs = base.mark_point(shape="circle", fill="white", fillOpacity=1, opacity=1, size=105, strokeWidth=1.2)
    numbers = base.mark_text(fontSize=LETTERS, fontWeight="bold", baseline="middle", dy=0.5).encode(
        text=alt.Text("step:N")
    )
    chart = layered(joined, discs, numbers, rows=list(map(_words, points)))
    return chart.properties(width=width, height=240, title=title)


def _words(point: NormPoint) -> dict[str, Any]:
    line = label_of(point.loss)
    about = sentence(line, f"severity {point.step}", f"norm {point.norm:.4g}", f"ECE {percent(point.ece)}")
    return {**asdict(point), "line": line, "said": about}
