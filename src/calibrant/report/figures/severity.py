"""Fig. 3: error, ECE and KSE against the severity of corruptions, a line per loss; other figures use its panels."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.errors import NoDataError
from calibrant.report import charts
from calibrant.report.numbers import mean_text, percent
from calibrant.report.scores import ChartRecord, by_panel, mean_records, same_corruptions, select_rows, unique_losses
from calibrant.report.style import PAGE_WIDTH, PERCENT_FORMAT, Style, line_style, loss_label, quantity_of

Y_TITLES = {"error": "Error", "ece": "ECE", "kse": "KSE"}
SEVERITY_METRICS = ("accuracy", "ece", "kse")
SEVERITY_HINT = "Use a data set with corrupted test sets, for example digits or cifar10"


def prepare(rows: pa.Table, *, metrics: Sequence[str] = SEVERITY_METRICS, **selection: Any) -> list[ChartRecord]:
    """Means over corruptions at each severity, then over seeds; accuracy becomes the error. Raises: NoDataError."""
    kept = select_rows(rows, **selection, metric=metrics)
    charts.require_data(
        kept, "severity", f"rows of the metrics {', '.join(metrics)}", "Add them to the experiment's metrics"
    )
    return [_accuracy_to_error(record) for record in severity_records(kept, "severity")]


def severity_records(rows: pa.Table, figure: str) -> list[ChartRecord]:
    """Means at each severity over the corruptions that have them all; data sets without severities are left out.

    Raises:
        NoDataError: No data set has test sets of two severities, or no corruption has all of them.
    """
    panels = pc.unique(rows.filter(pc.greater(rows["severity"], 0))["panel"])
    charts.require_data(panels, figure, "test sets at several severities", SEVERITY_HINT)
    rows = same_corruptions(rows.filter(pc.is_in(rows["panel"], panels)))
    shared = pc.unique(rows.filter(rows["shifted"])["panel"])
    if not len(shared):
        raise NoDataError(f"cannot draw {figure}: no corruption has test sets at every severity")
    rows = rows.filter(pc.is_in(rows["panel"], shared))
    severities = pc.unique(rows["severity"]).to_pylist()
    if len(severities) < 2:
        raise NoDataError(f"cannot draw {figure}: all test sets of the experiment have severity {severities[0]}")
    return mean_records(rows, "panel", "metric", "loss", "variant", "calibrator", "severity")


def _accuracy_to_error(record: ChartRecord) -> ChartRecord:
    if record["metric"] != "accuracy":
        return record
    limits = {"mean": 1 - record["mean"], "low": 1 - record["high"], "high": 1 - record["low"]}
    return {**record, "metric": "error", **limits}


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    lines = [line_style(loss) for loss in unique_losses(records)]
    metrics = [metric for metric in Y_TITLES if any(record["metric"] == metric for record in records)]
    width = charts.panel_width(len(metrics), PAGE_WIDTH, axes=len(metrics))
    rows = []
    for title, own in by_panel(records).items():
        panels = [
            severity_panel(
                lines,
                [record for record in own if record["metric"] == metric],
                "",
                width,
                y_title=Y_TITLES[metric],
                height=150,
            )
            for metric in metrics
        ]
        rows.append(charts.hconcat(*panels, title=title))
    return charts.compose_figure(*rows, charts.legend(tuple(lines), charts.panel_width(1, PAGE_WIDTH)))


def draw_metric(records: list[ChartRecord], metric: str, title: str) -> charts.ChartSpec:
    """One metric, a panel per data set."""
    lines = [line_style(loss) for loss in unique_losses(records)]
    in_percent = quantity_of(metric).in_percent
    panel = partial(severity_panel, lines, y_title=title, height=220, in_percent=in_percent)
    return charts.panel_figure(records, lines, panel, single_width=PAGE_WIDTH)


def label_by_loss(record: ChartRecord) -> str:
    return loss_label(record["loss"], record["variant"])


def severity_panel(
    lines: Sequence[Style],
    records: Sequence[ChartRecord],
    title: str,
    width: int,
    *,
    label: Callable[[ChartRecord], str] = label_by_loss,
    y_title: str,
    height: int,
    top: float | None = None,
    in_percent: bool = True,
) -> charts.Chart:
    """A panel of lines with points and bands. label: of the line of a record; top: of the y axis, in its units."""
    rows = [_add_description(record, label(record), y_title, in_percent=in_percent) for record in records]
    base = alt.Chart().encode(
        x=alt.X(
            "severity:Q",
            title="Severity",
            axis=alt.Axis(tickMinStep=1, tickCount=5, format="d", grid=False),
            scale=alt.Scale(nice=False, padding=6),
        ),
        color=charts.colour(lines),
        description=alt.Description("line:N"),
    )
    axis = alt.Axis(format=PERCENT_FORMAT if in_percent else "~r", tickCount=5)
    scale = alt.Scale(zero=True, nice=top is None, domainMax=top or alt.Undefined)
    y = alt.Y("mean:Q", title=y_title, axis=axis, scale=scale)
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=y_title), y2=alt.Y2("high:Q"))
    line = base.mark_line(strokeWidth=1.5).encode(y=y, strokeDash=charts.dash(lines))
    point = base.mark_point(filled=True, size=26, opacity=1).encode(
        y=y, shape=charts.shape(lines), description=alt.Description("description:N")
    )
    chart = charts.layer_charts(band, line, point, rows=rows).properties(width=width, height=height)
    return chart.properties(title=title) if title else chart


def _add_description(record: ChartRecord, label: str, metric: str, *, in_percent: bool) -> ChartRecord:
    mean = percent(record["mean"]) if in_percent else mean_text(record["mean"], False)
    parts = f"severity {record['severity']}", f"{metric} {mean}", charts.seeds_text(record["n_seeds"])
    return {**record, "line": label, "description": charts.describe_mark(label, *parts)}
