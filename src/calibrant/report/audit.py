"""The page of an audit: a value in, one HTML file out."""

import os
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any

import calibrant
from calibrant._checks import check_path
from calibrant._files import atomic_write, without_secrets
from calibrant.audits import Audit, curves
from calibrant.audits.advice import SMALL
from calibrant.errors import InvalidInputError, MissingExtraError
from calibrant.report import audit_tables as tables
from calibrant.report import audit_words as words
from calibrant.report.numbers import count, level_text, shorten_list
from calibrant.report.page import write_page

NEEDED = ("altair", "jinja2", "vl_convert")
SUFFIXES = (".html", ".htm")
MAX_COMMAND = 20_000  # characters
SECTIONS = {
    "scorecard": "Scorecard",
    "reliability": "Reliability",
    "confidences": "Confidences",
    "risk": "Risk and coverage",
    "groups": "Groups",
    "classes": "Classes",
    "temperature": "What a temperature would change",
    "todo": "What to do",
    "errors": "The most confident errors",
    "comparison": "Comparison",
    "provenance": "Data and provenance",
}


class _UntouchedError(Exception):
    """Leaves the file as it is."""


def check_report(path: str | os.PathLike[str]) -> None:
    """That a page can be written there, before minutes of reading. Raises: InvalidInputError, MissingExtraError."""
    name = check_path("report", path)
    if PurePath(name).suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"report must be a file of {', '.join(SUFFIXES)}, got {name}")
    if not all(map(find_spec, NEEDED)):
        raise MissingExtraError("writing a page", "report")
    if Path(name).is_dir():
        raise InvalidInputError(f"{name} cannot be written: it is a folder")
    try:
        with atomic_write(name):
            raise _UntouchedError
    except _UntouchedError:
        pass


def write_audit(
    path: str | os.PathLike[str],
    audit: Audit,
    names: Sequence[str],
    *,
    command: Sequence[str] = (),
    now: datetime | None = None,
) -> None:
    """Write the page with these metrics; `Audit.save_html` says the rest."""
    check_report(path)
    write_page(path, "audit.html.j2", **content(audit, names, command, now or datetime.now(UTC)))


def content(audit: Audit, names: Sequence[str], command: Sequence[str], now: datetime) -> dict[str, Any]:
    """What `audit.html.j2` needs."""
    absent = [name for name in ("groups", "comparison") if not getattr(audit, name)]
    sections = {name: title for name, title in SECTIONS.items() if name not in absent}
    bounds = any(audit.scorecard.error_bound(name) > 0 for name in names)
    return {
        "title": title(audit.files),
        "sections": list(sections.items()),
        "names": sections,
        "kind": lead_kind(audit),
        "headline": words.headline(audit.verdict),
        "detail": words.detail(audit.verdict),
        "more": words.summary(audit, names)[1:],
        "level": level_text(audit.level),
        "bounds": bounds,
        "gates": [(gate.describe(audit.scorecard), gate in audit.failed) for gate in audit.gates],
        **_charts(audit),
        **_tables(audit, names),
        "advice": list(map(words.advice_sentence, audit.advice)),
        "facts": facts(audit, now),
        "command": shlex.join(map(without_secrets, command))[:MAX_COMMAND],
    }


def title(files: Sequence[str]) -> str:
    if not files:
        return "Audit of predictions"
    return f"Audit of {files[0]}" if len(files) == 1 else f"Audit of {len(files):,} files"


def lead_kind(audit: Audit) -> str:
    """Good only where no error that matters can hide, and no group is miscalibrated beyond chance."""
    if audit.verdict.miscalibrated or any(found.n_miscalibrated for found in audit.groups.values()):
        return "bad"
    return "good" if audit.verdict.kind == "unproven" and audit.verdict.wide_interval[1] <= SMALL else ""


def _charts(audit: Audit) -> dict[str, Any]:
    from calibrant.report import audit_charts as charts  # it loads altair

    card, level = audit.scorecard, audit.level
    kept, error = curves.risk(card.top_histogram, level), 1 - card["accuracy"]
    return {
        "reliability": charts.reliability_drawing(curves.reliability(card.top_bins, level), level),
        "histogram": charts.histogram_drawing(curves.bars(audit.rows.histogram), weighted=audit.weights is not None),
        "risk": charts.risk_drawing(curves.risk_points(card.top_histogram), kept, error),
        "kept": words.kept_sentences(kept, error, level),
    }


def _tables(audit: Audit, names: Sequence[str]) -> dict[str, Any]:
    effect = audit.temperature
    shown = tables.shown(audit, names)
    return {
        "scorecard": tables.scorecard_table(audit, names),
        "groups": [
            (by, tables.groups_table(found, shown), words.group_sentence(found)) for by, found in audit.groups.items()
        ],
        "classes": tables.class_table(audit),
        "temperature": words.temperature_sentence(effect),
        "failure": as_sentence(effect.failure),
        "changes": tables.changes_table(effect, audit.level) if effect.changes else None,
        "errors": tables.error_table(audit),
        "comparisons": tables.comparison_tables(audit, names),
    }


def as_sentence(text: str) -> str:
    """With a stop at its end, if it has none."""
    return text if text.endswith(("?", ".")) else f"{text}."


def facts(audit: Audit, now: datetime) -> list[tuple[str, str]]:
    card, rows = audit.scorecard, audit.rows
    found = [("rows", f"{card.n_rows:,}"), ("classes", f"{card.n_classes:,}")]
    if audit.weights is not None:
        found.append(("weights", f"column {audit.weights}; {count(audit.n_left_out, 'row')} of weight 0 left out"))
        found.append(("effective rows", f"{audit.verdict.effective:,.1f}"))
    if len(rows.class_names) > 1:
        found.append(("class names", "differ between the files, so classes go by their numbers"))
    found.append(("columns", ", ".join(audit.columns) or "none beside the predictions and labels"))
    for what, files in (("files", audit.files), ("compared with", audit.other_files)):
        if files:
            found.append((what, ", ".join(shorten_list(files))))
    return [
        *found,
        ("fingerprint", f"{rows.fingerprint} (of logits and labels, whatever the order of rows and files)"),
        ("level of intervals", level_text(audit.level)),
        ("bins", str(card.n_bins)),
        ("seed", str(audit.seed)),
        ("made by", f"calibrant {calibrant.__version__}, {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC"),
    ]
