"""`calibrant figure`: one figure of an experiment, or all of them, as files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._names import FIGURES, check_choice
from calibrant.cli.options import File, Integer, Output, Words
from calibrant.cli.output import status
from calibrant.errors import InvalidInputError, printable
from calibrant.experiments.files import check_has_run

if TYPE_CHECKING:
    from calibrant.report.figures import ImageSource


def figure(
    name: str,
    folder: File | None = None,
    /,
    *,
    output: Output | None = None,
    severity: Integer | None = None,
    calibrator: str | None = None,
    data: Words = (),
    losses: Words = (),
    root: File | None = None,
) -> None:
    """Draw a figure of an experiment, or all of them.

    Parameters
    ----------
    name
        gibbs, severity, samples, reliability, local_constraints, feature_norm, label_smoothing, risk_coverage,
        heat_map or calibrated; or all, which also prints why a figure cannot be drawn.
    folder
        The folder of an experiment, as runs/demo; gibbs needs none.
    output
        The file; the suffix is .svg, .png, .pdf, .html (self-contained) or .json (Vega-Lite). By default
        FOLDER/figures/NAME.svg.
    severity
        Only tests of this severity; 0 is the unshifted test.
    calibrator
        Predictions after this calibrator, by default uncalibrated.
    data
        Data sets, by default all of the experiment.
    losses
        Losses, by default all of the experiment.
    root
        The folder of the data sets, for samples; by default the environment variable CALIBRANT_DATA, or data.
    """
    check_choice("figure", name, (*FIGURES, "all"))
    if folder is not None and name != "gibbs":
        check_has_run(Path(folder))
    from calibrant._files import check_output, make_folder
    from calibrant.report import figures
    from calibrant.report.render import FIGURE_KINDS, check_suffix, save

    given = {"severity": severity, "calibrator": calibrator, "data": data, "losses": losses}
    options: dict[str, Any] = {option: value for option, value in given.items() if value not in (None, ())}
    figures.check_figures([name])
    target = Path() if folder is None else Path(folder, "figures")
    reasons: dict[str, str] = {}
    if name == figures.ALL:
        if folder is None:
            raise InvalidInputError("all figures need the folder of an experiment: calibrant figure all FOLDER")
        if output is not None:
            raise InvalidInputError(f"--output names the file of one figure; all are written to {target}")
        figures.open_experiment(folder).read_rows()  # raises where it is not an experiment; gibbs alone needs no rows
        with status("drawing") as progress:
            charts, reasons = figures.make_figures(folder, images=images_from(root), progress=progress, **options)
    else:
        if output is not None:
            check_output(output, FIGURE_KINDS[check_suffix(output)])
        with status(f"drawing {name}"):
            charts = {name: figures.make_figure(name, folder, images=images_from(root), **options)}
    if output is None:
        make_folder(target)
    for made, chart in charts.items():
        path = output or target / f"{made}.svg"
        save(chart, path)
        print(printable(str(path)))
    for made, reason in reasons.items():
        print(printable(f"not drawn: {made}: {reason}"))


def images_from(root: str | Path | None) -> "ImageSource":
    """The function that reads the images of the figure samples; it imports torch when it is called."""

    def images(rows: Any, **options: Any) -> Any:
        from calibrant.experiments.samples import sample_images

        return sample_images(rows, root, **options)

    return images
