"""`calibrant run`: train, evaluate and report the runs of an experiment file."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._files import read_toml
from calibrant.cli.extras import needs_extras
from calibrant.cli.options import File, Integer, Output, Switch
from calibrant.cli.output import print_tables, safe_text, status
from calibrant.cli.report import write_page
from calibrant.errors import FailedRunsError, InvalidInputError, NoDataError, printable
from calibrant.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.experiments.folder import RunOutcome
    from calibrant.experiments.run import ExperimentPlan, ExperimentResult

PLAN_COLUMNS = ("data", "model", "loss", "smoothing", "runs", "done", "remaining")


def run(
    file: File | None = None,
    *,
    output: Output | None = None,
    jobs: Integer | None = None,
    ray: str | None = None,
    only: str | None = None,
    dry_run: Switch = False,
    redo: Switch = False,
) -> None:
    """Train losses × seeds, evaluate them under shift, and print the table: an experiment from one file.

    Finished runs are not repeated; the same command resumes after Ctrl-C, a crash or a full disk. A run that fails does
    not stop the others.

    Parameters
    ----------
    file
        The experiment, as a TOML file; by default the demo that comes with the package.
    output
        The folder of all results, by default that of the file.
    jobs
        Processes that train at the same time, by default one for each GPU, or else one for each core, at most 8.
    ray
        The address of a Ray cluster, or auto; the folder must be on a disk that all its machines share.
    only
        Some of the runs, as loss=maxent_mean,seed=0.
    dry_run
        Print the plan and stop.
    redo
        Check weights, checkpoints and predictions, and make damaged ones again.
    """
    with needs_extras("running an experiment", "report", "train"):
        if file is not None:
            read_toml(file)  # refuses it before the libraries are imported
        from calibrant.experiments.run import choose_backend, demo_file, plan_experiment, run_plan
        from calibrant.report.experiment import live_page
    from rich.console import Console

    from calibrant.cli.bar import SweepBar
    from calibrant.report.figures import check_figures

    console, source = Console(), demo_file() if file is None else Path(file)
    with status("reading the plan"):
        plan = plan_experiment(source, output=output, only=_axes(only or ""))
    backend = choose_backend(plan, jobs=jobs, ray=ray, redo=redo)
    check_figures(plan.experiment.figures)  # fails before hours of training
    if plan.chosen:
        print_tables(_plan_table(plan))
    print(printable(plan.summary()))
    if dry_run:
        return
    draw_page = live_page(plan.folder)
    with SweepBar(console, len(plan.remaining(redo=redo))) as bar:

        def on_run_end(outcome: "RunOutcome") -> None:
            bar.on_run_end(outcome)
            draw_page()

        result = run_plan(plan, source, redo=redo, backend=backend, progress=bar.progress, on_run_end=on_run_end)
    _print_result(console, plan, result)


def _axes(only: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in only.split(",") if part]
    if any(not equals for _, equals, _ in pairs):
        raise InvalidInputError(f"only must be as loss=maxent_mean,seed=0, got {only!r}")
    axes = {axis.strip(): value.strip() for axis, _, value in pairs}
    if len(axes) < len(pairs):
        raise InvalidInputError(f"only must have one value of each, got {only!r}")
    return axes


def _plan_table(plan: "ExperimentPlan") -> Table:
    """The runs by data set, model and loss, and how many of them are done."""
    from calibrant.runs import split_variant

    states: dict[tuple[str, ...], list[str]] = {}
    for key in plan.chosen:
        variant, n_members = split_variant(key.variant)
        loss = f"{key.loss}{f' ({variant})' if variant else ''}{f' × {n_members}' if n_members else ''}"
        states.setdefault((key.data, key.model, loss, f"{key.label_smoothing:g}"), []).append(plan.states[key])
    rows = []
    for names, found in states.items():
        n_done = found.count("done")
        rows.append([Cell(str(value)) for value in (*names, len(found), n_done, len(found) - n_done)])
    columns = [Column(name, numeric=name not in PLAN_COLUMNS[:3]) for name in PLAN_COLUMNS]
    return Table(plan.experiment.title or str(plan.folder.path), columns, rows)


def _print_result(console: "Console", plan: "ExperimentPlan", result: "ExperimentResult") -> None:
    """Table 1, the findings, what is missing or failed, and where the page is."""
    from calibrant.report.experiment_words import headlines
    from calibrant.report.paper import make_table

    folder = result.folder
    if result.n_done:
        rows = folder.read_rows()
        try:
            print_tables(make_table(rows, "1"))
        except NoDataError as error:
            print(printable(f"no table: {error}"))
        for sentence in headlines(rows):
            print(textwrap.fill(printable(f"- {sentence}"), console.width, subsequent_indent="  "))
    if result.missing:
        print(f"{len(result.missing)} of {len(plan.states)} runs are not done, and not in the table")
    for reason in dict.fromkeys(outcome.failure for outcome in result.failures):
        first, *others = [outcome.run for outcome in result.failures if outcome.failure == reason]
        run = folder.run(first)
        log = run.error_log if run.error_log.is_file() else run.output_log
        names = f"{first} and {len(others)} more" if others else first
        console.print(safe_text(f"{names} failed: {reason} ({log})"), style="red", soft_wrap=True)
    if result.n_done or "all" not in plan.experiment.figures:
        page = write_page(folder.path)
        print(printable(f"rows are in {folder.rows_file}, figures in {folder.figures_folder}"))
        print(printable(f"open {page} in a browser: {page.absolute().as_uri()}"))
    if result.failures:
        raise FailedRunsError(f"{len(result.failures)} of {len(plan.chosen)} runs failed; the same command tries again")
