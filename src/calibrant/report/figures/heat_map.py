"""The ECE of every loss under every corruption, as numbers on a scale of blue: which shifts break which losses."""

from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.corruptions import CORRUPTIONS
from calibrant.errors import printable
from calibrant.report.charts import Chart, Joined, finished, layered, need, said, sentence, side_by_side
from calibrant.report.figures.severity import REMEDY
from calibrant.report.numbers import percent
from calibrant.report.scores import Record, at_severity, chosen, losses_in, mean_records, panel_names
from calibrant.report.style import COLUMN, FONT_SIZE, INK, label_of

NAMES, CELL = 110, 16  # pixels of the corruptions' names, and of the height of a cell
MEAN = "mean"  # stands in place of a shift for the mean over all of them
DARK = 0.55  # of the largest value: from here on text is white


def prepare(rows: pa.Table, *, severity: int | None = None, **choice: Any) -> list[Record]:
    """Means over all severities, or at one; the shift "mean" is over all shifts. Raises: NoDataError."""
    kept = at_severity(chosen(rows, **choice, metric=("ece",)), severity)
    kept = kept.filter(pc.greater(kept["severity"], 0))
    need(kept, "heat_map", "the ece of corrupted tests that all runs have", REMEDY)
    found = mean_records(kept, "panel", "loss", "shift")
    found += [{**record, "shift": MEAN} for record in mean_records(kept, "panel", "loss")]
    order = [*CORRUPTIONS, MEAN]
    return sorted(found, key=lambda cell: (order.index(cell["shift"]) if cell["shift"] in order else -1, cell["shift"]))


def draw(records: list[Record]) -> Joined:
    panels = panel_names(records)
    return finished(side_by_side([_panel([r for r in records if r["panel"] == panel], panel) for panel in panels], 2))


def _words(cell: Record, top: float) -> Record:
    line, shift = printable(label_of(cell["loss"])), _name(cell["shift"])
    where = "mean over all shifts" if cell["shift"] == MEAN else shift
    about = sentence(line, where, f"ECE {percent(cell['mean'])}")
    text = f"{100 * cell['mean']:.1f}"
    return {**cell, "line": line, "shift": shift, "text": text, "dark": cell["mean"] > DARK * top, "said": about}


def _name(shift: str) -> str:
    return printable(shift.replace("_", " "))


def _panel(cells: list[Record], title: str) -> Chart:
    shifts = list(dict.fromkeys(_name(cell["shift"]) for cell in cells))
    losses = [printable(label_of(loss)) for loss in losses_in(cells)]
    above = alt.Axis(orient="top", labelAngle=-50, domain=False, ticks=False)
    base = alt.Chart().encode(
        x=alt.X("line:N", sort=losses, title=None, axis=above),
        y=alt.Y("shift:N", sort=shifts, title=None, axis=alt.Axis(domain=False, ticks=False, minExtent=NAMES - 10)),
        description=said(),
    )
    blue = alt.Color("mean:Q", scale=alt.Scale(scheme="blues", domainMin=0), legend=None)
    squares = base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=blue)
    ink = alt.condition("datum.dark", alt.value("white"), alt.value(INK))
    text = base.mark_text(fontSize=FONT_SIZE - 0.5).encode(text=alt.Text("text:N"), color=ink)
    top = max(cell["mean"] for cell in cells)
    chart = layered(squares, text, rows=[_words(cell, top) for cell in cells]).properties(
        width=max(COLUMN - NAMES, 23 * len(losses)), height=CELL * len(shifts), title=f"{title}: ECE in %"
    )
    apart: alt.LayerChart = chart.resolve_scale(color="independent")
    return apart
