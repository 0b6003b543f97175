"""Fig. 6: ECE against severity for MaxEnt Loss with local constraints (solid) and with global ones alone (dotted)."""

from collections.abc import Collection

import pyarrow as pa

from calibrant.experiments.folder import RAW
from calibrant.report.charts import Joined, finished, grid_of, key, need, side_by_side
from calibrant.report.figures.severity import severity_panel, severity_records
from calibrant.report.scores import Record, chosen, losses_in, paired, panel_names
from calibrant.report.style import style_of

GLOBAL = "global"
REMEDY = 'a grid with variant = "global" and loss_options = { local = false } gives them'


def prepare(
    rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = (), calibrator: str = RAW
) -> list[Record]:
    """Losses that have runs with and without local constraints. Raises: NoDataError."""
    kept = chosen(rows, data=data, losses=losses, calibrator=calibrator, variants=("", GLOBAL), metric=("ece",))
    need(kept, "local_constraints", "the metric ece", "ask for it in the experiment's metrics")
    both = paired(kept, "variant")
    need(both, "local_constraints", 'runs of a loss both with and without the variant "global"', REMEDY)
    return severity_records(both, "local_constraints")


def draw(records: list[Record]) -> Joined:
    lines = [style_of(loss, variant) for loss in losses_in(records) for variant in ("", GLOBAL)]
    panels = panel_names(records)
    columns, width, whole = grid_of(len(panels))
    charts = [
        severity_panel(
            [record for record in records if record["panel"] == panel],
            lines,
            title=panel,
            y_title="ECE",
            width=width,
            height=180,
        )
        for panel in panels
    ]
    return finished(side_by_side(charts, columns), key(lines, whole, columns=2))
