"""`calibrant run`: an experiment file from its plan to its tables, figures and report."""

from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.cli.options import File, Output, Switch
from calibrant.cli.output import new_table, shown, working
from calibrant.cli.report import write_page
from calibrant.errors import FailedRunsError, InvalidInputError, NoDataError

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.experiments.folder import ExperimentFolder, RunOutcome
    from calibrant.experiments.run import ExperimentPlan, ExperimentResult


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
        from calibrant.experiments.run import choose_backend, demo_file, plan_experiment, run_plan
    except ImportError:
        raise NoDataError(
            "experiments need the extras report and train: pip install 'calibrant[report,train]'"
        ) from None
    from calibrant.cli.bar import SweepBar
    from calibrant.report.experiment import live_page
    from calibrant.report.figures import check_figures

    console = Console()
    source = demo_file() if file is None else Path(file)
    with working("reading the plan"):
        plan = plan_experiment(source, output=output, only=_axes(only))
    backend = choose_backend(plan, jobs=jobs, ray=ray, redo=redo)
    check_figures(plan.experiment.figures)  # and that they can be drawn, before hours of training
    _show_plan(console, plan)
    if dry_run:
        return
    draw_page = live_page(plan.folder)
    with SweepBar(console, len(plan.tasks(redo=redo))) as bar:

        def on_run_end(outcome: "RunOutcome") -> None:
            bar.on_run_end(outcome)
            draw_page()

        result = run_plan(plan, source, redo=redo, backend=backend, progress=bar.progress, on_run_end=on_run_end)
    _show_result(console, plan, result)


def _axes(only: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in only.split(",") if part]
    if any(not equals for _, equals, _ in pairs):
        raise InvalidInputError(f"only must be as loss=maxent_mean,seed=0, got {only!r}")
    axes = {axis.strip(): value.strip() for axis, _, value in pairs}
    if len(axes) < len(pairs):
        raise InvalidInputError(f"only must have one value of each, got {only!r}")
    return axes


def _show_plan(console: "Console", plan: "ExperimentPlan") -> None:
    """The runs by data set, model and loss, and what is done of them."""
    names = ("data", "model", "loss", "smoothing", "seeds", "done", "left")
    table = new_table(plan.experiment.title or str(plan.folder.path), names, n_left=3)
    kinds: dict[tuple[str, ...], list[str]] = {}
    for key in plan.chosen:
        loss = f"{key.loss} ({key.variant})" if key.variant else key.loss
        kinds.setdefault((key.data, key.model, loss, f"{key.label_smoothing:g}"), []).append(plan.states[key])
    for words, states in kinds.items():
        n_done = states.count("done")
        table.add_row(*map(shown, words), *map(str, (len(states), n_done, len(states) - n_done)))
    if kinds:
        console.print(table)
    states = [plan.states[key] for key in plan.chosen]
    n_done, n_begun = states.count("done"), states.count("begun")
    begun = f" ({n_begun} begun)" if n_begun else ""
    summary = f"{len(states)} runs in {plan.folder.path}: {n_done} done, {len(states) - n_done} left{begun}"
    console.print(shown(summary), soft_wrap=True)


def _show_result(console: "Console", plan: "ExperimentPlan", result: "ExperimentResult") -> None:
    """Table 1, the page of all tables and figures, and what is missing or failed."""
    folder = result.folder
    if result.n_done:
        console.print(_table(folder, console.width), soft_wrap=True, markup=False, highlight=False, end="")
    if result.missing:
        console.print(shown(f"{len(result.missing)} of {len(plan.states)} runs are not done, and not in the table"))
    for outcome in result.failures:
        run = folder.run(outcome.run)
        log = run.error_log if run.error_log.is_file() else run.output_log
        console.print(shown(f"{outcome.run} failed: {outcome.failure} ({log})"), style="red", soft_wrap=True)
    if result.n_done or "all" not in plan.experiment.figures:
        page = write_page(folder.path)
        console.print(shown(f"rows are in {folder.rows_file}, figures in {folder.figures_folder}"))
        console.print(shown(f"open {page} in a browser: {page.absolute().as_uri()}"), soft_wrap=True)
    if result.failures:
        raise FailedRunsError(f"{len(result.failures)} of {len(plan.chosen)} runs failed; the same command tries again")


def _table(folder: "ExperimentFolder", width: int) -> str:
    """Table 1, or why there is none."""
    from calibrant.report.formats import render
    from calibrant.report.paper import make_table

    try:
        return render(make_table(folder.read_rows(), "1"), "text", width=width)
    except NoDataError as error:
        return f"no table: {error}\n"
