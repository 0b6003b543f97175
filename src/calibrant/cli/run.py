"""`calibrant run`: an experiment file from its plan to its tables, figures and report."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.cli.figure import ALL, check_figures
from calibrant.cli.options import File, Output, Switch
from calibrant.cli.output import new_table, shown, working
from calibrant.cli.report import write_page
from calibrant.errors import CalibrantError, FailedRunsError, InvalidInputError, NoDataError
from calibrant.report.numbers import duration

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.experiments.plan import Plan
    from calibrant.experiments.run import Result
    from calibrant.experiments.work import Backend, Outcome

MOST_JOBS = 8  # processes that are started unless told otherwise


def run(
    file: File | None = None,
    *,
    output: Output | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    only: str = "",
    dry_run: Switch = False,
    redo: Switch = False,
) -> None:
    """Train losses × seeds, measure them under shift, and show the tables: an experiment from one file.

    Runs that are done are not done again; the same command goes on after Ctrl-C, a crash or a full disk. A run that
    fails does not stop the others.

    Parameters
    ----------
    file
        The experiment, as a TOML file; by default the demonstration that comes with the package.
    output
        The folder of all that comes of it, where not that of the file.
    jobs
        Processes that train at the same time, by default one for each GPU, or else one for each core, at most 8.
    ray
        The address of a Ray cluster, or auto; the folder must be on a disk that all its machines share.
    only
        Some of the runs, as loss=maxent_mean,seed=0.
    dry_run
        Show the plan and stop.
    redo
        Look at every file of predictions, and make those that are damaged again.
    """
    from rich.console import Console

    try:
        from calibrant.experiments.config import read_experiment
        from calibrant.experiments.plan import make_plan
    except ImportError:
        raise NoDataError(
            "experiments need the extras report and train: pip install 'calibrant[report,train]'"
        ) from None

    console = Console()
    source = demo_file() if file is None else file
    with working("reading the plan"):
        experiment = read_experiment(source)
        plan = make_plan(experiment, Path(output or experiment.output or "runs"), _chosen(only))
    if jobs is not None and jobs < 1:
        raise InvalidInputError(f"jobs must be at least 1, got {jobs}")
    check_figures(experiment.figures)  # and that they can be drawn, before hours of training
    n_jobs = 1 if ray else min(jobs or _default_jobs(), max(1, len(plan.tasks(redo=redo))))
    show_plan(console, plan, n_jobs)
    if dry_run:
        return
    result = _carried_out(console, plan, Path(source), redo=redo, backend=_backend(plan, n_jobs, ray))
    _show_result(console, plan, result)


def demo_file() -> Path:
    """The demonstration: in an installed package a part of it, in the repository beside it."""
    packaged = Path(__file__).parents[1] / "experiments" / "demo.toml"
    return packaged if packaged.is_file() else Path(__file__).parents[3] / "experiments" / "demo.toml"


def _chosen(only: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in only.split(",") if part]
    if any(not equals for _, equals, _ in pairs):
        raise InvalidInputError(f"only must be as loss=maxent_mean,seed=0, got {only!r}")
    chosen = {key.strip(): value.strip() for key, _, value in pairs}
    if len(chosen) < len(pairs):
        raise InvalidInputError(f"only must have one value of each, got {only!r}")
    return chosen


def _default_jobs() -> int:
    import torch

    return torch.cuda.device_count() or min(os.cpu_count() or 1, MOST_JOBS)


def _backend(plan: "Plan", n_jobs: int, ray: str | None) -> "Backend":
    import torch

    from calibrant.experiments.processes import Processes
    from calibrant.experiments.work import in_this_process

    if ray is not None:
        from calibrant.experiments.cluster import RayBackend

        resources = plan.experiment.resources
        return RayBackend(ray, cpus=resources.cpus, gpus=resources.gpus)
    if n_jobs == 1:
        return in_this_process
    return Processes(n_jobs, max(1, (os.cpu_count() or 1) // n_jobs), torch.cuda.device_count())


def show_plan(console: "Console", plan: "Plan", n_jobs: int) -> None:
    """The runs by data set, model and loss, what is done of them, and how long the others will take."""
    names = ("data", "model", "loss", "smoothing", "seeds", "done", "left")
    table = new_table(plan.experiment.title or str(plan.folder), names, n_left=3)
    groups: dict[tuple[str, ...], list[str]] = {}
    for run in plan.chosen:
        said = run.described
        loss = f"{said['loss']} ({said['variant']})" if said["variant"] else said["loss"]
        kind = (said["data"], said["model"], loss, f"{said['label_smoothing']:g}")
        groups.setdefault(kind, []).append(plan.states[run])
    for words, states in groups.items():
        n_done = states.count("done")
        table.add_row(*map(shown, words), *map(str, (len(states), n_done, len(states) - n_done)))
    if groups:
        console.print(table)
    states = [plan.states[run] for run in plan.chosen]
    n_left = len(states) - states.count("done")
    begun = f" ({states.count('begun')} begun)" if "begun" in states else ""
    summary = f"{len(states)} runs in {plan.folder}: {states.count('done')} done, {n_left} left{begun}"
    console.print(shown(f"{summary}{_about(plan, n_jobs) if n_left else ''}"), soft_wrap=True)


def _about(plan: "Plan", n_jobs: int) -> str:
    from calibrant._files import first_line
    from calibrant.experiments.estimate import seconds_left

    try:
        with working("timing a few steps"):
            seconds = seconds_left(plan) / n_jobs
    except (CalibrantError, RuntimeError) as error:  # torch's, where the memory does not suffice for a step
        return f"; the time is not known: {first_line(error)}"
    where = f" in {n_jobs} processes" if n_jobs > 1 else ""
    return f", about {duration(seconds)}{where}"


def _carried_out(console: "Console", plan: "Plan", file: Path, *, redo: bool, backend: "Backend") -> "Result":
    from calibrant.experiments.run import carry_out

    with Progress(console, len(plan.tasks(redo=redo))) as progress:
        return carry_out(plan, file, redo=redo, backend=backend, report=progress.report, heard=progress.heard)


class Progress:
    """A bar over all runs on a terminal, and a line for each that has ended."""

    def __init__(self, console: "Console", total: int) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.console, self.total, self.ended = console, total, 0
        self.shares: dict[str, float] = {}
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeRemainingColumn())
        self.bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("starting", total=total)

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def report(self, run: str, share: float) -> None:
        self.shares[run] = share
        said = f"{self.ended} of {self.total} runs, now {run}"
        self.bar.update(self.task, completed=sum(self.shares.values()), description=said)

    def heard(self, outcome: "Outcome") -> None:
        self.ended += 1
        self.report(outcome.run, 1.0)
        how = f"failed: {outcome.failure}" if outcome.failure else f"done in {duration(outcome.seconds)}"
        said = "; ".join([how, *outcome.notes])
        self.console.print(shown(f"{self.ended}/{self.total} {outcome.run} {said}"), soft_wrap=True)


def _show_result(console: "Console", plan: "Plan", result: "Result") -> None:
    """Table 1, the page of all tables and figures, and what is missing or failed."""
    if result.n_done:
        console.print(_table(result.folder, console.width), soft_wrap=True, markup=False, highlight=False, end="")
    if result.missing:
        console.print(shown(f"{len(result.missing)} of {len(plan.states)} runs are not done, and not in the table"))
    for outcome in result.failures:
        log = result.folder / outcome.run / "error.log"
        where = log if log.is_file() else log.with_name("output.log")
        console.print(shown(f"{outcome.run} failed: {outcome.failure} ({where})"), style="red", soft_wrap=True)
    if result.n_done or ALL not in plan.experiment.figures:
        root = next((run.settings.root for run in plan.chosen), None)
        page = write_page(result.folder, figures=plan.experiment.figures, root=root)
        console.print(shown(f"rows are in {page.with_name('rows.parquet')}, figures in {page.with_name('figures')}"))
        console.print(shown(f"open {page} in a browser: {page.absolute().as_uri()}"), soft_wrap=True)
    if result.failures:
        raise FailedRunsError(f"{len(result.failures)} of {len(plan.chosen)} runs failed; the same command tries again")


def _table(folder: Path, width: int) -> str:
    """Table 1, or why there is none."""
    from calibrant.experiments.rows import read_rows
    from calibrant.report.old_formats import render
    from calibrant.report.tables import make_table

    try:
        return render(make_table(read_rows(folder), "1"), "text", width=width)
    except NoDataError as error:
        return f"no table: {error}\n"
