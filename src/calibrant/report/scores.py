"""Scores of an experiment: means over test sets and seeds with standard errors, and the best of them.

As in the paper, a run has the mean over its test sets, and a score is the mean over seeds with the standard error
std(ddof=1)/√n. Means are over the test sets that all runs of the same data set and model have, which makes them
comparable. A natural shift is never averaged with corruptions: where a data set has both, each has its own score.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from calibrant._checks import check_integer
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.experiments.folder import RAW
from calibrant.metrics.chance import chance_limit
from calibrant.metrics.table import METRICS
from calibrant.report.style import loss_sort_key

ChartRecord = dict[str, Any]

ON_ERRORS = "_on_errors"  # the suffix of metrics that are undefined on a test set without errors, which is then skipped
SIGNIFICANCE = 0.05
MAX_SEVERITY = 5
RUN_COLUMNS = (
    "loss",
    "variant",
    "label_smoothing",
    "calibrator",
    "metric",
)  # they do not affect which test sets there are


class ScoreKey(NamedTuple):
    """What the runs of a score have in common: all but the seed."""

    data: str
    model: str
    loss: str
    variant: str
    label_smoothing: float
    calibrator: str
    metric: str
    shift: str = ""  # a natural shift of a data set that also has corruptions; "" of the mean over these


@dataclass(frozen=True, slots=True)
class Score:
    """The mean over seeds of the means over test sets, in the units of the rows."""

    mean: float | None  # None where the mean of a run is undefined
    standard_error: float | None  # None with one seed
    n_seeds: int
    n_tests: int
    per_seed: dict[int, float]  # the means that are defined
    jackknife: dict[int, tuple[float, ...]] = field(default_factory=dict)  # by seed: without each group of images
    at_chance: bool = False  # a run is no more accurate than a constant prediction, which the metric can favour


def shared_tests(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """The rows of the test sets that all runs of a data set and model have, and a note where others are left out."""
    group = ["data", "model"]
    counts = table.group_by(group, use_threads=False).aggregate([("run", "count_distinct")]).to_pylist()
    n_runs = {(row["data"], row["model"]): row["run_count_distinct"] for row in counts}
    tests = table.group_by([*group, "split"], use_threads=False).aggregate([("run", "count_distinct")]).to_pylist()
    lacking = [test for test in tests if test["run_count_distinct"] < n_runs[test["data"], test["model"]]]
    if not lacking:
        return table, []
    keys = pa.array(["\0".join((test["data"], test["model"], test["split"])) for test in lacking], pa.string())
    own = pc.binary_join_element_wise(table["data"], table["model"], table["split"], "\0")
    names = panel_titles(n_runs)
    notes = []
    for pair in n_runs:
        n_tests, n_lacking = (sum((t["data"], t["model"]) == pair for t in found) for found in (tests, lacking))
        if n_lacking:
            n_shared = n_tests - n_lacking
            notes.append(f"{names[pair]}: means are over the {n_shared} of {n_tests} test sets that all runs have.")
    return table.filter(pc.invert(pc.is_in(own, keys))), notes


def add_shifts(table: pa.Table) -> pa.Table:
    """With the column `shift`, the field of `ScoreKey`."""
    pair = pc.binary_join_element_wise(table["data"], table["model"], "\0")
    corrupted = pc.unique(pair.filter(pc.greater(table["severity"], 0)))
    natural = pc.and_(table["shifted"], pc.equal(table["severity"], 0))
    beside = pc.fill_null(pc.and_(natural, pc.is_in(pair, corrupted)), False)
    return table.append_column("shift", pc.if_else(beside, table["corruption"], ""))


def scores(rows: pa.Table, *by: str) -> dict[tuple[Any, ...], Score]:
    """The scores for each combination of these columns.

    A mean is undefined where a value is undefined or a run lacks a test set. Metrics on errors skip undefined values.

    Raises:
        InvalidInputError: A value occurs twice, or a seed has two runs.
    """
    where = [at for at, name in enumerate(by) if name not in RUN_COLUMNS]
    counts = rows.group_by([by[at] for at in where], use_threads=False).aggregate([("split", "count_distinct")])
    n_tests = {tuple(values): count for *values, count in zip(*(column.to_pylist() for column in counts), strict=True)}
    found: dict[tuple[Any, ...], dict[int, ChartRecord]] = defaultdict(dict)
    for row in _run_means(rows, by):
        runs = found[tuple(row[name] for name in by)]
        other = runs.setdefault(row["seed"], row)
        if other is not row:
            raise InvalidInputError(
                f"each seed must have one run, got {other['run']} and {row['run']} for seed {row['seed']}"
            )
    return {key: _score(runs, n_tests[tuple(key[at] for at in where)]) for key, runs in found.items()}


def _run_means(rows: pa.Table, by: Sequence[str]) -> list[ChartRecord]:
    """The mean of each run over its test sets; also without each group of images, where these are the same groups."""
    columns = list(dict.fromkeys([*by, "run", "seed", "metric"]))
    value, n_groups = rows["value"], pc.list_value_length(rows["jackknife"])
    without = _split_lists(rows["jackknife"], pc.max(n_groups).as_py() or 0)
    table = rows.select(list(dict.fromkeys([*columns, "split"])))
    added = {"value": pc.if_else(pc.is_nan(value), pa.scalar(None, pa.float64()), value), "groups": n_groups, **without}
    for name, column in added.items():
        table = table.append_column(name, column)
    aggregates = [("value", "mean"), ("value", "count"), ("split", "count"), ("split", "count_distinct")]
    aggregates += [("groups", "min"), ("groups", "max"), ("groups", "count"), *((name, "mean") for name in without)]
    found: list[ChartRecord] = table.group_by(columns, use_threads=False).aggregate(aggregates).to_pylist()
    for row in found:
        if row["split_count"] > row["split_count_distinct"]:
            raise InvalidInputError(
                f"rows must have one {row['metric']} of {row['run']} on each test set, got two on some"
            )
        same_groups = row["groups_min"] == row["groups_max"] and row["groups_count"] == row["value_count"]
        names = list(without)[: row["groups_max"] or 0] if same_groups else []
        row["jackknife"] = tuple(row[f"{name}_mean"] for name in names)
    return found


def _split_lists(lists: pa.ChunkedArray, size: int) -> dict[str, pa.ChunkedArray]:
    """A column for each position of lists, null where a list is shorter."""
    if not size:
        return {}
    padded = pc.list_slice(lists, 0, size, return_fixed_size_list=True)
    return {f"without_{at}": pc.list_element(padded, at) for at in range(size)}


def _score(runs: dict[int, ChartRecord], n_tests: int) -> Score:
    means = {seed: runs[seed]["value_mean"] for seed in sorted(runs) if _is_defined(runs[seed], n_tests)}
    mean, error = mean_and_standard_error(list(means.values())) if len(means) == len(runs) else (None, None)
    return Score(mean, error, len(runs), n_tests, means, {seed: runs[seed]["jackknife"] for seed in means})


def _is_defined(run: ChartRecord, n_tests: int) -> bool:
    n_values = run["value_count"]
    return bool(
        run["split_count"] == n_tests and (n_values == n_tests or (n_values and run["metric"].endswith(ON_ERRORS)))
    )


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over seeds and its standard error, None with one seed.

    >>> mean_and_standard_error([1.0, 2.0, 3.0, 4.0, 5.0]), mean_and_standard_error([2.0])
    ((3.0, 0.7071067811865476), (2.0, None))
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return fmean(values), None
    offsets = [value - values[0] for value in values]  # equal values have no error, whatever their mean is rounded to
    return fmean(values), math.dist(offsets, [fmean(offsets)] * n) / math.sqrt(n * (n - 1))


def mean_band(values: Sequence[float]) -> ChartRecord:
    """The mean over seeds, and the limits of one standard error to either side.

    >>> mean_band([1.0, 3.0])
    {'mean': 2.0, 'low': 1.0, 'high': 3.0, 'n_seeds': 2}
    """
    mean, error = mean_and_standard_error(values)
    return {"mean": mean, "low": mean - (error or 0.0), "high": mean + (error or 0.0), "n_seeds": len(values)}


def mean_records(rows: pa.Table, *by: str) -> list[ChartRecord]:
    """The defined scores as records of a chart, sorted by panel and loss."""
    found = [
        dict(zip(by, key, strict=True)) | mean_band(list(score.per_seed.values()))
        for key, score in scores(rows, *by).items()
        if score.mean is not None
    ]
    return sorted(found, key=lambda record: (record["panel"], loss_sort_key(record["loss"])))


def significantly_better(best: Score, other: Score, *, higher_is_better: bool = False) -> bool:
    """Whether one score is better than the other beyond the noise of seeds and test rows, two-sided, level 5 %."""
    if why_untested(best, other):
        return False
    mean, margin = difference(best, other)
    return bool((mean if higher_is_better else -mean) > margin)


def difference(first: Score, second: Score) -> tuple[float, float]:
    """The mean difference d of two scores over their n ≥ 2 common seeds, and the margin √(m_s² + m_r²) of its 95 % CI.

    It is the first minus the second. The two margins of Student's t are

    - m_s of the seeds: t(0.975, n − 1) · sd(d)/√n, a paired t-test;
    - m_r of the test rows: t(0.975, J − 1) · √v, v the jackknife variance of d over J groups of images, which are left
      out of all runs and test sets together.

    A difference that is significant here is so in either test alone. One t-test of the summed variances with
    Satterthwaite's degrees of freedom finds too many with two or three seeds: benchmarks/table_marks.py. Scores that
    `why_untested` names have no difference.
    """
    seeds = first.per_seed.keys() & second.per_seed.keys()
    differences = [first.per_seed[seed] - second.per_seed[seed] for seed in seeds]
    without = np.mean([np.subtract(first.jackknife[seed], second.jackknife[seed]) for seed in seeds], axis=0)
    freedom, n_groups = len(seeds) - 1, len(without)
    of_seeds, of_rows = stdtrit([freedom, n_groups - 1], 1 - SIGNIFICANCE / 2) ** 2
    bound = of_seeds * variance(differences) / len(seeds) + of_rows * (n_groups - 1) * without.var()
    return fmean(differences), math.sqrt(bound)


def why_untested(best: Score, other: Score) -> str:
    """Why the difference of two scores cannot be tested; empty where it can."""
    seeds = best.per_seed.keys() & other.per_seed.keys()
    if len(seeds) < 2:
        return "fewer than two common seeds"
    if not all(math.isfinite(score.per_seed[seed]) for score in (best, other) for seed in seeds):
        return "a score is infinite"
    n_groups = {len(score.jackknife.get(seed, ())) for score in (best, other) for seed in seeds}
    return "" if len(n_groups) == 1 and min(n_groups) > 1 else "the noise of the test rows is unknown"


def mark_best(candidates: Sequence[Score | None], *, higher_is_better: bool = False) -> list[tuple[bool, bool]]:
    """For each score whether it is the best, and whether it is significantly better than every other.

    Ties are all best and none is significant. A single score is not called the best. The test includes every other
    score, not only the second best, because one with a larger standard error may not differ significantly. Scores at
    chance are not compared: a constant prediction can be well calibrated.
    """
    scored = {
        at: score for at, score in enumerate(candidates) if score and score.mean is not None and not score.at_chance
    }
    means = {at: score.mean for at, score in scored.items() if score.mean is not None}
    marks = [(False, False)] * len(candidates)
    if len(means) < 2:
        return marks
    best = max(means.values()) if higher_is_better else min(means.values())
    ties = [at for at, mean in means.items() if mean == best]
    for at in ties:
        others = [score for other, score in scored.items() if other != at]
        better = (significantly_better(scored[at], other, higher_is_better=higher_is_better) for other in others)
        marks[at] = (True, len(ties) == 1 and all(better))
    return marks


def favours_constants(metric: str) -> bool:
    """Whether a constant prediction can have the best value: a calibration error, or a score of the errors alone."""
    known = METRICS.get(metric)
    return metric.endswith(ON_ERRORS) or (known is not None and known.floor is not None)


def chance_limits(rows: pa.Table) -> dict[tuple[str, str, str], float]:
    """By data set, model and shift, the largest accuracy that a constant prediction may have by chance.

    Mean over test sets of `chance_limit`. Data without the share of the most frequent class are left out.
    """
    columns = ["data", "model", "shift", "split", "majority", "n_rows"]
    tests = rows.select(columns).group_by(columns, use_threads=False).aggregate([]).to_pylist()
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for test in tests:
        if test["majority"] is not None:
            limit = chance_limit(test["majority"], test["n_rows"])
            found[test["data"], test["model"], test["shift"]].append(limit)
    return {key: fmean(limits) for key, limits in found.items()}


def panel_titles(pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The title of each data set and model; it names the model where a data set has several.

    >>> panel_titles([("digits", "mlp"), ("mnist", "mlp"), ("digits", "cnn")])[("digits", "cnn")]
    'digits, cnn'
    """
    unique = sorted(set(pairs))
    names = [data for data, _ in unique]
    return {(data, model): f"{data}, {model}" if names.count(data) > 1 else data for data, model in unique}


def select_rows(
    table: pa.Table,
    *,
    data: Collection[str] = (),
    losses: Collection[str] = (),
    calibrator: str | None = RAW,
    variants: Collection[str] = ("",),
    smoothed: bool = False,
    **columns: Collection[str],
) -> pa.Table:
    """Rows or curves of these data sets and losses, by default all, and this calibrator, with the column `panel`.

    calibrator None is all of them; smoothed includes runs with label smoothing; columns are accepted values of others.

    Raises:
        NoDataError: There are no rows at all.
        UnknownNameError: A name is not in the experiment.
    """
    if not table.num_rows:
        raise NoDataError("the experiment has no results: no run has finished")
    named = {"data": data, "loss": losses, "calibrator": () if calibrator is None else (calibrator,)}
    for column, names in named.items():
        known = sorted(pc.unique(table[column]).to_pylist())
        for name in names:
            check_choice(f"{column} of the experiment", name, known)
    for column, values in (named | {"variant": variants, **columns}).items():
        if values:
            table = table.filter(pc.is_in(table[column], pa.array(list(values), pa.string())))
    table = table if smoothed else table.filter(pc.equal(table["label_smoothing"], 0.0))
    pairs = list(zip(table["data"].to_pylist(), table["model"].to_pylist(), strict=True))
    panels = panel_titles(pairs)
    return table.append_column("panel", pa.array([panels[pair] for pair in pairs], pa.string()))


def keep_paired_losses(table: pa.Table, column: str) -> pa.Table:
    """The rows of the losses that a panel has both with and without a value (not "" or 0) in this column."""
    kinds: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for row in table.group_by(["panel", "loss", column], use_threads=False).aggregate([]).to_pylist():
        kinds[row["panel"], row["loss"]].add(bool(row[column]))
    pairs = zip(table["panel"].to_pylist(), table["loss"].to_pylist(), strict=True)
    return table.filter(pa.array([len(kinds[pair]) == 2 for pair in pairs], pa.bool_()))


def filter_severity(table: pa.Table, severity: int | None) -> pa.Table:
    """The rows of the test sets of one severity, 0 for the unshifted one.

    None is all shifted test sets, without the natural shifts of a data set that has corruptions.
    """
    if severity is None:
        return table.filter(pc.and_(table["shifted"], pc.equal(add_shifts(table)["shift"], "")))
    check_integer("severity", severity, 0, MAX_SEVERITY)
    return table.filter(pc.and_(pc.equal(table["severity"], severity), pc.equal(table["shifted"], severity > 0)))


def same_corruptions(table: pa.Table) -> pa.Table:
    """The rows of each panel that compare severities: unshifted, and of the corruptions that have every severity.

    A panel without severities keeps all rows; one with severities loses its natural shifts.
    """
    columns = ["panel", "corruption", "severity", "shifted"]
    tests = table.group_by(columns, use_threads=False).aggregate([]).to_pylist()
    found: dict[str, set[int]] = defaultdict(set)  # the severities of each panel, and of its corruptions
    own: dict[tuple[str, str], set[int]] = defaultdict(set)
    for test in tests:
        if test["severity"]:
            found[test["panel"]].add(test["severity"])
            own[test["panel"], test["corruption"]].add(test["severity"])
    keep = [
        not (row["shifted"] and row["panel"] in found)
        or own.get((row["panel"], row["corruption"])) == found[row["panel"]]
        for row in table.select(columns).to_pylist()
    ]
    return table.filter(pa.array(keep, pa.bool_()))


def add_shift_levels(table: pa.Table) -> pa.Table:
    """With the column `shift_level`: 0 for unshifted test sets, the severity of a corruption, 1 for a natural shift."""
    shifted = pc.max_element_wise(table["severity"], pa.scalar(1, pa.int64()))
    return table.append_column("shift_level", pc.if_else(table["shifted"], shifted, pa.scalar(0, pa.int64())))


def pool_curves(curves: pa.Table, *by: str) -> list[ChartRecord]:
    """Curves pooled over test sets and seeds: each point is the mean weighted by counts; empty points are left out."""
    curves = curves.filter(pc.greater(curves["weight"], 0))
    for name in ("x", "y"):
        weighted = pc.multiply(curves[name], curves["weight"])
        curves = curves.set_column(curves.column_names.index(name), name, weighted)
    sums = curves.group_by([*by, "point"], use_threads=False).aggregate([(n, "sum") for n in ("x", "y", "weight")])
    found = [
        {name: row[name] for name in (*by, "point")}
        | {"x": row["x_sum"] / row["weight_sum"], "y": row["y_sum"] / row["weight_sum"], "count": row["weight_sum"]}
        for row in sums.to_pylist()
    ]
    return sorted(found, key=lambda record: (record["panel"], loss_sort_key(record["loss"]), record["point"]))


def by_panel(records: Iterable[ChartRecord]) -> dict[str, list[ChartRecord]]:
    """The records of each panel, in order of appearance."""
    panels: dict[str, list[ChartRecord]] = {}
    for record in records:
        panels.setdefault(record["panel"], []).append(record)
    return panels


def unique_losses(records: Iterable[ChartRecord]) -> list[str]:
    """The losses of records, each once, in the order of tables and legends."""
    return sorted({record["loss"] for record in records}, key=loss_sort_key)
