"""Fig. 5: histogram of confidence in ten bins (top) and accuracy of each bin (bottom), a column per loss."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report import charts
from calibrant.report.numbers import percent
from calibrant.report.scores import ChartRecord, by_panel, filter_severity, pool_curves, select_rows, unique_losses
from calibrant.report.style import FONT_SIZE, PAGE_WIDTH, PERCENT_FORMAT, TEXT_COLOUR, line_style, loss_label

N_RELIABILITY_BINS = 10
SHIFT_HINT = "Use a data set with shifted test sets, for example digits or cifar10"
MAX_COLUMNS, MAX_WIDTH = 9, 130  # columns in a row; pixels of a column


def prepare(curves: pa.Table, *, severity: int | None = None, **selection: Any) -> list[ChartRecord]:
    """Bins pooled over seeds and all shifted test sets, or those of one severity. Raises: NoDataError."""
    return reliability_bins(select_curves(curves, "reliability", "reliability", severity, **selection))


def select_curves(curves: pa.Table, figure: str, curve: str, severity: int | None, **selection: Any) -> pa.Table:
    """The curves of all shifted test sets, or of those of one severity. Raises: NoDataError where there are none."""
    tests = filter_severity(select_rows(curves, **selection, curve=(curve,)), severity)
    wanted = "shifted test sets that all runs have" if severity is None else f"test sets of severity {severity}"
    charts.require_data(tests, figure, wanted, SHIFT_HINT if severity is None else "Choose another severity")
    return tests


def reliability_bins(tests: pa.Table) -> list[ChartRecord]:
    """The bins of each loss and label smoothing: share of the predictions, and accuracy, None in an empty bin."""
    series: dict[tuple[str, str, float], dict[int, ChartRecord]] = {}
    for point in pool_curves(tests, "panel", "loss", "label_smoothing"):
        series.setdefault((point["panel"], point["loss"], point["label_smoothing"]), {})[point["point"]] = point
    bins = []
    for (panel, loss, smoothing), points in series.items():
        total = sum(point["count"] for point in points.values())
        for at in range(N_RELIABILITY_BINS):
            point = points.get(at, {"count": 0, "y": None})
            limits = {"low": at / N_RELIABILITY_BINS, "high": (at + 1) / N_RELIABILITY_BINS}
            values = {"share": point["count"] / total, "accuracy": point["y"]}
            bins.append({"panel": panel, "loss": loss, "label_smoothing": smoothing, **limits, **values})
    return bins


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    rows: list[charts.ChartSpec] = []
    for panel, bins in by_panel(records).items():
        losses = unique_losses(bins)
        width = min(MAX_WIDTH, charts.panel_width(min(MAX_COLUMNS, len(losses)), PAGE_WIDTH))
        for first in range(0, len(losses), MAX_COLUMNS):
            part = losses[first : first + MAX_COLUMNS]
            title = panel if first == 0 else f"{panel}, continued"
            rows.append(_dataset_figure([record for record in bins if record["loss"] in part], title, width))
    return charts.compose_figure(*rows)


def _dataset_figure(bins: Sequence[ChartRecord], title: str, width: int) -> charts.ChartSpec:
    """A column per loss; the columns share the y axes of the first."""
    lines = charts.colour([line_style(loss) for loss in unique_losses(bins)])
    histogram = _bars(_share_axis(bins), labels=False).encode(color=lines).transform_filter("!datum.ideal")
    top = _facets(histogram.properties(width=width, height=60), bins, headers=True)
    bottom = _facets(_accuracies(lines).properties(width=width, height=max(60, width)), bins, headers=False)
    return charts.vconcat(top, bottom, spacing=6, title=title)


def _facets(chart: alt.Chart | alt.LayerChart, bins: Sequence[ChartRecord], *, headers: bool) -> alt.FacetChart:
    """The chart for each loss, as facets: four times as fast as a concatenation."""
    names = [loss_label(loss) for loss in unique_losses(bins)]
    header = alt.Header(labels=headers, labelFontSize=FONT_SIZE, labelColor=TEXT_COLOUR, labelPadding=3)
    rows = [_add_description(record) for record in bins] + [{"line": name, "ideal": True} for name in names]
    column = alt.Column("line:N", sort=names, title=None, header=header)
    facets: alt.FacetChart = chart.facet(column=column, data=charts.inline_data(rows), spacing=8, bounds="flush")
    return facets


def confidence_histogram(bins: Sequence[ChartRecord], *, first: bool, top: float) -> alt.Chart:
    """The histogram of one loss. first: whether it has the labels of the y axis; top: the end of that axis."""
    bars = _bars(_share_axis(bins, first=first, top=top), labels=True)
    chart: alt.Chart = bars.encode(color=alt.value(line_style(bins[0]["loss"]).colour)).properties(
        data=charts.inline_data([_add_description(record) for record in bins])
    )
    return chart


def _share_axis(bins: Sequence[ChartRecord], *, first: bool = True, top: float | None = None) -> alt.Y:
    axis = alt.Axis(format=PERCENT_FORMAT, tickCount=3, labels=first, ticks=first)
    domain = [0, top or 1.05 * max(record["share"] for record in bins)]
    return alt.Y("share:Q", title="Share" if first else None, axis=axis, scale=alt.Scale(domain=domain))


def _accuracies(lines: alt.Color) -> alt.LayerChart:
    axis = alt.Axis(format=PERCENT_FORMAT, values=[0, 0.5, 1])
    y = alt.Y("accuracy:Q", title="Accuracy", axis=axis, scale=alt.Scale(domain=[0, 1]))
    bars = _bars(y, labels=True).encode(color=lines).transform_filter("isValid(datum.accuracy)")
    rule = alt.Chart().mark_rule(color=TEXT_COLOUR, strokeDash=[3, 2], strokeWidth=1, aria=False)
    diagonal = rule.encode(x=alt.datum(0), x2=alt.datum(1), y=alt.datum(0), y2=alt.datum(1))
    return charts.layer_charts(bars, diagonal.transform_filter("datum.ideal"))


def _bars(y: alt.Y, *, labels: bool) -> alt.Chart:
    x = charts.confidence_axis("low", labels=labels)
    bars = alt.Chart().mark_bar(stroke="white", strokeWidth=0.4)
    chart: alt.Chart = bars.encode(
        x=x, x2=alt.X2("high:Q"), y=y, y2=alt.Y2Datum(0), description=alt.Description("description:N")
    )
    return chart


def _add_description(record: ChartRecord) -> ChartRecord:
    label = loss_label(record["loss"], "", record["label_smoothing"])
    confidence = f"confidence {100 * record['low']:.0f} to {100 * record['high']:.0f} %"
    accuracy = "no predictions" if record["accuracy"] is None else f"accuracy {percent(record['accuracy'])}"
    text = charts.describe_mark(label, confidence, accuracy, f"{percent(record['share'])} of the predictions")
    return {**record, "line": loss_label(record["loss"]), "description": text}
