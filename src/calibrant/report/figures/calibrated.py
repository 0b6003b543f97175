"""ECE against severity, raw and after each calibrator, a panel per loss: what helps under shift."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.errors import printable
from calibrant.experiments.folder import RAW
from calibrant.report.charts import ChartSpec, compose_figure, legend, panel_grid, panel_width, require_data
from calibrant.report.figures.severity import severity_panel, severity_records
from calibrant.report.scores import ChartRecord, panel_names, select_rows, unique_losses
from calibrant.report.style import PAGE, loss_label, sequential_styles

DEFAULT_LOSSES = ("cross_entropy", "focal", "maxent_mean")
REMEDY = "name some in the experiment's calibrators, as temperature"
PANELS_PER_ROW = 3


def prepare(rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = ()) -> list[ChartRecord]:
    """Means at every severity for these losses, by default DEFAULT_LOSSES, or all where none of these was run."""
    kept = select_rows(rows, data=data, losses=losses, calibrator=None, metric=("ece",))
    require_data(kept, "calibrated", "the metric ece", "ask for it in the experiment's metrics")
    default = kept.filter(pc.is_in(kept["loss"], pa.array(DEFAULT_LOSSES)))
    kept = default if default.num_rows and not losses else kept
    require_data(kept.filter(pc.not_equal(kept["calibrator"], RAW)), "calibrated", "calibrated rows", REMEDY)
    return severity_records(kept, "calibrated")


def draw(records: list[ChartRecord]) -> ChartSpec:
    """Raw first; the lines are on a sequential_styles of their own, for the colours of losses mean losses."""
    order = sorted({record["calibrator"] for record in records}, key=lambda name: (name != RAW, name))
    lines = sequential_styles([_name(calibrator) for calibrator in order])
    charts = []
    for panel in panel_names(records):
        own = [record for record in records if record["panel"] == panel]
        charts += [
            severity_panel(
                lines,
                [record for record in own if record["loss"] == loss],
                printable(f"{panel}: {loss_label(loss)}"),
                panel_width(PANELS_PER_ROW, PAGE, axes=PANELS_PER_ROW),
                label=lambda record: _name(record["calibrator"]),
                y_title="ECE",
                height=150,
                top=1.06 * max(record["high"] for record in own),
            )
            for loss in unique_losses(own)
        ]
    columns = min(PANELS_PER_ROW, len(unique_losses(records)))
    return compose_figure(panel_grid(charts, columns), legend(lines, panel_width(1, PAGE)))


def _name(calibrator: str) -> str:
    return "raw" if calibrator == RAW else printable(calibrator)
