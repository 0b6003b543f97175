"""Risk-coverage curves: the error among the most confident predictions against the share that is kept."""

from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report.charts import ChartSpec, colour, dash, inline_data, panel_figure
from calibrant.report.figures.reliability import select_curves
from calibrant.report.scores import ChartRecord, pool_curves, unique_losses
from calibrant.report.style import PERCENT_FORMAT, Style, line_style, loss_label


def prepare(curves: pa.Table, *, severity: int | None = None, **selection: Any) -> list[ChartRecord]:
    """Curves pooled over seeds and all shifted test sets, or those of one severity. Raises: NoDataError."""
    tests = select_curves(curves, "risk_coverage", "risk_coverage", severity, **selection)
    return [
        {"panel": point["panel"], "loss": point["loss"], "coverage": point["x"], "error": point["y"]}
        for point in pool_curves(tests, "panel", "loss")
    ]


def draw(records: list[ChartRecord]) -> ChartSpec:
    lines = [line_style(loss) for loss in unique_losses(records)]
    return panel_figure(records, lines, partial(_panel, lines), points=False)


def _panel(lines: list[Style], records: list[ChartRecord], title: str, width: int) -> alt.Chart:
    axis = alt.Axis(format=PERCENT_FORMAT, tickCount=5)
    chart: alt.Chart = (
        alt.Chart(inline_data([{**record, "line": loss_label(record["loss"])} for record in records]))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("coverage:Q", title="Coverage", axis=axis, scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("error:Q", title="Error", axis=axis, scale=alt.Scale(zero=True)),
            color=colour(lines),
            strokeDash=dash(lines),
            description=alt.Description("line:N"),
        )
        .properties(width=width, height=200, title=title)
    )
    return chart
