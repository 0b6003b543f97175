"""Fig. 5: how predictions spread over ten bins of confidence (top), and how often each bin is right (bottom)."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

import altair as alt
import pyarrow as pa

from calibrant.experiments.rows import RAW
from calibrant.report.figures.averages import Pooled, Row, at_severity, chosen, need, pooled, shared_tests, unsmoothed
from calibrant.report.figures.look import (
    INK,
    PAGE,
    PERCENT,
    Chart,
    column_title,
    confidence_axis,
    finished,
    layered,
    losses_of,
    panel_width,
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


def _block(bins: Sequence[Bin], title: str, width: int) -> alt.VConcatChart:
    """A column per loss; only the first has the axis on its left, which all share."""
    losses = losses_of(bins)
    top = 1.05 * max(found.strength for found in bins)
    above, below = [], []
    for loss in losses:
        own, first = [found for found in bins if found.loss == loss], loss == losses[0]
        spread = strengths(own, first=first, top=top)
        above.append(spread.properties(width=width, height=60, title=column_title(label_of(loss))))
        below.append(_reliability(own, first=first).properties(width=width, height=max(60, width)))
    rows = (alt.hconcat(*charts, spacing=8, bounds="flush") for charts in (above, below))
    return alt.vconcat(*rows, spacing=6, title=title)


def strengths(bins: Sequence[Bin], *, first: bool, top: float, labels: bool = False) -> alt.Chart:
    """The histogram of one loss."""
    axis = alt.Axis(format=PERCENT, tickCount=3, labels=first, ticks=first)
    up = alt.Y("strength:Q", title="Share" if first else None, axis=axis, scale=alt.Scale(domain=[0, top]))
    return _bars(bins, up, labels=labels)


def _reliability(bins: Sequence[Bin], *, first: bool) -> alt.LayerChart:
    axis = alt.Axis(format=PERCENT, values=[0, 0.5, 1], labels=first, ticks=first)
    up = alt.Y("accuracy:Q", title="Accuracy" if first else None, axis=axis, scale=alt.Scale(domain=[0, 1]))
    bars = _bars([found for found in bins if found.accuracy is not None], up, labels=True)
    diagonal = alt.Chart(values([{"at": 0}, {"at": 1}])).mark_line(color=INK, strokeDash=[3, 2], strokeWidth=1)
    ideal = diagonal.encode(x=alt.X("at:Q"), y=alt.Y("at:Q"))
    return layered(bars, ideal)


def _bars(bins: Sequence[Bin], up: alt.Y, *, labels: bool) -> alt.Chart:
    bars = alt.Chart(values([asdict(found) for found in bins]))
    looks = bars.mark_bar(color=colour_of(bins[0].loss), stroke="white", strokeWidth=0.4)
    across = confidence_axis("low", labels=labels)
    chart: alt.Chart = looks.encode(x=across, x2=alt.X2("high:Q"), y=up, y2=alt.Y2Datum(0))
    return chart
