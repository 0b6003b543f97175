"""Error among the most confident predictions against how many are kept: what a model gains by keeping silent."""

from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report.charts import ChartSpec, colour, dash, inline_data, panel_figure, require_data
from calibrant.report.figures.reliability import required_tests
from calibrant.report.scores import ChartRecord, filter_severity, pool_curves, select_rows, unique_losses
from calibrant.report.style import PERCENT, Style, line_style, loss_label

REMEDY = "its curves.parquet must hold risk_coverage curves of shifted tests"


def prepare(curves: pa.Table, *, severity: int | None = None, **choice: Any) -> list[ChartRecord]:
    """Means over all shifted tests and seeds, or over the tests of one severity. Raises: NoDataError."""
    kept = select_rows(curves, **choice, curve=("risk_coverage",))
    tests = filter_severity(kept, severity)
    require_data(tests, "risk_coverage", required_tests(severity), REMEDY)
    return [
        {"panel": point["panel"], "loss": point["loss"], "coverage": point["x"], "error": point["y"]}
        for point in pool_curves(tests, "panel", "loss")
    ]


def draw(records: list[ChartRecord]) -> ChartSpec:
    lines = [line_style(loss) for loss in unique_losses(records)]
    return panel_figure(records, lines, partial(_panel, lines), points=False)


def _panel(lines: list[Style], records: list[ChartRecord], title: str, width: int) -> alt.Chart:
    axis = alt.Axis(format=PERCENT, tickCount=5)
    chart: alt.Chart = (
        alt.Chart(inline_data([{**record, "line": loss_label(record["loss"])} for record in records]))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("coverage:Q", title="Coverage", axis=axis, scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("error:Q", title="Error", axis=axis, scale=alt.Scale(zero=True)),
            color=colour(lines),
            strokeDash=dash(lines),
            description="line:N",
        )
        .properties(width=width, height=200, title=title)
    )
    return chart
