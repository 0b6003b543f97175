"""The ECE of every loss under every corruption, as numbers on a scale of blue: which shifts break which losses."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.corruptions import CORRUPTIONS
from calibrant.errors import printable
from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import at_severity, chosen, need, run_means, shared_tests, unsmoothed
from calibrant.report.figures.look import (
    COLUMN,
    INK,
    LETTERS,
    Chart,
    finished,
    layered,
    losses_of,
    percent,
    said,
    sentence,
    side_by_side,
)
from calibrant.report.figures.severity_lines import REMEDY
from calibrant.report.palette import label_of

NAMES, CELL = 110, 16  # pixels of the corruptions' names, and of the height of a cell
MEAN = "mean"  # stands in place of a shift for the mean over all of them
DARK = 0.55  # of the largest value: from here on letters are white


@dataclass(frozen=True, slots=True)
class Cell:
    """The ECE of a loss under a corruption, over its severities and the seeds; the shift "mean" is over all of them."""

    panel: str
    loss: str
    shift: str
    ece: float
    dark: bool


@dataclass(frozen=True, slots=True)
class HeatMap:
    cells: tuple[Cell, ...]
    note: str = ""

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(cell.panel for cell in self.cells))


def prepare(
    rows: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str = RAW,
    severity: int | None = None,
) -> HeatMap:
    """Means over all severities, or at one. Raises: NoDataError."""
    kept = unsmoothed(chosen(rows, data=data, losses=losses, calibrator=calibrator, metric=("ece",)))
    graded = [row for row in at_severity(kept, severity) if row["severity"] > 0]
    tests, note = shared_tests(graded)
    need(tests, "heat_map", "the ece of corrupted tests that all runs have", REMEDY)
    means = run_means([*tests, *({**row, "shift": MEAN} for row in tests)], "panel", "loss", "shift")
    tops = {panel: max(mean.mean for key, mean in means.items() if key[0] == panel) for panel, _, _ in means}
    cells = [
        Cell(panel, loss, shift, mean.mean, mean.mean > DARK * tops[panel])
        for (panel, loss, shift), mean in sorted(means.items(), key=lambda found: _place(found[0][2]))
    ]
    return HeatMap(tuple(cells), note)


def _place(shift: str) -> tuple[int, str]:
    order = [*CORRUPTIONS, MEAN]
    return (order.index(shift) if shift in order else -1), shift


def draw(numbers: HeatMap) -> Chart:
    panels = [_panel([cell for cell in numbers.cells if cell.panel == panel], panel) for panel in numbers.panels]
    return finished(side_by_side(panels, 2), note=numbers.note)


def _words(cell: Cell) -> dict[str, Any]:
    line, shift = printable(label_of(cell.loss)), _name(cell.shift)
    about = sentence(line, "mean over all shifts" if cell.shift == MEAN else shift, f"ECE {percent(cell.ece)}")
    return {**asdict(cell), "line": line, "shift": shift, "text": f"{100 * cell.ece:.1f}", "said": about}


def _name(shift: str) -> str:
    return printable(shift.replace("_", " "))


def _panel(cells: list[Cell], title: str) -> alt.LayerChart:
    shifts = list(dict.fromkeys(_name(cell.shift) for cell in cells))
    losses = [printable(label_of(loss)) for loss in losses_of(cells)]
    above = alt.Axis(orient="top", labelAngle=-50, domain=False, ticks=False)
    base = alt.Chart().encode(
        x=alt.X("line:N", sort=losses, title=None, axis=above),
        y=alt.Y("shift:N", sort=shifts, title=None, axis=alt.Axis(domain=False, ticks=False, minExtent=NAMES - 10)),
        description=said(),
    )
    scale = alt.Scale(scheme="blues", domainMin=0)
    squares = base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=alt.Color("ece:Q", scale=scale, legend=None))
    letters = alt.condition("datum.dark", alt.value("white"), alt.value(INK))
    text = base.mark_text(fontSize=LETTERS - 0.5).encode(text=alt.Text("text:N"), color=letters)
    width = max(COLUMN - NAMES, 23 * len(losses))
    chart = layered(squares, text, rows=[_words(cell) for cell in cells])
    chart = chart.properties(width=width, height=CELL * len(shifts), title=f"{title}: ECE in %")
    apart: alt.LayerChart = chart.resolve_scale(color="independent")
    return apart
