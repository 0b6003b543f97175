"""ECE against severity, raw and after each calibrator, a panel per loss."""

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
MAX_PANELS_IN_ROW = 3


def prepare(rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = ()) -> list[ChartRecord]:
    """ECE at each severity for these losses, by default DEFAULT_LOSSES, or all where none of them was run.

    Raises:
        NoDataError: The rows have no ECE, no calibrator or no severities.
    """
    kept = select_rows(rows, data=data, losses=losses, calibrator=None, metric=("ece",))
    require_data(kept, "calibrated", "the metric ece", "add it to the experiment's metrics")
    default = kept.filter(pc.is_in(kept["loss"], pa.array(DEFAULT_LOSSES)))
    kept = default if default.num_rows and not losses else kept
    calibrated = kept.filter(pc.not_equal(kept["calibrator"], RAW))
    require_data(calibrated, "calibrated", "calibrated rows", "name calibrators in the experiment, as temperature")
    return severity_records(kept, "calibrated")


def draw(records: list[ChartRecord]) -> ChartSpec:
    """The uncalibrated line is the first; the colours are none of a loss."""
    order = sorted({record["calibrator"] for record in records}, key=lambda name: (name != RAW, name))
    lines = sequential_styles([_label(calibrator) for calibrator in order])
    charts = []
    for panel in panel_names(records):
        own = [record for record in records if record["panel"] == panel]
        charts += [
            severity_panel(
                lines,
                [record for record in own if record["loss"] == loss],
                printable(f"{panel}: {loss_label(loss)}"),
                panel_width(MAX_PANELS_IN_ROW, PAGE, axes=MAX_PANELS_IN_ROW),
                label=lambda record: _label(record["calibrator"]),
                y_title="ECE",
                height=150,
                top=1.06 * max(record["high"] for record in own),
            )
            for loss in unique_losses(own)
        ]
    columns = min(MAX_PANELS_IN_ROW, len(unique_losses(records)))
    return compose_figure(panel_grid(charts, columns), legend(lines, panel_width(1, PAGE)))


def _label(calibrator: str) -> str:
    return "raw" if calibrator == RAW else printable(calibrator)
