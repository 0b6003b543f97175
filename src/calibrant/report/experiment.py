"""The page of an experiment: findings, charts, tables, progress and provenance."""

import hashlib
import json
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calibrant import __version__
from calibrant._files import atomic_write, make_folder, open_to_read
from calibrant._signatures import checked
from calibrant.errors import CalibrantError, MissingExtraError, NoDataError
from calibrant.experiments.folder import ExperimentFolder, RunKey, RunOutcome, run_keys
from calibrant.report.charts import skip_validation, with_notes
from calibrant.report.claims import make_claims
from calibrant.report.combinations import make_combinations
from calibrant.report.experiment_words import describe_environments, describe_progress, findings
from calibrant.report.figures import ALL, FIGURES, ExperimentPath, ImageSource, make_figures, open_experiment, severity
from calibrant.report.learning import CONSTRAINTS, LEARNING, draw_learning_curves, run_sort_key
from calibrant.report.numbers import MISSING, count, duration, shorten_list
from calibrant.report.page import SvgFigure, page_html
from calibrant.report.paper import calibrator_tables, metric_tables, table_scores
from calibrant.report.render import to_svg
from calibrant.report.scores import shared_tests
from calibrant.report.style import loss_label, loss_sort_key, quantity_of, sort_metrics
from calibrant.report.table import Cell, Column, Table
from calibrant.runs import split_variant

MAX_METRICS = 8  # that are drawn against severity
MAX_BYTES = 200_000  # of the experiment file that is shown
FIGURE_TITLES = {  # of the section "More figures", in its order
    "feature_norm": "ECE against feature norm",
    "risk_coverage": "Risk-coverage curves",
    "label_smoothing": "Label smoothing",
    "local_constraints": "Local constraints",
    "samples": "Sample images",
    "gibbs": "Maximum-entropy distributions",
}
OWN_SECTIONS = ("calibrated", "reliability", "heat_map")  # figures that are sections
LOSS_LINE_FIGURES = ("feature_norm", "risk_coverage")  # their lines are losses, which a page can hide
PROGRESS_COLUMNS = [
    Column("Loss", numeric=False),
    Column("Data", numeric=False),
    Column("Model", numeric=False),
    Column("Runs", tooltip="number of planned runs, one for each seed"),
    Column("Done"),
    Column("Remaining"),
    Column("Time per run", tooltip="median over finished runs"),
]


@checked
def write_experiment(
    folder: ExperimentPath,
    *,
    figures: Collection[str] | None = None,
    images: ImageSource | None = None,
    refresh: int | None = None,
    now: datetime | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Path:
    """Write the report of an experiment, FOLDER/report.html, and its figures, FOLDER/figures/*.svg.

    Args:
        folder: The folder of an experiment that is finished or running.
        figures: Names of figures, or "all"; by default those of the experiment file.
        images: The function that reads the images of the figure samples, for example
            `calibrant.experiments.samples.sample_images`.
        refresh: Seconds after which a browser reloads the page, for a running experiment.
        now: The time that the page shows, by default the current time.
        progress: Called with the name of each figure before it is drawn.

    Returns:
        The path of the page.

    Raises:
        NoDataError: No run is done.
        MissingExtraError: The extra report is not installed.
        CorruptFileError: The rows or the experiment file cannot be read.
        UnknownNameError: A figure is unknown.
    """
    folder = open_experiment(folder)
    rows = folder.read_rows()
    names = folder.read_figures() if figures is None else figures
    runs, plan_notes = _planned_runs(folder, rows)
    with skip_validation():
        charts, reasons = make_figures(folder, names, images=images, progress=progress)
        files = {name: to_svg(chart) for name, chart in charts.items()}
        content = _results(rows, files) | {"epochs": _learning_curves(folder, runs) if ALL in names else {}}
    content |= {
        "title": folder.read_title() or str(folder.path),
        "plan": _plan(folder, runs, set(run_keys(rows)), plan_notes),
        "not_drawn": [f"{_figure_title(name)}: {reason}" for name, reason in reasons.items()],
        "provenance": _provenance(folder, rows, now or datetime.now(UTC)),
    }
    sections = _sections(content)
    page = page_html("experiment.html.j2", refresh=refresh, sections=list(sections.items()), names=sections, **content)
    make_folder(folder.figures_folder)
    pages = {folder.figures_folder / f"{name}.svg": svg for name, svg in files.items()} | {folder.page_file: page}
    for path, text in pages.items():
        with atomic_write(path) as file:
            file.write(text.encode())
    return folder.page_file


def live_page(folder: ExperimentPath, *, share: float = 0.05, refresh: int = 10) -> Callable[[], None]:
    """A function that writes the page of a running experiment; call it after each run.

    Args:
        folder: The folder of the experiment.
        share: The largest share of the time to spend on drawing; a call that would exceed it does nothing.
        refresh: Seconds after which a browser reloads the page.

    Returns:
        The function, without arguments.
    """
    next_at = 0.0

    def write() -> None:
        nonlocal next_at
        start = time.monotonic()
        if start >= next_at:
            with suppress(CalibrantError):  # it must not stop the sweep; the page at its end raises the same error
                write_experiment(folder, refresh=refresh)
            end = time.monotonic()
            next_at = end + (end - start) / share

    return write


def _planned_runs(folder: ExperimentFolder, rows: pa.Table) -> tuple[dict[str, RunKey], list[str]]:
    """The runs of the experiment file and of the rows by name, and a note where the plan is unknown."""
    there = run_keys(rows)
    if not folder.has_plan:
        return there, ["The planned runs are unknown: the folder has no experiment.toml."]
    try:
        planned = folder.read_plan()
    except MissingExtraError as error:
        return there, [f"The planned runs are unknown: {error}."]
    return {key.name: key for key in planned} | there, []


def _results(rows: pa.Table, files: Mapping[str, str]) -> dict[str, Any]:
    """Findings, tables and charts of the runs that are done. files: the figures as SVG by name."""
    shared, notes = shared_tests(rows)
    shifted = bool(pc.any(shared["shifted"]).as_py())
    scores = table_scores(shared, shifted=shifted)
    metrics = sort_metrics(pc.unique(rows["metric"]).to_pylist())
    plain = rows.filter(pc.equal(rows["variant"], ""))
    drawings = {
        name: SvgFigure(svg, _first_sentence(FIGURES[name].caption), FIGURES[name].caption, name, _figure_title(name))
        for name, svg in files.items()
    }
    return {
        "findings": findings(shared, scores, notes),
        "shifted": shifted,
        "tables": metric_tables(scores, metrics, notes, shifted=shifted),
        "calibrators": calibrator_tables(scores, notes) if shifted else [],
        "losses": [loss_label(loss) for loss in sorted(pc.unique(plain["loss"]).to_pylist(), key=loss_sort_key)],
        "claims": _table_where_possible(make_claims, rows),
        "combinations": _table_where_possible(make_combinations, rows),
        "severity": _severity_drawings(shared, metrics, notes) if "severity" in files else [],
        "drawings": {name: drawings[name] for name in OWN_SECTIONS if name in drawings},
        "figures": [drawings[name] for name in FIGURE_TITLES if name in drawings],
        "loss_lines": any(name in drawings for name in LOSS_LINE_FIGURES),
    }


def _table_where_possible(make: Callable[[pa.Table], Table], rows: pa.Table) -> Table | None:
    """The table; None where the runs lack what it compares."""
    try:
        return make(rows)
    except NoDataError:
        return None


def _figure_title(name: str) -> str:
    return FIGURE_TITLES.get(name, name.replace("_", " ").capitalize())


def _first_sentence(caption: str) -> str:
    return caption.partition(". ")[0].removesuffix(".") + "."


def _severity_drawings(rows: pa.Table, metrics: Sequence[str], notes: Sequence[str]) -> list[SvgFigure]:
    """A chart against severity for each metric that has a better direction."""
    drawings = []
    for metric in [name for name in metrics if quantity_of(name).better][:MAX_METRICS]:
        try:
            records = severity.prepare(rows, metrics=(metric,))
        except NoDataError:
            continue  # only data sets without severities have this metric
        if records:
            title = "Error" if metric == "accuracy" else quantity_of(metric).heading
            chart = with_notes(severity.draw_metric(records, metric, title), notes)
            alt = f"Line chart of {title} against severity, one line per loss."
            drawings.append(SvgFigure(to_svg(chart), alt, name=metric, title=title))
    return drawings


def _learning_curves(folder: ExperimentFolder, runs: Mapping[str, RunKey]) -> dict[str, Any]:
    """The charts over epochs; empty where no run has a log."""
    charts, lines, notes = draw_learning_curves(folder, runs)
    drawings = {
        name: [
            SvgFigure(to_svg(charts[q.key]), f"Line chart of {q.heading} over epochs.", q.title, q.key, q.heading)
            for q in quantities
            if q.key in charts
        ]
        for name, quantities in (("learning", LEARNING), ("constraints", CONSTRAINTS))
    }
    return {**drawings, "lines": lines, "notes": notes} if charts else {}


def _plan(
    folder: ExperimentFolder, runs: Mapping[str, RunKey], done: Collection[str], notes: Sequence[str]
) -> dict[str, Any]:
    """Progress in words and by kind of run, missing runs and failures."""
    outcomes, n_broken = folder.read_log()
    last = {outcome.run: outcome for outcome in outcomes}
    missing = [name for name in runs if name not in done]
    n_started = sum(folder.run(name).config.is_file() for name in missing)
    failures = [f"{name}: {end.failure}" for name, end in last.items() if end.failure is not None and name not in done]
    seconds = sum(outcome.seconds for outcome in outcomes)
    unread = [f"log.jsonl: {count(n_broken, 'unreadable line')} left out."] if n_broken else []
    if n_unlogged := sum(name not in last for name in done):
        unread.append(f"log.jsonl: no readable line of {count(n_unlogged, 'finished run')}, whose time is unknown.")
    return {
        "summary": describe_progress(len(runs), len(runs) - len(missing), n_started, seconds),
        "table": _plan_table(runs, done, outcomes),
        "missing": shorten_list(missing),
        "failures": shorten_list(failures),
        "notes": [*notes, *unread],
    }


def _plan_table(runs: Mapping[str, RunKey], done: Collection[str], outcomes: Iterable[RunOutcome]) -> Table:
    """A row per kind of run. The time of a run is its longest: a second evaluation without training is shorter."""
    seconds: dict[str, float] = defaultdict(float)
    for outcome in outcomes:
        if outcome.failure is None:
            seconds[outcome.run] = max(outcome.seconds, seconds[outcome.run])
    kinds: dict[RunKey, list[str]] = defaultdict(list)
    for name, run in runs.items():
        kinds[run._replace(seed=0)].append(name)
    rows = []
    for run, names in sorted(kinds.items(), key=lambda item: run_sort_key(item[0])):
        n_done = sum(name in done for name in names)
        n_remaining = len(names) - n_done
        times = [seconds[name] for name in names if name in seconds]
        time_cell = Cell(duration(median(times)), round(median(times), 3)) if times else Cell(MISSING)
        label = loss_label(run.loss, run.variant, run.label_smoothing)
        counts = [Cell(str(len(names))), Cell(str(n_done)), Cell(str(n_remaining), kind="bad" if n_remaining else "")]
        rows.append([Cell(label), Cell(run.data), Cell(run.model), *counts, time_cell])
    return Table("Runs by loss, data set and model", PROGRESS_COLUMNS, rows, html_id="plan-table")


def _provenance(folder: ExperimentFolder, rows: pa.Table, now: datetime) -> dict[str, Any]:
    """Facts, environments, the experiment file, and the commands that reproduce the experiment."""
    trained = [name for name, run in run_keys(rows).items() if not split_variant(run.variant)[1]]
    environments = folder.read_environments(trained)
    there = [found for found in environments.values() if found is not None]
    values = {key: Counter(_text(found.get(key)) for found in there) for key in dict.fromkeys(chain(*there))}
    differing = [key for key, counts in values.items() if len(counts) > 1]
    configuration, truncated = _configuration(folder)
    return {
        "facts": _facts(folder, rows, now),
        "environment": [(key, _list_values(counts)) for key, counts in values.items()],
        "notes": [*describe_environments(environments, differing), *truncated],
        "configuration": configuration,
        "commands": _commands(folder),
    }


def _facts(folder: ExperimentFolder, rows: pa.Table, now: datetime) -> list[tuple[str, str]]:
    facts = []
    for name in ("data", "model", "loss", "variant", "seed", "calibrator", "metric"):
        values = [str(value) for value in pc.unique(rows[name]).to_pylist() if value not in (None, "")]
        facts += [(name, ", ".join(values))] if values else []
    with open_to_read(folder.rows_file) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    when = f"{now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC by calibrant {__version__}"
    return [*facts, ("fingerprint", f"sha256 {digest} of {folder.rows_file.name}"), ("page written", when)]


def _list_values(counts: Counter[str]) -> str:
    """The value of all runs, or each value with the number of its runs."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count(n, 'run')})" for value, n in counts.most_common())


def _text(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _configuration(folder: ExperimentFolder) -> tuple[str, list[str]]:
    """The experiment file, empty where there is none, and a note where it is truncated."""
    if not folder.has_plan:
        return "", []
    with open_to_read(folder.experiment_file) as file:
        content = file.read(MAX_BYTES + 1)
    text = content[:MAX_BYTES].decode("utf-8", errors="replace").replace("\r\n", "\n")
    return text, [f"The configuration is truncated to {MAX_BYTES:,} bytes."] if len(content) > MAX_BYTES else []


def _commands(folder: ExperimentFolder) -> str:
    file, path, again = map(shlex.quote, (str(folder.experiment_file), str(folder.path), f"{folder.path}-again"))
    train = [
        "# run the whole experiment in another folder",
        f"calibrant run {file} -o {again}",
        "# resume: run the remaining runs",
        f"calibrant run {file}",
    ]
    return "\n".join([*(train if folder.has_plan else ()), "# write this page", f"calibrant report {path}"])


def _sections(content: Mapping[str, Any]) -> dict[str, str]:
    """The titles of the sections that have content, by id."""
    sections = {
        "calibrated": ("Calibration under shift", "calibrated" in content["drawings"]),
        "scores": (f"Scores {'under' if content['shifted'] else 'without'} shift", content["tables"]),
        "calibrators": ("Calibrators and label smoothing", content["calibrators"]),
        "severity": ("Scores against severity", content["severity"]),
        "reliability": ("Reliability diagrams", "reliability" in content["drawings"]),
        "heat_map": ("ECE by corruption", "heat_map" in content["drawings"]),
        "claims": ("Claims of the paper", content["claims"]),
        "combinations": ("Combinations", content["combinations"]),
        "figures": ("More figures", content["figures"]),
        "epochs": ("Learning curves", content["epochs"]),
        "plan": ("Progress", True),
        "provenance": ("Provenance", True),
    }
    return {name: title for name, (title, present) in sections.items() if present}
