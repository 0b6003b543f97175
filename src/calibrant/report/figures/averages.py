"""The rows that a figure is of, and their means: over the tests of a run as in the paper, then over seeds."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from calibrant._checks import check_choice, check_whole
from calibrant.errors import NoDataError, printable
from calibrant.experiments.rows import RAW
from calibrant.report.palette import place_of
from calibrant.report.summary import mean_and_error, run_mean

Row = dict[str, Any]
P = TypeVar("P", bound="OfPanel")

MAXENT = ("maxent_mean", "maxent_variance", "maxent_mean_variance")
HARDEST = 5  # the severities of corruptions are 1 to 5


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds of the means of runs; low and high are a standard error away, and alike of one seed."""

    mean: float
    low: float
    high: float
    n_seeds: int


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """The mean ± std(ddof=1) / √n.

    >>> mean_over_seeds([1.0, 3.0])
    Mean(mean=2.0, low=1.0, high=3.0, n_seeds=2)
    """
    mean, error = mean_and_error(values)
    return Mean(mean, mean - (error or 0.0), mean + (error or 0.0), len(values))


class OfPanel(Protocol):
    """What stands in a panel of a figure."""

    @property
    def panel(self) -> str: ...


@dataclass(frozen=True)
class Points(Generic[P]):
    """The points of a figure, and what its reader must know beside them."""

    points: tuple[P, ...]
    note: str = ""

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(point.panel for point in self.points))


def chosen(
    table: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str | None = RAW,
    variants: Collection[str] = ("",),
    **equal: Collection[str],
) -> list[Row]:
    """The rows of these data sets, losses (all where none is named) and calibrator, in the order of LOSS_ORDER.

    equal: other columns and the values they may have. Each row gets the ``panel`` it belongs to: its data set, and
    its model where the data set has several.

    Raises: NoDataError, UnknownNameError.
    """
    _check_known(table, data=data, loss=losses, calibrator=() if calibrator is None else (calibrator,))
    wanted: dict[str, Collection[str]] = {"data": data, "loss": losses, "variant": variants, **equal}
    wanted |= {} if calibrator is None else {"calibrator": (calibrator,)}
    for column, values in wanted.items():
        if values:
            table = table.filter(pc.is_in(table.column(column), pa.array(list(values), pa.string())))
    rows = table.to_pylist()
    names = panels_of(rows)
    for row in rows:
        row["panel"] = names[row["data"], row["model"]]
    return sorted(rows, key=lambda row: (row["data"], row["model"], place_of(row["loss"]), row["seed"]))


def _check_known(table: pa.Table, **named: Collection[str]) -> None:
    for column, names in named.items():
        known = sorted(pc.unique(table.column(column)).to_pylist())
        if not known:
            raise NoDataError("the experiment has no rows: none of its runs is done")
        for name in names:
            check_choice(f"{column} of the experiment", name, known)


def panels_of(rows: Iterable[Row]) -> dict[tuple[str, str], str]:
    """What figures call each data set and model."""
    pairs = {(row["data"], row["model"]) for row in rows}
    several = {data for data, model in pairs if any(pair[0] == data and pair[1] != model for pair in pairs)}
    names = {(data, model): f"{data}, {model}" if data in several else data for data, model in pairs}
    return {pair: printable(name) for pair, name in names.items()}


def unsmoothed(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["label_smoothing"] == 0]


def step_of(row: Row) -> int:
    """How far a test is shifted: 0 not, the severity of a corruption, and 1 for a shift in the wild."""
    return max(1, row["severity"]) if row["shifted"] else 0


def at_severity(rows: Iterable[Row], severity: int | None) -> list[Row]:
    """The rows of the tests of one severity, 0 being the unshifted one; of all shifted tests where none is named."""
    if severity is None:
        return [row for row in rows if row["shifted"]]
    check_whole("severity", severity, 0, HARDEST)
    return [row for row in rows if row["severity"] == severity and row["shifted"] == (severity > 0)]


def shared_tests(rows: Iterable[Row]) -> tuple[list[Row], str]:
    """The rows of the tests that all runs of a panel have, for only over the same tests are means comparable.

    With them a note for the reader, which is empty where all runs have all tests.
    """
    rows = list(rows)
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        found[row["panel"]][row["run"]].add(row["split"])
    shared = {panel: set.intersection(*runs.values()) for panel, runs in found.items()}
    every = {panel: set.union(*runs.values()) for panel, runs in found.items()}
    notes = [
        f"{panel}: only the {len(shared[panel])} of {len(every[panel])} tests that all runs have"
        for panel in found
        if shared[panel] != every[panel]
    ]
    return [row for row in rows if row["split"] in shared[row["panel"]]], "; ".join(notes)


def run_means(rows: Iterable[Row], *by: str) -> dict[tuple[Any, ...], Mean]:
    """For each combination of these columns: the mean over the tests of each run, then over the runs' seeds.

    A combination in which a run has a test whose value is undefined is left out, as tables do.
    """
    values: dict[tuple[Any, ...], dict[tuple[str, str], list[float | None]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        values[tuple(row[name] for name in by)][row["run"], row["metric"]].append(row["value"])
    means = {key: [run_mean(metric, found) for (_, metric), found in runs.items()] for key, runs in values.items()}
    defined = {key: [mean for mean in found if mean is not None] for key, found in means.items()}
    return {key: mean_over_seeds(found) for key, found in defined.items() if len(found) == len(means[key])}


def need(rows: Collection[Any], figure: str, what: str, remedy: str) -> None:
    """Raises: NoDataError where there are none."""
    if not rows:
        raise NoDataError(f"the figure {figure} needs {what}, and the experiment has none: {remedy}")


@dataclass(frozen=True, slots=True)
class Pooled:
    """One point of a curve, of all rows of several tests taken together."""

    x: float
    y: float
    count: float


def pooled(rows: Iterable[Row], *by: str) -> dict[tuple[Any, ...], dict[int, Pooled]]:
    """For each combination of these columns the points of its curve, weighted by their counts; empty ones left out."""
    sums: dict[tuple[Any, ...], dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for row in rows:
        if row["weight"]:
            point = sums[tuple(row[name] for name in by)][row["point"]]
            for at, value in enumerate((row["x"], row["y"], 1.0)):
                point[at] += row["weight"] * value
    return {
        key: {point: Pooled(x / count, y / count, count) for point, (x, y, count) in sorted(points.items())}
        for key, points in sums.items()
    }
