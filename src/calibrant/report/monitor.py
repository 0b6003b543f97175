"""The HTML page of a monitor."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from calibrant.estimates import ShiftTest
from calibrant.monitors.rows import parse_every
from calibrant.report.estimates import TESTS, UNLIKE, UNSHIFTED, differs
from calibrant.report.findings import PageSection, write_findings
from calibrant.report.numbers import (
    MISSING,
    count,
    interval_text,
    join_words,
    level_text,
    metric_text,
    percent,
    percent_limits,
    points,
    shorten_list,
)
from calibrant.report.page import SvgFigure, check_report
from calibrant.report.table import Cell, Column, Table, number_cell

MAX_SHOWN = 300  # windows in charts and table: the newest
COLUMNS = {"time": "times", "id": "ids", "cluster": "clusters"}


def write_monitor(
    path: str | os.PathLike[str],
    record: Mapping[str, Any],
    *,
    command: Sequence[str] = (),
    now: datetime | None = None,
    refresh: int | None = None,
) -> None:
    """Write the page of the record of `Monitor.to_dict`; see `Monitor.save_html`."""
    check_report(path)
    windows = record["windows"][-MAX_SHOWN:]
    title = f"Monitor of {count(record['n_files'], 'file')}"
    sections = [
        _alarm_section(record),
        *_chart_sections(record, windows),
        PageSection("windows", "Windows", tables=[windows_table(record, windows)]),
    ]
    facts, bad = provenance(record), bool(record["alarms"])
    options: dict[str, Any] = {"bad": bad, "command": command, "now": now, "refresh": refresh}
    write_findings(path, title, summary(record), sections, facts, **options)


def summary(record: Mapping[str, Any]) -> list[str]:
    """The verdict in words, what is known of the newest window, and whether the estimates deserve trust."""
    raised = [alarm["question"] for alarm in record["alarms"]]
    headline = [f"{count(len(raised), 'alarm')}: {', then '.join(raised)}."] if raised else []
    sentences = [record["verdict"], _newest(record), _labels(record), estimate_errors(record)]
    return [*headline, *(sentence for sentence in sentences if sentence)]


def _newest(record: Mapping[str, Any]) -> str:
    if not record["windows"]:
        return "The stream has no rows yet."
    window = record["windows"][-1]
    parts = [count(window["n_rows"], "row"), f"mean confidence {percent(window['confidence'])}"]
    if (estimate := window["estimate"]) is not None:
        parts.append(f"estimated accuracy {_percent_text(estimate['accuracy'])}")
    if window["accuracy"] is not None:
        parts.append(f"measured accuracy {_percent_text(window['accuracy'])} of {window['n_labelled']:,} labelled rows")
    found = f"The newest window, {window['window']}: {', '.join(parts)}."
    return found if estimate is None else f"{found} {estimate_reservation(estimate)}"


def estimate_reservation(estimate: Mapping[str, Any]) -> str:
    """Under which condition the interval of an estimate holds."""
    if estimate["unlike"]:
        return UNLIKE
    if not estimate["shifts"]:
        return UNSHIFTED
    n_types = count(len(estimate["shifts"]), "type")
    return f"The interval of the estimate includes the error on {n_types} of shift, each left out of the fit."


def _percent_text(found: Mapping[str, float]) -> str:
    return f"{percent(found['value'])} ({percent_limits((found['low'], found['high']))})"


def _labels(record: Mapping[str, Any]) -> str:
    if not record["n_rows"]:
        return ""
    if not record["n_labelled"]:
        return "No label is known: a change of what the labels mean is invisible."
    return f"Labels are known for {record['n_labelled']:,} of {count(record['n_rows'], 'row')}."


def estimate_errors(record: Mapping[str, Any]) -> str:
    """How far the estimates were from the measured accuracy, so far."""
    errors = [abs(w["estimate_error"]) for w in record["windows"] if w["estimate_error"] is not None]
    if not errors:
        return ""
    mean, windows = points(sum(errors) / len(errors)), count(len(errors), "window")
    most = f" (at most {points(max(errors))})" if len(errors) > 1 else ""
    return f"In {windows} with labels, the estimated accuracy was off by {mean} percentage points{most}."


def _alarm_section(record: Mapping[str, Any]) -> PageSection:
    sentences = ["No question has an alarm."]
    if record["alarms"]:
        first = record["alarms"][0]
        sentences = [f"What changed first: {first['question']}, in window {first['window']} ({first['where']})."]
    for gate in record["gates"]:
        if gate["value"] is None:
            sentences.append(f"Undecided, since there is no value yet: {gate['gate']}.")
        else:
            sentences.append(f"{'Failed' if gate['failed'] else 'Passed'}: {gate['gate']} ({gate['value']:.6g}).")
    return PageSection("alarms", "Alarms", sentences, tables=[questions_table(record)])


def questions_table(record: Mapping[str, Any]) -> Table:
    """The evidence on each question, and its alarm."""
    columns = [
        Column("question", numeric=False),
        Column("rows"),
        Column("log e"),
        Column("alarm line"),
        Column("alarm in window", numeric=False),
        Column("after rows"),
        Column("most evidence in", numeric=False),
    ]
    alarms = {alarm["question"]: alarm for alarm in record["alarms"]}
    rows = []
    for name, found in record["questions"].items():
        alarm = alarms.get(name, {})
        most = max(found["parts"], key=lambda part: part["log_e"])["where"] if found["n_rows"] else MISSING
        rows.append(
            [
                Cell(name),
                _count_cell(found["n_rows"]),
                _log_e_cell(found["log_e"], "bad" if alarm else ""),
                _log_e_cell(found["limit"]),
                Cell(alarm.get("window", MISSING)),
                _count_cell(alarm.get("n_rows")),
                Cell(most),
            ]
        )
    notes = [f"{name}: {found['asks']}." for name, found in record["questions"].items()]
    notes.append(
        f"The probability that any alarm is ever false is at most {100 * record['alpha']:g} %. An alarm stays."
    )
    return Table("evidence so far", columns, rows, notes)


def _chart_sections(record: Mapping[str, Any], windows: Sequence[Mapping[str, Any]]) -> list[PageSection]:
    from calibrant.report import monitor_charts as charts  # imports altair

    sections = []
    drawings: list[tuple[str, str, SvgFigure | None, list[str]]] = [
        ("accuracy", "Accuracy", charts.accuracy_drawing(record, windows), unlike_sentences(windows)),
        ("gap", "Confidence − accuracy", charts.gap_drawing(record, windows), []),
        ("evidence", "Evidence", charts.evidence_drawing(record, windows), []),
        ("classes", "Predicted classes", charts.class_drawing(record, windows), []),
    ]
    for name, title, drawing, sentences in drawings:
        if drawing is not None:
            sections.append(PageSection(name, title, sentences, [drawing]))
    return sections


def unlike_sentences(windows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The windows whose estimates are not to be believed."""
    unlike = [window["window"] for window in windows if window["estimate"] and window["estimate"]["unlike"]]
    if not unlike:
        return []
    names = join_words(shorten_list(unlike, 5))
    return [f"Unlike everything the estimator was fitted to, so do not rely on the estimates: {names}."]


def windows_table(record: Mapping[str, Any], windows: Sequence[Mapping[str, Any]]) -> Table:
    """What is known of each window, the newest first."""
    free, measured, evidence = "without labels", "with labels", "log e"
    questions = list(record["questions"])
    columns = [
        Column("window", numeric=False),
        Column("rows"),
        Column("labelled"),
        Column("confidence"),
        Column("accuracy", group=free),
        Column("interval", group=free),
        Column("temperature", tooltip="that adaptation would take", group=free),
        Column("differs in", numeric=False, group=free),
        Column("accuracy", group=measured),
        Column("interval", group=measured),
        Column("ECE", group=measured),
        Column("noise floor", group=measured),
        Column("estimate − accuracy", group=measured),
        *(Column(name, group=evidence) for name in questions),
    ]
    rows = [_window_cells(window, questions) for window in reversed(windows)]
    levels = [f"with labels {level_text(record['level'])}"]
    levels += {f"without labels {level_text(w['estimate']['level'])}" for w in windows if w["estimate"]}
    notes = [
        f"Level of the intervals: {', '.join(levels)}. The noise floor is the expected ECE of a perfectly calibrated "
        "model.",
        "Differs in: where a shift test of this window alone tells it from the reference (p < 0.05), with the effect, "
        "from 0 (the same) to 1 (nothing in common).",
    ]
    caption = "windows, the newest first"
    if len(windows) < len(record["windows"]):
        caption = f"the newest {len(windows)} of {len(record['windows']):,} windows"
    return Table(caption, columns, rows, notes)


def _window_cells(window: Mapping[str, Any], questions: Sequence[str]) -> list[Cell]:
    estimate, ece = window["estimate"] or {}, window["ece"] or {}
    temperature = (estimate.get("temperature") or {}).get("value")
    error = window["estimate_error"]
    return [
        Cell(window["window"]),
        _count_cell(window["n_rows"]),
        _count_cell(window["n_labelled"]),
        number_cell(window["confidence"], metric_text(window["confidence"])),
        *_interval_cells(estimate.get("accuracy"), "bad" if estimate.get("unlike") else ""),
        number_cell(temperature, metric_text(temperature)),
        _shift_cell([ShiftTest(**test) for test in window["shift"] or ()]),
        *_interval_cells(window["accuracy"]),
        number_cell(ece.get("value"), metric_text(ece.get("value"))),
        number_cell(ece.get("noise_floor"), metric_text(ece.get("noise_floor"))),
        number_cell(error, metric_text(error, "+")),
        *(_log_e_cell(window["log_e"].get(name)) for name in questions),
    ]


def _shift_cell(tests: Sequence[ShiftTest]) -> Cell:
    """What differs from the reference, each with its effect."""
    clear = [f"{TESTS[test.name]} ({test.effect:.2f})" for test in tests if differs(test)]
    return Cell(", ".join(clear)) if clear else Cell(MISSING, kind="faint")


def _interval_cells(found: Mapping[str, float] | None, kind: str = "") -> tuple[Cell, Cell]:
    if found is None:
        return number_cell(None, ""), Cell(MISSING, kind="faint")
    limits = Cell(interval_text((found["low"], found["high"])))
    return number_cell(found["value"], metric_text(found["value"]), kind), limits


def _log_e_cell(value: float | None, kind: str = "") -> Cell:
    return number_cell(value, "" if value is None else f"{value:.2f}".replace("-", "−"), kind)


def _count_cell(n: int | None) -> Cell:
    return number_cell(n, "" if n is None else f"{n:,}")


def provenance(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the numbers come from."""
    reference = record["reference"]
    accuracy = "" if reference["accuracy"] is None else f", accuracy {percent(reference['accuracy'])}"
    labelled = f"{count(reference['n_rows'], 'row')}, {reference['n_labelled']:,} labelled{accuracy}"
    length = record["every"] if parse_every(record["every"])[1] else f"{record['every']} rows"
    return [
        ("files", f"{record['n_files']:,}"),
        ("rows", f"{record['n_rows']:,}"),
        ("labelled rows", f"{record['n_labelled']:,}"),
        ("rows that wait for a label", f"{record['n_waiting']:,}"),
        ("rows that waited too long", f"{record['n_dropped']:,}"),
        ("labels without a row", f"{record['n_unmatched']:,}"),
        ("classes", f"{len(reference['class_mix']):,}"),
        ("windows", f"{len(record['windows']):,}, of {length}"),
        *((f"column of {what}", record[key]) for key, what in COLUMNS.items() if record[key] is not None),
        ("calibrator", record["calibrator"] or "none"),
        ("reference", f"{labelled}, mean confidence {percent(reference['confidence'])}"),
        ("fingerprint of the reference", reference["fingerprint"]),
        ("alpha", f"{record['alpha']:g}"),
    ]
