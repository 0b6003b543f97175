"""Fig. 8: histograms of confidence for the MaxEnt losses, without and with label smoothing."""

from collections.abc import Collection, Sequence
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report import charts
from calibrant.report.figures.reliability import confidence_histogram, reliability_bins, select_curves
from calibrant.report.scores import ChartRecord, by_panel, keep_paired_losses, unique_losses
from calibrant.report.style import FONT_SIZE, PAGE_WIDTH, TEXT_COLOUR, loss_label

MAXENT_LOSSES = ("maxent_mean", "maxent_variance", "maxent_mean_variance")
MAX_COLUMN_WIDTH = 150  # pixels


def prepare(
    curves: pa.Table, *, losses: Collection[str] = (), severity: int | None = None, **selection: Any
) -> list[ChartRecord]:
    """Bins of these losses, by default the MaxEnt losses, that were run with and without label smoothing.

    Raises:
        NoDataError: There are none.
    """
    selection |= {"losses": losses, "smoothed": True}
    tests = select_curves(curves, "label_smoothing", "reliability", severity, **selection)
    if not losses:
        tests = tests.filter(pc.is_in(tests["loss"], pa.array(MAXENT_LOSSES)))
    both = keep_paired_losses(tests, "label_smoothing")
    hint = "Add a grid with label_smoothing = [0.0, 0.01]"
    charts.require_data(both, "label_smoothing", "runs of a loss both with and without label smoothing", hint)
    return reliability_bins(both)


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    return charts.compose_figure(*(_dataset_figure(bins, panel) for panel, bins in by_panel(records).items()))


def _dataset_figure(bins: Sequence[ChartRecord], title: str) -> charts.ChartSpec:
    """A column per loss, a row per label smoothing; the rows with smoothing repeat the outline of the row without."""
    losses = unique_losses(bins)
    width = min(MAX_COLUMN_WIDTH, charts.panel_width(len(losses), PAGE_WIDTH))
    top = 1.05 * max(record["share"] for record in bins)
    rows = []
    for smoothing in sorted({record["label_smoothing"] for record in bins}):
        panels = []
        for loss in losses:
            own = [record for record in bins if (record["loss"], record["label_smoothing"]) == (loss, smoothing)]
            plain = [record for record in bins if (record["loss"], record["label_smoothing"]) == (loss, 0)]
            if own:
                label = loss_label(loss, "", smoothing)
                title_options = alt.TitleParams(label, fontSize=FONT_SIZE, fontWeight="normal", offset=3)
                chart = _histogram(own, plain, first=loss == losses[0], top=top)
                panels.append(chart.properties(width=width, height=80, title=title_options))
        rows.append(charts.hconcat(*panels, spacing=10))
    return charts.vconcat(*rows, spacing=6, title=title)


def _histogram(own: Sequence[ChartRecord], plain: Sequence[ChartRecord], *, first: bool, top: float) -> alt.LayerChart:
    bars = confidence_histogram(own, first=first, top=top)
    if own[0]["label_smoothing"] == 0:
        return charts.layer_charts(bars)
    corners = [{"low": record["low"], "share": record["share"]} for record in plain]
    corners.append({"low": plain[-1]["high"], "share": plain[-1]["share"]})
    outline = (
        alt.Chart(charts.inline_data(corners))
        .mark_line(interpolate="step-after", color=TEXT_COLOUR, strokeWidth=1)
        .encode(x=charts.confidence_axis("low", labels=True), y=alt.Y("share:Q", scale=alt.Scale(domain=[0, top])))
    )
    return charts.layer_charts(bars, outline)
