"""Fig. 6: ECE against severity for MaxEnt Loss with local constraints (solid) and with global ones alone (dotted)."""

from collections.abc import Collection, Sequence

import pyarrow as pa

from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import Row, chosen, need, unsmoothed
from calibrant.report.figures.look import Chart, finished, grid_of, key, line_of, losses_of, side_by_side
from calibrant.report.figures.severity_lines import SeverityCurves, severity_curves, severity_panel
from calibrant.report.palette import label_of

GLOBAL = "global"
REMEDY = 'a grid with variant = "global" and loss_options = { local = false } gives them'


def prepare(
    rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = (), calibrator: str = RAW
) -> SeverityCurves:
    """Losses that have runs with and without local constraints. Raises: NoDataError."""
    kept = unsmoothed(
        chosen(rows, data=data, losses=losses, calibrator=calibrator, variants=("", GLOBAL), metric=("ece",))
    )
    need(kept, "local_constraints", "the metric ece", "ask for it in the experiment's metrics")
    paired = _paired(kept)
    need(paired, "local_constraints", 'runs of a loss both with and without the variant "global"', REMEDY)
    return severity_curves(paired, "local_constraints")


def _paired(rows: Sequence[Row]) -> list[Row]:
    found = {(row["panel"], row["loss"], row["variant"]) for row in rows}
    return [row for row in rows if all((row["panel"], row["loss"], variant) in found for variant in ("", GLOBAL))]


def draw(numbers: SeverityCurves) -> Chart:
    losses = losses_of(numbers.points)
    lines = [line_of(loss, variant) for loss in losses for variant in ("", GLOBAL)]
    columns, width, whole = grid_of(len(numbers.panels))
    panels = [
        severity_panel(
            [point for point in numbers.points if point.panel == panel],
            lines,
            lambda point: label_of(point.loss, point.variant),
            title=panel,
            y_title="ECE",
            width=width,
            height=180,
        )
        for panel in numbers.panels
    ]
    return finished(side_by_side(panels, columns), key(lines, whole, columns=2), note=numbers.note)
