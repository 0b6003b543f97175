"""The numbers of an audit as what its template shows: sentences, tables and drawings."""

from collections.abc import Sequence
from typing import Any

from calibrant._files import without_secrets
from calibrant.metrics.compare import Difference
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS
from calibrant.report.audit import wording as w
from calibrant.report.audit.advice import SMALL
from calibrant.report.audit.charts import histogram_drawing, reliability_drawing, risk_drawing
from calibrant.report.audit.numbers import AuditNumbers
from calibrant.report.audit.tables import (
    Shown,
    changes_table,
    class_table,
    difference_table,
    error_table,
    groups_table,
    scorecard_table,
)
from calibrant.report.audit.verdict import Verdict
from calibrant.report.numbers import first_of

SHIFT = "corruption"  # the column of predictions under shift
POOLED = (
    "These files are of several shifts. If they show the same pictures, the rows are not independent, and the numbers "
    "of all of them together are less certain than the intervals say; audit each file by itself, or read the groups."
)
LONGEST = 20_000  # letters of a command


def content(numbers: AuditNumbers) -> dict[str, Any]:
    """What `audit.html.j2` needs."""
    sections = {
        "scorecard": "Scorecard",
        "reliability": "Reliability",
        "confidences": "Confidences",
        "risk": "Risk and coverage",
        **({"groups": "Groups"} if numbers.groups else {}),
        "classes": "Classes",
        "temperature": "What a temperature would change",
        "todo": "What to do",
        "errors": "The most confident errors",
        **({"comparison": "Comparison"} if numbers.differences else {}),
        "provenance": "Data and provenance",
    }
    return {
        "title": title(numbers.provenance.files),
        "sections": list(sections.items()),
        "names": sections,
        **_lead(numbers),
        **_pictures(numbers),
        **_tables(numbers),
        "advice": numbers.advice,
        "level": w.level_text(numbers.level),
        "facts": facts(numbers),
        "command": numbers.provenance.command[:LONGEST],
        "gates": numbers.gates,
    }


def title(files: Sequence[str]) -> str:
    if not files:
        return "Audit of predictions"
    return f"Audit of {without_secrets(files[0])}" if len(files) == 1 else f"Audit of {len(files):,} files"


def _lead(numbers: AuditNumbers) -> dict[str, Any]:
    verdict, level = numbers.verdict, numbers.level
    tables = [table for table in numbers.groups.values() if table is not None]
    more = [w.group_sentence(table) for table in tables]
    compared = [row for row in whole_rows(numbers) if row.metric == "nll" or not numbers.shares.rare]
    more += [w.difference_sentence(row, level) for row in decisive(compared)]
    if len(numbers.provenance.files) > 1 and SHIFT in numbers.provenance.columns:
        more.append(POOLED)
    failed = sum(gate.failed for gate in numbers.gates)
    if failed:
        more.append(f"{failed} of {len(numbers.gates)} conditions of --fail-if hold: the gate fails.")
    return {
        "kind": "" if verdict is None else lead_kind(verdict, sum(table.n_shown_wrong for table in tables)),
        "headline": "Not judged:" if verdict is None else w.headline(verdict),
        "detail": lacking(numbers.card, ["ece"]) if verdict is None else w.detail(verdict),
        "shares": w.shares_sentence(numbers.shares, level),
        "more": more,
    }


def lead_kind(verdict: Verdict, n_wrong_groups: int = 0) -> str:
    """Good only where no error that matters can hide, and no group is miscalibrated beyond chance."""
    if verdict.shown or n_wrong_groups:
        return "bad"
    return "good" if verdict.kind == "unproven" and verdict.wide_interval[1] <= SMALL else ""


def lacking(card: Scorecard, names: Sequence[str]) -> str:
    """Why something is left out."""
    asked = ", ".join(card.names)
    which = f"the metric {names[0]}" if len(names) == 1 else f"one of the metrics {', '.join(names)}"
    return f"This needs {which}, and the audit was asked for {asked} only."


def whole_rows(numbers: AuditNumbers) -> list[Difference]:
    return [row for row in next(iter(numbers.differences.values()), []) if row.whole]


def decisive(rows: Sequence[Difference]) -> list[Difference]:
    """ECE and NLL, or what else was compared first."""
    return [row for row in rows if row.metric in ("ece", "nll")] or list(rows[:1])


def _pictures(numbers: AuditNumbers) -> dict[str, Any]:
    card, level, risk = numbers.card, numbers.level, numbers.risk
    binned = [name for name in card_metrics("bins") if not METRICS[name].binary]
    return {
        "reliability": None if numbers.bins is None else reliability_drawing(numbers.bins, level),
        "no_reliability": lacking(card, binned),
        "histogram": histogram_drawing(numbers.bars, weighted=numbers.provenance.weights is not None),
        "risk": None if risk is None else risk_drawing(risk),
        "kept": [] if risk is None else w.kept_sentences(risk, level),
        "no_risk": lacking(card, [name for name in card_metrics("cells") if not METRICS[name].binary]),
    }


def card_metrics(part: str) -> list[str]:
    """The metrics that are read from a part of the scorecard."""
    return [name for name, metric in METRICS.items() if part in metric.parts]


def _tables(numbers: AuditNumbers) -> dict[str, Any]:
    level, effect = numbers.level, numbers.temperature
    groups: list[tuple[str, Shown | None, str]] = [
        (by, None if table is None else groups_table(table), "" if table is None else w.group_sentence(table))
        for by, table in numbers.groups.items()
    ]
    comparisons = [("on all rows", difference_table(None, whole_rows(numbers), level))] if numbers.differences else []
    for by, rows in numbers.differences.items():
        if by is not None:
            comparisons.append((f"by {by}", difference_table(by, [row for row in rows if not row.whole], level)))
    return {
        "scorecard": scorecard_table(numbers.card, level, numbers.provenance.seed),
        "bounds": any(numbers.card.error_bound(name) > 0 for name in numbers.card.names),
        "groups": groups,
        "no_groups": lacking(numbers.card, ["ece"]),
        "classes": class_table(numbers.classes, numbers.level),
        "n_classes": len(numbers.classes),
        "no_class_errors": "" if numbers.card.classes is not None else lacking(numbers.card, ["cece"]),
        "temperature": "" if effect.temperature is None else temperature_sentence(numbers),
        "failure": as_sentence(effect.failure),
        "changes": None if effect.nll is None or effect.ece is None else changes_table(effect, level),
        "errors": error_table(numbers.reading),
        "n_errors": len(numbers.reading.errors),
        "comparisons": comparisons,
    }


def as_sentence(text: str) -> str:
    """With a stop at its end, if it has none."""
    return text if text.endswith(("?", ".")) else f"{text}."


def temperature_sentence(numbers: AuditNumbers) -> str:
    effect = numbers.temperature
    error = "" if effect.standard_error is None else f" (standard error {effect.standard_error:.2g})"
    rows = w.n_rows(effect.n_sample)
    of = "" if effect.n_sample == effect.n_rows else f", a seeded sample of {effect.n_rows:,},"
    return f"The likeliest temperature of {rows}{of} is T = {effect.temperature:.4g}{error}."


def facts(numbers: AuditNumbers) -> list[tuple[str, str]]:
    reading, provenance, card = numbers.reading, numbers.provenance, numbers.card
    found = [("rows", f"{reading.n_rows:,}"), ("classes", f"{card.n_classes:,}")]
    if provenance.weights is not None:
        found.append(("weights", f"column {provenance.weights}; {w.n_rows(reading.n_left_out)} of weight 0 left out"))
        found.append(("effective rows", f"{numbers.shares.effective:,.1f}"))
    if reading.names_differ:
        found.append(("class names", "differ between the files, so classes go by their numbers"))
    found.append(("columns", ", ".join(provenance.columns) or "none beside the predictions and labels"))
    if provenance.files:
        found.append(("files", ", ".join(first_of(map(without_secrets, provenance.files)))))
    if provenance.other_files:
        found.append(("compared with", ", ".join(first_of(map(without_secrets, provenance.other_files)))))
    return [
        *found,
        ("fingerprint", f"{reading.fingerprint} (of logits and labels, whatever the order of rows and files)"),
        ("level of intervals", w.level_text(numbers.level)),
        ("bins", str(card.n_bins)),
        ("seed", str(provenance.seed)),
        ("made by", f"calibrant {provenance.version}, {provenance.time}"),
    ]
