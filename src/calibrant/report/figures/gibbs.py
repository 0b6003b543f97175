"""Fig. 2: distributions of greatest entropy over the classes, for several means, and for several variances."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt

from calibrant.maxent import gibbs_distribution
from calibrant.report.figures.look import (
    COLUMN,
    PERCENT,
    Chart,
    Line,
    below,
    beside,
    colour,
    dash,
    finished,
    key,
    layered,
    panel_width,
    percent,
    ramp,
    said,
    sentence,
    shape,
)

MEANS, VARIANCES = (1.5, 3.0, 4.5, 6.0, 7.5), (1.0, 2.0, 4.0, 8.25, 12.0)


@dataclass(frozen=True, slots=True)
class Mass:
    """The probability of a class under the distribution with this moment."""

    moment: str  # mean or variance
    target: float
    class_value: int
    probability: float


def prepare(
    n_classes: int = 10, means: Sequence[float] = MEANS, variances: Sequence[float] = VARIANCES
) -> tuple[Mass, ...]:
    """With a given mean, and with a given variance about the middle class. Raises: NotConvergedError."""
    uniform = [1 / n_classes] * n_classes
    middle = (n_classes - 1) / 2
    found = {("mean", mean): gibbs_distribution(uniform, "mean", targets=[mean]) for mean in means}
    for variance in variances:
        targets = [middle, variance]
        found["variance", variance] = gibbs_distribution(uniform, "mean_variance", targets=targets)
    return tuple(
        Mass(moment, target, at, probability)
        for (moment, target), distribution in found.items()
        for at, probability in enumerate(distribution.tolist())
    )


def draw(numbers: Sequence[Mass]) -> Chart:
    panels = [_panel(numbers, "mean", "μ"), _panel(numbers, "variance", "σ²")]
    return finished(beside(*panels, spacing=14))


def _panel(numbers: Sequence[Mass], moment: str, letter: str) -> Chart:
    masses = [mass for mass in numbers if mass.moment == moment]
    names = {mass.target: f"{letter} = {mass.target:g}" for mass in masses}
    lines = ramp(list(names.values()))
    first = moment == "mean"
    width = panel_width(2, COLUMN, axes=2)
    chart = _lines([_words(mass, names[mass.target]) for mass in masses], lines, first=first)
    return below(chart.properties(width=width, height=150), key(lines, width), spacing=6)


def _words(mass: Mass, line: str) -> dict[str, Any]:
    about = sentence(line, f"class {mass.class_value}", f"probability {percent(mass.probability)}")
    return {**asdict(mass), "line": line, "said": about}


def _lines(rows: list[dict[str, Any]], lines: Sequence[Line], *, first: bool) -> alt.LayerChart:
    last = max(row["class_value"] for row in rows)
    ticks = list(range(0, last + 1, max(1, round(last / 3))))
    base = alt.Chart().encode(
        x=alt.X(
            "class_value:Q",
            title="Class",
            axis=alt.Axis(values=ticks, grid=False, format="d"),
            scale=alt.Scale(nice=False, padding=6),
        ),
        y=alt.Y("probability:Q", title="Probability" if first else None, axis=alt.Axis(format=PERCENT, tickCount=5)),
        color=colour(lines),
    )
    return layered(
        base.mark_line(strokeWidth=1.3).encode(strokeDash=dash(lines), description=said("line")),
        base.mark_point(filled=True, size=24, opacity=1).encode(shape=shape(lines), description=said()),
        rows=rows,
    )
