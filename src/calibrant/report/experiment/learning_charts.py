"""Charts over epochs: a line per loss with its band over seeds, and the moments beside their targets."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from calibrant.errors import printable
from calibrant.report.experiment.learning import EpochPoint, MomentPoint, Quantity
from calibrant.report.experiment.progress import RunKind
from calibrant.report.figures.averages import Mean
from calibrant.report.figures.look import (
    AXIS,
    GAP,
    INK,
    LETTERS,
    PAGE,
    PERCENT,
    Chart,
    Line,
    colour,
    dash,
    finished,
    key,
    layered,
    panel_width,
    percent,
    said,
    sentence,
    shape,
    side_by_side,
    values,
)
from calibrant.report.figures.severity_lines import seeds
from calibrant.report.palette import colour_of, dash_of, shape_of

HEIGHT, LOW = 200, 110  # pixels of a panel, and of one of many
BESIDE = 3  # panels of moments in a row
MOST_POINTS = 20  # of a line: so many epochs can be pointed at
MOST_PANELS = 12  # of moments


def draw_epochs(points: Sequence[EpochPoint], quantity: Quantity) -> Chart:
    """One quantity against epochs, a panel per data set."""
    lines = _lines(points)
    panels = list(dict.fromkeys(point.panel for point in points))
    columns = min(2, len(panels))
    width = panel_width(columns, PAGE, axes=columns)
    charts = [
        _epoch_panel([point for point in points if point.panel == panel], lines, quantity).properties(
            width=width, height=HEIGHT, title=panel
        )
        for panel in panels
    ]
    return finished(side_by_side(charts, columns), key(lines, PAGE - AXIS))


def _lines(points: Sequence[EpochPoint] | Sequence[MomentPoint]) -> list[Line]:
    """The looks of losses; variants of them are dotted."""
    kinds = {label(kind): kind for kind in sorted({p.kind for p in points}, key=lambda kind: kind.place[2:])}
    return [
        Line(name, colour_of(kind.loss), dash_of(kind.loss, kind.variant), shape_of(kind.loss))
        for name, kind in kinds.items()
    ]


def label(kind: RunKind) -> str:
    return printable(kind.label)


def _epoch_panel(points: Sequence[EpochPoint], lines: Sequence[Line], quantity: Quantity) -> alt.LayerChart:
    marked = _marked({point.epoch for point in points})
    axis = alt.Axis(format=PERCENT if quantity.in_percent else "~r", tickCount=5)
    up = alt.Y("mean:Q", title=quantity.title, axis=axis, scale=alt.Scale(zero=False))
    base = alt.Chart().encode(x=_epochs(), color=colour(lines), description=said("line"))
    return layered(
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=quantity.title), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1.5).encode(y=up, strokeDash=dash(lines)),
        _points(base).encode(y=up, shape=shape(lines)),
        rows=[_words(point, quantity, marked) for point in points],
    )


def _points(base: alt.Chart) -> alt.Chart:
    """Of the epochs that are marked."""
    points = base.mark_point(filled=True, size=18, opacity=1).transform_filter("datum.marked")
    chart: alt.Chart = points.encode(description=said())
    return chart


def _epochs() -> alt.X:
    axis = alt.Axis(tickMinStep=1, tickCount=6, format="d", grid=False)
    return alt.X("epoch:Q", title="Epoch", axis=axis, scale=alt.Scale(nice=False, zero=False, padding=6))


def _marked(epochs: set[int]) -> set[int]:
    """Epochs that are marked by a point: the last, and others at equal distances before it."""
    order = sorted(epochs, reverse=True)
    return set(order[:: -(-len(order) // MOST_POINTS)])


def _words(point: EpochPoint, quantity: Quantity, marked: set[int]) -> dict[str, Any]:
    value = percent(point.mean.mean) if quantity.in_percent else f"{point.mean.mean:.4g}"
    what = f"{quantity.title.lower().replace('ece', 'ECE')} {value}"
    line = label(point.kind)
    about = sentence(line, f"epoch {point.epoch}", what, seeds(point.mean.n_seeds))
    return {"line": line, **_row(point.epoch, point.mean, about, marked)}


def _row(epoch: int, mean: Mean, about: str, marked: set[int]) -> dict[str, Any]:
    """Only a point that is marked says something: the sentences are most of the bytes."""
    limits = {"mean": mean.mean, "low": mean.low, "high": mean.high}
    return {"epoch": epoch, **limits, **({"marked": True, "said": about} if epoch in marked else {})}


def draw_moments(points: Sequence[MomentPoint]) -> Chart:
    """A panel per loss and constraint: the moment in the loss's colour, the global target dashed, the local dotted."""
    lines = _lines(points)
    places = list(dict.fromkeys((point.panel, point.kind, point.constraint) for point in points))[:MOST_PANELS]
    marked = _marked({point.epoch for point in points})
    rows = [_moment_words(p, marked) for p in points if (p.panel, p.kind, p.constraint) in places]
    if len({panel for panel, _, _ in places}) == 1:
        rows = [{**row, "panel": row["panel"].removeprefix(f"{places[0][0]}, ")} for row in rows]
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    columns = 2 if len(panels) in (2, 4) else min(BESIDE, len(panels))
    width = panel_width(columns, PAGE, axes=columns)
    header = alt.Header(labelFontSize=LETTERS, labelColor=INK, labelFontWeight="bold")
    apart = alt.Facet("panel:N", sort=panels, title=None, header=header)
    charts = _moment_panel(lines).properties(width=width, height=LOW)
    facets = charts.facet(facet=apart, columns=columns, data=values(rows), spacing=GAP)
    return finished(facets.resolve_scale(y="independent").resolve_axis(x="independent"))


def _moment_panel(lines: Sequence[Line]) -> alt.LayerChart:
    scale = alt.Scale(zero=False)
    base = alt.Chart().encode(x=_epochs(), color=colour(lines), description=said("line"))
    up = alt.Y("mean:Q", title="Moment", axis=alt.Axis(tickCount=4, format="~r"), scale=scale)
    targets = [
        base.mark_line(strokeWidth=1, strokeDash=list(dashes)).encode(
            y=alt.Y(f"{target}:Q", title="Moment", scale=scale), color=alt.value(INK), detail=alt.Detail("line:N")
        )
        for target, dashes in (("global", (5, 3)), ("local", (1.5, 2.5)))
    ]
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="Moment", scale=scale), y2=alt.Y2("high:Q"))
    return layered(band, base.mark_line(strokeWidth=1.5).encode(y=up), *targets, _points(base).encode(y=up))


def _moment_words(point: MomentPoint, marked: set[int]) -> dict[str, Any]:
    line = label(point.kind)
    targets = f"targets {point.global_target:.4g} (global) and {point.local_target:.4g} (local)"
    about = sentence(line, f"epoch {point.epoch}", f"{point.constraint} {point.mean.mean:.4g}", targets)
    where = {"line": line, "panel": f"{point.panel}, {line}: {point.constraint}", "global": point.global_target}
    return {**where, "local": point.local_target, **_row(point.epoch, point.mean, about, marked)}
