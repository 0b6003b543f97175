"""The figures of an experiment by name: each has records to prepare, and draws them; `make` does both for a folder."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc

from calibrant._names import check_choice
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError
from calibrant.experiments.folder import RAW, ExperimentFolder
from calibrant.report.charts import ChartSpec, with_notes
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
from calibrant.report.scores import ChartRecord, shared_tests

ALL = "all"
SELECTION = ("data", "losses", "calibrator")

ExperimentPath = ExperimentFolder | str | os.PathLike[str]
ImageSource = Callable[..., Mapping[str, Mapping[str, samples.Pixels]]]  # of rows, data and severity: by row and column


@dataclass(frozen=True)
class Figure:
    """A figure: prepare(what it needs, **options) gives records, draw(records) a chart."""

    prepare: Callable[..., list[ChartRecord]]
    draw: Callable[[list[ChartRecord]], ChartSpec]
    caption: str
    needs: Literal["nothing", "rows", "curves", "images"]
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
        SELECTION,
    ),
    "samples": Figure(
        samples.prepare,
        samples.draw,
        "Images of the test, as they are and under shift.",
        "images",
        ("data", "severity"),
    ),
    "reliability": Figure(
        reliability.prepare,
        reliability.draw,
        "Share of the predictions in ten bins of confidence (top) and accuracy in each bin (bottom), all shifted tests "
        "and seeds together. Bars below the diagonal are overconfident.",
        "curves",
        (*SELECTION, "severity"),
    ),
    "local_constraints": Figure(
        local_constraints.prepare,
        local_constraints.draw,
        "ECE as the shift grows, for MaxEnt Loss with local constraints (solid) and with global ones alone (dotted).",
        "rows",
        SELECTION,
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
        (*SELECTION, "severity"),
    ),
    "risk_coverage": Figure(
        risk_coverage.prepare,
        risk_coverage.draw,
        "Error among the most confident predictions of each test against the share of it that is kept; means over the "
        "shifted tests and seeds.",
        "curves",
        (*SELECTION, "severity"),
    ),
    "heat_map": Figure(
        heat_map.prepare,
        heat_map.draw,
        "ECE in percent by loss and corruption, means over severities and seeds.",
        "rows",
        (*SELECTION, "severity"),
    ),
    "calibrated": Figure(
        calibrated.prepare,
        calibrated.draw,
        "ECE as the shift grows, raw and after each calibrator. Bands are standard errors over seeds.",
        "rows",
        ("data", "losses"),
    ),
}


def make_figure(
    name: str, folder: ExperimentPath | None = None, *, images: ImageSource | None = None, **options: Any
) -> ChartSpec:
    """Draw one figure.

    Args:
        name: One of FIGURES.
        folder: The folder of the experiment; gibbs needs none.
        images: What gives the figure samples its images, as `calibrant.experiments.samples.sample_images`.
        options: data and losses (collections of names), calibrator, severity, where the figure knows them.

    Returns:
        The chart; `calibrant.report.render` makes it a file.

    Raises:
        NoDataError: The experiment lacks what the figure needs; the message says what gives it.
        UnknownNameError: There is no such figure, data set, loss or calibrator.
        InvalidInputError: An option means nothing to the figure.
    """
    check_choice("figure", name, FIGURES)
    figure = FIGURES[name]
    check_options(name, options)
    if figure.needs == "nothing":
        return figure.draw(figure.prepare())
    if folder is None:
        raise InvalidInputError(f"the figure {name} needs the folder of an experiment")
    folder = open_experiment(folder)
    if figure.needs == "images":
        if images is None:
            raise NoDataError(f"the figure {name} needs images of the data set")
        return figure.draw(figure.prepare(images(folder.read_rows(), **options)))
    table = folder.read_rows() if figure.needs == "rows" else folder.read_curves()
    if figure.needs == "curves":  # which a calibrator that could not be fitted lacks, and that is not the others' loss
        table = table.filter(pc.equal(table["calibrator"], _known_calibrator(table, options.get("calibrator", RAW))))
    shared, notes = shared_tests(table)
    return with_notes(figure.draw(figure.prepare(shared, **options)), notes)


def _known_calibrator(table: Any, name: str) -> str:
    known = pc.unique(table["calibrator"]).to_pylist()
    return check_choice("calibrator of the experiment", name, sorted(known)) if known else name


def open_experiment(folder: ExperimentPath) -> ExperimentFolder:
    return folder if isinstance(folder, ExperimentFolder) else ExperimentFolder(Path(folder))


def check_options(name: str, options: Collection[str]) -> None:
    for option in options:
        if option not in FIGURES[name].options:
            raise InvalidInputError(f"{option} has no meaning for the figure {name}")


def make_figures(
    folder: ExperimentPath,
    names: Collection[str] = (ALL,),
    *,
    images: ImageSource | None = None,
    report: Callable[[str], None] = lambda name: None,
    **options: Any,
) -> tuple[dict[str, ChartSpec], dict[str, str]]:
    """Draw the figures of an experiment that can be drawn.

    Args:
        folder: The folder of the experiment.
        names: Of figures, or "all".
        images: As for `make`.
        report: Told the name of each figure as it is begun.
        options: As for `make`; each figure takes those that it knows.

    Returns:
        The charts by name, and of each that cannot be drawn the reason.

    Raises:
        UnknownNameError: A name is that of no figure.
    """
    check_names(names)
    made: dict[str, ChartSpec] = {}
    reasons: dict[str, str] = {}
    for name, figure in FIGURES.items():
        if ALL in names or name in names:
            report(name)
            known = {option: value for option, value in options.items() if option in figure.options}
            try:
                made[name] = make_figure(name, folder, images=images, **known)
            except CalibrantError as error:
                reasons[name] = str(error)
    return made, reasons


def check_names(names: Collection[str]) -> None:
    for name in names:
        check_choice("figure", name, (*FIGURES, ALL))
