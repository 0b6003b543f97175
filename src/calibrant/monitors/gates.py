"""Gates of a monitor: conditions on its latest figures, as in ``--fail-if``."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from calibrant.audits.gates import Gate
from calibrant.monitors.questions import QUESTIONS

FIGURES = {  # what gates and the metrics file may name
    "rows": "rows so far",
    "labelled": "rows so far whose label is known",
    "alarms": "questions with an alarm",
    "window_rows": "rows of the last window",
    "confidence": "mean confidence of the last window",
    "estimated_accuracy": "accuracy of the last window, estimated without labels",
    "estimated_gap": "confidence - accuracy of the last window, estimated without labels",
    "accuracy": "accuracy of the last window with labels",
    "gap": "confidence - accuracy of the last window with labels",
    "ece": "expected calibration error of the last window with labels",
} | {f"log_e_{question}": f"log e-value: {asks}" for question, asks in QUESTIONS.items()}


class WindowGate(Gate):
    """A condition such as ``accuracy < 0.8`` on a figure of `FIGURES`."""

    names: ClassVar[Collection[str]] = FIGURES


def latest_figures(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The latest value of each of `FIGURES` in the record of a monitor; None where there is none yet."""
    last = record["windows"][-1] if record["windows"] else {}
    labelled: Mapping[str, Any] = next((window for window in reversed(record["windows"]) if window["n_labelled"]), {})
    estimate = last.get("estimate") or {}
    found: dict[str, float | None] = {
        "rows": record["n_rows"],
        "labelled": record["n_labelled"],
        "alarms": len(record["alarms"]),
        "window_rows": last.get("n_rows"),
        "confidence": last.get("confidence"),
        **{f"estimated_{name}": (estimate.get(name) or {}).get("value") for name in ("accuracy", "gap")},
        **{name: (labelled.get(name) or {}).get("value") for name in ("accuracy", "gap", "ece")},
    }
    return found | {f"log_e_{name}": record["questions"].get(name, {}).get("log_e") for name in QUESTIONS}
