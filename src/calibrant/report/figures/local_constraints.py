"""Fig. 6: ECE against severity for MaxEnt loss with local constraints (solid) and with global ones only (dotted)."""

from functools import partial
from typing import Any

import pyarrow as pa

from calibrant.report.charts import ChartSpec, panel_figure, require_data
from calibrant.report.figures.severity import severity_panel, severity_records
from calibrant.report.scores import ChartRecord, keep_paired_losses, select_rows, unique_losses
from calibrant.report.style import line_style

GLOBAL = "global"


def prepare(rows: pa.Table, **selection: Any) -> list[ChartRecord]:
    """ECE at each severity of the losses that have runs with and without local constraints. Raises: NoDataError."""
    kept = select_rows(rows, **selection, variants=("", GLOBAL), metric=("ece",))
    require_data(kept, "local_constraints", "rows of the metric ece", "Add it to the experiment's metrics")
    both = keep_paired_losses(kept, "variant")
    hint = 'Add a grid with variant = "global" and loss_options = { local = false }'
    require_data(both, "local_constraints", 'runs of a loss both with and without the variant "global"', hint)
    return severity_records(both, "local_constraints")


def draw(records: list[ChartRecord]) -> ChartSpec:
    lines = [line_style(loss, variant) for loss in unique_losses(records) for variant in ("", GLOBAL)]
    return panel_figure(records, lines, partial(severity_panel, lines, y_title="ECE", height=180), columns=2)
