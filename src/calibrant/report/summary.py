"""From the rows of an experiment to what a table shows: means over shifted tests and seeds, and which is best.

As in the paper, a run's score is the plain mean over its shifted tests, every corruption and severity once, and a cell
is the mean over seeds with the standard error std(ddof=1)/√n.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from calibrant.errors import InvalidInputError

ON_ERRORS = "_on_errors"  # metrics so named have no value on a test without an error, which then does not count
LEVEL = 0.95


class Key(NamedTuple):
    """What the runs of a cell have in common; they differ in the seed."""

    data: str
    model: str
    loss: str
    variant: str
    label_smoothing: float
    calibrator: str
    metric: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A score over seeds, in the units of the rows."""

    mean: float | None  # None where a run's score is undefined
    error: float | None  # the standard error, None of one seed
    n_seeds: int
    n_tests: int  # those that any of its runs has
    complete: bool  # whether each run has every such test that any run on these data has
    per_seed: dict[int, float]  # the scores that are defined


Run = dict[str, float | None]  # the value on each test


def cells(rows: pa.Table, metrics: Collection[str], *, shifted: bool = True) -> dict[Key, Cell]:
    """The cells of these metrics, over the shifted tests or over the others.

    Raises: InvalidInputError where a value occurs twice.
    """
    runs = runs_by_seed(rows, metrics, shifted=shifted)
    tests: dict[tuple[str, str], set[str]] = defaultdict(set)
    for key, by_seed in runs.items():
        tests[key.data, key.model].update(*by_seed.values())
    return {key: cell(key.metric, by_seed, tests[key.data, key.model]) for key, by_seed in runs.items()}


def runs_by_seed(rows: pa.Table, metrics: Collection[str], *, shifted: bool = True) -> dict[Key, dict[int, Run]]:
    """The values of each cell by seed and test."""
    wanted = pc.is_in(rows["metric"], pa.array(sorted(metrics), pa.string()))
    rows = rows.filter(pc.and_(pc.equal(rows["shifted"], shifted), wanted))
    runs: dict[Key, dict[int, Run]] = defaultdict(dict)
    names: dict[tuple[Key, int], str] = {}
    keys = map(Key, *(rows[name].to_pylist() for name in Key._fields))
    for key, *found in zip(keys, *(rows[name].to_pylist() for name in ("seed", "run", "split", "value")), strict=True):
        seed, name, split, value = found
        if names.setdefault((key, seed), name) != name:
            raise InvalidInputError(f"rows must have one run of seed {seed}, got {names[key, seed]} and {name}")
        run = runs[key].setdefault(seed, {})
        if split in run:
            raise InvalidInputError(f"rows must have one {key.metric} ({key.calibrator}) of {name} on {split}, got two")
        run[split] = value
    return dict(runs)


def cell(metric: str, by_seed: Mapping[int, Run], tests: Collection[str]) -> Cell:
    scores = {seed: run_mean(metric, by_seed[seed].values()) for seed in sorted(by_seed)}
    per_seed = {seed: score for seed, score in scores.items() if score is not None}
    mean, error = mean_and_error(list(per_seed.values())) if len(per_seed) == len(scores) else (None, None)
    return Cell(
        mean=mean,
        error=error,
        n_seeds=len(scores),
        n_tests=len(set().union(*by_seed.values())),
        complete=all(run.keys() == set(tests) for run in by_seed.values()),
        per_seed=per_seed,
    )


def run_mean(metric: str, values: Iterable[float | None]) -> float | None:
    """The plain mean over tests; an undefined value makes it undefined, but does not count in a metric of errors.

    >>> run_mean("ece", [0.25, 0.75]), run_mean("ece", [0.25, None]), run_mean("nll_on_errors", [0.25, None])
    (0.5, None, 0.25)
    """
    values = list(values)
    defined = [value for value in values if value is not None and not math.isnan(value)]
    if not defined or (len(defined) < len(values) and not metric.endswith(ON_ERRORS)):
        return None
    return fmean(defined)


def mean_and_error(scores: Sequence[float]) -> tuple[float, float | None]:
    """The mean over seeds and its standard error, which one seed has not.

    >>> mean_and_error([1.0, 2.0, 3.0, 4.0, 5.0]), mean_and_error([2.0])
    ((3.0, 0.7071067811865476), (2.0, None))
    """
    known = len(scores) > 1 and all(map(math.isfinite, scores))
    return fmean(scores), stdev(scores) / math.sqrt(len(scores)) if known else None


def leads(best: Cell, other: Cell, *, higher_is_better: bool = False) -> bool:
    """Whether one is better than the other beyond the chance of seeds, paired by seed.

    With d the differences on the common seeds, n of them: mean d > t(0.975, n − 1) · sd(d)/√n, for n ≥ 2.
    """
    seeds = best.per_seed.keys() & other.per_seed.keys()
    sign = 1.0 if higher_is_better else -1.0
    differences = [sign * (best.per_seed[seed] - other.per_seed[seed]) for seed in seeds]
    if len(seeds) < 2 or not all(map(math.isfinite, differences)):
        return False
    bound = stdtrit(len(seeds) - 1, (1 + LEVEL) / 2) * stdev(differences) / math.sqrt(len(seeds))
    return bool(fmean(differences) > bound)


def standings(candidates: Sequence[Cell | None], *, higher_is_better: bool = False) -> list[tuple[bool, bool]]:
    """Of each cell whether it is the best, and whether it leads every other beyond chance.

    Only complete cells compete: the tests that another lacks may be the hard ones. Equals are best together, and one
    without a rival is not called the best. To lead the second alone is not enough: the third, whose scores differ more
    from seed to seed, may be ahead but for chance.
    """
    sign = -1.0 if higher_is_better else 1.0
    able = [(place, c, sign * c.mean) for place, c in enumerate(candidates) if c and c.complete and c.mean is not None]
    ranked = sorted(able, key=lambda item: item[2])
    found = [(False, False)] * len(candidates)
    if len(ranked) < 2:
        return found
    ties = [place for place, _, mean in ranked if mean == ranked[0][2]]
    for place in ties:
        found[place] = (True, False)
    if len(ties) == 1:
        (_, best, _), *others = ranked
        ahead = all(leads(best, other, higher_is_better=higher_is_better) for _, other, _ in others)
        found[ties[0]] = (True, ahead)
    return found
