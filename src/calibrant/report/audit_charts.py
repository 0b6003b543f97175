"""The charts of an audit, drawn from records; every mark says in words what it is."""

from collections.abc import Sequence

import altair as alt

from calibrant.audits.curves import SURE, Record
from calibrant.report.charts import compose_figure, inline_data, layer_charts
from calibrant.report.numbers import count, level_text, percent, percent_limits
from calibrant.report.page import Drawing
from calibrant.report.render import to_svg
from calibrant.report.style import INK, PERCENT

SQUARE, WIDE, HIGH, LOW = 380, 560, 220, 80  # pixels
RIGHT, WRONG, BAND = "#0072B2", "#D55E00", "#888888"
TENTHS = [at / 10 for at in range(0, 11, 2)]


def reliability_drawing(bins: Sequence[Record], level: float) -> Drawing:
    rows = [
        {
            **row,
            "least": row["interval"][0],
            "most": row["interval"][1],
            "band_low": row["band"][0],
            "band_high": row["band"][1],
            "said": bin_text(row),
        }
        for row in bins
    ]
    data = alt.Chart(inline_data(rows))
    chart = compose_figure(_diagram(data).properties(width=SQUARE, height=SQUARE), _strengths(data))
    furthest = max(bins, key=lambda row: row["strength"] * abs(row["confidence"] - row["accuracy"]))
    alt_text = (
        f"Reliability diagram: accuracy against confidence in {len(bins)} bins that have rows. The bin that adds most "
        f"to the ECE: {bin_text(furthest)}."
    )
    caption = (
        "Points: accuracy of the rows of each bin against their mean confidence; bars: its exact binomial "
        f"{level_text(level)} interval (Clopper-Pearson). Grey: where {level_text(level)} of the accuracies of a "
        "calibrated model would lie in that bin (binomial). On the dashed line confidence is accuracy; below it the "
        "model is overconfident. Below: the share of rows in each bin."
    )
    return Drawing(to_svg(chart), alt_text, caption)


def bin_text(row: Record) -> str:
    return (
        f"confidence {row['low']:.2f} to {row['high']:.2f}: {count(row['count'], 'row')}, accuracy "
        f"{percent(row['accuracy'])} ({percent_limits(row['interval'])}), confidence {percent(row['confidence'])}"
    )


def _diagram(data: alt.Chart) -> alt.LayerChart:
    across = _confidence("confidence", title="")
    band = data.mark_rect(color=BAND, opacity=0.3).encode(
        x=_confidence("low", title=""),
        x2=alt.X2("high:Q"),
        y=_accuracy("band_low"),
        y2=alt.Y2("band_high:Q"),
        **_said(),
    )
    ends = alt.Chart(inline_data([{"at": 0}, {"at": 1}]))
    ideal = ends.mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1).encode(x=alt.X("at:Q"), y=alt.Y("at:Q"))
    limits = data.mark_rule(color=RIGHT, strokeWidth=1.5).encode(
        x=across, y=_accuracy("least"), y2=alt.Y2("most:Q"), **_said()
    )
    marks = data.mark_point(color=RIGHT, filled=True, size=55, opacity=1).encode(
        x=across, y=_accuracy("accuracy"), **_said()
    )
    return layer_charts(band, ideal, limits, marks)


def _strengths(data: alt.Chart) -> alt.Chart:
    up = alt.Y("strength:Q", title="Share", axis=alt.Axis(format=PERCENT, tickCount=3), scale=alt.Scale(zero=True))
    chart: alt.Chart = (
        data.mark_bar(color=BAND, stroke="white", strokeWidth=0.5)
        .encode(x=_confidence("low"), x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), **_said())
        .properties(width=SQUARE, height=LOW)
    )
    return chart


def _confidence(field: str, title: str = "Confidence") -> alt.X:
    axis = alt.Axis(format=PERCENT, values=TENTHS)
    return alt.X(f"{field}:Q", title=title or None, axis=axis, scale=alt.Scale(domain=[0, 1]))


def _accuracy(field: str) -> alt.Y:
    axis = alt.Axis(format=PERCENT, values=TENTHS)
    return alt.Y(f"{field}:Q", title="Accuracy", axis=axis, scale=alt.Scale(domain=[0, 1]))


def _said() -> dict[str, alt.Description]:
    return {"description": alt.Description("said:N")}


def histogram_drawing(bars: Sequence[Record], *, weighted: bool) -> Drawing:
    rows = []
    for bar in bars:
        counts = f"{count(bar['correct'] + bar['incorrect'], 'row')}, {bar['correct']:,} correct"
        said = f"confidence {bar['low']:.2f} to {bar['high']:.2f}: {counts}, {bar['incorrect']:,} incorrect"
        rows.append({**bar, "said": said})
    data = alt.Chart(inline_data(rows))
    correct = _half(data, "correct", RIGHT, title="").properties(width=WIDE, height=HIGH)
    incorrect = _half(data, "incorrect", WRONG, title="Confidence", reverse=True).properties(
        width=WIDE, height=HIGH // 2
    )
    errors = sum(bar["incorrect"] for bar in bars)
    sure = sum(bar["incorrect"] for bar in bars if bar["low"] >= SURE - 1e-9)
    many = count(sum(bar["correct"] + bar["incorrect"] for bar in bars), "row")
    alt_text = (
        f"Histogram of the confidence of {many}: {errors:,} are incorrect, {sure:,} of them with a confidence above "
        f"{SURE:.2f}."
    )
    by = " by weight" if weighted else ""
    caption = (
        f"Share of rows{by} by confidence, in bars 0.02 wide: correct predictions above, incorrect ones below on their "
        "own scale."
    )
    return Drawing(to_svg(compose_figure(correct, incorrect)), alt_text, caption)


def _half(data: alt.Chart, outcome: str, colour: str, title: str, *, reverse: bool = False) -> alt.Chart:
    """The correct predictions, or the incorrect ones upside down."""
    up = alt.Y(
        f"{outcome}_share:Q",
        title=f"Share, {outcome}",
        axis=alt.Axis(format=PERCENT, tickCount=4, minExtent=34, titlePadding=8),
        scale=alt.Scale(zero=True, reverse=reverse),
    )
    bars = data.transform_filter(f"datum.{outcome}_share > 0").mark_bar(color=colour, stroke="white", strokeWidth=0.5)
    chart: alt.Chart = bars.encode(x=_confidence("low", title), x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), **_said())
    return chart


def risk_drawing(line: Sequence[Record], kept: Sequence[Record], error: float) -> Drawing:
    """The curve, the points that are said in words, and the error of all rows."""
    ends = [
        {
            **row,
            "said": f"the most confident {percent(row['coverage'])} of rows: error {percent(row['error'])} "
            f"({percent_limits(row['interval'])})",
        }
        for row in kept
    ]
    ends.append({"coverage": 1.0, "error": error, "said": f"all rows: error {percent(error)}"})
    top = max(1.1 * max(point["error"] for point in line), 0.01)
    across = alt.X(
        "coverage:Q",
        title="Coverage: share of rows kept, the most confident first",
        axis=alt.Axis(format=PERCENT, values=TENTHS),
        scale=alt.Scale(domain=[0, 1]),
    )
    up = alt.Y(
        "error:Q", title="Error", axis=alt.Axis(format=PERCENT, tickCount=5), scale=alt.Scale(domain=[0, min(top, 1.0)])
    )
    drawn = alt.Chart(inline_data(line)).mark_line(color=RIGHT, strokeWidth=1.8).encode(x=across, y=up)
    marks = (
        alt.Chart(inline_data(ends))
        .mark_point(color=WRONG, filled=True, size=60, opacity=1)
        .encode(x=across, y=up, **_said())
    )
    chart = compose_figure(layer_charts(drawn, marks).properties(width=WIDE, height=HIGH))
    points = "; ".join(row["said"] for row in ends)
    caption = "The error among the rows with the highest confidences, drawn from 20 rows on."
    return Drawing(to_svg(chart), f"Risk-coverage curve: {points}.", caption)
