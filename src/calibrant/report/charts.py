"""What charts are made of: lines in the looks of losses, keys that name them, panels side by side."""

from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from calibrant.errors import MissingExtraError, NoDataError, printable
from calibrant.report.scores import ChartRecord, panel_names
from calibrant.report.style import AXIS, COLUMN, CONFIG, FONT_SIZE, GAP, INK, PAGE, PERCENT, ROW, Style

try:
    import altair as alt
    from altair.utils.schemapi import debug_mode
except ImportError:
    raise MissingExtraError("drawing", "report") from None


@dataclass(frozen=True)
class ChartSpec:
    """Charts beside or below each other. We join specifications, for altair copies all that it joins at every step."""

    spec: dict[str, Any]  # of Vega-Lite, its data by name
    datasets: dict[str, Any]

    def to_dict(self, validate: bool = True) -> dict[str, Any]:
        """The whole specification, as altair's charts give theirs. Raises: altair's SchemaValidationError."""
        spec = {"$schema": alt.SCHEMA_URL, **self.spec, "datasets": self.datasets}
        if validate:
            alt.Chart.from_dict(spec)
        return spec


Chart = alt.Chart | alt.LayerChart | alt.FacetChart | ChartSpec


def hconcat(*charts: Chart, **about: Any) -> ChartSpec:
    """Charts in a row. about: spacing, title and the like, as Vega-Lite has them."""
    return _concat("hconcat", charts, about)


def vconcat(*charts: Chart, **about: Any) -> ChartSpec:
    """Charts in a column."""
    return _concat("vconcat", charts, about)


def _concat(how: str, charts: Sequence[Chart], about: dict[str, Any]) -> ChartSpec:
    parts = [chart if isinstance(chart, ChartSpec) else to_spec(chart) for chart in charts]
    datasets = {name: rows for part in parts for name, rows in part.datasets.items()}
    return ChartSpec({how: [part.spec for part in parts], **about}, datasets)


def to_spec(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> ChartSpec:
    """A chart of altair's as a specification, which belongs into a whole."""
    spec = chart.to_dict(validate=False)
    own = {key: value for key, value in spec.items() if key not in ("$schema", "config", "datasets")}
    return ChartSpec(own, {name: list(rows) for name, rows in spec.get("datasets", {}).items()})


def inline_data(rows: Sequence[dict[str, Any]]) -> alt.InlineData:
    """The rows as data that altair neither looks through nor copies, as it would a list, for each chart around them."""
    with skip_validation():
        return alt.InlineData(values=tuple(rows))


def skip_validation() -> AbstractContextManager[None]:
    """While this is entered, altair does not check each part of a chart, which takes as long as all else: tests do."""
    return debug_mode(False)


def describe_mark(label: str, *parts: str) -> str:
    """What a mark of a line says; by its beginning a page knows the line that it belongs to.

    >>> describe_mark("CE", "severity 3", "ECE 5.10 %")
    'CE: severity 3, ECE 5.10 %'
    """
    return printable(f"{label}: {', '.join(parts)}")


def seeds_text(count: int) -> str:
    return f"mean of {count} seeds" if count > 1 else "one seed"


def require_data(found: Sized, figure: str, what: str, remedy: str) -> None:
    """Raises: NoDataError where there is nothing to draw."""
    if not len(found):
        raise NoDataError(f"the figure {figure} needs {what}, and the experiment has none: {remedy}")


def colour(lines: Sequence[Style]) -> alt.Color:
    """The field ``line``, a label, in the colours of the lines; ``dash`` and ``shape`` are alike."""
    return alt.Color("line:N", scale=_scale(lines, [line.colour for line in lines]), legend=None)


def dash(lines: Sequence[Style]) -> alt.StrokeDash:
    return alt.StrokeDash("line:N", scale=_scale(lines, [list(line.dash) for line in lines]), legend=None)


def shape(lines: Sequence[Style]) -> alt.Shape:
    return alt.Shape("line:N", scale=_scale(lines, [line.shape for line in lines]), legend=None)


def _scale(lines: Sequence[Style], looks: list[Any]) -> alt.Scale:
    return alt.Scale(domain=[line.label for line in lines], range=looks)


def layer_charts(*layers: alt.Chart, rows: Sequence[dict[str, Any]] | None = None) -> alt.LayerChart:
    """Layers over each other, of the same rows where these are given."""
    return alt.LayerChart(layer=list(layers), data=alt.Undefined if rows is None else inline_data(rows))


def legend(lines: Sequence[Style], width: int, *, points: bool = True, columns: int | None = None) -> Chart:
    """A sample of each line, with its point, and its label, in rows: below the panels, where it covers nothing."""
    return _legend(tuple(lines), width, points, columns)


@lru_cache(maxsize=32)  # the charts behind a switch have one key
def _legend(lines: tuple[Style, ...], width: int, points: bool, columns: int | None) -> ChartSpec:
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
    base = alt.Chart().encode(y=down, color=colour(lines), description="line:N")
    rules = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("x:Q", scale=across, axis=None), x2=alt.X2("x_end:Q"), strokeDash=dash(lines)
    )
    symbols = base.mark_point(filled=True, size=34, opacity=1).encode(
        x=alt.X("x_middle:Q", scale=across, axis=None), shape=shape(lines)
    )
    text = base.mark_text(align="left", baseline="middle", fontSize=FONT_SIZE).encode(
        x=alt.X("x_text:Q", scale=across, axis=None), text=alt.Text("line:N"), color=alt.value(INK)
    )
    layers = (rules, symbols, text) if points else (rules, text)
    whole = layer_charts(*layers, rows=rows)
    return to_spec(whole.properties(view=alt.ViewConfig(stroke=None), width=width, height=n_rows * ROW))


def panel_grid(panels: Sequence[Chart], columns: int) -> Chart:
    """Panels in rows of so many."""
    rest = iter(panels)
    rows: list[Chart] = []
    while row := list(islice(rest, columns)):
        rows.append(hconcat(*row, spacing=GAP))
    return vconcat(*rows, spacing=GAP)


def panel_width(columns: int, width: int, axes: int = 1) -> int:
    """Pixels of a panel where so many stand in a row, so many of them with an axis."""
    return int((width - axes * AXIS - (columns - 1) * GAP) / columns)


def panel_figure(
    records: Sequence[ChartRecord],
    lines: Sequence[Style],
    panel: Callable[[list[ChartRecord], str, int], Chart],
    *,
    single: int = COLUMN,
    **legend_options: Any,
) -> ChartSpec:
    """A panel per data set over the key of the lines; two stand beside each other.

    Args:
        panel: The chart of its records, with this title and of this width.
        single: Pixels of a panel that is alone, with its axis.
        legend_options: Options of the key.
    """
    names = panel_names(records)
    columns, room = (1, single) if len(names) == 1 else (2, PAGE)
    width = panel_width(columns, room, axes=columns)
    charts = [panel([record for record in records if record["panel"] == name], name, width) for name in names]
    return compose_figure(panel_grid(charts, columns), legend(lines, room - AXIS, **legend_options))


def column_title(text: str) -> alt.TitleParams:
    """The title of one of many columns, which are narrow."""
    return alt.TitleParams(text, fontSize=FONT_SIZE, fontWeight="normal", offset=3)


def confidence_axis(field: str, *, labels: bool) -> alt.X:
    axis = alt.Axis(
        format=PERCENT,
        values=[0, 0.5, 1],
        labels=labels,
        ticks=labels,
        grid=False,
        labelFlush=True,
        titleFontSize=FONT_SIZE,
    )
    return alt.X(f"{field}:Q", title="Confidence" if labels else None, axis=axis, scale=alt.Scale(domain=[0, 1]))


def compose_figure(*parts: Chart) -> ChartSpec:
    """The parts, one below the other, as a whole figure on white."""
    return vconcat(*parts, spacing=8, center=False, config=CONFIG)


def with_notes(chart: ChartSpec, notes: Sequence[str]) -> ChartSpec:
    """The figure under lines that its reader must know."""
    title = {"text": list(notes), "fontSize": FONT_SIZE, "fontWeight": "normal", "anchor": "start"}
    return replace(chart, spec={**chart.spec, "title": title}) if notes else chart
