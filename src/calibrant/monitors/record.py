"""A monitor as JSON, in the schema that docs/monitor.md states, and the words in it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calibrant._arrays import UNKNOWN, sum_of
from calibrant.metrics.sample_scores import sample_scores, top_class
from calibrant.monitors.gates import FIGURES, latest_figures
from calibrant.monitors.questions import QUESTIONS
from calibrant.monitors.windows import LEVEL, Window, time_text, window_name

if TYPE_CHECKING:
    from calibrant.monitors.stream import Monitor

SETTINGS = ("time", "every", "id", "cluster", "alpha", "calibrator")


def monitor_record(monitor: "Monitor") -> dict[str, Any]:
    """The record."""
    windows = [_window_record(monitor, number) for number in sorted(monitor.windows)]
    waiting = monitor.waiting["label"] == UNKNOWN
    record: dict[str, Any] = {
        **{name: monitor.settings[name] for name in SETTINGS},
        "level": LEVEL,
        "n_files": len(monitor.files),
        "n_rows": monitor.n_rows,
        "n_labelled": sum(window["n_labelled"] for window in windows),
        "n_waiting": int(waiting.sum()),
        "n_dropped": monitor.n_dropped,
        "n_unmatched": monitor.n_unmatched,
        "class_names": monitor.reference.class_names and list(monitor.reference.class_names),
        "reference": _reference_record(monitor),
        "questions": {name: _question_record(monitor, name) for name in monitor.evidence.processes},
        "alarms": [alarm | {"window": _name(monitor, alarm["window"])} for alarm in monitor.alarms],
        "windows": windows,
    }
    figures = latest_figures(record)
    values = [(gate, figures[gate.metric]) for gate in monitor.gates]
    gates = [{"gate": str(g), "value": v, "failed": v is not None and g.holds(v)} for g, v in values]
    return record | {"gates": gates, "verdict": verdict(record)}


def _reference_record(monitor: "Monitor") -> dict[str, Any]:
    reference = monitor.reference
    scores, _ = sample_scores(reference.logits, reference.labels.clamp(min=0))
    known = reference.labels != UNKNOWN
    n, n_labelled = len(reference), int(known.sum())
    return {
        "fingerprint": monitor.settings["reference"],
        "n_rows": n,
        "n_labelled": n_labelled,
        "confidence": sum_of(scores.confidence) / n,
        "accuracy": float(scores.correct[known].double().mean()) if n_labelled else None,
        "class_mix": (top_class(reference.logits).bincount(minlength=reference.n_classes).double() / n).tolist(),
    }


def _question_record(monitor: "Monitor", name: str) -> dict[str, Any]:
    process = monitor.evidence.processes[name]
    parts = enumerate(process.component_log_e().tolist())
    return {
        "asks": QUESTIONS[name],
        "n_rows": process.n_rows,
        "log_e": process.log_e,
        "limit": process.limit,
        "parts": [{"where": monitor.evidence.component_name(name, part), "log_e": log_e} for part, log_e in parts],
    }


def _window_record(monitor: "Monitor", number: int) -> dict[str, Any]:
    window: Window = monitor.windows[number]
    measured = window.measured or {}
    estimate = (window.described or {}).get("estimate")
    accuracy = measured.get("accuracy")
    error = None
    if accuracy is not None and estimate is not None:
        error = estimate["accuracy"]["value"] - accuracy["value"]
    times = [None, None] if window.times is None else [time_text(time) for time in window.times]
    return {
        "window": _name(monitor, number),
        "updated": number in monitor.updated,
        "first_time": times[0],
        "last_time": times[1],
        "n_rows": window.n_rows,
        "n_labelled": window.n_labelled,
        "confidence": window.confidence / window.n_rows,
        "class_mix": (window.class_counts / window.n_rows).tolist(),
        "estimate": estimate,
        "shift": (window.described or {}).get("shift"),
        "accuracy": accuracy,
        "gap": measured.get("gap"),
        "ece": measured.get("ece"),
        "estimate_error": error,
        "log_e": dict(window.log_e),
    }


def _name(monitor: "Monitor", number: int) -> str:
    return window_name(number, monitor.every, monitor.by_time)


def verdict(record: Mapping[str, Any]) -> str:
    """What a reader must know, in words."""
    if not record["alarms"]:
        parts = [f"{name} (log e = {found['log_e']:.1f} of {found['limit']:.1f})" for name, found in _counted(record)]
        evidence = f": {', '.join(parts)}" if parts else ""
        return f"No alarm in {record['n_rows']:,} rows{evidence}."
    sentences = [_alarm_words(alarm) for alarm in record["alarms"]]
    return f"{' '.join(sentences)} At most {100 * record['alpha']:g} % of monitors ever raise a false alarm."


def _counted(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, found) for name, found in record["questions"].items() if found["n_rows"]]


def _alarm_words(alarm: Mapping[str, Any]) -> str:
    more, where = "higher" if alarm["higher"] else "lower", alarm["where"]
    if alarm["question"] == "shifted":
        often = more if where in ("entropy", "distance") else "more often" if alarm["higher"] else "less often"
        what = f"the predictions differ from those of the reference ({where} {often})"
    else:
        than = "the confidence" if alarm["question"] == "miscalibrated" else "at the same confidence in the reference"
        what = f"the accuracy is {more} than {than} ({where})"
    return f"Alarm in window {alarm['window']}: {what}."


def window_line(record: Mapping[str, Any], number: int) -> str:
    """One line for a log, of a window by its place in the record."""
    window = record["windows"][number]
    parts = [window["window"], f"rows {window['n_rows']:,}", f"confidence {window['confidence']:.4f}"]
    if (estimate := window["estimate"]) is not None:
        parts.append(f"estimated accuracy {_interval(estimate['accuracy'])}")
    if window["accuracy"] is not None:
        parts.append(f"accuracy {_interval(window['accuracy'])} of {window['n_labelled']:,} labelled")
        parts.append(f"ece {window['ece']['value']:.4f} (noise floor {window['ece']['noise_floor']:.4f})")
    parts += [f"log e {name} {window['log_e'][name]:.1f}" for name in QUESTIONS if name in window["log_e"]]
    before = {earlier["window"] for earlier in record["windows"][: number + 1]}
    raised = [alarm["question"] for alarm in record["alarms"] if alarm["window"] in before]
    return "  ".join(parts + ([f"ALARM {' '.join(raised)}"] if raised else []))


def _interval(number: Mapping[str, float]) -> str:
    return f"{number['value']:.4f} [{number['low']:.4f}, {number['high']:.4f}]"


def metrics_text(record: Mapping[str, Any]) -> str:
    """The latest figures in the text format of Prometheus."""
    lines = []
    for name, value in latest_figures(record).items():
        if value is not None:
            lines += [f"# HELP calibrant_{name} {FIGURES[name]}", f"# TYPE calibrant_{name} gauge"]
            lines.append(f"calibrant_{name} {value!r}")
    return "\n".join(lines) + "\n"
