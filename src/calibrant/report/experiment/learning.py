"""What the logs of runs say of each epoch: how they learned, and what the constraints of MaxEnt Loss did meanwhile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibrant.errors import printable
from calibrant.report.experiment.progress import PlannedRun, RunKind, count
from calibrant.report.experiment.records import number, read_records, run_file
from calibrant.report.figures.averages import Mean, mean_over_seeds, panels_of
from calibrant.report.page import first_of

MOST_CONSTRAINTS = 2  # of a loss whose moments are shown: those that end farthest from their targets
NAMED = {  # the constraints of the forms, in their order
    "maxent_mean": ("mean of the classes",),
    "maxent_variance": ("mean of their squares",),
    "maxent_mean_variance": ("mean of the classes", "their spread"),
}


class Quantity(NamedTuple):
    """Something that a log has a number of for each epoch."""

    title: str
    meaning: str
    in_percent: bool = True


LEARNING = {
    "val_ece": Quantity("Validation ECE", "The ECE on validation rows, which are not shifted."),
    "val_accuracy": Quantity("Validation accuracy", "The share of validation rows that is right."),
    "train_loss": Quantity(
        "Training loss",
        "The mean over the training rows of the epoch. Each loss is on a scale of its own: compare seeds, not losses.",
        in_percent=False,
    ),
}
CONSTRAINTS = {
    "constraint_active_fraction": Quantity(
        "Active constraints",
        "The share of pairs of a validation row and a constraint on which the constraint pulls at all; between the "
        "global and the local moment it does not.",
    ),
    "constraint_gradient_share": Quantity(
        "Share of the gradient",
        "How much of the gradient in the logits comes from the constraints, the rest being focal loss: at 0 % they "
        "have no say, at 50 % as much as focal loss.",
    ),
}
MOMENTS = ("constraint_moments", "constraint_global_moments", "constraint_local_moments")


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """A mean over the seeds of a kind of run after an epoch."""

    panel: str
    kind: RunKind
    quantity: str
    epoch: int
    mean: Mean


@dataclass(frozen=True, slots=True)
class MomentPoint:
    """A moment of the predictions after an epoch beside its targets, means over seeds."""

    panel: str
    kind: RunKind
    constraint: str
    epoch: int
    mean: Mean
    global_target: float
    local_target: float


@dataclass(frozen=True)
class Learning:
    points: tuple[EpochPoint, ...]
    moments: tuple[MomentPoint, ...]
    notes: tuple[str, ...]  # what was left out

    @property
    def labels(self) -> list[str]:
        """What the lines are called, in the order of tables."""
        found = {point.kind for point in self.points} | {point.kind for point in self.moments}
        kinds = sorted(found, key=lambda kind: kind.place[2:])
        return list(dict.fromkeys(printable(kind.label) for kind in kinds))


Log = dict[int, dict[str, Any]]  # the last record of each epoch
Logs = dict[RunKind, list[Log]]  # of the seeds that have one


def read_learning(folder: Path, runs: Sequence[PlannedRun]) -> Learning:
    """From the log.jsonl of every run without smoothed labels; of one that is not done, as far as it is."""
    logs: Logs = defaultdict(list)
    broken: list[str] = []
    without: list[str] = []
    odd: list[str] = []
    plain = [run for run in runs if run.kind.label_smoothing == 0]
    for run in sorted(plain, key=lambda run: (run.kind.place, run.seed)):
        records, n_broken = read_records(run_file(folder, run.name, "log.jsonl"))
        log = _by_epoch(records)
        n_broken += sum(_epoch(record) is None for record in records)
        if n_broken:
            broken.append(f"{count(n_broken, 'line')} of {run.name}")
        odd += _odd(log, run.name)
        if log:
            logs[run.kind].append(log)
        else:
            without.append(run.name)
    panels = panels_of({"data": kind.data, "model": kind.model} for kind in logs)
    points = [point for kind, found in logs.items() for point in _points(panels[kind[:2]], kind, found)]
    moments = [point for kind, found in logs.items() for point in _moments(panels[kind[:2]], kind, found)]
    return Learning(tuple(points), tuple(moments), tuple(_notes(logs, broken, without, odd)))


def _notes(logs: Logs, broken: Sequence[str], without: Sequence[str], odd: Sequence[str]) -> Iterable[str]:
    if broken:
        yield f"Lines of log.jsonl that cannot be read are left out: {', '.join(first_of(broken))}."
    if odd:
        yield f"There is no number of {', '.join(first_of(odd))}."
    if without and logs:
        yield f"Without a log of epochs: {', '.join(first_of(without))}."
    uneven = [kind.label for kind, found in logs.items() if len({max(log) for log in found}) > 1]
    if uneven:
        names = ", ".join(first_of(dict.fromkeys(uneven)))
        yield f"Seeds of {names} are at different epochs; where one has no number, the mean is of the others."


def _odd(log: Log, run: str) -> Iterable[str]:
    """What is named in a log, but is no number, as where a run has diverged."""
    for name in (*LEARNING, *CONSTRAINTS, *MOMENTS):
        n_odd = sum(name in record and not _is_number(record[name]) for record in log.values())
        if n_odd:
            yield f"{name} at {count(n_odd, 'epoch')} of {run}"


def _is_number(value: object) -> bool:
    """Or a list of them."""
    return all(number(part) is not None for part in (value if isinstance(value, list) else [value]))


def _epoch(record: Mapping[str, Any]) -> int | None:
    epoch = number(record.get("epoch"))
    return int(epoch) if epoch is not None and epoch >= 0 and epoch.is_integer() else None


def _by_epoch(records: Iterable[dict[str, Any]]) -> Log:
    """An epoch that was done again, after a kill, counts as it was done last."""
    return {epoch: record for record in records if (epoch := _epoch(record)) is not None}


def _points(panel: str, kind: RunKind, logs: Sequence[Log]) -> Iterable[EpochPoint]:
    for quantity in (*LEARNING, *CONSTRAINTS):
        for epoch in sorted({epoch for log in logs for epoch in log}):
            found = [number(log[epoch].get(quantity)) for log in logs if epoch in log]
            values = [value for value in found if value is not None]
            if values:
                yield EpochPoint(panel, kind, quantity, epoch, mean_over_seeds(values))


def _moments(panel: str, kind: RunKind, logs: Sequence[Log]) -> Iterable[MomentPoint]:
    found: dict[int, list[tuple[list[float], ...]]] = defaultdict(list)
    for log in logs:
        for epoch, record in log.items():
            triple = _triple(record)
            if triple is not None:
                found[epoch].append(triple)
    sizes = {len(moments) for triples in found.values() for moments, _, _ in triples}
    if len(sizes) != 1:  # none, or logs of different losses
        return
    (size,) = sizes
    for at in _farthest(found[max(found)], size):
        for epoch, triples in sorted(found.items()):
            means = [mean_over_seeds([part[at] for part in parts]) for parts in zip(*triples, strict=True)]
            yield MomentPoint(panel, kind, _constraint(kind, at, size), epoch, means[0], means[1].mean, means[2].mean)


def _triple(record: Mapping[str, Any]) -> tuple[list[float], ...] | None:
    """The moments and their two targets, where the record has them all."""
    lists = []
    for name in MOMENTS:
        values = record.get(name)
        numbers = [number(value) for value in values] if isinstance(values, list) else []
        kept = [value for value in numbers if value is not None]
        if not kept or len(kept) < len(numbers):
            return None
        lists.append(kept)
    return tuple(lists) if len({len(kept) for kept in lists}) == 1 else None


def _farthest(last: Sequence[tuple[list[float], ...]], size: int) -> list[int]:
    """The constraints to show, by their gap to the global target at the end."""

    def gap(at: int) -> float:
        return abs(sum(moments[at] - targets[at] for moments, targets, _ in last))

    return sorted(sorted(range(size), key=gap, reverse=True)[:MOST_CONSTRAINTS])


def _constraint(kind: RunKind, at: int, size: int) -> str:
    names = NAMED.get(kind.loss, ())
    if len(names) == size:
        return names[at]
    return f"probability of class {at}" if kind.loss == "maxent_prior" else f"constraint {at + 1} of {size}"
