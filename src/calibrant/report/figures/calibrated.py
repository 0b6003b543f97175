"""ECE against severity, raw and after each calibrator, a panel per loss."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.experiments.folder import RAW
from calibrant.report import charts
from calibrant.report.figures.severity import severity_panel, severity_records
from calibrant.report.published import TEMPERATURES
from calibrant.report.scores import ChartRecord, by_panel, select_rows, unique_losses
from calibrant.report.style import PAGE_WIDTH, loss_label, sequential_styles

DEFAULT_LOSSES = ("cross_entropy", "focal", "maxent_mean")
MAX_PANELS_IN_ROW = 3


def prepare(rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = ()) -> list[ChartRecord]:
    """ECE at each severity for these losses, by default DEFAULT_LOSSES, or all where none of them was run.

    Raises:
        NoDataError: The rows have no ECE, no calibrator or no severities.
    """
    kept = select_rows(rows, data=data, losses=losses, calibrator=None, metric=("ece",))
    charts.require_data(kept, "calibrated", "rows of the metric ece", "Add it to the experiment's metrics")
    default = kept.filter(pc.is_in(kept["loss"], pa.array(DEFAULT_LOSSES)))
    kept = default if default.num_rows and not losses else kept
    calibrated = kept.filter(pc.not_equal(kept["calibrator"], RAW))
    charts.require_data(
        calibrated, "calibrated", "calibrated rows", "Add calibrators to the experiment, for example temperature"
    )
    return severity_records(kept, "calibrated")


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    """The uncalibrated line is the first; the colours are none of a loss. Panels of a data set share the y axis."""
    order = sorted({record["calibrator"] for record in records}, key=_sort_key)
    lines = sequential_styles([_label(calibrator) for calibrator in order])
    columns = min(MAX_PANELS_IN_ROW, len(unique_losses(records)))
    groups = by_panel(records)
    panels = []
    for panel, own in groups.items():
        panels += [
            severity_panel(
                lines,
                [record for record in own if record["loss"] == loss],
                f"{panel}: {loss_label(loss)}" if len(groups) > 1 else loss_label(loss),
                charts.panel_width(columns, PAGE_WIDTH, axes=columns),
                label=lambda record: _label(record["calibrator"]),
                y_title="ECE",
                height=190,
                top=1.06 * max(record["high"] for record in own),
            )
            for loss in unique_losses(own)
        ]
    return charts.compose_figure(
        charts.panel_grid(panels, columns), charts.legend(tuple(lines), charts.panel_width(1, PAGE_WIDTH))
    )


def _sort_key(calibrator: str) -> tuple[bool, bool, str]:
    """Uncalibrated, temperature scaling, then the others."""
    return calibrator != RAW, calibrator not in TEMPERATURES, calibrator


def _label(calibrator: str) -> str:
    return "raw" if calibrator == RAW else calibrator.replace("_", " ")
