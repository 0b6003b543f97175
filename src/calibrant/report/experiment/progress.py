"""What an experiment was to do and what is done of it: its runs, those that are missing or failed, and the time."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa

from calibrant.report.experiment.records import number, read_records, run_file
from calibrant.report.page import Cell, Heading, duration
from calibrant.report.palette import label_of, place_of

HEADINGS = [
    Heading("Loss", numeric=False),
    Heading("Data", numeric=False),
    Heading("Model", numeric=False),
    Heading("Seeds", title="runs that the experiment asks for"),
    Heading("Done"),
    Heading("Left"),
    Heading("Time of a run", title="median over the runs that are done"),
]


class RunKind(NamedTuple):
    """What runs have in common that differ in the seed alone."""

    data: str
    model: str
    loss: str
    variant: str
    label_smoothing: float

    @property
    def label(self) -> str:
        return label_of(self.loss, self.variant, self.label_smoothing)

    @property
    def place(self) -> tuple[object, ...]:
        """Where it stands in the order of tables: plain losses first, variants and smoothed labels behind."""
        return self.data, self.model, self.variant != "", self.label_smoothing, place_of(self.loss), self.variant


class PlannedRun(NamedTuple):
    """A run that an experiment asks for; the name is that of its folder."""

    name: str
    kind: RunKind
    seed: int


class Outcome(NamedTuple):
    """How a run ended, the last time that it did."""

    failure: str | None
    seconds: float | None  # the longest time that it took, where it did not fail


@dataclass(frozen=True)
class Progress:
    """The runs of an experiment, and which are done."""

    planned: tuple[PlannedRun, ...]
    done: frozenset[str]
    begun: frozenset[str]
    failures: dict[str, str]  # of runs that are not done: the reason, by the name of the run
    seconds: dict[str, float]  # by the name of the run
    total_seconds: float  # of all that was done, also in vain
    n_broken: int  # lines of the log that cannot be read

    @property
    def missing(self) -> list[str]:
        return [run.name for run in self.planned if run.name not in self.done]


def runs_of(rows: pa.Table) -> list[PlannedRun]:
    """The runs that rows are of."""
    names = rows["run"].to_pylist()
    first = {name: at for at, name in reversed(list(enumerate(names)))}
    found = rows.select([*RunKind._fields, "seed"]).take(pa.array(first.values(), pa.int64())).to_pylist()
    runs = [
        PlannedRun(name, RunKind(*(row[field] for field in RunKind._fields)), row["seed"])
        for name, row in zip(first, found, strict=True)
    ]
    return sorted(runs, key=lambda run: (run.kind.place, run.seed))


def progress_of(folder: Path, rows: pa.Table, planned: Sequence[PlannedRun]) -> Progress:
    """From the rows, and what is in the folder. planned: what the experiment asks for; rows may have other runs."""
    there = runs_of(rows)
    asked = {run.name: run for run in (*planned, *there)}
    outcomes, total, n_broken = _outcomes(folder / "log.jsonl")
    done = frozenset(run.name for run in there)
    left = {name: run_file(folder, name, "config.json") for name in asked if name not in done}
    return Progress(
        planned=tuple(asked.values()),
        done=done,
        begun=frozenset(name for name, config in left.items() if config is not None and config.is_file()),
        failures={
            name: said.failure for name, said in outcomes.items() if said.failure is not None and name not in done
        },
        seconds={name: said.seconds for name, said in outcomes.items() if said.seconds is not None},
        total_seconds=total,
        n_broken=n_broken,
    )


def _outcomes(log: Path) -> tuple[dict[str, Outcome], float, int]:
    """By the name of the run; with the seconds of all of them, and the lines that cannot be read."""
    records, n_broken = read_records(log)
    found: dict[str, Outcome] = {}
    total = 0.0
    for record in records:
        name, failure, took = record.get("run"), record.get("failure"), number(record.get("seconds"))
        if not isinstance(name, str) or not isinstance(failure, str | None):
            n_broken += 1
            continue
        total += took or 0.0
        before = found[name].seconds if name in found else None
        longest = max((took or 0.0, before or 0.0)) if failure is None else before
        found[name] = Outcome(failure, longest)
    return found, total, n_broken


def plan_rows(progress: Progress) -> list[list[Cell]]:
    """A line per kind of run."""
    kinds: dict[RunKind, list[str]] = defaultdict(list)
    for run in sorted(progress.planned, key=lambda run: run.kind.place):
        kinds[run.kind].append(run.name)
    return [_line(kind, names, progress) for kind, names in kinds.items()]


def _line(kind: RunKind, names: Sequence[str], progress: Progress) -> list[Cell]:
    n_done = sum(name in progress.done for name in names)
    took = [progress.seconds[name] for name in names if name in progress.seconds]
    time = Cell(duration(median(took)), round(median(took), 3)) if took else Cell("–")
    left = len(names) - n_done
    counts = [Cell(str(len(names))), Cell(str(n_done)), Cell(str(left), kind="bad" if left else "")]
    return [Cell(kind.label), Cell(kind.data), Cell(kind.model), *counts, time]


def progress_words(progress: Progress) -> str:
    """How far the experiment is, in a sentence or two."""
    n_runs, n_left = len(progress.planned), len(progress.missing)
    if not n_runs:
        return "The experiment names no run."
    verb = "is" if 1 in (n_runs, n_runs - n_left) else "are"
    done = f"{n_runs - n_left} of {count(n_runs, 'run')} {verb} done"
    begun = f" ({len(progress.begun)} begun)" if progress.begun else ""
    said = f"{done}, {n_left} left{begun}." if n_left else f"{done}."
    if progress.total_seconds:
        said += f" The runs took {duration(progress.total_seconds)} in all, added up where several ran at a time."
    return said


def count(number: int, noun: str, plural: str = "") -> str:
    """So many of them.

    >>> count(1, "run"), count(2000, "run"), count(9, "loss", "losses")
    ('1 run', '2,000 runs', '9 losses')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
