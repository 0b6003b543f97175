"""Fig. 7: ECE against the mean feature norm; each loss is a line of points that are numbered by severity."""

from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report import charts
from calibrant.report.numbers import percent
from calibrant.report.scores import (
    ChartRecord,
    add_shift_levels,
    mean_records,
    same_corruptions,
    select_rows,
    unique_losses,
)
from calibrant.report.style import FONT_SIZE, PERCENT_FORMAT, Style, line_style, loss_label


def prepare(rows: pa.Table, **selection: Any) -> list[ChartRecord]:
    """Mean feature norm and ECE at each severity, or at 0 and 1 of a natural shift. Raises: NoDataError."""
    kept = add_shift_levels(same_corruptions(select_rows(rows, **selection, metric=("ece", "feature_norm"))))
    with_severities = pc.unique(kept.filter(pc.greater(kept["severity"], 0))["panel"]).to_pylist()
    points: dict[tuple[str, str, int], ChartRecord] = {}
    for record in mean_records(kept, "panel", "loss", "shift_level", "metric"):
        point = {name: record[name] for name in ("panel", "loss", "shift_level")}
        metric = "norm" if record["metric"] == "feature_norm" else "ece"
        points.setdefault(tuple(point.values()), point)[metric] = record["mean"]
    both = [
        {**point, "has_severities": point["panel"] in with_severities}
        for point in points.values()
        if {"norm", "ece"} <= point.keys()
    ]
    hint = "Add ece to the experiment's metrics, and use models that end in a linear layer"
    charts.require_data(both, "feature_norm", "rows of both ece and feature_norm", hint)
    return both


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    lines = [line_style(loss) for loss in unique_losses(records)]
    return charts.panel_figure(records, lines, partial(_panel, lines), points=False)


def _panel(lines: list[Style], records: list[ChartRecord], title: str, width: int) -> charts.Chart:
    x_scale = alt.Scale(zero=False, padding=12, nice=False)
    y_scale = alt.Scale(zero=True, padding=8, nice=False)
    base = alt.Chart().encode(
        x=alt.X("norm:Q", title="Mean feature norm", scale=x_scale, axis=alt.Axis(tickCount=6)),
        y=alt.Y("ece:Q", title="ECE", scale=y_scale, axis=alt.Axis(format=PERCENT_FORMAT, tickCount=6)),
        color=charts.colour(lines),
        description=alt.Description("description:N"),
    )
    line = base.mark_line(strokeWidth=1.2).encode(
        order=alt.Order("shift_level:Q"), strokeDash=charts.dash(lines), description=alt.Description("line:N")
    )
    discs = base.mark_point(shape="circle", fill="white", fillOpacity=1, opacity=1, size=105, strokeWidth=1.2)
    numbers = base.mark_text(fontSize=FONT_SIZE, fontWeight="bold", baseline="middle", dy=0.5).encode(
        text=alt.Text("shift_level:N")
    )
    rows = [_add_description(record) for record in records]
    return charts.layer_charts(line, discs, numbers, rows=rows).properties(width=width, height=240, title=title)


def _add_description(record: ChartRecord) -> ChartRecord:
    line = loss_label(record["loss"])
    if record["has_severities"]:
        test_set = f"severity {record['shift_level']}"
    else:
        test_set = "shifted test set" if record["shift_level"] else "unshifted test set"
    parts = test_set, f"norm {record['norm']:.4g}", f"ECE {percent(record['ece'])}"
    return {**record, "line": line, "description": charts.describe_mark(line, *parts)}
