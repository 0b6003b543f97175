"""ECE against severity, raw and after each calibrator, a panel per loss: what helps under shift."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.errors import printable
from calibrant.experiments.folder import RAW
from calibrant.report.charts import Joined, finished, key, need, panel_width, side_by_side
from calibrant.report.figures.severity import severity_panel, severity_records
from calibrant.report.scores import Record, chosen, losses_in, panel_names
from calibrant.report.style import PAGE, label_of, ramp

LOSSES = ("cross_entropy", "focal", "maxent_mean")
REMEDY = "name some in the experiment's calibrators, as temperature"
COLUMNS = 3


def prepare(rows: pa.Table, *, data: Collection[str] = (), losses: Collection[str] = ()) -> list[Record]:
    """Of the losses named, or of LOSSES, or where the experiment has none of those, of all. Raises: NoDataError."""
    kept = chosen(rows, data=data, losses=losses, calibrator=None, metric=("ece",))
    need(kept, "calibrated", "the metric ece", "ask for it in the experiment's metrics")
    usual = kept.filter(pc.is_in(kept["loss"], pa.array(LOSSES)))
    kept = usual if usual.num_rows and not losses else kept
    need(kept.filter(pc.not_equal(kept["calibrator"], RAW)), "calibrated", "calibrated rows", REMEDY)
    return severity_records(kept, "calibrated")


def draw(records: list[Record]) -> Joined:
    """Raw first; the lines are on a ramp of their own, for the colours of losses mean losses."""
    order = sorted({record["calibrator"] for record in records}, key=lambda name: (name != RAW, name))
    lines = ramp([_name(calibrator) for calibrator in order])
    charts = []
    for panel in panel_names(records):
        own = [record for record in records if record["panel"] == panel]
        charts += [
            severity_panel(
                lines,
                [record for record in own if record["loss"] == loss],
                printable(f"{panel}: {label_of(loss)}"),
                panel_width(COLUMNS, PAGE, axes=COLUMNS),
                label=lambda record: _name(record["calibrator"]),
                y_title="ECE",
                height=150,
                top=1.06 * max(record["high"] for record in own),
            )
            for loss in losses_in(own)
        ]
    columns = min(COLUMNS, len(losses_in(records)))
    return finished(side_by_side(charts, columns), key(lines, panel_width(1, PAGE)))


def _name(calibrator: str) -> str:
    return "raw" if calibrator == RAW else printable(calibrator)
