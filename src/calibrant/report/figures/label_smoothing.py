"""Fig. 8: how the predictions of MaxEnt Loss spread over bins of confidence, without and with label smoothing."""

from collections.abc import Collection, Sequence
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report.charts import (
    Chart,
    ChartSpec,
    column_title,
    compose_figure,
    confidence_axis,
    hconcat,
    inline_data,
    layer_charts,
    panel_width,
    require_data,
    vconcat,
)
from calibrant.report.figures.reliability import REMEDY, reliability_bins, required_tests, strengths
from calibrant.report.scores import (
    ChartRecord,
    filter_severity,
    keep_paired_losses,
    panel_names,
    select_rows,
    unique_losses,
)
from calibrant.report.style import INK, PAGE, loss_label

MAXENT = ("maxent_mean", "maxent_variance", "maxent_mean_variance")
SMOOTHED = "a grid with label_smoothing = [0.0, 0.01] gives them"
MAX_WIDTH = 150


def prepare(
    curves: pa.Table, *, losses: Collection[str] = (), severity: int | None = None, **choice: Any
) -> list[ChartRecord]:
    """Of the losses named, or of the forms of MaxEnt Loss, those with and without smoothing. Raises: NoDataError."""
    kept = select_rows(curves, losses=losses, **choice, smoothed=True, curve=("reliability",))
    if not losses:
        kept = kept.filter(pc.is_in(kept["loss"], pa.array(MAXENT)))
    both = keep_paired_losses(kept, "label_smoothing")
    require_data(both, "label_smoothing", "runs of a loss both with and without label smoothing", SMOOTHED)
    tests = filter_severity(both, severity)
    require_data(tests, "label_smoothing", required_tests(severity), REMEDY)
    return reliability_bins(tests)


def draw(records: list[ChartRecord]) -> ChartSpec:
    panels = panel_names(records)
    return compose_figure(
        *(_block([record for record in records if record["panel"] == panel], panel) for panel in panels)
    )


def _block(bins: Sequence[ChartRecord], title: str) -> Chart:
    """A column per loss, a row per amount of smoothing; below the first, its outline is repeated for comparison."""
    losses = unique_losses(bins)
    width = min(MAX_WIDTH, panel_width(len(losses), PAGE))
    top = 1.05 * max(found["strength"] for found in bins)
    rows = []
    for smoothing in sorted({found["label_smoothing"] for found in bins}):
        charts = []
        for loss in losses:
            own = [found for found in bins if (found["loss"], found["label_smoothing"]) == (loss, smoothing)]
            plain = [found for found in bins if (found["loss"], found["label_smoothing"]) == (loss, 0)]
            if own:
                chart = _compared(own, plain, first=loss == losses[0], top=top)
                name = column_title(loss_label(loss, "", smoothing))
                charts.append(chart.properties(width=width, height=80, title=name))
        rows.append(hconcat(*charts, spacing=10))
    return vconcat(*rows, spacing=6, title=title)


def _compared(own: Sequence[ChartRecord], plain: Sequence[ChartRecord], *, first: bool, top: float) -> alt.LayerChart:
    bars = strengths(own, first=first, top=top)
    if own[0]["label_smoothing"] == 0:
        return layer_charts(bars)
    ends = [{"low": found["low"], "strength": found["strength"]} for found in plain]
    ends.append({"low": plain[-1]["high"], "strength": plain[-1]["strength"]})
    outline = (
        alt.Chart(inline_data(ends))
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1)
        .encode(x=confidence_axis("low", labels=True), y=alt.Y("strength:Q", scale=alt.Scale(domain=[0, top])))
    )
    return layer_charts(bars, outline)
