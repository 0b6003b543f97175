"""The charts of a monitor: lines over its windows, with bands and limits; each point has a text description."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import altair as alt

from calibrant.monitors.rows import parse_every
from calibrant.report.audit_charts import BLUE, CHART_HEIGHT, CHART_WIDTH, DESCRIPTION, ORANGE
from calibrant.report.charts import (
    colour,
    compose_figure,
    dash,
    describe_mark,
    inline_data,
    layer_charts,
    legend,
    shape,
)
from calibrant.report.numbers import join_words, level_text, percent, percent_limits, points, points_limits
from calibrant.report.page import SvgFigure
from calibrant.report.render import to_svg
from calibrant.report.style import (
    DASH_DOT,
    PERCENT_FORMAT,
    SHORT_DASH,
    SOLID,
    TEXT_COLOUR,
    Style,
    sequential_styles,
)

MEASURED = Style("measured", BLUE, SOLID, "circle")
ESTIMATED = Style("estimated without labels", ORANGE, SHORT_DASH, "square")
QUESTION_STYLES = {
    "miscalibrated": Style("miscalibrated", BLUE, SOLID, "circle"),
    "changed": Style("changed", "#000000", DASH_DOT, "diamond"),
    "shifted": Style("shifted", ORANGE, SHORT_DASH, "square"),
}
MAX_CLASSES = 6  # in the chart of predicted classes
MAX_NAME = 24  # characters of the name of a class in a legend
FEW_WINDOWS = 60  # have large points, and an error bar each
CLIP = 4  # times the alarm line: evidence above is drawn at the upper edge
Record: TypeAlias = Mapping[str, Any]  # of a monitor, or of a window


def accuracy_drawing(record: Record, windows: Sequence[Record]) -> SvgFigure | None:
    """Accuracy, measured and estimated; None where neither is known of any window."""
    reference = record["reference"]["accuracy"]
    limits = [] if reference is None else [{"value": reference, "description": f"reference: {percent(reference)}"}]
    note = "" if reference is None else " Dashed: the accuracy of the reference."
    return _quantity_drawing(record, windows, "accuracy", limits, note)


def gap_drawing(record: Record, windows: Sequence[Record]) -> SvgFigure | None:
    """Confidence − accuracy, measured and estimated; None where neither is known of any window."""
    limits = [{"value": 0.0, "description": "confidence = accuracy"}]
    return _quantity_drawing(record, windows, "gap", limits, " Above 0, the predictions are overconfident.")


def _quantity_drawing(
    record: Record, windows: Sequence[Record], name: str, limits: list[dict[str, Any]], note: str
) -> SvgFigure | None:
    title = {"accuracy": "Accuracy", "gap": "Confidence − accuracy"}[name]
    rows, levels = [], {}
    for at, window in enumerate(windows):
        estimate = window["estimate"] or {name: None, "level": 0.0, "unlike": False}
        for style, found in ((MEASURED, window[name]), (ESTIMATED, estimate[name])):
            if found is not None:
                text = _quantity_text(name, found, unlike=style is ESTIMATED and estimate["unlike"])
                rows.append(_row(record, windows, at, style.label, found["value"], text) | _ends(found))
                levels[style] = record["level"] if style is MEASURED else estimate["level"]
    if not rows:
        return None
    drawn = [style for style in (MEASURED, ESTIMATED) if style in levels]
    y = alt.Y("value:Q", title=title, axis=alt.Axis(format=PERCENT_FORMAT, tickCount=5), scale=alt.Scale(zero=False))
    bands = join_words(f"{level_text(levels[style])} ({style.label})" for style in drawn)
    caption = f"{title} of each window. Bands: intervals of each window alone, {bands}.{note}"
    return _drawing(record, rows, drawn, y, limits, title, caption)


def _quantity_text(name: str, found: Record, *, unlike: bool) -> str:
    ends = found["low"], found["high"]
    if name == "accuracy":
        text = f"{percent(found['value'])} ({percent_limits(ends)})"
    else:
        text = f"{points(found['value'], '+')} percentage points ({points_limits(ends, '+')})"
    return f"{text}, unlike everything the estimator was fitted to" if unlike else text


def evidence_drawing(record: Record, windows: Sequence[Record]) -> SvgFigure | None:
    """The log e-value of each question, and the limit of the alarm."""
    rows = []
    for at, window in enumerate(windows):
        for name, log_e in window["log_e"].items():
            rows.append(_row(record, windows, at, name, log_e, f"log e = {log_e:.1f}"))
    if not rows:
        return None
    limit = next(iter(record["questions"].values()))["limit"]
    clipped = max(row["value"] for row in rows) > CLIP * limit
    scale = alt.Scale(domainMax=CLIP * limit, nice=False, clamp=True) if clipped else alt.Scale()
    y = alt.Y("value:Q", title="Evidence (log e-value)", axis=alt.Axis(tickCount=6), scale=scale)
    limits = [{"value": limit, "description": f"alarm line: log e = {limit:.2f}"}]
    drawn = [style for name, style in QUESTION_STYLES.items() if any(row["line"] == name for row in rows)]
    caption = (
        "Evidence on each question after the rows of each window; late labels count when they come, in the window of "
        "their rows. Dashed: the alarm line, the logarithm of "
        f"{len(QUESTION_STYLES)}/α = {limit:.2f} for α = {record['alpha']:g}."
    )
    if clipped:
        caption += f" Evidence above {CLIP * limit:.1f} is drawn at the upper edge."
    return _drawing(record, rows, drawn, y, limits, "Evidence", caption)


def class_drawing(record: Record, windows: Sequence[Record]) -> SvgFigure | None:
    """The shares of predicted classes that differ most from the reference."""
    if not windows:
        return None
    reference = record["reference"]["class_mix"]
    moved = [
        sum(window["n_rows"] * abs(window["class_mix"][k] - share) for window in windows)
        for k, share in enumerate(reference)
    ]
    chosen = sorted(sorted(range(len(reference)), key=lambda k: -moved[k])[:MAX_CLASSES])
    labels = [_class_label(record, k) for k in chosen]
    rows, limits = [], []
    for k, label in zip(chosen, labels, strict=True):
        text = f"{percent(reference[k])} in the reference"
        limits.append({"line": label, "value": reference[k], "description": describe_mark(label, text)})
        for at, window in enumerate(windows):
            share = window["class_mix"][k]
            rows.append(_row(record, windows, at, label, share, f"{percent(share)} of predictions, {text}"))
    y = alt.Y("value:Q", title="Share of predictions", axis=alt.Axis(format=PERCENT_FORMAT, tickCount=5))
    which = "Shares of the predicted classes"
    if len(chosen) < len(reference):
        which = f"The {len(chosen)} of {len(reference):,} predicted classes whose shares differ most from the reference"
    caption = f"{which}. Dashed: the share in the reference."
    return _drawing(record, rows, sequential_styles(labels), y, limits, "Predicted classes", caption)


def _class_label(record: Record, k: int) -> str:
    """The name of a class, shortened where it is long."""
    if record["class_names"] is None:
        return f"class {k}"
    name: str = record["class_names"][k]
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}… ({k})"


def _row(record: Record, windows: Sequence[Record], at: int, line: str, value: float, text: str) -> dict[str, Any]:
    """A point of a line. x: milliseconds since 1970, or the number of the first row."""
    window = windows[at]
    every, by_time = parse_every(record["every"])
    if by_time:
        x = datetime.fromisoformat(window["window"]).replace(tzinfo=UTC).timestamp() * 1000
    else:
        x = (len(record["windows"]) - len(windows) + at) * every
    return {"line": line, "x": x, "value": value, "description": describe_mark(line, window["window"], text)}


def _ends(found: Record) -> dict[str, float]:
    return {"low": found["low"], "high": found["high"]}


def _drawing(
    record: Record,
    rows: Sequence[dict[str, Any]],
    styles: Sequence[Style],
    y: alt.Y,
    limits: Sequence[dict[str, Any]],
    title: str,
    caption: str,
) -> SvgFigure:
    """Lines over windows with bands, points and horizontal limits, above a legend."""
    by_time = parse_every(record["every"])[1]
    x = alt.X(
        "x:T" if by_time else "x:Q",
        title="Start of the window (UTC)" if by_time else "First row of the window",
        axis=alt.Axis(grid=False, tickCount=8, labelOverlap=True),
        scale=alt.Scale(type="utc" if by_time else "linear", nice=False, zero=False, padding=12),
    )
    base = alt.Chart(inline_data(rows)).encode(x=x, color=colour(styles))
    many = len({row["x"] for row in rows}) > FEW_WINDOWS
    own = "line" in limits[0] if limits else False
    rules = alt.Chart(inline_data(limits)).mark_rule(strokeDash=[4, 3], strokeWidth=1, clip=True, opacity=0.6)
    tint = colour(styles) if own else alt.value(TEXT_COLOUR)
    layers = [rules.encode(y=y, color=tint, **DESCRIPTION)] if limits else []
    if "low" in rows[0]:
        low, high = alt.Y("low:Q", title=y["title"]), alt.Y2("high:Q")
        layers.append(base.mark_area(opacity=0.15).encode(y=low, y2=high))
        if not many:
            layers.append(base.mark_rule(opacity=0.5).encode(y=low, y2=high))  # an area of one window has no width
    layers.append(base.mark_line(strokeWidth=0.8 if many else 1.5).encode(y=y, strokeDash=dash(styles)))
    symbols = base.mark_point(filled=True, size=5 if many else 26, opacity=1)
    layers.append(symbols.encode(y=y, shape=shape(styles), **DESCRIPTION))
    panel = layer_charts(*layers).properties(width=CHART_WIDTH, height=CHART_HEIGHT)
    chart = compose_figure(panel, legend(tuple(styles), CHART_WIDTH))
    last = "; ".join({row["line"]: row["description"] for row in rows}.values())
    return SvgFigure(to_svg(chart), f"{title} over the windows. The newest: {last}.", caption)
