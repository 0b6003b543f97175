"""The HTML page of an estimate without labels."""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from calibrant.estimates import Estimate
from calibrant.report.estimates import estimate_table, groups_table, recall_table, summary, tests_table
from calibrant.report.findings import PageSection, write_findings
from calibrant.report.numbers import count, join_words, level_text, percent, percent_limits
from calibrant.report.page import SvgFigure, check_report

MAX_SHOWN = 40  # groups in the chart: those of the least accuracy
LABEL_WIDTH = 180  # pixels


def write_estimate(
    path: str | os.PathLike[str], found: Estimate, *, command: Sequence[str] = (), now: datetime | None = None
) -> None:
    """Write the page; see `Estimate.save_html`."""
    check_report(path)
    sections = [PageSection("estimate", "Estimate", figures=[drawing(found)], tables=[estimate_table(found)])]
    for name, title, table in (
        ("groups", f"By {found.by}", groups_table(found)),
        ("shift", "Shift tests", tests_table(found)),
        ("recall", "Recall", recall_table(found)),
    ):
        if table.rows:
            sections.append(PageSection(name, title, tables=[table]))
    facts = [
        ("rows", f"{found.n_rows:,}"),
        ("method", found.method),
        ("types of shift in the reference", join_words(found.shifts) if found.shifts else "none"),
        ("level of the intervals", level_text(found.level)),
    ]
    title = f"Estimate without labels of {count(found.n_rows, 'row')}"
    write_findings(path, title, summary(found), sections, facts, bad=found.unlike, command=command, now=now)


def drawing(found: Estimate) -> SvgFigure:
    """Estimated accuracy and mean confidence, overall and of the groups of the least accuracy."""
    import altair as alt

    from calibrant.report.audit_charts import BLUE, CHART_WIDTH, DESCRIPTION, ORANGE
    from calibrant.report.charts import colour, compose_figure, describe_mark, inline_data, layer_charts, legend, shape
    from calibrant.report.render import to_svg
    from calibrant.report.style import PERCENT_FORMAT, SOLID, Style

    accuracy = Style("estimated accuracy", BLUE, SOLID, "circle")
    confidence = Style("mean confidence", ORANGE, SOLID, "diamond")
    groups = sorted(found.groups.items(), key=lambda item: item[1].accuracy.value)[:MAX_SHOWN]
    rows: list[dict[str, Any]] = []
    for name, part in [("all rows", found), *((f"{found.by} = {name}", group) for name, group in groups)]:
        value, low, high = part.accuracy
        text = f"{percent(value)} ({percent_limits((low, high))})"
        text += ", unlike everything the estimator was fitted to" if part.unlike else ""
        for style, number, words in ((accuracy, value, text), (confidence, part.confidence, percent(part.confidence))):
            ends = (low, high) if style is accuracy else (number, number)
            row = {"name": name, "line": style.label, "value": number, "low": ends[0], "high": ends[1]}
            rows.append(row | {"description": describe_mark(style.label, name, words)})
    styles = (accuracy, confidence)
    longest = max(len(row["name"]) for row in rows)
    extent = min(LABEL_WIDTH, 7 * longest)  # room for a wider font than that of the drawing
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(minExtent=extent, labelLimit=LABEL_WIDTH))
    axis = alt.Axis(format=PERCENT_FORMAT, tickCount=6)
    x = alt.X("value:Q", title="Accuracy and confidence", axis=axis, scale=alt.Scale(zero=False, padding=12))
    base = alt.Chart(inline_data(rows)).encode(y=y, color=colour(styles))
    ends = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"))
    symbols = base.mark_point(filled=True, size=55, opacity=1).encode(x=x, shape=shape(styles), **DESCRIPTION)
    panel = layer_charts(ends, symbols).properties(width=CHART_WIDTH, height=alt.Step(24))
    chart = compose_figure(panel, legend(styles, CHART_WIDTH))
    caption = f"Estimated accuracy with its {level_text(found.level)} interval, and mean confidence, which is known."
    if len(groups) < len(found.groups):
        caption += f" The {len(groups)} of {len(found.groups):,} groups of the least estimated accuracy."
    alt_text = "; ".join(row["description"] for row in rows[:2])
    return SvgFigure(to_svg(chart), f"Estimated accuracy and mean confidence. {alt_text}.", caption)
