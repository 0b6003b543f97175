"""The ECE of each loss under each corruption as a heat map."""

from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.corruptions import CORRUPTIONS
from calibrant.report import charts
from calibrant.report.figures.severity import SEVERITY_HINT
from calibrant.report.numbers import percent
from calibrant.report.scores import ChartRecord, by_panel, filter_severity, mean_records, select_rows, unique_losses
from calibrant.report.style import COLUMN_WIDTH, FONT_SIZE, TEXT_COLOUR, loss_label

LABEL_WIDTH, CELL_HEIGHT = 110, 16  # pixels
MEAN = "mean"  # in place of a corruption: the mean over all corruptions
WHITE_TEXT_ABOVE = 0.55  # of the largest value


def prepare(rows: pa.Table, *, severity: int | None = None, **selection: Any) -> list[ChartRecord]:
    """Means over severities, or at one severity; the corruption "mean" is over all of them. Raises: NoDataError."""
    kept = filter_severity(select_rows(rows, **selection, metric=("ece",)), severity)
    kept = kept.filter(pc.greater(kept["severity"], 0))
    charts.require_data(kept, "heat_map", "ECE on corrupted test sets that all runs have", SEVERITY_HINT)
    found = mean_records(kept, "panel", "loss", "corruption")
    found += [{**record, "corruption": MEAN} for record in mean_records(kept, "panel", "loss")]
    order = {name: position for position, name in enumerate([*CORRUPTIONS, MEAN])}
    return sorted(found, key=lambda cell: (order.get(cell["corruption"], -1), cell["corruption"]))


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    panels = [_panel(cells, panel) for panel, cells in by_panel(records).items()]
    return charts.compose_figure(charts.panel_grid(panels, 2))


def _panel(cells: list[ChartRecord], title: str) -> charts.Chart:
    largest = max(cell["mean"] for cell in cells)
    rows = [_add_text(cell, largest) for cell in cells]
    losses = [loss_label(loss) for loss in unique_losses(cells)]
    corruptions = list(dict.fromkeys(row["corruption"] for row in rows))
    x_axis = alt.Axis(orient="top", labelAngle=-50, domain=False, ticks=False)
    y_axis = alt.Axis(domain=False, ticks=False, minExtent=LABEL_WIDTH - 10)
    base = alt.Chart().encode(
        x=alt.X("line:N", sort=losses, title=None, axis=x_axis),
        y=alt.Y("corruption:N", sort=corruptions, title=None, axis=y_axis),
        description=alt.Description("description:N"),
    )
    blue = alt.Color("mean:Q", scale=alt.Scale(scheme="blues", domainMin=0), legend=None)
    squares = base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=blue)
    ink = alt.condition("datum.dark", alt.value("white"), alt.value(TEXT_COLOUR))
    text = base.mark_text(fontSize=FONT_SIZE - 0.5).encode(text=alt.Text("text:N"), color=ink)
    chart = charts.layer_charts(squares, text, rows=rows).properties(
        width=max(COLUMN_WIDTH - LABEL_WIDTH, 23 * len(losses)),
        height=CELL_HEIGHT * len(corruptions),
        title=f"{title}: ECE in %",
    )
    independent: alt.LayerChart = chart.resolve_scale(color="independent")
    return independent


def _add_text(cell: ChartRecord, largest: float) -> ChartRecord:
    line, corruption = loss_label(cell["loss"]), cell["corruption"].replace("_", " ")
    condition = "mean over all corruptions" if cell["corruption"] == MEAN else corruption
    return {
        **cell,
        "line": line,
        "corruption": corruption,
        "text": f"{100 * cell['mean']:.1f}",
        "dark": cell["mean"] > WHITE_TEXT_ABOVE * largest,
        "description": charts.describe_mark(line, condition, f"ECE {percent(cell['mean'])}"),
    }
