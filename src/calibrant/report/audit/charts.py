"""The charts of an audit, drawn from its curves; every mark says in words what it is."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from calibrant.report.audit.curves import Bar, ReliableBin, RiskCurve
from calibrant.report.audit.wording import level_text, n_rows, percent, share_limits_text
from calibrant.report.charts import finished, layered, values
from calibrant.report.page import Drawing
from calibrant.report.render import to_svg
from calibrant.report.style import INK, PERCENT

SQUARE, WIDE, HIGH, LOW = 380, 560, 220, 80  # pixels
RIGHT, WRONG, BAND = "#0072B2", "#D55E00", "#888888"
TENTHS = [at / 10 for at in range(0, 11, 2)]


def reliability_drawing(bins: Sequence[ReliableBin], level: float) -> Drawing:
    rows = [
        {
            "low": found.low,
            "high": found.high,
            "confidence": found.confidence,
            "accuracy": found.accuracy,
            "least": found.accuracy_interval[0],
            "most": found.accuracy_interval[1],
            "band_low": found.band[0],
            "band_high": found.band[1],
            "strength": found.strength,
            "said": bin_text(found),
        }
        for found in bins
    ]
    data = alt.Chart(values(rows))
    chart = finished(_diagram(data).properties(width=SQUARE, height=SQUARE), _strengths(data))
    furthest = max(bins, key=lambda found: found.strength * abs(found.accuracy - found.confidence))
    alt_text = (
        f"Reliability diagram: accuracy against confidence in {len(bins)} bins that have rows. The bin that adds most "
        f"to the ECE: {bin_text(furthest)}."
    )
    caption = (
        "Points: accuracy of the rows of each bin against their mean confidence; bars: its exact binomial "
        f"{level_text(level)} interval (Clopper-Pearson). Grey: where {level_text(level)} of the accuracies of a "
        "calibrated model would lie in that bin (binomial). On the dashed line confidence is accuracy; below it the "
        "model is over-confident. Below: the share of rows in each bin."
    )
    return Drawing(to_svg(chart), alt_text, caption)


def bin_text(found: ReliableBin) -> str:
    return (
        f"confidence {found.low:.2f} to {found.high:.2f}: {n_rows(found.count)}, accuracy {percent(found.accuracy)} "
        f"({share_limits_text(found.accuracy_interval)}), confidence {percent(found.confidence)}"
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
    ends = alt.Chart(values([{"at": 0}, {"at": 1}]))
    ideal = ends.mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1).encode(x=alt.X("at:Q"), y=alt.Y("at:Q"))
    limits = data.mark_rule(color=RIGHT, strokeWidth=1.5).encode(
        x=across, y=_accuracy("least"), y2=alt.Y2("most:Q"), **_said()
    )
    marks = data.mark_point(color=RIGHT, filled=True, size=55, opacity=1).encode(
        x=across, y=_accuracy("accuracy"), **_said()
    )
    return layered(band, ideal, limits, marks)


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


def histogram_drawing(bars: Sequence[Bar], *, weighted: bool) -> Drawing:
    rows = []
    for bar in bars:
        counts = f"{n_rows(bar.right + bar.wrong)}, {bar.right:,} right, {bar.wrong:,} wrong"
        said = f"confidence {bar.low:.2f} to {bar.high:.2f}: {counts}"
        rows.append(
            {"low": bar.low, "high": bar.high, "right": bar.right_share, "wrong": bar.wrong_share, "said": said}
        )
    data = alt.Chart(values(rows))
    right = _half(data, "right", RIGHT, title="").properties(width=WIDE, height=HIGH)
    wrong_half = _half(data, "wrong", WRONG, title="Confidence", reverse=True).properties(width=WIDE, height=HIGH // 2)
    chart = finished(right, wrong_half)
    wrong = sum(bar.wrong for bar in bars)
    sure = sum(bar.wrong for bar in bars if bar.low >= 0.9 - 1e-9)
    alt_text = (
        f"Histogram of the confidence of {n_rows(sum(bar.right + bar.wrong for bar in bars))}: {wrong:,} are wrong, "
        f"{sure:,} of them with a confidence above 0.90."
    )
    by = " by weight" if weighted else ""
    caption = (
        f"Share of rows{by} by confidence, in bars 0.02 wide: right rows above, wrong ones below on their own scale."
    )
    return Drawing(to_svg(chart), alt_text, caption)


def _half(data: alt.Chart, outcome: str, colour: str, title: str, *, reverse: bool = False) -> alt.Chart:
    """The right rows, or the wrong ones upside down."""
    up = alt.Y(
        f"{outcome}:Q",
        title=f"Share, {outcome}",
        axis=alt.Axis(format=PERCENT, tickCount=4, minExtent=34, titlePadding=8),
        scale=alt.Scale(zero=True, reverse=reverse),
    )
    bars = data.transform_filter(f"datum.{outcome} > 0").mark_bar(color=colour, stroke="white", strokeWidth=0.5)
    chart: alt.Chart = bars.encode(x=_confidence("low", title), x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), **_said())
    return chart


def risk_drawing(curve: RiskCurve) -> Drawing:
    line = [{"coverage": coverage, "error": error} for coverage, error in curve.points]
    ends: list[dict[str, Any]] = [
        {
            "coverage": kept.coverage,
            "error": kept.error,
            "said": f"the surest {percent(kept.coverage)} of rows: error {percent(kept.error)} "
            f"({share_limits_text(kept.interval)})",
        }
        for kept in curve.kept
    ]
    ends.append({"coverage": 1.0, "error": curve.error, "said": f"all rows: error {percent(curve.error)}"})
    top = max([1.1 * max(error for _, error in curve.points), 0.01])
    across = alt.X(
        "coverage:Q",
        title="Coverage: share of rows kept, the surest first",
        axis=alt.Axis(format=PERCENT, values=TENTHS),
        scale=alt.Scale(domain=[0, 1]),
    )
    up = alt.Y(
        "error:Q", title="Error", axis=alt.Axis(format=PERCENT, tickCount=5), scale=alt.Scale(domain=[0, min(top, 1.0)])
    )
    drawn = alt.Chart(values(line)).mark_line(color=RIGHT, strokeWidth=1.8).encode(x=across, y=up)
    marks = (
        alt.Chart(values(ends))
        .mark_point(color=WRONG, filled=True, size=60, opacity=1)
        .encode(x=across, y=up, **_said())
    )
    chart = finished(layered(drawn, marks).properties(width=WIDE, height=HIGH))
    points = "; ".join(row["said"] for row in ends)
    caption = "The error among the rows with the highest confidences, drawn from 20 rows on."
    return Drawing(to_svg(chart), f"Risk-coverage curve: {points}.", caption)
