"""The charts of an audit; each mark has a text description."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from calibrant.audits import DecisionFindings
from calibrant.audits.curves import HIGH_CONFIDENCE, MIN_CURVE_ROWS
from calibrant.report.charts import compose_figure, inline_data, layer_charts
from calibrant.report.numbers import count, level_text, percent, percent_limits
from calibrant.report.page import SvgFigure
from calibrant.report.render import to_svg
from calibrant.report.style import PERCENT_FORMAT, TEXT_COLOUR

DIAGRAM_SIZE, CHART_WIDTH, CHART_HEIGHT, SHARE_HEIGHT = 380, 560, 220, 80  # pixels
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#888888"
PERCENT_TICKS = [at / 10 for at in range(0, 11, 2)]
DESCRIPTION = {"description": alt.Description("description:N")}


def reliability_drawing(bins: Sequence[dict[str, Any]], level: float, *, effective: bool) -> SvgFigure:
    rows = []
    for row in bins:
        (low, high), (band_low, band_high) = row["interval"], row["band"]
        limits = {"interval_low": low, "interval_high": high, "band_low": band_low, "band_high": band_high}
        rows.append({**row, **limits, "description": bin_text(row)})
    data = alt.Chart(inline_data(rows))
    share = alt.Y(
        "share:Q", title="Share", axis=alt.Axis(format=PERCENT_FORMAT, tickCount=3), scale=alt.Scale(zero=True)
    )
    shares = _bars(data, GREY, share, "Confidence").properties(width=DIAGRAM_SIZE, height=SHARE_HEIGHT)
    chart = compose_figure(_diagram(data).properties(width=DIAGRAM_SIZE, height=DIAGRAM_SIZE), shares)
    furthest = max(bins, key=lambda row: row["share"] * abs(row["confidence"] - row["accuracy"]))
    alt_text = (
        f"Reliability diagram: accuracy against confidence in {count(len(bins), 'non-empty bin')}. The bin that adds "
        f"most to the ECE: {bin_text(furthest)}."
    )
    counts = ", effective counts" if effective else ""
    caption = (
        f"Points: accuracy and mean confidence of each bin. Error bars: {level_text(level)} CI of the accuracy "
        f"(Clopper-Pearson{counts}). Grey: consistency band, where the accuracy of a perfectly calibrated model would "
        f"fall with {level_text(level)} probability, per bin (binomial{counts}). The dashed "
        "line is perfect calibration; points below it are overconfident. Lower chart: share of rows in each bin."
    )
    return SvgFigure(to_svg(chart), alt_text, caption)


def bin_text(row: dict[str, Any]) -> str:
    return (
        f"confidence {row['low']:.2f} to {row['high']:.2f}: {count(row['count'], 'row')}, accuracy "
        f"{percent(row['accuracy'])} ({percent_limits(row['interval'])}), confidence {percent(row['confidence'])}"
    )


def _diagram(data: alt.Chart) -> alt.LayerChart:
    """The consistency band, the diagonal, intervals and points."""
    x = _unit_axis(alt.X, "confidence")
    low, high = _unit_axis(alt.Y, "band_low", "Accuracy"), alt.Y2("band_high:Q")
    band = data.mark_rect(color=GREY, opacity=0.3).encode(
        x=_unit_axis(alt.X, "low"), x2=alt.X2("high:Q"), y=low, y2=high, **DESCRIPTION
    )
    ends = alt.Chart(inline_data([{"at": 0}, {"at": 1}]))
    diagonal = ends.mark_line(color=TEXT_COLOUR, strokeDash=[4, 3], strokeWidth=1).encode(
        x=alt.X("at:Q"), y=alt.Y("at:Q")
    )
    low, high = _unit_axis(alt.Y, "interval_low", "Accuracy"), alt.Y2("interval_high:Q")
    limits = data.mark_rule(color=BLUE, strokeWidth=1.5).encode(x=x, y=low, y2=high, **DESCRIPTION)
    accuracy = _unit_axis(alt.Y, "accuracy", "Accuracy")
    points = data.mark_point(color=BLUE, filled=True, size=55, opacity=1)
    return layer_charts(band, diagonal, limits, points.encode(x=x, y=accuracy, **DESCRIPTION))


def _unit_axis(channel: Any, field: str, title: str | None = None) -> Any:
    """An axis from 0 to 100 %."""
    axis = alt.Axis(format=PERCENT_FORMAT, values=PERCENT_TICKS)
    return channel(f"{field}:Q", title=title, axis=axis, scale=alt.Scale(domain=[0, 1]))


def _bars(data: alt.Chart, colour: str, y: alt.Y, title: str | None) -> alt.Chart:
    bars = data.mark_bar(color=colour, stroke="white", strokeWidth=0.5)
    x = _unit_axis(alt.X, "low", title)
    chart: alt.Chart = bars.encode(x=x, x2=alt.X2("high:Q"), y=y, y2=alt.Y2Datum(0), **DESCRIPTION)
    return chart


def histogram_drawing(bars: Sequence[dict[str, Any]], *, weighted: bool) -> SvgFigure:
    rows = []
    for bar in bars:
        counts = f"{count(bar['correct'] + bar['incorrect'], 'row')}, {bar['correct']:,} correct"
        description = f"confidence {bar['low']:.2f} to {bar['high']:.2f}: {counts}, {bar['incorrect']:,} incorrect"
        rows.append({**bar, "description": description})
    data = alt.Chart(inline_data(rows))
    correct = _outcome_bars(data, "correct", BLUE, None)
    incorrect = _outcome_bars(data, "incorrect", ORANGE, "Confidence")
    chart = compose_figure(
        correct.properties(width=CHART_WIDTH, height=CHART_HEIGHT),
        incorrect.properties(width=CHART_WIDTH, height=CHART_HEIGHT // 2),
    )
    errors = sum(bar["incorrect"] for bar in bars)
    high = sum(bar["incorrect"] for bar in bars if bar["low"] >= HIGH_CONFIDENCE - 1e-9)
    total = count(sum(bar["correct"] + bar["incorrect"] for bar in bars), "row")
    alt_text = (
        f"Histogram of the confidence of {total}: {errors:,} are incorrect, {high:,} of them with a confidence above "
        f"{HIGH_CONFIDENCE:.2f}."
    )
    caption = (
        f"{'Weighted share' if weighted else 'Share'} of rows per confidence bin of width 0.02: correct predictions "
        "above, incorrect ones below, on a different scale."
    )
    return SvgFigure(to_svg(chart), alt_text, caption)


def _outcome_bars(data: alt.Chart, outcome: str, colour: str, title: str | None) -> alt.Chart:
    """The bars of the correct predictions, or those of the incorrect ones, which point down."""
    y = alt.Y(
        f"{outcome}_share:Q",
        title=f"Share, {outcome}",
        axis=alt.Axis(format=PERCENT_FORMAT, tickCount=4, minExtent=34, titlePadding=8),
        scale=alt.Scale(zero=True, reverse=outcome == "incorrect"),
    )
    return _bars(data.transform_filter(f"datum.{outcome}_share > 0"), colour, y, title)


def risk_drawing(
    line: Sequence[dict[str, Any]],
    risks: Sequence[dict[str, Any]],
    error: float,
    found: DecisionFindings,
    *,
    effective: bool,
) -> SvgFigure:
    """The risk-coverage curve, with points at some coverages and at 1, and the certified threshold."""
    points = []
    for row in risks:
        rate = f"error rate {percent(row['error'])} ({percent_limits(row['interval'])})"
        points.append({**row, "description": f"the {percent(row['coverage'])} most confident rows: {rate}"})
    points.append({"coverage": 1.0, "error": error, "description": f"all rows: error rate {percent(error)}"})
    top = min(max(1.1 * max(point["error"] for point in line), 0.01), 1.0)
    x = _unit_axis(alt.X, "coverage", "Coverage: share of rows that are kept, the most confident first")
    axis = alt.Axis(format=PERCENT_FORMAT, tickCount=5)
    y = alt.Y("error:Q", title="Error rate", axis=axis, scale=alt.Scale(domain=[0, top]))
    curve = alt.Chart(inline_data(line)).mark_line(color=BLUE, strokeWidth=1.8).encode(x=x, y=y)
    marks = alt.Chart(inline_data(points)).mark_point(color=ORANGE, filled=True, size=60, opacity=1)
    certified = _certified_rows(found)
    rule = alt.Chart(inline_data(certified)).mark_rule(color=TEXT_COLOUR, strokeDash=[4, 3])
    layers = layer_charts(curve, rule.encode(x=x, **DESCRIPTION), marks.encode(x=x, y=y, **DESCRIPTION))
    chart = compose_figure(layers.properties(width=CHART_WIDTH, height=CHART_HEIGHT))
    alt_text = f"Risk-coverage curve: {'; '.join(point['description'] for point in [*points, *certified])}."
    start = f"{MIN_CURVE_ROWS:.0f} {'effective ' if effective else ''}rows"
    caption = f"Error rate among the most confident rows; the curve starts at {start}."
    caption += " Dashed: the rows that the certified threshold accepts." if certified else ""
    return SvgFigure(to_svg(chart), alt_text, caption)


def _certified_rows(found: DecisionFindings) -> list[dict[str, Any]]:
    """The coverage of the certified threshold; empty without one."""
    error = found.overall.error
    if found.threshold is None or error is None:
        return []
    coverage = 1 - found.overall.share
    text = f"certified: the {percent(coverage)} most confident rows, observed error rate {percent(error)}"
    return [{"coverage": coverage, "description": text}]
