"""Fig. 8: how the predictions of MaxEnt Loss spread over bins of confidence, without and with label smoothing."""

from collections.abc import Collection, Sequence
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report.charts import (
    Chart,
    Joined,
    below,
    beside,
    column_title,
    confidence_axis,
    finished,
    layered,
    need,
    panel_width,
    values,
)
from calibrant.report.figures.reliability import REMEDY, bins_of, strengths, tests_needed
from calibrant.report.scores import Record, at_severity, chosen, losses_in, paired, panel_names
from calibrant.report.style import INK, PAGE, label_of

MAXENT = ("maxent_mean", "maxent_variance", "maxent_mean_variance")
SMOOTHED = "a grid with label_smoothing = [0.0, 0.01] gives them"
MAX_WIDTH = 150


def prepare(
    curves: pa.Table, *, losses: Collection[str] = (), severity: int | None = None, **choice: Any
) -> list[Record]:
    """Of the losses named, or of the forms of MaxEnt Loss, those with and without smoothing. Raises: NoDataError."""
    kept = chosen(curves, losses=losses, **choice, smoothed=True, curve=("reliability",))
    if not losses:
        kept = kept.filter(pc.is_in(kept["loss"], pa.array(MAXENT)))
    both = paired(kept, "label_smoothing")
    need(both, "label_smoothing", "runs of a loss both with and without label smoothing", SMOOTHED)
    tests = at_severity(both, severity)
    need(tests, "label_smoothing", tests_needed(severity), REMEDY)
    return bins_of(tests)


def draw(records: list[Record]) -> Joined:
    panels = panel_names(records)
    return finished(*(_block([record for record in records if record["panel"] == panel], panel) for panel in panels))


def _block(bins: Sequence[Record], title: str) -> Chart:
    """A column per loss, a row per amount of smoothing; below the first, its outline is repeated for comparison."""
    losses = losses_in(bins)
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
                name = column_title(label_of(loss, "", smoothing))
                charts.append(chart.properties(width=width, height=80, title=name))
        rows.append(beside(*charts, spacing=10))
    return below(*rows, spacing=6, title=title)


def _compared(own: Sequence[Record], plain: Sequence[Record], *, first: bool, top: float) -> alt.LayerChart:
    bars = strengths(own, first=first, top=top)
    if own[0]["label_smoothing"] == 0:
        return layered(bars)
    ends = [{"low": found["low"], "strength": found["strength"]} for found in plain]
    ends.append({"low": plain[-1]["high"], "strength": plain[-1]["strength"]})
    outline = (
        alt.Chart(values(ends))
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1)
        .encode(x=confidence_axis("low", labels=True), y=alt.Y("strength:Q", scale=alt.Scale(domain=[0, top])))
    )
    return layered(bars, outline)
