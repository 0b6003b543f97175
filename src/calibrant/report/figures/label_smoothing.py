"""Fig. 8: how the predictions of MaxEnt Loss spread over bins of confidence, without and with label smoothing."""

from collections.abc import Collection, Sequence

import altair as alt
import pyarrow as pa

from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import MAXENT, Row, at_severity, chosen, need, shared_tests
from calibrant.report.figures.look import (
    INK,
    PAGE,
    Chart,
    below,
    beside,
    column_title,
    confidence_axis,
    finished,
    layered,
    losses_of,
    panel_width,
    values,
)
from calibrant.report.figures.reliability import REMEDY, Bin, Bins, bins_of, strengths, tests_needed
from calibrant.report.palette import label_of

SMOOTHED = "a grid with label_smoothing = [0.0, 0.01] gives them"
WIDEST = 150


def prepare(
    curves: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str = RAW,
    severity: int | None = None,
) -> Bins:
    """Of the losses named, or of the forms of MaxEnt Loss, those with and without smoothing. Raises: NoDataError."""
    every = chosen(curves, data=data, losses=losses, calibrator=calibrator, curve=("reliability",))
    paired = _paired([row for row in every if losses or row["loss"] in MAXENT])
    need(paired, "label_smoothing", "runs of a loss both with and without label smoothing", SMOOTHED)
    tests, note = shared_tests(at_severity(paired, severity))
    need(tests, "label_smoothing", tests_needed(severity), REMEDY)
    return Bins(bins_of(tests), note)


def _paired(rows: Sequence[Row]) -> list[Row]:
    found = {(row["panel"], row["loss"], row["label_smoothing"] > 0) for row in rows}
    return [row for row in rows if all((row["panel"], row["loss"], smooth) in found for smooth in (False, True))]


def draw(numbers: Bins) -> Chart:
    blocks = [_block([found for found in numbers.bins if found.panel == panel], panel) for panel in numbers.panels]
    return finished(*blocks, note=numbers.note)


def _block(bins: Sequence[Bin], title: str) -> Chart:
    """A column per loss, a row per amount of smoothing; below the first, its outline is repeated for comparison."""
    losses = losses_of(bins)
    width = min(WIDEST, panel_width(len(losses), PAGE))
    top = 1.05 * max(found.strength for found in bins)
    rows = []
    for smoothing in sorted({found.label_smoothing for found in bins}):
        charts = []
        for loss in losses:
            own = [found for found in bins if (found.loss, found.label_smoothing) == (loss, smoothing)]
            plain = [found for found in bins if (found.loss, found.label_smoothing) == (loss, 0)]
            if own:
                chart = _compared(own, plain, first=loss == losses[0], top=top)
                charts.append(
                    chart.properties(width=width, height=80, title=column_title(label_of(loss, "", smoothing)))
                )
        rows.append(beside(*charts, spacing=10))
    return below(*rows, spacing=6, title=title)


def _compared(own: Sequence[Bin], plain: Sequence[Bin], *, first: bool, top: float) -> alt.LayerChart:
    bars = strengths(own, first=first, top=top, labels=True)
    if own[0].label_smoothing == 0:
        return layered(bars)
    ends = [{"low": found.low, "strength": found.strength} for found in plain]
    ends.append({"low": plain[-1].high, "strength": plain[-1].strength})
    outline = (
        alt.Chart(values(ends))
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1)
        .encode(x=confidence_axis("low", labels=True), y=alt.Y("strength:Q", scale=alt.Scale(domain=[0, top])))
    )
    return layered(bars, outline)
