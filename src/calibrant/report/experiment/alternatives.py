"""What each chart shows in a sentence or two of numbers, for those who do not see it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from calibrant.report.experiment.learning import EpochPoint, MomentPoint, Quantity
from calibrant.report.experiment.measures import measure_of
from calibrant.report.experiment.progress import count
from calibrant.report.figures.averages import Points
from calibrant.report.figures.feature_norm import NormPoint
from calibrant.report.figures.heat_map import MEAN, HeatMap
from calibrant.report.figures.look import percent
from calibrant.report.figures.reliability import Bins
from calibrant.report.figures.risk_coverage import Risk
from calibrant.report.figures.severity_lines import SeverityCurves, SeverityPoint
from calibrant.report.palette import label_of


def extremes(values: Iterable[tuple[str, float]], shown: Callable[[float], str] = percent) -> str:
    """The least and the greatest by name.

    >>> extremes([("CE", 0.25), ("Focal", 0.125)])
    'from 12.5 % (Focal) to 25.0 % (CE)'
    """
    order = sorted(values, key=lambda pair: pair[1])
    (least, low), (most, high) = order[0], order[-1]
    return f"from {shown(low)} ({least}) to {shown(high)} ({most})" if len(order) > 1 else f"{shown(low)} ({least})"


def plain(value: float) -> str:
    return f"{value:.3f}"


def of_severity(numbers: SeverityCurves, metric: str, title: str) -> str:
    """Of the lines of one metric, by loss."""
    points = [point for point in numbers.points if point.metric == metric]
    shown = percent if metric == "error" or measure_of(metric).in_percent else plain
    return f"{title} against the severity of the shift. {_ends(points, _by_loss, shown)}"


def _by_loss(point: SeverityPoint) -> str:
    return label_of(point.loss, point.variant)


def _by_calibrator(point: SeverityPoint) -> str:
    return f"{label_of(point.loss)}, {'raw' if point.calibrator == 'none' else point.calibrator}"


def _ends(
    points: Sequence[SeverityPoint], label: Callable[[SeverityPoint], str], shown: Callable[[float], str] = percent
) -> str:
    said = []
    for panel in dict.fromkeys(point.panel for point in points):
        own = [point for point in points if point.panel == panel]
        last = max(point.severity for point in own)
        found = [(label(point), point.mean) for point in own if point.severity == last]
        said.append(f"{panel}, severity {last}: {extremes(found, shown)}.")
    return " ".join(said)


def of_reliability(numbers: Bins, where: str) -> str:
    said = []
    for panel in numbers.panels:
        sure = [(label_of(one.loss), one.strength) for one in numbers.bins if one.panel == panel and one.low == 0.9]
        said.append(f"{panel}, share of predictions with a confidence over 90 %: {extremes(sure)}.")
    return f"Reliability diagrams of {where}, a column per loss. {' '.join(said)}"


def of_heat_map(numbers: HeatMap, where: str) -> str:
    said = []
    for panel in numbers.panels:
        own = [cell for cell in numbers.cells if cell.panel == panel and cell.shift != MEAN]
        found = [(f"{label_of(cell.loss)} under {cell.shift.replace('_', ' ')}", cell.ece) for cell in own]
        said.append(f"{panel}: {extremes(found)}.")
    return f"ECE by corruption and loss, {where}. {' '.join(said)}"


def _of_norms(numbers: Points[NormPoint]) -> str:
    norms = [(label_of(point.loss), point.norm) for point in numbers.points]
    eces = [(label_of(point.loss), point.ece) for point in numbers.points]
    return f"ECE against the mean norm of the features. Norms {extremes(norms, plain)}, ECE {extremes(eces)}."


def _of_risks(numbers: Points[Risk]) -> str:
    half = [point for point in numbers.points if abs(point.coverage - 0.5) < 0.026]
    found = [(f"{label_of(point.loss)} on {point.panel}", point.error) for point in half]
    return f"Error against coverage. With half of the predictions kept, {extremes(found)}." if found else ""


def _of_calibrated(numbers: SeverityCurves) -> str:
    return f"ECE against the severity of the shift, raw and calibrated. {_ends(numbers.points, _by_calibrator)}"


def _of_local_constraints(numbers: SeverityCurves) -> str:
    return f"ECE against severity, with local constraints and without. {_ends(numbers.points, _by_loss)}"


def _of_smoothing(numbers: Bins) -> str:
    sure = [(label_of(one.loss, "", one.label_smoothing), one.strength) for one in numbers.bins if one.low == 0.9]
    return f"Histograms of confidence, without and with label smoothing. Over 90 %: {extremes(sure)}."


OTHERS: dict[str, Callable[[Any], str]] = {
    "feature_norm": _of_norms,
    "risk_coverage": _of_risks,
    "calibrated": _of_calibrated,
    "local_constraints": _of_local_constraints,
    "label_smoothing": _of_smoothing,
}


def of_epochs(points: Sequence[EpochPoint], quantity: Quantity) -> str:
    shown = percent if quantity.in_percent else plain
    ends: dict[str, tuple[int, float]] = {}
    for point in points:
        ends[f"{point.kind.label} on {point.panel}"] = (point.epoch, point.mean.mean)  # the last stays
    found = [(name, value) for name, (_, value) in ends.items()]
    last = max(epoch for epoch, _ in ends.values())
    return f"{quantity.title} over {count(last, 'epoch')}. At the end {extremes(found, shown)}."


def of_moments(points: Sequence[MomentPoint]) -> str:
    ends = {(point.panel, point.kind.label, point.constraint): point for point in points}
    said = [
        f"{label}, {constraint}: {end.mean.mean:.4g}, targets {end.global_target:.4g} and {end.local_target:.4g}"
        for (_, label, constraint), end in ends.items()
    ]
    return f"Moments of the predictions beside their targets over epochs. At the end {'; '.join(said[:6])}."
