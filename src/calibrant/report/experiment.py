"""The page of an experiment: what was found in words, what is missing, tables, charts, and how it was made."""

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

import pyarrow as pa
import pyarrow.compute as pc

from calibrant import __version__
from calibrant._files import atomic_write, make_folder
from calibrant.errors import CalibrantError, NoDataError
from calibrant.experiments.folder import ExperimentFolder, RunKey, RunOutcome, run_keys
from calibrant.metrics.table import Quantity
from calibrant.report import learning
from calibrant.report.charts import skip_validation, with_notes
from calibrant.report.experiment_words import describe_environments, describe_progress, findings
from calibrant.report.figures import ALL, FIGURES, ExperimentPath, ImageSource, make_figures, open_experiment, severity
from calibrant.report.numbers import MISSING, count, duration, shorten_list
from calibrant.report.page import Drawing, page_html
from calibrant.report.paper import calibrator_tables, metric_tables, table_scores
from calibrant.report.render import to_svg
from calibrant.report.scores import ChartRecord, shared_tests
from calibrant.report.style import loss_label, loss_sort_key, quantity_of, sort_metrics
from calibrant.report.table import Cell, Column, Table

MAX_METRICS = 8  # that severity curves are drawn of
MAX_BYTES = 200_000  # of a configuration that is shown
FIGURE_TITLES = {  # of the figures without a section of their own, in the order of the page
    "feature_norm": "ECE against feature norm",
    "risk_coverage": "Risk against coverage",
    "calibrated": "Calibrators under shift",
    "label_smoothing": "Label smoothing",
    "local_constraints": "Local constraints",
    "samples": "Samples",
    "gibbs": "Distributions of greatest entropy",
}
LOSS_LINE_FIGURES = ("feature_norm", "risk_coverage")  # those with a line per loss
PLAN_COLUMNS = [
    Column("Loss", numeric=False),
    Column("Data", numeric=False),
    Column("Model", numeric=False),
    Column("Seeds", title="runs that the experiment asks for"),
    Column("Done"),
    Column("Left"),
    Column("Time of a run", title="median over the runs that are done"),
]


def write_experiment(
    folder: ExperimentPath,
    *,
    figures: Collection[str] | None = None,
    images: ImageSource | None = None,
    refresh: int | None = None,
    made: datetime | None = None,
    report: Callable[[str], None] = lambda name: None,
) -> Path:
    """Write FOLDER/figures/*.svg, and FOLDER/report.html, which has all that the experiment found.

    Args:
        folder: The folder of an experiment that has been run, or is running.
        figures: The names of figures, or "all"; by default what the experiment file asks for.
        images: What gives the figure samples its images, as `calibrant.experiments.samples.sample_images`.
        refresh: Seconds after which a browser loads the page anew, while a sweep still writes to the folder.
        made: When the page was made, by default now.
        report: Told the name of each figure as it is begun.

    Returns:
        The path of the page.

    Raises:
        NoDataError: No run is done, or what draws pages is not installed.
        CorruptFileError: The rows or the experiment file cannot be read.
        UnknownNameError: There is no such figure.
    """
    folder = open_experiment(folder)
    rows = folder.read_rows()
    names = folder.read_figures() if figures is None else figures
    runs, plan_notes = _runs(folder, rows)
    with skip_validation():
        charts, reasons = make_figures(folder, names, images=images, report=report)
        files = {name: to_svg(chart) for name, chart in charts.items()}
        content = _found(rows, files) | {"epochs": _epochs(folder, runs) if ALL in names else {}}
    content |= {
        "title": folder.read_title() or str(folder.path),
        "plan": _plan(folder, runs, set(run_keys(rows)), plan_notes),
        "not_drawn": [f"{_figure_title(name)}: {reason}" for name, reason in reasons.items()],
        "origin": _origin(folder, rows, made or datetime.now(UTC)),
    }
    page = page_html("experiment.html.j2", refresh=refresh, sections=_sections(content), **content)
    make_folder(folder.figures_folder)
    pages = {folder.figures_folder / f"{name}.svg": svg for name, svg in files.items()} | {folder.page_file: page}
    for path, text in pages.items():
        with atomic_write(path) as file:
            file.write(text.encode())
    return folder.page_file


def live_page(folder: ExperimentPath, *, share: float = 0.05, refresh: int = 10) -> Callable[[], None]:
    """A function that writes the page of an experiment while it runs; call it after each run.

    Args:
        folder: The folder of the experiment.
        share: How much of the time may go into drawing; calls that would take more do nothing.
        refresh: Seconds after which a browser loads the page anew.
    """
    next_at = 0.0

    def write() -> None:
        nonlocal next_at
        began = time.monotonic()
        if began >= next_at:
            with suppress(CalibrantError):  # a page that cannot be drawn must not stop a sweep; the last one says why
                write_experiment(folder, refresh=refresh)
            now = time.monotonic()
            next_at = now + (now - began) / share

    return write


def _runs(folder: ExperimentFolder, rows: pa.Table) -> tuple[dict[str, RunKey], list[str]]:
    """The runs that the experiment asks for and those that rows are of, by name; and why the plan is not known."""
    there = run_keys(rows)
    if not folder.has_plan:
        return there, ["There is no experiment.toml in the folder, so that the plan is not known."]
    try:
        planned = folder.read_plan()
    except NoDataError as error:  # the extra that reads it is not installed
        return there, [f"The plan is not known: {error}."]
    return {key.name: key for key in planned} | there, []


def _found(rows: pa.Table, files: Mapping[str, str]) -> ChartRecord:
    """Words, tables and charts of what is done."""
    shared, notes = shared_tests(rows)
    shifted = bool(pc.any(shared["shifted"]).as_py())
    scores = table_scores(shared, shifted=shifted)
    metrics = sort_metrics(pc.unique(rows["metric"]).to_pylist())
    plain = rows.filter(pc.equal(rows["variant"], ""))
    losses = [loss_label(loss) for loss in sorted(pc.unique(plain["loss"]).to_pylist(), key=loss_sort_key)]
    others = [_figure(name, files[name]) for name in FIGURE_TITLES if name in files]
    return {
        "findings": findings(shared, scores, notes),
        "scores_title": "Scores under shift" if shifted else "Scores without shift",
        "tables": metric_tables(scores, metrics, notes, shifted=shifted),
        "remedies": calibrator_tables(scores, notes) if shifted else [],
        "losses": losses,
        "severity": _severity_drawings(shared, metrics, notes) if "severity" in files else [],
        "reliability": [_figure("reliability", files["reliability"])] if "reliability" in files else [],
        "heat_map": [_figure("heat_map", files["heat_map"])] if "heat_map" in files else [],
        "figures": others,
        "with_lines": [drawing for drawing in others if drawing.name in LOSS_LINE_FIGURES],
    }


def _figure_title(name: str) -> str:
    return FIGURE_TITLES.get(name, name.replace("_", " ").capitalize())


def _figure(name: str, svg: str) -> Drawing:
    return Drawing(svg, _figure_title(name), FIGURES[name].caption, name, _figure_title(name))


def _severity_drawings(rows: pa.Table, metrics: Sequence[str], notes: Sequence[str]) -> list[Drawing]:
    """A chart per metric, of those that say how good a model is."""
    drawings = []
    for metric in [name for name in metrics if quantity_of(name).better][:MAX_METRICS]:
        try:
            records = severity.prepare(rows, metrics=(metric,))
        except NoDataError:
            continue  # a metric of a data set that has no severities
        if records:
            title = "Error" if metric == "accuracy" else quantity_of(metric).heading
            chart = with_notes(severity.draw_metric(records, metric, title), notes)
            drawings.append(Drawing(to_svg(chart), f"{title} as the shift grows", name=metric, title=title))
    return drawings


def _epochs(folder: ExperimentFolder, runs: Mapping[str, RunKey]) -> ChartRecord:
    """The charts over epochs, or nothing where there is no log."""
    points, moments, notes = learning.read_learning_curves(folder, runs)
    curves, constraints = (_epoch_drawings(points, known) for known in (learning.LEARNING, learning.CONSTRAINTS))
    if moments:
        constraints.append(_epoch_drawing(learning.MOMENTS, to_svg(learning.draw_moments(moments))))
        n_panels = len(set(learning.moment_panels(moments)))
        if n_panels > learning.MAX_PANELS:
            notes = [*notes, f"Only the first {learning.MAX_PANELS} of {n_panels} moments are drawn."]
    if not curves and not constraints:
        return {}
    lines = [line.label for line in learning.lines_of([*points, *moments])]
    return {"learning": curves, "constraints": constraints, "lines": lines, "notes": notes}


def _epoch_drawings(points: Sequence[ChartRecord], quantities: Iterable[Quantity]) -> list[Drawing]:
    drawings = []
    for quantity in quantities:
        own = [point for point in points if point["quantity"] == quantity.key]
        if own:
            drawings.append(_epoch_drawing(quantity, to_svg(learning.draw_epochs(own, quantity))))
    return drawings


def _epoch_drawing(quantity: Quantity, svg: str) -> Drawing:
    return Drawing(svg, f"{quantity.heading} over epochs", quantity.title, quantity.key, quantity.heading)


def _plan(
    folder: ExperimentFolder, runs: Mapping[str, RunKey], done: Collection[str], notes: Sequence[str]
) -> ChartRecord:
    """What was to be done and what is: in words, by kind of run, and what is missing or failed."""
    outcomes, n_broken = folder.read_log()
    last = {outcome.run: outcome for outcome in outcomes}
    missing = [name for name in runs if name not in done]
    n_begun = sum(folder.run(name).config.is_file() for name in missing)
    failures = [f"{name}: {end.failure}" for name, end in last.items() if end.failure is not None and name not in done]
    verb = "is" if n_broken == 1 else "are"
    unread = f"{count(n_broken, 'line')} of log.jsonl cannot be read and {verb} left out."
    return {
        "summary": describe_progress(
            len(runs), len(runs) - len(missing), n_begun, sum(end.seconds for end in outcomes)
        ),
        "table": _plan_table(runs, done, outcomes),
        "missing": shorten_list(missing),
        "failures": shorten_list(failures),
        "notes": [*notes, *([unread] if n_broken else [])],
    }


def _plan_table(runs: Mapping[str, RunKey], done: Collection[str], outcomes: Iterable[RunOutcome]) -> Table:
    """A row per kind of run, with the longest time that each run took: measured again, it takes less."""
    seconds: dict[str, float] = defaultdict(float)
    for outcome in outcomes:
        if outcome.failure is None:
            seconds[outcome.run] = max(outcome.seconds, seconds[outcome.run])
    kinds: dict[RunKey, list[str]] = defaultdict(list)
    for name, run in runs.items():
        kinds[run._replace(seed=0)].append(name)
    rows = []
    for run, names in sorted(kinds.items(), key=lambda item: _place(item[0])):
        n_done = sum(name in done for name in names)
        left = len(names) - n_done
        took = [seconds[name] for name in names if name in seconds]
        time = Cell(duration(median(took)), round(median(took), 3)) if took else Cell(MISSING)
        label = loss_label(run.loss, run.variant, run.label_smoothing)
        counts = [Cell(str(len(names))), Cell(str(n_done)), Cell(str(left), kind="bad" if left else "")]
        rows.append([Cell(label), Cell(run.data), Cell(run.model), *counts, time])
    return Table("Runs by loss, data set and model", PLAN_COLUMNS, rows, name="plan-table")


def _place(run: RunKey) -> tuple[object, ...]:
    """In the order of tables: plain losses first, variants and smoothed labels behind."""
    return run.data, run.model, run.variant != "", run.label_smoothing, loss_sort_key(run.loss), run.variant


def _origin(folder: ExperimentFolder, rows: pa.Table, made: datetime) -> ChartRecord:
    """How the experiment was made: its environment and configuration, the commands that make it again."""
    environments = folder.read_environments(run_keys(rows))
    there = [found for found in environments.values() if found is not None]
    values = {key: Counter(_text(found.get(key)) for found in there) for key in dict.fromkeys(chain(*there))}
    pairs = [(key, _listed(found)) for key, found in values.items()]
    differing = [key for key, found in values.items() if len(found) > 1]
    configuration, cut_off = _configuration(folder)
    return {
        "facts": _facts(folder, rows, made),
        "environment": pairs,
        "notes": [*describe_environments(environments, differing), *cut_off],
        "configuration": configuration,
        "commands": _commands(folder),
    }


def _facts(folder: ExperimentFolder, rows: pa.Table, made: datetime) -> list[tuple[str, str]]:
    facts = []
    for name in ("data", "model", "loss", "variant", "seed", "calibrator", "metric"):
        values = [str(value) for value in pc.unique(rows[name]).to_pylist() if value not in (None, "")]
        facts += [(name, ", ".join(values))] if values else []
    with folder.rows_file.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    when = f"{made.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC by calibrant {__version__}"
    return [*facts, ("fingerprint", f"sha256 {digest} of {folder.rows_file.name}"), ("page made", when)]


def _listed(values: Counter[str]) -> str:
    """The value of all runs, or each with the number of its runs."""
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(f"{value} ({count(n, 'run')})" for value, n in values.most_common())


def _text(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _configuration(folder: ExperimentFolder) -> tuple[str, list[str]]:
    """The experiment file, empty where there is none."""
    if not folder.has_plan:
        return "", []
    with folder.experiment_file.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    text = content[:MAX_BYTES].decode("utf-8", errors="replace").replace("\r\n", "\n")
    return text, ["The configuration is cut off, for it is long."] if len(content) > MAX_BYTES else []


def _commands(folder: ExperimentFolder) -> str:
    file, place, again = map(shlex.quote, (str(folder.experiment_file), str(folder.path), f"{folder.path}-again"))
    train = [
        "# all of it, in another folder",
        f"calibrant run {file} -o {again}",
        "# what is left of it",
        f"calibrant run {file}",
    ]
    return "\n".join([*(train if folder.has_plan else ()), "# this page", f"calibrant report {place}"])


def _sections(content: ChartRecord) -> list[tuple[str, str]]:
    """The parts of the page that have something in them."""
    every = [
        ("plan", "Plan and progress", True),
        ("scores", content["scores_title"], content["tables"]),
        ("remedies", "Calibrators and label smoothing", content["remedies"]),
        ("severity", "As the shift grows", content["severity"]),
        ("reliability", "Reliability", content["reliability"]),
        ("heat-map", "Corruption by corruption", content["heat_map"]),
        ("figures", "More figures", content["figures"]),
        ("epochs", "Over epochs", content["epochs"]),
        ("origin", "How it was made", True),
    ]
    return [(name, title) for name, title, there in every if there]
