"""Fig. 5: how predictions spread over ten bins of confidence (top), and how often each bin is right (bottom)."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
import pyarrow as pa

from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import Pooled, Row, at_severity, chosen, need, pooled, shared_tests, unsmoothed
from calibrant.report.figures.look import (
    INK,
    LETTERS,
    PAGE,
    PERCENT,
    Chart,
    below,
    colour,
    confidence_axis,
    finished,
    layered,
    line_of,
    losses_of,
    panel_width,
    percent,
    said,
    sentence,
    values,
)
from calibrant.report.palette import colour_of, label_of

N_BINS = 10
MOST, WIDEST = 9, 130  # columns in a row; pixels of a column where there are few
REMEDY = "its curves.parquet must hold reliability curves of shifted tests"


@dataclass(frozen=True, slots=True)
class Bin:
    """The predictions with a confidence between low and high: their share of all, and their accuracy, if any."""

    panel: str
    loss: str
    label_smoothing: float
    low: float
    high: float
    strength: float
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Bins:
    bins: tuple[Bin, ...]
    note: str = ""

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(found.panel for found in self.bins))


def prepare(
    curves: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str = RAW,
    severity: int | None = None,
) -> Bins:
    """Bins of all shifted tests and seeds together, or of the tests of one severity. Raises: NoDataError."""
    kept = chosen(curves, data=data, losses=losses, calibrator=calibrator, curve=("reliability",))
    tests, note = shared_tests(at_severity(unsmoothed(kept), severity))
    need(tests, "reliability", tests_needed(severity), REMEDY)
    return Bins(bins_of(tests), note)


def tests_needed(severity: int | None) -> str:
    return "shifted tests that all runs have" if severity is None else f"tests of severity {severity}"


def bins_of(tests: Sequence[Row]) -> tuple[Bin, ...]:
    found = pooled(tests, "panel", "loss", "label_smoothing")
    return tuple(one for (panel, loss, amount), points in found.items() for one in _bins(panel, loss, amount, points))


def _bins(panel: str, loss: str, label_smoothing: float, points: dict[int, Pooled]) -> list[Bin]:
    total = sum(point.count for point in points.values())
    return [
        Bin(
            panel,
            loss,
            label_smoothing,
            low=at / N_BINS,
            high=(at + 1) / N_BINS,
            strength=points[at].count / total if at in points else 0.0,
            accuracy=points[at].y if at in points else None,
        )
        for at in range(N_BINS)
    ]


def draw(numbers: Bins) -> Chart:
    rows: list[Chart] = []
    for panel in numbers.panels:
        bins = [found for found in numbers.bins if found.panel == panel]
        losses = losses_of(bins)
        width = min(WIDEST, panel_width(min(MOST, len(losses)), PAGE))
        for first in range(0, len(losses), MOST):
            part = losses[first : first + MOST]
            title = panel if first == 0 else f"{panel}, continued"
            rows.append(_block([found for found in bins if found.loss in part], title, width))
    return finished(*rows, note=numbers.note)


def _block(bins: Sequence[Bin], title: str, width: int) -> Chart:
    """A column per loss; only the first has the axis on its left, which all share."""
    lines = colour([line_of(loss) for loss in losses_of(bins)])
    spread = _bars(_share(bins), labels=False).encode(color=lines).transform_filter("!datum.ideal")
    above = _columns(spread.properties(width=width, height=60), bins, named=True)
    under = _columns(_reliability(lines).properties(width=width, height=max(60, width)), bins, named=False)
    return below(above, under, spacing=6, title=title)


def _columns(chart: alt.Chart | alt.LayerChart, bins: Sequence[Bin], *, named: bool) -> alt.FacetChart:
    """The chart once for each loss: by facets, which take a quarter of the time of as many charts."""
    names = [label_of(loss) for loss in losses_of(bins)]
    header = alt.Header(labels=named, labelFontSize=LETTERS, labelColor=INK, labelPadding=3)
    rows = [_words(found) for found in bins] + [{"line": name, "ideal": True} for name in names]
    beside = alt.Column("line:N", sort=names, title=None, header=header)
    facets: alt.FacetChart = chart.facet(column=beside, data=values(rows), spacing=8, bounds="flush")
    return facets


def strengths(bins: Sequence[Bin], *, first: bool, top: float, labels: bool = False) -> alt.Chart:
    """The histogram of one loss."""
    bars = _bars(_share(bins, first=first, top=top), labels=labels).encode(color=alt.value(colour_of(bins[0].loss)))
    chart: alt.Chart = bars.properties(data=values([_words(found) for found in bins]))
    return chart


def _share(bins: Sequence[Bin], *, first: bool = True, top: float | None = None) -> alt.Y:
    axis = alt.Axis(format=PERCENT, tickCount=3, labels=first, ticks=first)
    domain = [0, top or 1.05 * max(found.strength for found in bins)]
    return alt.Y("strength:Q", title="Share" if first else None, axis=axis, scale=alt.Scale(domain=domain))


def _reliability(lines: alt.Color) -> alt.LayerChart:
    axis = alt.Axis(format=PERCENT, values=[0, 0.5, 1])
    up = alt.Y("accuracy:Q", title="Accuracy", axis=axis, scale=alt.Scale(domain=[0, 1]))
    bars = _bars(up, labels=True).encode(color=lines).transform_filter("isValid(datum.accuracy)")
    rule = alt.Chart().mark_rule(color=INK, strokeDash=[3, 2], strokeWidth=1, aria=False)
    ideal = rule.encode(x=alt.datum(0), x2=alt.datum(1), y=alt.datum(0), y2=alt.datum(1))
    return layered(bars, ideal.transform_filter("datum.ideal"))


def _bars(up: alt.Y, *, labels: bool) -> alt.Chart:
    """Without data, for these may come from facets."""
    bars = alt.Chart().mark_bar(stroke="white", strokeWidth=0.4)
    across = confidence_axis("low", labels=labels)
    chart: alt.Chart = bars.encode(x=across, x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0), description=said())
    return chart


def _words(found: Bin) -> dict[str, Any]:
    where = f"confidence {100 * found.low:.0f} to {100 * found.high:.0f} %"
    right = "no predictions" if found.accuracy is None else f"accuracy {percent(found.accuracy)}"
    about = sentence(label_of(found.loss, "", found.label_smoothing), where, right, f"{percent(found.strength)} of all")
    return {**asdict(found), "line": label_of(found.loss), "said": about}
