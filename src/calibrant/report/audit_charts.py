"""The charts of an audit; each mark has a text description."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from calibrant.audits.curves import HIGH_CONFIDENCE
from calibrant.report.charts import compose_figure, inline_data, layer_charts
from calibrant.report.numbers import count, level_text, percent, percent_limits
from calibrant.report.page import Drawing
from calibrant.report.render import to_svg
from calibrant.report.style import INK, PERCENT

DIAGRAM_SIZE, CHART_WIDTH, CHART_HEIGHT, SHARE_HEIGHT = 380, 560, 220, 80  # pixels
CORRECT_COLOUR, INCORRECT_COLOUR, BAND_COLOUR = "#0072B2", "#D55E00", "#888888"
PERCENT_TICKS = [at / 10 for at in range(0, 11, 2)]


def reliability_drawing(bins: Sequence[dict[str, Any]], level: float) -> Drawing:
    rows = [
        {
            **row,
            "interval_low": row["interval"][0],
            "interval_high": row["interval"][1],
            "band_low": row["band"][0],
            "band_high": row["band"][1],
            "description": bin_text(row),
        }
        for row in bins
    ]
    data = alt.Chart(inline_data(rows))
    chart = compose_figure(_diagram(data).properties(width=DIAGRAM_SIZE, height=DIAGRAM_SIZE), _shares(data))
    furthest = max(bins, key=lambda row: row["share"] * abs(row["confidence"] - row["accuracy"]))
    alt_text = (
        f"Reliability diagram: accuracy against confidence in {len(bins)} bins that have rows. The bin that adds most "
        f"to the ECE: {bin_text(furthest)}."
    )
    caption = (
        f"Points: accuracy and mean confidence of each bin. Bars: {level_text(level)} CI of the accuracy "
        f"(Clopper-Pearson). Grey boxes: the accuracy of a calibrated model lies inside with {level_text(level)} "
        "probability (binomial). The dashed line is perfect calibration; points below it are overconfident. Lower "
        "chart: share of rows in each bin."
    )
    return Drawing(to_svg(chart), alt_text, caption)


def bin_text(row: dict[str, Any]) -> str:
    return (
        f"confidence {row['low']:.2f} to {row['high']:.2f}: {count(row['count'], 'row')}, accuracy "
        f"{percent(row['accuracy'])} ({percent_limits(row['interval'])}), confidence {percent(row['confidence'])}"
    )


def _diagram(data: alt.Chart) -> alt.LayerChart:
    across = _confidence("confidence", title="")
    band = data.mark_rect(color=BAND_COLOUR, opacity=0.3).encode(
        x=_confidence("low", title=""),
        x2=alt.X2("high:Q"),
        y=_accuracy("band_low"),
        y2=alt.Y2("band_high:Q"),
        **_description(),
    )
    ends = alt.Chart(inline_data([{"at": 0}, {"at": 1}]))
    ideal = ends.mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1).encode(x=alt.X("at:Q"), y=alt.Y("at:Q"))
    limits = data.mark_rule(color=CORRECT_COLOUR, strokeWidth=1.5).encode(
        x=across, y=_accuracy("interval_low"), y2=alt.Y2("interval_high:Q"), **_description()
    )
    marks = data.mark_point(color=CORRECT_COLOUR, filled=True, size=55, opacity=1).encode(
        x=across, y=_accuracy("accuracy"), **_description()
    )
    return layer_charts(band, ideal, limits, marks)


def _shares(data: alt.Chart) -> alt.Chart:
    up = alt.Y("share:Q", title="Share", axis=alt.Axis(format=PERCENT, tickCount=3), scale=alt.Scale(zero=True))
    chart: alt.Chart = (
        data.mark_bar(color=BAND_COLOUR, stroke="white", strokeWidth=0.5)
        .encode(x=_confidence("low"), x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), **_description())
        .properties(width=DIAGRAM_SIZE, height=SHARE_HEIGHT)
    )
    return chart


def _confidence(field: str, title: str = "Confidence") -> alt.X:
    axis = alt.Axis(format=PERCENT, values=PERCENT_TICKS)
    return alt.X(f"{field}:Q", title=title or None, axis=axis, scale=alt.Scale(domain=[0, 1]))


def _accuracy(field: str) -> alt.Y:
    axis = alt.Axis(format=PERCENT, values=PERCENT_TICKS)
    return alt.Y(f"{field}:Q", title="Accuracy", axis=axis, scale=alt.Scale(domain=[0, 1]))


def _description() -> dict[str, alt.Description]:
    return {"description": alt.Description("description:N")}


def histogram_drawing(bars: Sequence[dict[str, Any]], *, weighted: bool) -> Drawing:
    rows = []
    for bar in bars:
        counts = f"{count(bar['correct'] + bar['incorrect'], 'row')}, {bar['correct']:,} correct"
        description = f"confidence {bar['low']:.2f} to {bar['high']:.2f}: {counts}, {bar['incorrect']:,} incorrect"
        rows.append({**bar, "description": description})
    data = alt.Chart(inline_data(rows))
    correct = _outcome_bars(data, "correct", CORRECT_COLOUR, title="").properties(
        width=CHART_WIDTH, height=CHART_HEIGHT
    )
    incorrect = _outcome_bars(data, "incorrect", INCORRECT_COLOUR, title="Confidence", reverse=True).properties(
        width=CHART_WIDTH, height=CHART_HEIGHT // 2
    )
    errors = sum(bar["incorrect"] for bar in bars)
    high = sum(bar["incorrect"] for bar in bars if bar["low"] >= HIGH_CONFIDENCE - 1e-9)
    many = count(sum(bar["correct"] + bar["incorrect"] for bar in bars), "row")
    alt_text = (
        f"Histogram of the confidence of {many}: {errors:,} are incorrect, {high:,} of them with a confidence above "
        f"{HIGH_CONFIDENCE:.2f}."
    )
    by = " by weight" if weighted else ""
    caption = (
        f"Share of rows{by} by confidence, in bars 0.02 wide: correct predictions above, incorrect ones below, on a "
        "different scale."
    )
    return Drawing(to_svg(compose_figure(correct, incorrect)), alt_text, caption)


def _outcome_bars(data: alt.Chart, outcome: str, colour: str, title: str, *, reverse: bool = False) -> alt.Chart:
    """The bars of the correct predictions, or those of the incorrect ones, which point down."""
    up = alt.Y(
        f"{outcome}_share:Q",
        title=f"Share, {outcome}",
        axis=alt.Axis(format=PERCENT, tickCount=4, minExtent=34, titlePadding=8),
        scale=alt.Scale(zero=True, reverse=reverse),
    )
    bars = data.transform_filter(f"datum.{outcome}_share > 0").mark_bar(color=colour, stroke="white", strokeWidth=0.5)
    chart: alt.Chart = bars.encode(
        x=_confidence("low", title), x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), **_description()
    )
    return chart


def risk_drawing(line: Sequence[dict[str, Any]], risks: Sequence[dict[str, Any]], error: float) -> Drawing:
    """The risk-coverage curve, with points at some coverages and at 1."""
    ends = [
        {
            **row,
            "description": f"the most confident {percent(row['coverage'])} of rows: error rate {percent(row['error'])} "
            f"({percent_limits(row['interval'])})",
        }
        for row in risks
    ]
    ends.append({"coverage": 1.0, "error": error, "description": f"all rows: error rate {percent(error)}"})
    top = max(1.1 * max(point["error"] for point in line), 0.01)
    across = alt.X(
        "coverage:Q",
        title="Coverage: share of rows risks, the most confident first",
        axis=alt.Axis(format=PERCENT, values=PERCENT_TICKS),
        scale=alt.Scale(domain=[0, 1]),
    )
    up = alt.Y(
        "error:Q",
        title="Error rate",
        axis=alt.Axis(format=PERCENT, tickCount=5),
        scale=alt.Scale(domain=[0, min(top, 1.0)]),
    )
    drawn = alt.Chart(inline_data(line)).mark_line(color=CORRECT_COLOUR, strokeWidth=1.8).encode(x=across, y=up)
    marks = (
        alt.Chart(inline_data(ends))
        .mark_point(color=INCORRECT_COLOUR, filled=True, size=60, opacity=1)
        .encode(x=across, y=up, **_description())
    )
    chart = compose_figure(layer_charts(drawn, marks).properties(width=CHART_WIDTH, height=CHART_HEIGHT))
    points = "; ".join(row["description"] for row in ends)
    caption = "Error rate among the most confident rows, from 20 rows on."
    return Drawing(to_svg(chart), f"Risk-coverage curve: {points}.", caption)
