"""Fig. 2: maximum-entropy distributions over the classes for several means, and for several variances."""

from collections.abc import Sequence

import altair as alt

from calibrant.maxent import gibbs_distribution
from calibrant.report import charts
from calibrant.report.numbers import percent
from calibrant.report.scores import ChartRecord
from calibrant.report.style import COLUMN_WIDTH, PERCENT_FORMAT, Style, sequential_styles

MEANS, VARIANCES = (1.5, 3.0, 4.5, 6.0, 7.5), (1.0, 2.0, 4.0, 8.25, 12.0)


def prepare(
    n_classes: int = 10, means: Sequence[float] = MEANS, variances: Sequence[float] = VARIANCES
) -> list[ChartRecord]:
    """Distributions of a given mean, and of a given variance around the mean class index. Raises: NotConvergedError."""
    uniform = [1 / n_classes] * n_classes
    middle = (n_classes - 1) / 2
    found = {("mean", mean): gibbs_distribution(uniform, "mean", targets=[mean]) for mean in means}
    for variance in variances:
        targets = [middle, variance]
        found["variance", variance] = gibbs_distribution(uniform, "mean_variance", targets=targets)
    return [
        {"moment": moment, "target": target, "class": at, "probability": probability}
        for (moment, target), distribution in found.items()
        for at, probability in enumerate(distribution.tolist())
    ]


def draw(records: list[ChartRecord]) -> charts.ChartSpec:
    panels = [_panel(records, "mean", "μ"), _panel(records, "variance", "σ²")]
    return charts.compose_figure(charts.hconcat(*panels, spacing=14))


def _panel(records: list[ChartRecord], moment: str, symbol: str) -> charts.ChartSpec:
    own = [record for record in records if record["moment"] == moment]
    rows = [_add_description(record, f"{symbol} = {record['target']:g}") for record in own]
    lines = sequential_styles(list(dict.fromkeys(row["line"] for row in rows)))
    width = charts.panel_width(2, COLUMN_WIDTH, axes=2)
    chart = _lines(rows, lines, y_title="Probability" if moment == "mean" else None)
    return charts.vconcat(chart.properties(width=width, height=150), charts.legend(tuple(lines), width), spacing=6)


def _add_description(record: ChartRecord, line: str) -> ChartRecord:
    parts = f"class {record['class']}", f"probability {percent(record['probability'])}"
    return {**record, "line": line, "description": charts.describe_mark(line, *parts)}


def _lines(rows: list[ChartRecord], lines: Sequence[Style], *, y_title: str | None) -> alt.LayerChart:
    last = max(row["class"] for row in rows)
    ticks = list(range(0, last + 1, max(1, round(last / 3))))
    base = alt.Chart().encode(
        x=alt.X(
            "class:Q",
            title="Class",
            axis=alt.Axis(values=ticks, grid=False, format="d"),
            scale=alt.Scale(nice=False, padding=6),
        ),
        y=alt.Y("probability:Q", title=y_title, axis=alt.Axis(format=PERCENT_FORMAT, tickCount=5)),
        color=charts.colour(lines),
    )
    return charts.layer_charts(
        base.mark_line(strokeWidth=1.3).encode(strokeDash=charts.dash(lines), description=alt.Description("line:N")),
        base.mark_point(filled=True, size=24, opacity=1).encode(
            shape=charts.shape(lines), description=alt.Description("description:N")
        ),
        rows=rows,
    )
