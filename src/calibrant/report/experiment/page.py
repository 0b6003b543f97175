"""The page of an experiment as one string of HTML, from its tables and what is in its folder."""

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from calibrant.report.experiment.drawings import ALL, TITLES, Drawings, Pictures, Report, draw_all
from calibrant.report.experiment.learning import read_learning
from calibrant.report.experiment.origin import origin_of
from calibrant.report.experiment.progress import (
    HEADINGS,
    PlannedRun,
    Progress,
    count,
    plan_rows,
    progress_of,
    progress_words,
    runs_of,
)
from calibrant.report.experiment.scores import is_shifted, page_tables, remedy_tables, score_tables
from calibrant.report.experiment.words import findings
from calibrant.report.page import first_of, page_html

MOST_NAMES = 20  # of runs that are listed


def draw_experiment(
    folder: Path,
    rows: pa.Table,
    curves: pa.Table | None,
    *,
    planned: Sequence[PlannedRun] = (),
    figures: Collection[str] = (ALL,),
    pictures: Pictures | None = None,
    report: Report = lambda name: None,
) -> Drawings:
    """Every chart of the page, which `experiment_page` then holds; see `draw_all`."""
    runs = progress_of(folder, rows, planned).planned
    return draw_all(rows, curves, read_learning(folder, runs), names=figures, pictures=pictures, report=report)


def experiment_page(
    folder: Path,
    rows: pa.Table,
    drawn: Drawings,
    *,
    title: str = "",
    planned: Sequence[PlannedRun] = (),
    made: datetime | None = None,
    state: str = "",
) -> str:
    """The page of an experiment; nothing is written.

    folder: what is in it beside the tables: logs, environments, the configuration. drawn: its charts. planned: the runs
    that the experiment asks for, by default those that it has. made: when, by default now. state: of a page that is
    served, see `page_html`.
    """
    progress = progress_of(folder, rows, planned)
    tables = score_tables(rows)
    content: dict[str, Any] = {
        "title": title or str(folder),
        "findings": findings(rows, tables),
        "plan": _plan(progress),
        "not_drawn": [f"{_figure_name(name)}: {reason}" for name, reason in drawn.reasons.items()],
        "tables": page_tables(tables),
        "scores_title": "Scores under shift" if is_shifted(rows) else "Scores without shift",
        "remedies": remedy_tables(rows) if tables else [],
        "drawn": drawn,
        "origin": origin_of(folder, rows, [run.name for run in runs_of(rows)], made=made),
    }
    return page_html("experiment.html.j2", state=state, sections=_sections(content), **content)


def _figure_name(name: str) -> str:
    return TITLES.get(name, name.replace("_", " ").capitalize())


def _plan(progress: Progress) -> dict[str, Any]:
    failures = [f"{name}: {reason}" for name, reason in progress.failures.items()]
    verb = "is" if progress.n_broken == 1 else "are"
    unread = f"{count(progress.n_broken, 'line')} of log.jsonl cannot be read and {verb} left out."
    return {
        "said": progress_words(progress),
        "headings": HEADINGS,
        "rows": plan_rows(progress),
        "missing": first_of(progress.missing, MOST_NAMES),
        "failures": first_of(failures, MOST_NAMES),
        "notes": [unread] if progress.n_broken else [],
    }


def _sections(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The parts of the page that have something in them."""
    drawn: Drawings = content["drawn"]
    every = [
        ("plan", "Plan and progress", True),
        ("scores", content["scores_title"], content["tables"]),
        ("remedies", "Calibrators and label smoothing", content["remedies"]),
        ("severity", "As the shift grows", drawn.severity),
        ("reliability", "Reliability", drawn.reliability),
        ("heat-map", "Corruption by corruption", drawn.heat_map),
        ("figures", "More figures", drawn.others),
        ("epochs", "Over epochs", drawn.epochs or drawn.constraints),
        ("origin", "How it was made", True),
    ]
    return [(name, title) for name, title, there in every if there]
