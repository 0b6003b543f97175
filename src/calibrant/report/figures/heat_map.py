"""The ECE of every loss under every corruption, as numbers on a scale of blue: which shifts break which losses."""

from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.corruptions import CORRUPTIONS
from calibrant.errors import printable
from calibrant.report.charts import (
    Chart,
    ChartSpec,
    compose_figure,
    describe_mark,
    layer_charts,
    panel_grid,
    require_data,
)
from calibrant.report.figures.severity import SEVERITY_HINT
from calibrant.report.numbers import percent
from calibrant.report.scores import ChartRecord, filter_severity, mean_records, panel_names, select_rows, unique_losses
from calibrant.report.style import COLUMN, FONT_SIZE, INK, loss_label

NAMES, CELL = 110, 16  # pixels of the corruptions' names, and of the height of a cell
MEAN = "mean"  # stands in place of a shift for the mean over all of them
DARK = 0.55  # of the largest value: from here on text is white


def prepare(rows: pa.Table, *, severity: int | None = None, **choice: Any) -> list[ChartRecord]:
    """Means over all severities, or at one; the shift "mean" is over all shifts. Raises: NoDataError."""
    kept = filter_severity(select_rows(rows, **choice, metric=("ece",)), severity)
    kept = kept.filter(pc.greater(kept["severity"], 0))
    require_data(kept, "heat_map", "the ece of corrupted tests that all runs have", SEVERITY_HINT)
    found = mean_records(kept, "panel", "loss", "corruption")
    found += [{**record, "corruption": MEAN} for record in mean_records(kept, "panel", "loss")]
    order = [*CORRUPTIONS, MEAN]
    return sorted(
        found,
        key=lambda cell: (order.index(cell["corruption"]) if cell["corruption"] in order else -1, cell["corruption"]),
    )


def draw(records: list[ChartRecord]) -> ChartSpec:
    panels = panel_names(records)
    return compose_figure(
        panel_grid([_panel([r for r in records if r["panel"] == panel], panel) for panel in panels], 2)
    )


def _words(cell: ChartRecord, top: float) -> ChartRecord:
    line, shift = printable(loss_label(cell["loss"])), _name(cell["corruption"])
    where = "mean over all shifts" if cell["corruption"] == MEAN else shift
    about = describe_mark(line, where, f"ECE {percent(cell['mean'])}")
    text = f"{100 * cell['mean']:.1f}"
    return {
        **cell,
        "line": line,
        "corruption": shift,
        "text": text,
        "dark": cell["mean"] > DARK * top,
        "description": about,
    }


def _name(shift: str) -> str:
    return printable(shift.replace("_", " "))


def _panel(cells: list[ChartRecord], title: str) -> Chart:
    shifts = list(dict.fromkeys(_name(cell["corruption"]) for cell in cells))
    losses = [printable(loss_label(loss)) for loss in unique_losses(cells)]
    above = alt.Axis(orient="top", labelAngle=-50, domain=False, ticks=False)
    base = alt.Chart().encode(
        x=alt.X("line:N", sort=losses, title=None, axis=above),
        y=alt.Y(
            "corruption:N", sort=shifts, title=None, axis=alt.Axis(domain=False, ticks=False, minExtent=NAMES - 10)
        ),
        description="description:N",
    )
    blue = alt.Color("mean:Q", scale=alt.Scale(scheme="blues", domainMin=0), legend=None)
    squares = base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=blue)
    ink = alt.condition("datum.dark", alt.value("white"), alt.value(INK))
    text = base.mark_text(fontSize=FONT_SIZE - 0.5).encode(text=alt.Text("text:N"), color=ink)
    top = max(cell["mean"] for cell in cells)
    chart = layer_charts(squares, text, rows=[_words(cell, top) for cell in cells]).properties(
        width=max(COLUMN - NAMES, 23 * len(losses)), height=CELL * len(shifts), title=f"{title}: ECE in %"
    )
    apart: alt.LayerChart = chart.resolve_scale(color="independent")
    return apart
