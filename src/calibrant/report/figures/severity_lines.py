"""Lines against the severity of the shift: their points, and one panel of them; several figures are made of these."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt

from calibrant.errors import NoDataError
from calibrant.report.figures.averages import Points, Row, need, run_means, shared_tests
from calibrant.report.figures.look import PERCENT, Line, colour, dash, layered, percent, said, sentence, shape

REMEDY = "a data set with corrupted tests gives them, as digits or cifar10"


@dataclass(frozen=True, slots=True)
class SeverityPoint:
    """A mean over the tests of one severity, then over seeds, with a standard error to either side."""

    panel: str
    metric: str
    loss: str
    variant: str
    calibrator: str
    severity: int  # 0: the unshifted test
    mean: float
    low: float
    high: float
    n_seeds: int


SeverityCurves = Points[SeverityPoint]


def severity_curves(rows: Sequence[Row], figure: str) -> SeverityCurves:
    """Means at every severity; data sets without severities are left out.

    Raises: NoDataError where no data set has tests of two severities.
    """
    graded = {row["panel"] for row in rows if row["severity"] > 0}
    need(graded, figure, "tests at several severities", REMEDY)
    kept, note = shared_tests(
        row for row in rows if row["panel"] in graded and (row["severity"] > 0 or not row["shifted"])
    )
    severities = sorted({row["severity"] for row in kept})
    if len(severities) < 2:
        have = f"only severity {severities[0]}" if severities else "no test that all runs have"
        raise NoDataError(f"the figure {figure} needs tests at several severities, and the experiment has {have}")
    means = run_means(kept, "panel", "metric", "loss", "variant", "calibrator", "severity")
    return SeverityCurves(tuple(SeverityPoint(*key, *asdict(mean).values()) for key, mean in means.items()), note)


def severity_panel(
    points: Sequence[SeverityPoint],
    lines: Sequence[Line],
    label: Callable[[SeverityPoint], str],
    *,
    title: str = "",
    y_title: str = "",
    width: int,
    height: int,
    top: float | None = None,
    in_percent: bool = True,
) -> alt.LayerChart:
    """One panel: bands, lines and points; label says which line a point is on."""
    rows = [_words(point, label(point), y_title, in_percent=in_percent) for point in points]
    base = alt.Chart().encode(
        x=alt.X(
            "severity:Q",
            title="Severity",
            axis=alt.Axis(tickMinStep=1, tickCount=5, format="d", grid=False),
            scale=alt.Scale(nice=False, padding=6),
        ),
        color=colour(lines),
        description=said("line"),
    )
    axis = alt.Axis(format=PERCENT if in_percent else "~r", tickCount=5)
    up = alt.Y(
        "mean:Q", title=y_title, axis=axis, scale=alt.Scale(zero=True, nice=top is None, domainMax=top or alt.Undefined)
    )
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=y_title), y2=alt.Y2("high:Q"))
    line = base.mark_line(strokeWidth=1.5).encode(y=up, strokeDash=dash(lines))
    point = base.mark_point(filled=True, size=26, opacity=1).encode(y=up, shape=shape(lines), description=said())
    chart = layered(band, line, point, rows=rows).properties(width=width, height=height)
    return chart.properties(title=title) if title else chart


def _words(point: SeverityPoint, label: str, metric: str, *, in_percent: bool) -> dict[str, Any]:
    mean = percent(point.mean) if in_percent else f"{point.mean:.3f}"
    about = sentence(label, f"severity {point.severity}", f"{metric} {mean}", seeds(point.n_seeds))
    return {**asdict(point), "line": label, "said": about}


def seeds(count: int) -> str:
    return f"mean of {count} seeds" if count > 1 else "one seed"
