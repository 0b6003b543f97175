"""Fig. 6: ECE against severity for MaxEnt Loss with local constraints (solid) and with global ones alone (dotted)."""

from functools import partial
from typing import Any

import pyarrow as pa

from calibrant.report.charts import Joined, need, panelled
from calibrant.report.figures.severity import severity_panel, severity_records
from calibrant.report.scores import Record, chosen, losses_in, paired
from calibrant.report.style import style_of

GLOBAL = "global"
REMEDY = 'a grid with variant = "global" and loss_options = { local = false } gives them'


def prepare(rows: pa.Table, **choice: Any) -> list[Record]:
    """Losses that have runs with and without local constraints. Raises: NoDataError."""
    kept = chosen(rows, **choice, variants=("", GLOBAL), metric=("ece",))
    need(kept, "local_constraints", "the metric ece", "ask for it in the experiment's metrics")
    both = paired(kept, "variant")
    need(both, "local_constraints", 'runs of a loss both with and without the variant "global"', REMEDY)
    return severity_records(both, "local_constraints")


def draw(records: list[Record]) -> Joined:
    lines = [style_of(loss, variant) for loss in losses_in(records) for variant in ("", GLOBAL)]
    return panelled(records, lines, partial(severity_panel, lines, y_title="ECE", height=180), columns=2)
