"""Fig. 7: ECE against the mean norm of the features, a numbered point per severity, joined for each loss."""

from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report.charts import (
    Chart,
    ChartSpec,
    colour,
    dash,
    describe_mark,
    layer_charts,
    panel_figure,
    require_data,
)
from calibrant.report.numbers import percent
from calibrant.report.scores import ChartRecord, add_shift_levels, mean_records, select_rows, unique_losses
from calibrant.report.style import FONT_SIZE, PERCENT, Style, line_style, loss_label

REMEDY = "the runs must keep the features of their models, whose norm is then among the rows"


def prepare(rows: pa.Table, **choice: Any) -> list[ChartRecord]:
    """The norm and the ECE at every step: a severity, or 0 and 1 of a shift in the wild. Raises: NoDataError."""
    kept = add_shift_levels(select_rows(rows, **choice, metric=("ece", "feature_norm")))
    found: dict[tuple[str, str, int], ChartRecord] = {}
    for record in mean_records(kept, "panel", "loss", "step", "metric"):
        place = {name: record[name] for name in ("panel", "loss", "step")}
        metric = "norm" if record["metric"] == "feature_norm" else "ece"
        found.setdefault(tuple(place.values()), place)[metric] = record["mean"]
    both = [record for record in found.values() if {"norm", "ece"} <= record.keys()]
    require_data(both, "feature_norm", "the metrics ece and feature_norm", REMEDY)
    return both


def draw(records: list[ChartRecord]) -> ChartSpec:
    lines = [line_style(loss) for loss in unique_losses(records)]
    return panel_figure(records, lines, partial(_panel, lines), points=False)


def _panel(lines: list[Style], records: list[ChartRecord], title: str, width: int) -> Chart:
    rows = [_words(record) for record in records]
    across = alt.Scale(zero=False, padding=12, nice=False)
    up = alt.Scale(zero=True, padding=8, nice=False)
    base = alt.Chart().encode(
        x=alt.X("norm:Q", title="Mean norm of features", scale=across, axis=alt.Axis(tickCount=6)),
        y=alt.Y("ece:Q", title="ECE", scale=up, axis=alt.Axis(format=PERCENT, tickCount=6)),
        color=colour(lines),
        description="description:N",
    )
    joined = base.mark_line(strokeWidth=1.2).encode(
        order=alt.Order("step:Q"), strokeDash=dash(lines), description="line:N"
    )
    discs = base.mark_point(shape="circle", fill="white", fillOpacity=1, opacity=1, size=105, strokeWidth=1.2)
    steps = base.mark_text(fontSize=FONT_SIZE, fontWeight="bold", baseline="middle", dy=0.5).encode(
        text=alt.Text("step:N")
    )
    return layer_charts(joined, discs, steps, rows=rows).properties(width=width, height=240, title=title)


def _words(record: ChartRecord) -> ChartRecord:
    line = loss_label(record["loss"])
    norm, ece = f"norm {record['norm']:.4g}", f"ECE {percent(record['ece'])}"
    return {**record, "line": line, "description": describe_mark(line, f"severity {record['step']}", norm, ece)}
