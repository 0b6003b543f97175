"""How figures look: sizes, fonts and axes, panels side by side, and the key that names the lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from calibrant.errors import printable
from calibrant.report.palette import DASHES, SHAPES, Dash, colour_of, dash_of, label_of, place_of, shape_of
from calibrant.report.tables import mean_text

COLUMN, PAGE = 320, 670  # pixels: 8.5 cm, the width of a column of text, and 17.7 cm, that of two
AXIS, GAP = 46, 14  # pixels that an axis with its title takes, and between panels
LETTERS = 10  # pixels: 7.5 points
ROW = 15  # pixels of a line of the key
INK, FAINT = "#222222", "#DDDDDD"
FONT = "Helvetica, Arial, Liberation Sans, sans-serif"
PERCENT = "~%"

RAMP = ((13, 8, 135), (126, 3, 168), (204, 71, 120), (248, 149, 64))  # colours of no loss, each lighter than the last

CONFIG: dict[str, Any] = {
    "background": "white",
    "font": FONT,
    "padding": 4,
    "view": {"stroke": "#888888", "strokeWidth": 0.5},
    "axis": {
        "labelFontSize": LETTERS,
        "titleFontSize": LETTERS + 1,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": "#EBEBEB",
        "gridWidth": 0.6,
        "domainColor": "#888888",
        "tickColor": "#888888",
        "tickSize": 3,
        "titlePadding": 4,
        "labelPadding": 2,
    },
    "title": {
        "fontSize": LETTERS + 1,
        "fontWeight": "bold",
        "color": INK,
        "offset": 5,
        "anchor": "middle",
    },
}


@dataclass(frozen=True)
class Joined:
    """Charts beside or below each other. We join specifications, for altair copies all that it joins at every step."""

    spec: dict[str, Any]  # of Vega-Lite, its data by name
    datasets: dict[str, Any]

    def to_dict(self, validate: bool = True) -> dict[str, Any]:
        """The whole specification, as altair's charts give theirs. Raises: altair's SchemaValidationError."""
        spec = {"$schema": alt.SCHEMA_URL, **self.spec, "datasets": self.datasets}
        if validate:
            alt.Chart.from_dict(spec)
        return spec


Chart = alt.Chart | alt.LayerChart | alt.FacetChart | Joined


def beside(*charts: Chart, **about: Any) -> Joined:
    """Charts in a row. about: spacing, title and the like, as Vega-Lite has them."""
    return _joined("hconcat", charts, about)


def below(*charts: Chart, **about: Any) -> Joined:
    """Charts in a column."""
    return _joined("vconcat", charts, about)


def _joined(how: str, charts: Sequence[Chart], about: dict[str, Any]) -> Joined:
    parts = [chart if isinstance(chart, Joined) else specified(chart) for chart in charts]
    datasets = {name: rows for part in parts for name, rows in part.datasets.items()}
    return Joined({how: [part.spec for part in parts], **about}, datasets)


def specified(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> Joined:
    """A chart of altair's as a specification, which belongs into a whole."""
    spec = chart.to_dict(validate=False)
    own = {key: value for key, value in spec.items() if key not in ("$schema", "config", "datasets")}
    return Joined(own, {name: list(rows) for name, rows in spec.get("datasets", {}).items()})


@dataclass(frozen=True, slots=True)
class Line:
    """How one line of a figure looks, and what the key calls it."""

    label: str
    colour: str
    dash: Dash
    shape: str


def line_of(loss: str, variant: str = "") -> Line:
    return Line(label_of(loss, variant), colour_of(loss), dash_of(loss, variant), shape_of(loss))


def ramp(labels: Sequence[str]) -> list[Line]:
    """Lines that are no losses, from dark to light in the order of their labels."""
    last = max(1, len(labels) - 1)
    return [
        Line(label, _between(at / last), DASHES[at % len(DASHES)], SHAPES[at % len(SHAPES)])
        for at, label in enumerate(labels)
    ]


def _between(share: float) -> str:
    """A colour on the ramp, 0 its dark end and 1 its light one."""
    place = share * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    mixed = (round(a + (place - low) * (b - a)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def losses_of(points: Iterable[Any]) -> list[str]:
    """The losses of points, each once, in the order of tables and keys."""
    found = {point.loss for point in points}
    return sorted(found, key=place_of)


def values(rows: Sequence[dict[str, Any]]) -> alt.InlineData:
    """The rows as data that altair neither looks through nor copies, as it would a list, for each chart around them."""
    with debug_mode(False):
        return alt.InlineData(values=tuple(rows))


def said(sentence: str = "said") -> alt.Description:
    """What a mark says where it is pointed at or read aloud: the text in this field."""
    return alt.Description(f"{sentence}:N")


def sentence(label: str, *parts: str) -> str:
    """What a mark of a line says; by its beginning a page knows the line that it belongs to.

    >>> sentence("CE", "severity 3", "ECE 5.10 %")
    'CE: severity 3, ECE 5.10 %'
    """
    return printable(f"{label}: {', '.join(parts)}")


def percent(share: float) -> str:
    """A share as people read it, in the digits of the tables.

    >>> percent(0.0512), percent(0.9)
    ('5.12 %', '90.0 %')
    """
    return f"{mean_text(100 * share, in_percent=True)} %"


def colour(lines: Sequence[Line]) -> alt.Color:
    """The field ``line``, a label, in the colours of the lines; ``dash`` and ``shape`` are alike."""
    return alt.Color("line:N", scale=_scale(lines, [line.colour for line in lines]), legend=None)


def dash(lines: Sequence[Line]) -> alt.StrokeDash:
    return alt.StrokeDash("line:N", scale=_scale(lines, [list(line.dash) for line in lines]), legend=None)


def shape(lines: Sequence[Line]) -> alt.Shape:
    return alt.Shape("line:N", scale=_scale(lines, [line.shape for line in lines]), legend=None)


def _scale(lines: Sequence[Line], looks: list[Any]) -> alt.Scale:
    return alt.Scale(domain=[line.label for line in lines], range=looks)


def layered(*layers: alt.Chart, rows: Sequence[dict[str, Any]] | None = None) -> alt.LayerChart:
    """Layers over each other, of the same rows where these are given."""
    return alt.LayerChart(layer=list(layers), data=alt.Undefined if rows is None else values(rows))


def key(lines: Sequence[Line], width: int, *, points: bool = True, columns: int | None = None) -> Chart:
    """A sample of each line, with its point, and its label, in rows: below the panels, where it covers nothing."""
    return _key(tuple(lines), width, points, columns)


@lru_cache(maxsize=32)  # the pictures behind a switch have one key
def _key(lines: tuple[Line, ...], width: int, points: bool, columns: int | None) -> Joined:
    room = 35 + round(5.6 * max(len(line.label) for line in lines))
    columns = columns or max(1, min(len(lines), width // room))
    columns = -(-len(lines) // -(-len(lines) // columns))  # as few as the rows need
    step = min(room, width / columns)
    n_rows = -(-len(lines) // columns)
    places = [(step * (at % columns), at // columns) for at in range(len(lines))]
    rows = [
        {"line": line.label, "x": x, "x_middle": x + 13, "x_end": x + 26, "x_text": x + 31, "y": y}
        for line, (x, y) in zip(lines, places, strict=True)
    ]
    across = alt.Scale(domain=[0, width], nice=False, zero=False)
    down = alt.Y("y:Q", scale=alt.Scale(domain=[n_rows - 0.5, -0.5], nice=False, zero=False), axis=None)
    base = alt.Chart().encode(y=down, color=colour(lines), description=said("line"))
    rules = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("x:Q", scale=across, axis=None), x2=alt.X2("x_end:Q"), strokeDash=dash(lines)
    )
    symbols = base.mark_point(filled=True, size=34, opacity=1).encode(
        x=alt.X("x_middle:Q", scale=across, axis=None), shape=shape(lines)
    )
    text = base.mark_text(align="left", baseline="middle", fontSize=LETTERS).encode(
        x=alt.X("x_text:Q", scale=across, axis=None), text=alt.Text("line:N"), color=alt.value(INK)
    )
    layers = (rules, symbols, text) if points else (rules, text)
    whole = layered(*layers, rows=rows)
    return specified(whole.properties(view=alt.ViewConfig(stroke=None), width=width, height=n_rows * ROW))


def side_by_side(panels: Sequence[Chart], columns: int) -> Chart:
    """Panels in rows of so many."""
    rest = iter(panels)
    rows: list[Chart] = []
    while row := list(islice(rest, columns)):
        rows.append(beside(*row, spacing=GAP))
    return below(*rows, spacing=GAP)


def panel_width(columns: int, width: int, axes: int = 1) -> int:
    """Pixels of a panel where so many stand in a row, so many of them with an axis."""
    return int((width - axes * AXIS - (columns - 1) * GAP) / columns)


def grid_of(n_panels: int) -> tuple[int, int, int]:
    """Columns, and pixels of a panel and of all panels: one panel is as wide as a column of text, two stand beside."""
    columns, width = (1, COLUMN) if n_panels == 1 else (2, PAGE)
    return columns, panel_width(columns, width, axes=columns), width - AXIS


def column_title(text: str) -> alt.TitleParams:
    """The title of one of many columns, which are narrow."""
    return alt.TitleParams(text, fontSize=LETTERS, fontWeight="normal", offset=3)


def confidence_axis(field: str, *, labels: bool) -> alt.X:
    axis = alt.Axis(
        format=PERCENT,
        values=[0, 0.5, 1],
        labels=labels,
        ticks=labels,
        grid=False,
        labelFlush=True,
        titleFontSize=LETTERS,
    )
    return alt.X(f"{field}:Q", title="Confidence" if labels else None, axis=axis, scale=alt.Scale(domain=[0, 1]))


def finished(*parts: Chart, note: str = "") -> Joined:
    """The parts, one below the other, as a whole figure on white; a note stands above them."""
    title = {"text": note.split("; "), "fontSize": LETTERS, "fontWeight": "normal", "anchor": "start"}
    return below(*parts, spacing=8, center=False, **({"title": title} if note else {}), config=CONFIG)
