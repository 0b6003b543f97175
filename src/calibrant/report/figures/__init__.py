"""The figures by name, in the table FIGURES: each has numbers to prepare, and draws them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.report.figures import (
    calibrated,
    feature_norm,
    gibbs,
    heat_map,
    label_smoothing,
    local_constraints,
    reliability,
    risk_coverage,
    samples,
    severity,
)
from calibrant.report.figures.look import Chart

CHOICE = ("data", "losses", "calibrator")


@dataclass(frozen=True)
class Figure:
    """A figure: prepare(what it needs, **options) gives numbers, draw(numbers) a chart."""

    prepare: Callable[..., Any]
    draw: Callable[[Any], Chart]
    caption: str
    needs: Literal["nothing", "rows", "curves", "pictures"]
    options: tuple[str, ...] = ()


FIGURES: dict[str, Figure] = {
    "gibbs": Figure(
        gibbs.prepare,
        gibbs.draw,
        "Distributions of greatest entropy over the classes. A higher mean μ favours the higher classes; a higher "
        "variance σ² about the middle class spreads the probability.",
        "nothing",
    ),
    "severity": Figure(
        severity.prepare,
        severity.draw,
        "Error and calibration error as the shift grows, 0 being the unshifted test. Means over the corruptions of "
        "each severity, then over seeds; bands are standard errors.",
        "rows",
        CHOICE,
    ),
    "samples": Figure(
        samples.prepare,
        samples.draw,
        "Pictures of the test, as they are and under shift.",
        "pictures",
        ("data", "severity"),
    ),
    "reliability": Figure(
        reliability.prepare,
        reliability.draw,
        "Share of the predictions in ten bins of confidence (top) and accuracy in each bin (bottom), all shifted tests "
        "and seeds together. Bars below the diagonal are overconfident.",
        "curves",
        (*CHOICE, "severity"),
    ),
    "local_constraints": Figure(
        local_constraints.prepare,
        local_constraints.draw,
        "ECE as the shift grows, for MaxEnt Loss with local constraints (solid) and with global ones alone (dotted).",
        "rows",
        CHOICE,
    ),
    "feature_norm": Figure(
        feature_norm.prepare,
        feature_norm.draw,
        "ECE against the mean norm of the features. Numbers are severities; of a shift in the wild, 0 is the unshifted "
        "test and 1 the shifted one.",
        "rows",
        ("data", "losses"),
    ),
    "label_smoothing": Figure(
        label_smoothing.prepare,
        label_smoothing.draw,
        "Share of the predictions in ten bins of confidence, all shifted tests and seeds together, without and with "
        "label smoothing (LS). The line repeats the bars without.",
        "curves",
        (*CHOICE, "severity"),
    ),
    "risk_coverage": Figure(
        risk_coverage.prepare,
        risk_coverage.draw,
        "Error among the most confident predictions of each test against the share of it that is kept; means over the "
        "shifted tests and seeds.",
        "curves",
        (*CHOICE, "severity"),
    ),
    "heat_map": Figure(
        heat_map.prepare,
        heat_map.draw,
        "ECE in percent by loss and corruption, means over severities and seeds.",
        "rows",
        (*CHOICE, "severity"),
    ),
    "calibrated": Figure(
        calibrated.prepare,
        calibrated.draw,
        "ECE as the shift grows, raw and after each calibrator. Bands are standard errors over seeds.",
        "rows",
        ("data", "losses"),
    ),
}
