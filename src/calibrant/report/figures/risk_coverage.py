"""Error among the most confident predictions against how many are kept: what a model gains by keeping silent."""

from functools import partial
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.report.charts import Joined, colour, dash, need, panelled, said, values
from calibrant.report.figures.reliability import tests_needed
from calibrant.report.scores import Record, at_severity, chosen, losses_in, pooled
from calibrant.report.style import PERCENT, Style, label_of, style_of

REMEDY = "its curves.parquet must hold risk_coverage curves of shifted tests"


def prepare(curves: pa.Table, *, severity: int | None = None, **choice: Any) -> list[Record]:
    """Means over all shifted tests and seeds, or over the tests of one severity. Raises: NoDataError."""
    kept = chosen(curves, **choice, curve=("risk_coverage",))
    tests = at_severity(kept, severity)
    need(tests, "risk_coverage", tests_needed(severity), REMEDY)
    return [
        {"panel": point["panel"], "loss": point["loss"], "coverage": point["x"], "error": point["y"]}
        for point in pooled(tests, "panel", "loss")
    ]


def draw(records: list[Record]) -> Joined:
    lines = [style_of(loss) for loss in losses_in(records)]
    return panelled(records, lines, partial(_panel, lines), points=False)


def _panel(lines: list[Style], records: list[Record], title: str, width: int) -> alt.Chart:
    axis = alt.Axis(format=PERCENT, tickCount=5)
    chart: alt.Chart = (
        alt.Chart(values([{**record, "line": label_of(record["loss"])} for record in records]))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("coverage:Q", title="Coverage", axis=axis, scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("error:Q", title="Error", axis=axis, scale=alt.Scale(zero=True)),
            color=colour(lines),
            strokeDash=dash(lines),
            description=said("line"),
        )
        .properties(width=width, height=200, title=title)
    )
    return chart
