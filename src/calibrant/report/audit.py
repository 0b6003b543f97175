"""The HTML page of an audit."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from calibrant.audits import Audit, curves
from calibrant.audits.advice import NEGLIGIBLE_ECE
from calibrant.audits.temperature import TEMPERATURE_FOLDS
from calibrant.report import audit_tables as tables
from calibrant.report import audit_words as words
from calibrant.report.numbers import count, level_text, shorten_list
from calibrant.report.page import check_report, command_line, generator, write_page

AUDIT_SECTIONS = {
    "scorecard": "Scorecard",
    "reliability": "Reliability",
    "confidences": "Confidences",
    "decision": "If you must decide",
    "groups": "Groups",
    "classes": "Classes",
    "temperature": "Effect of temperature scaling",
    "recommendations": "Recommendations",
    "errors": "Most confident errors",
    "comparison": "Comparison",
    "provenance": "Data and provenance",
}


def write_audit(
    path: str | os.PathLike[str],
    audit: Audit,
    metrics: Sequence[str],
    *,
    command: Sequence[str] = (),
    now: datetime | None = None,
) -> None:
    """Write the page with these metrics; see `Audit.save_html`."""
    check_report(path)
    write_page(path, "audit.html.j2", **content(audit, metrics, command, now or datetime.now(UTC)))


def content(audit: Audit, metrics: Sequence[str], command: Sequence[str], now: datetime) -> dict[str, Any]:
    """The variables of the template `audit.html.j2`."""
    card = audit.scorecard
    absent = [name for name in ("groups", "classes", "comparison") if not getattr(audit, name)]
    absent += ["temperature"] if audit.top_label else []
    section_titles = {name: title for name, title in AUDIT_SECTIONS.items() if name not in absent}
    headline, evidence, *other_sentences = words.summary(audit, metrics)
    return {
        "title": title(audit.files),
        "sections": list(section_titles.items()),
        "section_titles": section_titles,
        "verdict_css_class": verdict_css_class(audit),
        "headline": headline,
        "evidence": evidence,
        "other_sentences": other_sentences,
        "level": level_text(audit.level),
        "cluster": audit.cluster,
        "has_error_bounds": any(card.error_bound(metric) > 0 for metric in metrics),
        "gates": [(gate, f"{gate.metric} = {card[gate.metric]:.6g}", gate in audit.failed) for gate in audit.gates],
        **_charts(audit),
        **_tables(audit, metrics),
        "advice": [(words.advice_sentence(advice), words.advice_command(advice)) for advice in audit.advice],
        "provenance": provenance(audit, now),
        "command": command_line(command),
    }


def title(files: Sequence[str]) -> str:
    if not files:
        return "Audit of predictions"
    return f"Audit of {files[0]}" if len(files) == 1 else f"Audit of {len(files):,} files"


def verdict_css_class(audit: Audit) -> str:
    """The CSS class of the verdict: "good" only if any miscalibration is negligible, in every group."""
    if (
        audit.constant_class is not None
        or audit.verdict.miscalibrated
        or any(found.n_miscalibrated for found in audit.groups.values())
    ):
        return "bad"
    negligible = audit.verdict.decision_interval[1] <= NEGLIGIBLE_ECE
    return "good" if audit.verdict.kind == "no_evidence" and negligible else ""


def _charts(audit: Audit) -> dict[str, Any]:
    from calibrant.report import audit_charts as charts  # imports altair

    card, level, weighted = audit.scorecard, audit.level, audit.weights is not None
    effective = weighted or audit.cluster is not None
    histogram, error = card.effective_histogram(level), 1 - card["accuracy"]
    risks, line = curves.risk_records(histogram, level), curves.risk_coverage_records(histogram)
    bins = curves.reliability_records(card.effective_bins(level), level)
    bars = curves.histogram_records(audit.statistics.histogram)
    return {
        "reliability": charts.reliability_drawing(bins, level, effective=effective),
        "histogram": charts.histogram_drawing(bars, weighted=weighted),
        "risk": charts.risk_drawing(line, risks, error, audit.decision, effective=effective),
        "risk_sentences": words.risk_sentences(risks, error, level),
    }


def _tables(audit: Audit, metrics: Sequence[str]) -> dict[str, Any]:
    effect = audit.temperature
    group_metrics = tables.group_metrics(audit, metrics)
    return {
        "scorecard": tables.scorecard_table(audit, metrics),
        "groups": [
            (by, tables.groups_table(found, group_metrics), words.group_sentence(found))
            for by, found in audit.groups.items()
        ],
        **_decision(audit),
        "classes": tables.class_table(audit),
        "folds": TEMPERATURE_FOLDS,
        "temperature": words.temperature_sentence(effect),
        "failure": effect.failure if effect.failure.endswith(("?", ".")) else f"{effect.failure}.",
        "changes": tables.changes_table(effect, audit.level) if effect.changes else None,
        "errors": tables.error_table(audit),
        "comparisons": tables.comparison_tables(audit, metrics),
    }


def _decision(audit: Audit) -> dict[str, Any]:
    found = audit.decision
    return {
        "decision": words.decision_sentence(audit),
        "decision_void": found.void is not None,
        "handed_over": [tables.handed_over_table(by, rows, audit.level) for by, rows in found.groups.items()],
        "sets": tables.sets_table(found.sets),
        "decision_commands": words.decision_commands(found, top_label=audit.top_label),
    }


def provenance(audit: Audit, now: datetime) -> list[tuple[str, str]]:
    card, statistics = audit.scorecard, audit.statistics
    facts = [("rows", f"{card.n_rows:,}")]
    facts += [("classes", "not known" if audit.top_label else f"{card.n_classes:,}")]
    if audit.weights is not None:
        n, left_out = audit.n_zero_weight, ""
        if n:
            left_out = f"; {count(n, 'row')} of weight 0 {'is' if n == 1 else 'are'} left out"
        facts.append(("weights", f"column {audit.weights}{left_out}"))
    if audit.cluster is not None:
        facts.append(("clusters", f"column {audit.cluster}"))
    if audit.weights is not None or audit.cluster is not None:
        facts.append(("effective sample size", f"{audit.verdict.n_effective:,.1f}"))
    facts.append(("columns", ", ".join(audit.columns) or "none besides predictions and labels"))
    for what, files in (("files", audit.files), ("compared with", audit.other_files)):
        if files:
            facts.append((what, ", ".join(shorten_list(files))))
    return [
        *facts,
        ("fingerprint", f"{statistics.fingerprint} (of logits and labels, independent of the order of rows and files)"),
        ("confidence level", level_text(audit.level)),
        ("bins", str(card.n_bins)),
        ("seed", str(audit.seed)),
        ("generated by", generator(now)),
    ]
