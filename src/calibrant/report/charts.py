"""Parts of charts: encodings of line styles, legends, grids of panels, and concatenation."""

from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from calibrant.errors import MissingExtraError, NoDataError
from calibrant.report.scores import ChartRecord, by_panel
from calibrant.report.style import (
    AXIS_WIDTH,
    COLUMN_WIDTH,
    CONFIG,
    FONT_SIZE,
    LEGEND_ROW_HEIGHT,
    PAGE_WIDTH,
    PANEL_GAP,
    PERCENT_FORMAT,
    TEXT_COLOUR,
    Style,
)

try:
    import altair as alt
    from altair.utils.schemapi import debug_mode
except ImportError:
    raise MissingExtraError("drawing", "report") from None


@dataclass(frozen=True)
class ChartSpec:
    """A Vega-Lite specification with its data sets by name.

    Charts are concatenated as specifications, because `alt.hconcat` and `alt.vconcat` deep-copy every chart.
    """

    spec: dict[str, Any]
    datasets: dict[str, Any]

    def to_dict(self, validate: bool = True) -> dict[str, Any]:
        """The complete specification, as `alt.Chart.to_dict` returns it. Raises: altair's SchemaValidationError."""
        spec = {"$schema": alt.SCHEMA_URL, **self.spec, "datasets": self.datasets}
        if validate:
            alt.Chart.from_dict(spec)
        return spec


Chart = alt.Chart | alt.LayerChart | alt.FacetChart | ChartSpec


def hconcat(*charts: Chart, **properties: Any) -> ChartSpec:
    """Charts in a row. properties: of the concatenation, such as spacing and title."""
    return _concat("hconcat", charts, properties)


def vconcat(*charts: Chart, **properties: Any) -> ChartSpec:
    """Charts in a column."""
    return _concat("vconcat", charts, properties)


def _concat(operator: str, charts: Sequence[Chart], properties: dict[str, Any]) -> ChartSpec:
    parts = [chart if isinstance(chart, ChartSpec) else to_spec(chart) for chart in charts]
    datasets = {name: rows for part in parts for name, rows in part.datasets.items()}
    return ChartSpec({operator: [part.spec for part in parts], **properties}, datasets)


def to_spec(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> ChartSpec:
    """The specification of an altair chart without the keys that belong to the top level."""
    spec = chart.to_dict(validate=False)
    own = {key: value for key, value in spec.items() if key not in ("$schema", "config", "datasets")}
    return ChartSpec(own, {name: list(rows) for name, rows in spec.get("datasets", {}).items()})


def inline_data(rows: Sequence[dict[str, Any]]) -> alt.InlineData:
    """The rows as a tuple, which altair neither validates nor copies."""
    with skip_validation():
        return alt.InlineData(values=tuple(rows))


def skip_validation() -> AbstractContextManager[None]:
    """A context without altair's validation of every part, which doubles the time; the tests validate whole charts."""
    return debug_mode(False)


def describe_mark(label: str, *parts: str) -> str:
    """The tooltip and ARIA label of a mark. A page finds the marks of a line by the label at the beginning.

    >>> describe_mark("CE", "severity 3", "ECE 5.10 %")
    'CE: severity 3, ECE 5.10 %'
    """
    return f"{label}: {', '.join(parts)}"


def seeds_text(count: int) -> str:
    return f"mean of {count} seeds" if count > 1 else "one seed"


def require_data(found: Sized, figure: str, what: str, hint: str) -> None:
    """Raises: NoDataError where there is nothing to draw; hint: how to get it, an imperative sentence."""
    if not len(found):
        raise NoDataError(f"cannot draw {figure}: the experiment has no {what}. {hint}.")


def colour(lines: Sequence[Style]) -> alt.Color:
    """Encodes the field `line`, a label, as the colour of its line; `dash` and `shape` are alike."""
    return alt.Color("line:N", scale=_scale(lines, [line.colour for line in lines]), legend=None)


def dash(lines: Sequence[Style]) -> alt.StrokeDash:
    return alt.StrokeDash("line:N", scale=_scale(lines, [list(line.dash) for line in lines]), legend=None)


def shape(lines: Sequence[Style]) -> alt.Shape:
    return alt.Shape("line:N", scale=_scale(lines, [line.shape for line in lines]), legend=None)


def _scale(lines: Sequence[Style], output: list[Any]) -> alt.Scale:
    return alt.Scale(domain=[line.label for line in lines], range=output)


def layer_charts(*layers: alt.Chart, rows: Sequence[dict[str, Any]] | None = None) -> alt.LayerChart:
    """Charts on top of each other. rows: their common data."""
    return alt.LayerChart(layer=list(layers), data=alt.Undefined if rows is None else inline_data(rows))


@lru_cache(maxsize=32)  # the charts of a drop-down list have the same legend
def legend(lines: tuple[Style, ...], width: int, *, points: bool = True, columns: int | None = None) -> ChartSpec:
    """A legend in rows: a piece of each line, its point unless points is false, and its label."""
    entry = 35 + round(5.6 * max(len(line.label) for line in lines))
    columns = columns or max(1, min(len(lines), width // entry))
    n_rows = -(-len(lines) // columns)
    columns = -(-len(lines) // n_rows)  # rows of equal length
    step = min(entry, width / columns)
    rows = [
        {"line": line.label, "x": x, "x_middle": x + 13, "x_end": x + 26, "x_text": x + 31, "y": at // columns}
        for at, line in enumerate(lines)
        for x in [step * (at % columns)]
    ]
    x_scale = alt.Scale(domain=[0, width], nice=False, zero=False)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[n_rows - 0.5, -0.5], nice=False, zero=False), axis=None)
    base = alt.Chart().encode(y=y, color=colour(lines), description=alt.Description("line:N"))
    rules = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("x:Q", scale=x_scale, axis=None), x2=alt.X2("x_end:Q"), strokeDash=dash(lines)
    )
    symbols = base.mark_point(filled=True, size=34, opacity=1).encode(
        x=alt.X("x_middle:Q", scale=x_scale, axis=None), shape=shape(lines)
    )
    text = base.mark_text(align="left", baseline="middle", fontSize=FONT_SIZE).encode(
        x=alt.X("x_text:Q", scale=x_scale, axis=None), text=alt.Text("line:N"), color=alt.value(TEXT_COLOUR)
    )
    chart = layer_charts(*((rules, symbols, text) if points else (rules, text)), rows=rows)
    return to_spec(chart.properties(view=alt.ViewConfig(stroke=None), width=width, height=n_rows * LEGEND_ROW_HEIGHT))


def panel_grid(panels: Sequence[Chart], columns: int) -> ChartSpec:
    """Panels in rows of this many columns."""
    rows = [hconcat(*panels[at : at + columns], spacing=PANEL_GAP) for at in range(0, len(panels), columns)]
    return vconcat(*rows, spacing=PANEL_GAP)


def panel_width(columns: int, width: int, axes: int = 1) -> int:
    """Pixels of a panel where this many columns fill the width; axes: how many of them have a y axis."""
    return int((width - axes * AXIS_WIDTH - (columns - 1) * PANEL_GAP) / columns)


def panel_figure(
    records: Sequence[ChartRecord],
    lines: Sequence[Style],
    panel: Callable[[list[ChartRecord], str, int], Chart],
    *,
    single_width: int = COLUMN_WIDTH,
    **legend_options: Any,
) -> ChartSpec:
    """A panel per data set, two in a row, above a legend; panel(records, title, width) draws one.

    A figure of one panel has the single_width, in pixels.
    """
    groups = by_panel(records)
    columns, total = (1, single_width) if len(groups) == 1 else (2, PAGE_WIDTH)
    width = panel_width(columns, total, axes=columns)
    charts = [panel(own, title, width) for title, own in groups.items()]
    return compose_figure(panel_grid(charts, columns), legend(tuple(lines), total - AXIS_WIDTH, **legend_options))


def confidence_axis(field: str, *, labels: bool) -> alt.X:
    axis = alt.Axis(
        format=PERCENT_FORMAT,
        values=[0, 0.5, 1],
        labels=labels,
        ticks=labels,
        grid=False,
        labelFlush=True,
        titleFontSize=FONT_SIZE,
    )
    return alt.X(f"{field}:Q", title="Confidence" if labels else None, axis=axis, scale=alt.Scale(domain=[0, 1]))


def compose_figure(*parts: Chart) -> ChartSpec:
    """A complete figure on white: the parts in a column."""
    return vconcat(*parts, spacing=8, center=False, config=CONFIG)


def with_notes(chart: ChartSpec, notes: Sequence[str]) -> ChartSpec:
    """The figure with notes above it, one per line."""
    title = {"text": list(notes), "fontSize": FONT_SIZE, "fontWeight": "normal", "anchor": "start"}
    return replace(chart, spec={**chart.spec, "title": title}) if notes else chart
