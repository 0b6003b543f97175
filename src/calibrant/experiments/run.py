"""Experiments: the plan of the runs, the runs, and one table of their rows."""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from calibrant._checks import MAX_JOBS, check_integer
from calibrant._files import check_folder, hold_lock, make_folder
from calibrant._names import check_choice
from calibrant._parquet import read_table
from calibrant._paths import as_path
from calibrant._signals import handle_signals, interrupt
from calibrant._signatures import checked
from calibrant.errors import CorruptFileError, InterruptedRunError, InvalidInputError, NoDataError
from calibrant.experiments.config import AXES, Experiment, read_experiment
from calibrant.experiments.evaluate import EvaluationConfig, is_evaluated
from calibrant.experiments.files import packaged
from calibrant.experiments.folder import ExperimentFolder, RunOutcome
from calibrant.experiments.tasks import Backend, RunProgress, RunTask, in_this_process
from calibrant.metrics.table import check_metrics
from calibrant.run_tables import CURVES, ROWS
from calibrant.runs import RunFolder, RunKey, remedy, split_variant
from calibrant.training.folder import check_files, check_same_settings
from calibrant.training.predicting import select_shifts
from calibrant.training.settings import Settings, open_data

DEFAULT_JOBS = 8  # processes by default
# Settings that decide which tests there are.
SPLIT_SETTINGS = ("data", "root", "image_size", "hold_out", "test_folders", "shifts")

RunState = Literal["done", "started", "to do"]
RunTables = dict[RunKey, tuple[pa.Table, pa.Table]]  # rows and curves of the runs that are done


@dataclass(frozen=True)
class ExperimentPlan:
    """The runs of an experiment, their states, and those that are chosen to run now."""

    experiment: Experiment
    folder: ExperimentFolder
    states: Mapping[RunKey, RunState]
    chosen: tuple[RunKey, ...]

    def tasks(self, *, redo: bool = False) -> list[RunTask]:
        """The runs to do: started ones first, then seed by seed, which makes half a sweep comparable; then ensembles.

        redo: also finished runs, whose files may be damaged.
        """
        keys = self.remaining(redo=redo)
        keys.sort(key=lambda key: (self.states[key] != "started", key.seed))
        folder = ExperimentFolder(Path(os.path.abspath(self.folder.path)))
        config = EvaluationConfig.of(self.experiment)
        return [
            RunTask(key, self.settings_of(key), folder.run(key.name), config, redo, self.members_of(key, folder))
            for key in keys
        ]

    def settings_of(self, key: RunKey) -> Settings:
        """The settings of a run, or of the first member of an ensemble."""
        return self.experiment.runs[self.experiment.members.get(key, (key,))[0]]

    def members_of(self, key: RunKey, folder: ExperimentFolder) -> tuple[RunFolder, ...]:
        """The folders of the members of an ensemble; none of a run."""
        return tuple(folder.run(member.name) for member in self.experiment.members.get(key, ()))

    def remaining(self, *, redo: bool = False) -> list[RunKey]:
        """The keys of the runs to do."""
        return [key for key in self.chosen if redo or self.states[key] != "done"]

    def summary(self) -> str:
        """How many runs there are, and how many of them are done."""
        states = [self.states[key] for key in self.chosen]
        n_done, n_started = states.count("done"), states.count("started")
        started = f" ({n_started} started)" if n_started else ""
        runs = "1 run" if len(states) == 1 else f"{len(states)} runs"
        return f"{runs} in {self.folder.path}: {n_done} done, {len(states) - n_done} remaining{started}"


@dataclass(frozen=True)
class ExperimentResult:
    """The outcome of an experiment.

    Args:
        folder: The folder, with the rows of all runs that are done.
        n_done: How many runs are done.
        failures: The runs that failed this time, and why.
        missing: The names of all runs that are not done.
    """

    folder: ExperimentFolder
    n_done: int
    failures: tuple[RunOutcome, ...]
    missing: tuple[str, ...]


@checked
def run_experiment(
    file: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    only: Mapping[str, str] | None = None,
    redo: bool = False,
    backend: Backend = in_this_process,
) -> ExperimentResult:
    """Run what is left of an experiment file, and gather the rows of all its runs.

    Args:
        file: The experiment file.
        output: The folder of all results; by default that of the file.
        only: The value of each axis to run, as {"loss": "focal"}.
        redo: Make damaged files again.
        backend: Where the runs are done, by default one after the other in this process; `ProcessBackend` and
            `RayBackend` do several at a time.

    Returns:
        What is done, failed and missing.

    Raises:
        InvalidInputError: The folder has a run of other settings, or is that of a run.
        UnknownNameError: The file has an unknown key or name.
        ResourceError: Another process runs an experiment in the folder, or it cannot be written.
        InterruptedRunError: It was stopped; the same call resumes it.
    """
    return run_plan(plan_experiment(file, output=output, only=only), Path(file), redo=redo, backend=backend)


def demo_file() -> Path:
    """The demo experiment, in the installed package or in the repository."""
    return packaged("demo.toml")


def plan_experiment(
    file: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    only: Mapping[str, str] | None = None,
) -> ExperimentPlan:
    """The runs of an experiment file and their states; the arguments are those of `run_experiment`.

    Raises: InvalidInputError where the folder has a run of other settings, or is that of a run.
    """
    experiment = read_experiment(file)
    folder = ExperimentFolder(as_path("output", experiment.output or "runs" if output is None else output))
    check_folder(folder.path, "an experiment")
    config = EvaluationConfig.of(experiment)
    states: dict[RunKey, RunState] = dict.fromkeys(experiment.runs, "to do")
    begun = {path.name for path in folder.path.glob("*")}  # of 100,000 runs, few need a look at their files
    seen: set[tuple[object, ...]] = set()
    for key, settings in experiment.runs.items():
        source = tuple(getattr(settings, name) for name in SPLIT_SETTINGS)
        if source not in seen:
            _check_data(key, settings, experiment)
            seen.add(source)
        if key.name in begun:
            run = folder.run(key.name)
            check_same_settings(run, settings)
            done = run.is_done and is_evaluated(key, run, config)
            states[key] = "done" if done else "started" if run.config.exists() else "to do"
    for key, members in experiment.members.items():
        known = all(states[member] == "done" for member in members)
        runs = [folder.run(member.name) for member in members]
        states[key] = "done" if known and is_evaluated(key, folder.run(key.name), config, runs) else "to do"
    return ExperimentPlan(experiment, folder, states, _select_runs(states, only or {}))


def _check_data(key: RunKey, settings: Settings, experiment: Experiment) -> None:
    """Check shifts and metrics against the data set, unless its files are missing."""
    with suppress(NoDataError):
        data = open_data(settings)
        select_shifts(data, settings, f"shift of {key.name}")
        check_metrics(experiment.metrics, data.n_classes)


def _select_runs(runs: Iterable[RunKey], only: Mapping[str, str]) -> tuple[RunKey, ...]:
    chosen = every = tuple(runs)
    for axis, value in only.items():
        check_choice("axis", axis, (*AXES, "variant"))
        if not any(_has(key, axis, value) for key in every):
            known = ", ".join(sorted({str(getattr(key, axis)) for key in every}))
            raise InvalidInputError(f"only must name a {axis} of the experiment, got {value!r}; there are {known}")
        chosen = tuple(key for key in chosen if _has(key, axis, value))
    if every and not chosen:
        raise InvalidInputError(f"only leaves none of the {len(every)} runs")
    return chosen


def _has(key: RunKey, axis: str, value: str) -> bool:
    """Whether the run has this value, as the user writes it; 0.0 is 0. An ensemble has no seed."""
    own = None if axis == "seed" and split_variant(key.variant)[1] else getattr(key, axis)
    return str(own) == value or (isinstance(own, float) and f"{own:g}" == value)


def choose_backend(
    plan: ExperimentPlan, *, jobs: int | None = None, ray: str | None = None, redo: bool = False
) -> Backend:
    """Ray where an address is given, else as many processes as asked for: by default one per GPU or core, at most 8."""
    import torch

    from calibrant.experiments.processes import ProcessBackend

    if jobs is not None:
        check_integer("jobs", jobs, 1, MAX_JOBS)
    if ray is not None:
        from calibrant.experiments.cluster import RayBackend

        resources = plan.experiment.resources
        return RayBackend(ray, cpus=resources.cpus, gpus=resources.gpus)
    n_cores, n_gpus = os.cpu_count() or 1, torch.cuda.device_count()
    n_jobs = min(jobs or n_gpus or min(n_cores, DEFAULT_JOBS), len(plan.remaining(redo=redo)))
    return ProcessBackend(n_jobs, max(1, n_cores // n_jobs), n_gpus) if n_jobs > 1 else in_this_process


def run_plan(
    plan: ExperimentPlan,
    file: Path,
    *,
    redo: bool = False,
    backend: Backend = in_this_process,
    progress: RunProgress = lambda run, share: None,
    on_run_end: Callable[[RunOutcome], None] = lambda outcome: None,
) -> ExperimentResult:
    """Run what is left of a plan; the arguments are those of `run_experiment`.

    Args:
        plan: The runs.
        file: The experiment file, which is copied into the folder.
        redo: Also check finished runs, and make damaged files again.
        backend: Where the runs are done.
        progress: Called with the name of a run and the fraction of it that is done.
        on_run_end: Called after each run, when its rows are in the folder.
    """
    folder = plan.folder
    make_folder(folder.path)
    with hold_lock(folder.lock_file, f"another process runs an experiment in {folder.path}"):
        folder.copy_experiment(file)
        tasks = plan.tasks(redo=redo)
        _check_weights(tasks)
        keys, failures = {task.name: task.key for task in tasks}, list[RunOutcome]()
        tables: RunTables = {}
        for key, state in plan.states.items():  # a damaged file that is not made again raises before hours of training
            if state == "done" and key.name not in keys:
                check_files(folder.run(key.name))
            with suppress(CorruptFileError) if key.name in keys else nullcontext():
                _add(plan, tables, key)
        with handle_signals(interrupt):
            outcomes = _in_order(backend, tasks, progress)
            try:
                for outcome in outcomes:
                    folder.append_log(outcome)
                    tables.pop(keys[outcome.run], None)
                    if outcome.failure is None:
                        _add(plan, tables, keys[outcome.run])
                    else:
                        failures.append(outcome)
                    _write(plan, tables)
                    on_run_end(outcome)
            except (KeyboardInterrupt, InterruptedRunError):
                outcomes.close()
                n_done = _finish(plan, tables, failures).n_done
                stopped = f"stopped with {n_done} of {len(plan.states)} runs done"
                raise InterruptedRunError(f"{stopped}; the same command resumes {folder.path}") from None
            finally:
                outcomes.close()
        return _finish(plan, tables, failures)


def _check_weights(tasks: Sequence[RunTask]) -> None:
    """Refuse an experiment whose runs would all fail one by one. Raises: NoDataError."""
    for task in tasks:
        weights, begun = task.settings.weights, task.folder.last.is_file() or task.folder.weights.is_file()
        if weights and not (task.members or begun or Path(weights).is_file()):
            raise NoDataError(f"{weights} is not there: the weights that {task.name} starts from")


def _in_order(backend: Backend, tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]:
    """The outcomes of the runs, then of the ensembles whose members are all done by now."""
    yield from backend([task for task in tasks if not task.members], progress)
    ensembles = [task for task in tasks if task.members]
    ready = [task for task in ensembles if all(member.is_done and member.metrics.is_file() for member in task.members)]
    if ready:
        yield from backend(ready, progress)


def _finish(plan: ExperimentPlan, tables: RunTables, failures: list[RunOutcome]) -> ExperimentResult:
    """Gather the rows, also of runs whose outcome was not awaited."""
    failed = {outcome.run for outcome in failures}
    for key in plan.states:
        if key not in tables and key.name not in failed:
            _add(plan, tables, key)
    _write(plan, tables)
    missing = tuple(key.name for key in plan.states if key not in tables)
    return ExperimentResult(plan.folder, len(tables), tuple(failures), missing)


def _add(plan: ExperimentPlan, tables: RunTables, key: RunKey) -> None:
    """Read rows and curves of a run, if it is done. Raises: CorruptFileError."""
    run = plan.folder.run(key.name)
    if is_evaluated(key, run, EvaluationConfig.of(plan.experiment), plan.members_of(key, plan.folder)):
        tables[key] = _read(run.metrics, ROWS), _read(run.curves, CURVES)


def _write(plan: ExperimentPlan, tables: RunTables) -> None:
    """Write one table of all rows, and one of all curves, in the order of the plan."""
    done = [tables[key] for key in plan.states if key in tables]
    rows = pa.concat_tables([ROWS.empty_table(), *(rows for rows, _ in done)])
    curves = pa.concat_tables([CURVES.empty_table(), *(curves for _, curves in done)])
    plan.folder.write_tables(rows, curves)


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    with remedy("--redo makes it again"):
        return read_table(path, schema).replace_schema_metadata(None)
