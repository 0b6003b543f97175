"""Every chart of the page, each drawn once: the figures that are files too, and those behind the switches."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from altair.utils.schemapi import debug_mode

from calibrant.errors import CalibrantError, NoDataError
from calibrant.report.experiment import alternatives as alternative
from calibrant.report.experiment.learning import CONSTRAINTS, LEARNING, Learning, Quantity
from calibrant.report.experiment.learning_charts import MOST_PANELS, draw_epochs, draw_moments
from calibrant.report.experiment.measures import DESCRIPTIONS, measure_of, metrics_of
from calibrant.report.figures import FIGURES, heat_map, reliability, severity
from calibrant.report.figures.look import losses_of
from calibrant.report.figures.render import to_svg
from calibrant.report.page import Drawing
from calibrant.report.palette import label_of

ALL = "all"
MOST_METRICS = 8  # that severity curves are drawn of
MOST_COLUMNS = 24  # losses by data sets: where there are more, no severity has a picture of its own
TITLES = {  # of the figures without a section of their own, in the order of the page
    "feature_norm": "ECE against feature norm",
    "risk_coverage": "Risk against coverage",
    "calibrated": "Calibrators under shift",
    "label_smoothing": "Label smoothing",
    "local_constraints": "Local constraints",
    "samples": "Samples",
    "gibbs": "Distributions of greatest entropy",
}
LINES = ("severity", "feature_norm", "risk_coverage")  # figures with a line per loss
MOMENTS = Quantity(
    "Moments and targets",
    "What the constraints compare: the moment of the predictions, mean over the validation rows, in the colour of the "
    "loss, beside the global target (dashed, of the class prior) and the local one (dotted, of the labels). Where both "
    "targets are one line, only one is seen.",
)

Report = Callable[[str], None]
Pictures = Callable[[], Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Panel:
    """One of the pictures that a switch chooses from."""

    value: str
    option: str
    drawing: Drawing

    @property
    def as_option(self) -> tuple[str, str]:
        return self.value, self.option


@dataclass
class Drawings:
    """The charts of a page, and why others could not be drawn."""

    files: dict[str, str] = field(default_factory=dict)  # the figures of FIGURES by name, as SVG
    severity: list[Panel] = field(default_factory=list)
    reliability: list[Panel] = field(default_factory=list)
    heat_map: list[Panel] = field(default_factory=list)
    others: list[Panel] = field(default_factory=list)
    epochs: list[Panel] = field(default_factory=list)
    constraints: list[Panel] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)  # what their lines are called
    lines: list[str] = field(default_factory=list)  # and those over epochs
    reasons: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was left out of the charts over epochs


def draw_all(
    rows: pa.Table,
    curves: pa.Table | None,
    learning: Learning,
    *,
    names: Collection[str] = (ALL,),
    pictures: Pictures | None = None,
    report: Report = lambda name: None,
) -> Drawings:
    """Every chart that can be drawn, of the figures that are named; those over epochs only where all are asked for.

    curves: none where the experiment has no such file. pictures: gives those of the figure samples, by row and column.
    report: told the name of each figure as it is begun.
    """
    made = Drawings()
    for name in FIGURES:
        if ALL in names or name in names:
            report(name)
            try:
                with debug_mode(False):  # altair need not check each part: the tests do
                    _draw(name, rows, curves, pictures, made)
            except CalibrantError as error:
                made.reasons[name] = str(error)
    made.others.sort(key=lambda panel: list(TITLES).index(panel.value))
    if ALL in names:
        report("learning")
        _draw_learning(learning, made)
    return made


def _draw(name: str, rows: pa.Table, curves: pa.Table | None, pictures: Pictures | None, made: Drawings) -> None:
    figure = FIGURES[name]
    if figure.needs == "curves" and curves is None:
        raise NoDataError(f"the figure {name} needs curves.parquet, and the experiment has none")
    if figure.needs == "pictures" and pictures is None:
        raise NoDataError(f"the figure {name} needs pictures of the data set")
    material: dict[str, tuple[Any, ...]] = {"nothing": (), "rows": (rows,), "curves": (curves,)}
    numbers = figure.prepare(*(material[figure.needs] if figure.needs in material else (pictures and pictures(),)))
    made.files[name] = to_svg(figure.draw(numbers))
    if name == "severity":
        made.severity = _severity_panels(rows)
    elif name == "reliability":
        made.reliability = _reliability_panels(curves, numbers, made.files[name])
    elif name == "heat_map":
        made.heat_map = _heat_map_panels(rows, numbers, made.files[name])
    else:
        said = alternative.OTHERS[name](numbers) if name in alternative.OTHERS else ""
        drawing = Drawing(made.files[name], said or figure.caption, figure.caption)
        made.others.append(Panel(name, TITLES[name], drawing))
    if name in LINES:
        made.losses = list(dict.fromkeys([*made.losses, *map(label_of, losses_of(numbers.points))]))


def _severity_panels(rows: pa.Table) -> list[Panel]:
    """A picture per metric, of those that say how good a model is."""
    panels = []
    for metric in [name for name in metrics_of(rows) if name not in DESCRIPTIONS][:MOST_METRICS]:
        try:
            numbers = severity.prepare(rows, metrics=(metric,))
        except NoDataError:
            continue  # a metric of one data set that has no severities
        if not numbers.points:
            continue
        shown, measure = numbers.points[0].metric, measure_of(metric)
        title = "Error" if shown == "error" else measure.heading
        chart = severity.draw_metric(numbers, title, in_percent=measure.in_percent)
        panels.append(Panel(metric, title, Drawing(to_svg(chart), alternative.of_severity(numbers, shown, title))))
    return panels


def severities_of(table: pa.Table) -> list[int]:
    """Those that corrupted tests have; 0 where there is a test that is not shifted."""
    tests = table.select(["severity", "shifted"]).group_by(["severity", "shifted"]).aggregate([]).to_pylist()
    return sorted({test["severity"] for test in tests if (test["severity"] > 0) == test["shifted"]})


def at(table: pa.Table, level: int) -> pa.Table:
    """The part of a table that is of one severity, so that the rest need not be turned into Python's values."""
    return table.filter(pc.and_(pc.equal(table["severity"], level), pc.equal(table["shifted"], level > 0)))


def test_name(level: int) -> str:
    return f"severity {level}" if level else "the unshifted test"


def _several(n_losses: int, n_panels: int) -> bool:
    return n_losses * n_panels <= MOST_COLUMNS


def _reliability_panels(curves: pa.Table, every: reliability.Bins, svg: str) -> list[Panel]:
    where = "all shifted tests together"
    panels = [Panel("all", "all shifted tests", Drawing(svg, alternative.of_reliability(every, where)))]
    if not _several(len({one.loss for one in every.bins}), len(every.panels)):
        return panels
    for level in severities_of(curves):
        try:
            numbers = reliability.prepare(at(curves, level), severity=level)
        except NoDataError:
            continue  # no test of it that all runs have
        said = alternative.of_reliability(numbers, test_name(level))
        option = test_name(level).removeprefix("the ")
        panels.append(Panel(str(level), option, Drawing(to_svg(reliability.draw(numbers)), said)))
    return panels


def _heat_map_panels(rows: pa.Table, every: heat_map.HeatMap, svg: str) -> list[Panel]:
    said = alternative.of_heat_map(every, "means over severities and seeds")
    panels = [Panel("all", "all severities", Drawing(svg, said))]
    levels = [level for level in severities_of(rows) if level]
    if len(levels) < 2 or not _several(len({cell.loss for cell in every.cells}), len(every.panels)):
        return panels
    for level in levels:
        try:
            numbers = heat_map.prepare(at(rows, level), severity=level)
        except NoDataError:
            continue
        said = alternative.of_heat_map(numbers, test_name(level))
        panels.append(Panel(str(level), test_name(level), Drawing(to_svg(heat_map.draw(numbers)), said)))
    return panels


def _draw_learning(learning: Learning, made: Drawings) -> None:
    made.notes, made.lines = learning.notes, learning.labels
    try:
        made.epochs = _epoch_panels(learning, LEARNING)
        made.constraints = _epoch_panels(learning, CONSTRAINTS)
        if learning.moments:
            said = alternative.of_moments(learning.moments)
            drawing = Drawing(to_svg(draw_moments(learning.moments)), said, MOMENTS.meaning)
            made.constraints.append(Panel("moments", MOMENTS.title, drawing))
            n_places = len({(point.panel, point.kind, point.constraint) for point in learning.moments})
            if n_places > MOST_PANELS:
                made.notes += (f"Only the first {MOST_PANELS} of {n_places} moments are drawn.",)
    except CalibrantError as error:
        made.reasons["learning"] = str(error)


def _epoch_panels(learning: Learning, quantities: Mapping[str, Quantity]) -> list[Panel]:
    panels = []
    for name, quantity in quantities.items():
        points: Sequence[Any] = [point for point in learning.points if point.quantity == name]
        if points:
            said = alternative.of_epochs(points, quantity)
            drawing = Drawing(to_svg(draw_epochs(points, quantity)), said, quantity.meaning)
            panels.append(Panel(name, quantity.title, drawing))
    return panels
