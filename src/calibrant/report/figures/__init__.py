"""The figures of an experiment by name. Each is a module: `prepare` computes records, `draw` makes a chart of them."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calibrant._names import check_choice
from calibrant._paths import as_path
from calibrant._signatures import checked
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
from calibrant.report.paper import table_scores
from calibrant.report.scores import ScoreKey, shared_tests
from calibrant.report.style import loss_label

ALL = "all"

ExperimentPath = ExperimentFolder | str | os.PathLike[str]
ImageSource = Callable[
    ..., Mapping[str, Mapping[str, samples.Pixels]]
]  # (rows, data, severity) -> row -> column -> image


class Figure(NamedTuple):
    """A figure: module.prepare(input, **options) computes records, module.draw(records) makes a chart."""

    module: ModuleType
    input: Literal["nothing", "rows", "curves", "images"]
    options: tuple[str, ...]
    caption: str


SELECTION = ("data", "losses", "calibrator")
FIGURES: dict[str, Figure] = {
    "gibbs": Figure(
        gibbs,
        "nothing",
        (),
        "Maximum-entropy distributions over the classes. A higher mean μ moves probability to the higher classes; a "
        "higher variance σ² moves probability from the middle classes to the outer ones.",
    ),
    "severity": Figure(
        severity,
        "rows",
        SELECTION,
        "Error and calibration error against severity; 0 is the unshifted test set. Means over the corruptions that "
        "have every severity, then over seeds; bands are ± 1 standard error over seeds.",
    ),
    "samples": Figure(samples, "images", ("data", "severity"), "Unshifted and shifted test images."),
    "reliability": Figure(
        reliability,
        "curves",
        (*SELECTION, "severity"),
        "Histogram of confidence in ten bins (top) and accuracy of each bin (bottom), pooled over shifted test sets "
        "and seeds. Bins whose accuracy is below the diagonal are overconfident.",
    ),
    "local_constraints": Figure(
        local_constraints,
        "rows",
        SELECTION,
        "ECE against severity for MaxEnt loss with local constraints (solid) and with global ones only (dotted).",
    ),
    "feature_norm": Figure(
        feature_norm,
        "rows",
        ("data", "losses"),
        "ECE against the mean feature norm. Numbers in circles are severities; for a natural shift, 0 is the unshifted "
        "and 1 the shifted test set.",
    ),
    "label_smoothing": Figure(
        label_smoothing,
        "curves",
        (*SELECTION, "severity"),
        "Histogram of confidence in ten bins without and with label smoothing (LS), pooled over shifted test sets "
        "and seeds. The line repeats the histogram without label smoothing.",
    ),
    "risk_coverage": Figure(
        risk_coverage,
        "curves",
        (*SELECTION, "severity"),
        "Error among the most confident predictions of each test set (risk) against the share that is kept "
        "(coverage), pooled over shifted test sets and seeds.",
    ),
    "heat_map": Figure(
        heat_map,
        "rows",
        (*SELECTION, "severity"),
        "ECE in percent by loss and corruption, means over the severities of each corruption and over seeds.",
    ),
    "calibrated": Figure(
        calibrated,
        "rows",
        ("data", "losses"),
        "ECE against severity, raw and after each calibrator; 0 is the unshifted test set. Means over the corruptions "
        "that have every severity, then over seeds; bands are ± 1 standard error over seeds. A calibrator sees no "
        "label of the test sets, and is fitted without the corruption of the test.",
    ),
}


@checked
def make_figure(
    name: str, folder: ExperimentPath | None = None, *, images: ImageSource | None = None, **options: Any
) -> ChartSpec:
    """Draw a figure of an experiment.

    Args:
        name: A key of FIGURES.
        folder: The folder of the experiment; the figure gibbs needs none.
        images: The function that reads the images of the figure samples, for example
            `calibrant.experiments.samples.sample_images`.
        options: data and losses (collections of names), calibrator, severity, where the figure has this option.

    Returns:
        The chart; `calibrant.report.render.save` writes it to a file.

    Raises:
        NoDataError: The experiment lacks data that the figure needs; the message has a hint.
        UnknownNameError: The figure, a data set, a loss or the calibrator is unknown.
        InvalidInputError: The figure does not have an option.
    """
    check_choice("figure", name, FIGURES)
    for option in options:
        if option not in FIGURES[name].options:
            raise InvalidInputError(f"the figure {name} has no option {option}")
    return _draw(name, None if folder is None else _Tables(open_experiment(folder)), images, options)


class _Tables:
    """The tables of an experiment, each read once for all figures."""

    def __init__(self, folder: ExperimentFolder) -> None:
        self.folder = folder

    @cached_property
    def rows(self) -> pa.Table:
        return self.folder.read_rows()

    @cached_property
    def curves(self) -> pa.Table:
        return self.folder.read_curves()

    @cached_property
    def shared_rows(self) -> tuple[pa.Table, list[str]]:
        return shared_tests(self.rows)

    @cached_property
    def at_chance(self) -> list[ScoreKey]:
        """The scores without a calibrator of which a run is at chance."""
        rows, _ = self.shared_rows
        found = table_scores(rows, ("ece",), shifted=bool(pc.any(rows["shifted"]).as_py()))
        return [key for key, score in found.items() if score.at_chance and key.calibrator == RAW]


def _draw(name: str, tables: _Tables | None, images: ImageSource | None, options: Mapping[str, Any]) -> ChartSpec:
    figure = FIGURES[name]
    chart: ChartSpec
    if figure.input == "nothing":
        chart = figure.module.draw(figure.module.prepare())
        return chart
    if tables is None:
        raise InvalidInputError(f"the figure {name} needs the folder of an experiment")
    if figure.input == "images":
        if images is None:
            raise NoDataError(f"cannot draw {name}: no images given")
        chart = figure.module.draw(figure.module.prepare(images(tables.rows, **options)))
        return chart
    if figure.input == "rows":
        shared, notes = tables.shared_rows
    else:
        shared, notes = shared_tests(_filter_calibrator(tables.curves, options.get("calibrator", RAW)))
    chart = figure.module.draw(figure.module.prepare(shared, **options))
    return with_notes(chart, [*notes, *_chance_notes(tables.at_chance, options)])


def _chance_notes(at_chance: Iterable[ScoreKey], options: Mapping[str, Any]) -> list[str]:
    """A note per data set on the losses of a figure of which a run is at chance: a constant prediction can be good."""
    found: dict[str, list[str]] = {}
    for key in at_chance:
        if key.data in (options.get("data") or [key.data]) and key.loss in (options.get("losses") or [key.loss]):
            found.setdefault(key.data, []).append(loss_label(key.loss, key.variant, key.label_smoothing))
    return [f"{data}: a run is at chance, so not to be compared: {', '.join(names)}." for data, names in found.items()]


def _filter_calibrator(curves: pa.Table, name: str) -> pa.Table:
    """The curves of one calibrator, before test sets are compared: another that was not fitted has fewer test sets."""
    known = pc.unique(curves["calibrator"]).to_pylist()
    if known:
        check_choice("calibrator of the experiment", name, sorted(known))
    return curves.filter(pc.equal(curves["calibrator"], name))


def open_experiment(folder: ExperimentPath) -> ExperimentFolder:
    return folder if isinstance(folder, ExperimentFolder) else ExperimentFolder(as_path("folder", folder))


def make_figures(
    folder: ExperimentPath,
    names: Collection[str] = (ALL,),
    *,
    images: ImageSource | None = None,
    progress: Callable[[str], None] = lambda name: None,
    **options: Any,
) -> tuple[dict[str, ChartSpec], dict[str, str]]:
    """Draw all figures of an experiment that its data allow.

    Args:
        folder: The folder of the experiment.
        names: Keys of FIGURES, or "all".
        images: As for `make_figure`.
        progress: Called with the name of each figure before it is drawn.
        options: As for `make_figure`; each figure gets those that it has.

    Returns:
        The charts by name, and the error messages of the figures that cannot be drawn by name.

    Raises:
        UnknownNameError: A figure is unknown.
    """
    check_figures(names)
    tables = _Tables(open_experiment(folder))
    made: dict[str, ChartSpec] = {}
    reasons: dict[str, str] = {}
    for name, figure in FIGURES.items():
        if ALL in names or name in names:
            progress(name)
            known = {option: value for option, value in options.items() if option in figure.options}
            try:
                made[name] = _draw(name, tables, images, known)
            except CalibrantError as error:
                reasons[name] = str(error)
    return made, reasons


def check_figures(names: Collection[str]) -> None:
    """Raises: UnknownNameError where a name is neither a key of FIGURES nor "all"."""
    for name in names:
        check_choice("figure", name, (*FIGURES, ALL))
