"""Fig. 5: how predictions spread over ten bins of confidence (top), and the accuracy of each bin (bottom)."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report.charts import (
    Chart,
    ChartSpec,
    colour,
    compose_figure,
    confidence_axis,
    describe_mark,
    inline_data,
    layer_charts,
    panel_width,
    require_data,
    vconcat,
)
from calibrant.report.numbers import percent
from calibrant.report.scores import ChartRecord, filter_severity, panel_names, pool_curves, select_rows, unique_losses
from calibrant.report.style import FONT_SIZE, INK, PAGE, PERCENT, line_style, loss_label

N_RELIABILITY_BINS = 10
MAX_COLUMNS, MAX_WIDTH = 9, 130  # columns in a row; pixels of a column where there are few
REMEDY = "its curves.parquet must hold reliability curves of shifted tests"


def prepare(curves: pa.Table, *, severity: int | None = None, **choice: Any) -> list[ChartRecord]:
    """Bins of all shifted tests and seeds together, or of the tests of one severity. Raises: NoDataError."""
    kept = select_rows(curves, **choice, curve=("reliability",))
    tests = filter_severity(kept, severity)
    require_data(tests, "reliability", required_tests(severity), REMEDY)
    return reliability_bins(tests)


def required_tests(severity: int | None) -> str:
    return "shifted tests that all runs have" if severity is None else f"tests of severity {severity}"


def reliability_bins(tests: pa.Table) -> list[ChartRecord]:
    """The bins of each loss and amount of smoothing, with their share of all predictions and their accuracy, if any."""
    series: dict[tuple[str, str, float], dict[int, ChartRecord]] = {}
    for point in pool_curves(tests, "panel", "loss", "label_smoothing"):
        series.setdefault((point["panel"], point["loss"], point["label_smoothing"]), {})[point["point"]] = point
    bins = []
    for (panel, loss, smoothing), points in series.items():
        total = sum(point["count"] for point in points.values())
        for at in range(N_RELIABILITY_BINS):
            found = {"strength": points[at]["count"] / total, "accuracy": points[at]["y"]} if at in points else EMPTY
            place = {"panel": panel, "loss": loss, "label_smoothing": smoothing}
            bins.append({**place, "low": at / N_RELIABILITY_BINS, "high": (at + 1) / N_RELIABILITY_BINS, **found})
    return bins


EMPTY: ChartRecord = {"strength": 0.0, "accuracy": None}


def draw(records: list[ChartRecord]) -> ChartSpec:
    rows: list[Chart] = []
    for panel in panel_names(records):
        bins = [record for record in records if record["panel"] == panel]
        losses = unique_losses(bins)
        width = min(MAX_WIDTH, panel_width(min(MAX_COLUMNS, len(losses)), PAGE))
        for first in range(0, len(losses), MAX_COLUMNS):
            part = losses[first : first + MAX_COLUMNS]
            title = panel if first == 0 else f"{panel}, continued"
            rows.append(_block([found for found in bins if found["loss"] in part], title, width))
    return compose_figure(*rows)


def _block(bins: Sequence[ChartRecord], title: str, width: int) -> Chart:
    """A column per loss; only the first has the axis on its left, which all share."""
    lines = colour([line_style(loss) for loss in unique_losses(bins)])
    spread = _bars(_share(bins), labels=False).encode(color=lines).transform_filter("!datum.ideal")
    above = _columns(spread.properties(width=width, height=60), bins, named=True)
    under = _columns(_accuracies(lines).properties(width=width, height=max(60, width)), bins, named=False)
    return vconcat(above, under, spacing=6, title=title)


def _columns(chart: alt.Chart | alt.LayerChart, bins: Sequence[ChartRecord], *, named: bool) -> alt.FacetChart:
    """The chart once for each loss: by facets, which take a quarter of the time of as many charts."""
    names = [loss_label(loss) for loss in unique_losses(bins)]
    header = alt.Header(labels=named, labelFontSize=FONT_SIZE, labelColor=INK, labelPadding=3)
    rows = [_words(found) for found in bins] + [{"line": name, "ideal": True} for name in names]
    beside = alt.Column("line:N", sort=names, title=None, header=header)
    facets: alt.FacetChart = chart.facet(column=beside, data=inline_data(rows), spacing=8, bounds="flush")
    return facets


def strengths(bins: Sequence[ChartRecord], *, first: bool, top: float) -> alt.Chart:
    """The histogram of one loss."""
    ink = alt.value(line_style(bins[0]["loss"]).colour)
    bars = _bars(_share(bins, first=first, top=top), labels=True).encode(color=ink)
    chart: alt.Chart = bars.properties(data=inline_data([_words(found) for found in bins]))
    return chart


def _share(bins: Sequence[ChartRecord], *, first: bool = True, top: float | None = None) -> alt.Y:
    axis = alt.Axis(format=PERCENT, tickCount=3, labels=first, ticks=first)
    domain = [0, top or 1.05 * max(found["strength"] for found in bins)]
    return alt.Y("strength:Q", title="Share" if first else None, axis=axis, scale=alt.Scale(domain=domain))


def _accuracies(lines: alt.Color) -> alt.LayerChart:
    axis = alt.Axis(format=PERCENT, values=[0, 0.5, 1])
    up = alt.Y("accuracy:Q", title="Accuracy", axis=axis, scale=alt.Scale(domain=[0, 1]))
    bars = _bars(up, labels=True).encode(color=lines).transform_filter("isValid(datum.accuracy)")
    rule = alt.Chart().mark_rule(color=INK, strokeDash=[3, 2], strokeWidth=1, aria=False)
    ideal = rule.encode(x=alt.datum(0), x2=alt.datum(1), y=alt.datum(0), y2=alt.datum(1))
    return layer_charts(bars, ideal.transform_filter("datum.ideal"))


def _bars(up: alt.Y, *, labels: bool) -> alt.Chart:
    """Without data, for these may come from facets."""
    bars = alt.Chart().mark_bar(stroke="white", strokeWidth=0.4)
    across = confidence_axis("low", labels=labels)
    chart: alt.Chart = bars.encode(x=across, x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), description="description:N")
    return chart


def _words(found: ChartRecord) -> ChartRecord:
    where = f"confidence {100 * found['low']:.0f} to {100 * found['high']:.0f} %"
    accuracy = "no predictions" if found["accuracy"] is None else f"accuracy {percent(found['accuracy'])}"
    label = loss_label(found["loss"], "", found["label_smoothing"])
    about = describe_mark(label, where, accuracy, f"{percent(found['strength'])} of all")
    return {**found, "line": loss_label(found["loss"]), "description": about}
