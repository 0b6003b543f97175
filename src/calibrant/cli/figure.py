"""`calibrant figure`: the figures of an experiment, one by name or all that can be made, as files."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from calibrant.cli.options import Words
from calibrant.cli.output import working
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError, printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from calibrant.report.figures import Figure
    from calibrant.report.figures.look import Chart

    Pictures = dict[str, dict[str, npt.NDArray[np.uint8]]]

ALL = "all"
EXTRA = "figures need the extra report: pip install 'calibrant[report]'"
TELLING = ("gaussian_noise", "motion_blur", "fog", "contrast", "pixelate")  # corruptions that samples show first
MIDDLE = 3  # the severity that samples show


class Made(NamedTuple):
    """A figure that has been made."""

    name: str
    caption: str
    chart: "Chart"


def figure(
    name: str,
    folder: Path | None = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    severity: int | None = None,
    calibrator: str | None = None,
    data: Words = (),
    losses: Words = (),
    root: Path | None = None,
) -> None:
    """Draw a figure of an experiment, or all of them.

    Parameters
    ----------
    name
        gibbs, severity, samples, reliability, local_constraints, feature_norm, label_smoothing, risk_coverage,
        heat_map or calibrated; or all, for each that can be made, with the reason for each that cannot.
    folder
        The folder of an experiment, as runs/demo; gibbs needs none.
    output
        The file, by its suffix .svg, .png, .pdf, .html (opens without network) or .json (Vega-Lite); by default
        FOLDER/figures/NAME.svg.
    severity
        Tests of this severity alone, 0 being the unshifted test.
    calibrator
        Predictions after this calibrator, by default none.
    data
        Data sets, by default all of the experiment.
    losses
        Losses, by default all of the experiment.
    root
        For samples, the folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
    """
    choice = {"severity": severity, "calibrator": calibrator, "data": data, "losses": losses}
    given = {option: value for option, value in choice.items() if value not in (None, ())}
    if name == ALL:
        _draw_all(folder, output, given, root)
        return
    path = _checked_path(name, folder, output, given)
    with working(f"drawing {name}"):
        _write(make_figure(name, folder, root=root, **given), path, new_folder=output is None)


def figures_of(
    folder: Path,
    *,
    names: Sequence[str] = (ALL,),
    root: Path | None = None,
    report: Callable[[str], None] = lambda name: None,
    **given: Any,
) -> tuple[list[Made], dict[str, str]]:
    """The figures of an experiment that can be made, and of each other one the reason.

    names: of figures, or all. root: the folder of the data sets. report: told the name of each figure as it is begun.
    given: severity, calibrator, data and losses, which reach those figures that know them.

    Raises: UnknownNameError for a name that no figure has.
    """
    check_figures(names)
    made, reasons = [], {}
    for name, wanted in _figures().items():
        if ALL not in names and name not in names:
            continue
        report(name)
        options = {option: value for option, value in given.items() if option in wanted.options}
        try:
            made.append(Made(name, wanted.caption, make_figure(name, folder, root=root, **options)))
        except CalibrantError as error:
            reasons[name] = str(error)
    return made, reasons


def make_figure(name: str, folder: Path | None, *, root: Path | None = None, **options: Any) -> "Chart":
    """The chart of one figure. Raises: NoDataError, UnknownNameError, InvalidInputError."""
    wanted = _figures()[name]
    if wanted.needs == "nothing":
        return wanted.draw(wanted.prepare())
    if folder is None:
        raise InvalidInputError(f"the figure {name} needs the folder of an experiment: calibrant figure {name} FOLDER")
    from calibrant.experiments.rows import read_curves, read_rows

    if wanted.needs == "pictures":
        return wanted.draw(wanted.prepare(sample_pictures(read_rows(folder), root, **options)))
    table = read_rows(folder) if wanted.needs == "rows" else read_curves(folder)
    return wanted.draw(wanted.prepare(table, **options))


def check_figures(names: Sequence[str]) -> None:
    """That there are figures of these names, and what draws them is installed."""
    figures = _figures()
    from calibrant._checks import check_choice

    for name in names:
        check_choice("figure", name, (*figures, ALL))


def _figures() -> "dict[str, Figure]":
    try:
        from calibrant.report.figures import FIGURES
    except ImportError:
        raise NoDataError(EXTRA) from None
    return FIGURES


def _checked_path(name: str, folder: Path | None, output: Path | None, given: Collection[str]) -> Path:
    """Where the figure goes; all that can be refused before anything is read is refused."""
    figures = _figures()
    from calibrant._checks import check_choice
    from calibrant.report.figures.render import check_suffix

    check_choice("figure", name, (*figures, ALL))
    for option in given:
        if option not in figures[name].options:
            raise InvalidInputError(f"--{option} has no meaning for the figure {name}")
    path = output or (Path(f"{name}.svg") if folder is None else folder / "figures" / f"{name}.svg")
    check_suffix(path)
    return path


def _write(chart: "Chart", path: Path, *, new_folder: bool) -> None:
    from calibrant._files import make_folder
    from calibrant.report.figures.render import save

    if new_folder:
        make_folder(path.parent)
    save(chart, path)
    print(printable(str(path)))


def _draw_all(folder: Path | None, output: Path | None, given: dict[str, Any], root: Path | None) -> None:
    if folder is None:
        raise InvalidInputError("all figures need the folder of an experiment: calibrant figure all FOLDER")
    if output is not None:
        raise InvalidInputError(f"--output names the file of one figure; all are written to {folder / 'figures'}")
    _figures()
    from calibrant.experiments.rows import read_rows

    read_rows(folder)  # what is no experiment is refused, where gibbs alone could be drawn
    with working("drawing") as report:
        made, reasons = figures_of(folder, root=root, report=report, **given)
    for found in made:
        _write(found.chart, folder / "figures" / f"{found.name}.svg", new_folder=True)
    for name, reason in reasons.items():
        print(printable(f"not {name}: {reason}"))


def sample_pictures(
    rows: "pa.Table", root: Path | None, *, data: Collection[str] = (), severity: int | None = None
) -> "Pictures":
    """A picture of every data set of an experiment (two where it has one), clean and under some of its shifts."""
    from calibrant._checks import check_choice, check_whole

    known = sorted(set(rows.column("data").to_pylist()))
    names = [check_choice("data of the experiment", name, known) for name in data] or known
    if severity is not None:
        check_whole("severity", severity, 1, 5)
    pictures: Pictures = {}
    for name in names:
        shown = _shown_tests(rows, name, severity or MIDDLE)
        pictures |= _pictures_of(name, root, shown, n_pictures=2 if len(names) == 1 else 1)
    return pictures


class ShownTest(NamedTuple):
    split: str
    shift: str
    shifted: bool
    origin: str


def _shown_tests(rows: "pa.Table", data: str, severity: int) -> list[ShownTest]:
    """The unshifted test, and at most five shifted ones: the telling corruptions first, or the shift in the wild."""
    import pyarrow.compute as pc

    columns = ["split", "shift", "shifted", "origin", "severity"]
    tests = rows.filter(pc.equal(rows.column("data"), data)).select(columns).group_by(columns).aggregate([])
    found = [
        ShownTest(*(test[name] for name in columns[:4]))
        for test in tests.to_pylist()
        if test["severity"] in (0, severity)
    ]
    clean = [test for test in found if not test.shifted]
    shifted = sorted((test for test in found if test.shifted), key=lambda test: (test.shift not in TELLING, test.shift))
    if not clean or not shifted:
        have = "no unshifted test" if not clean else f"no shifted test of severity {severity}"
        raise NoDataError(f"the figure samples needs a test and its shifts, and the experiment has {have} of {data}")
    return [*clean[:1], *shifted[: len(TELLING)]]


def _pictures_of(data: str, root: Path | None, shown: Sequence[ShownTest], n_pictures: int) -> "Pictures":
    import torch

    from calibrant.data import Split, open_dataset

    opened, rows = open_dataset(data, root), torch.arange(n_pictures)
    clean = opened.split(shown[0].split)
    first = Split(clean.images[rows], clean.labels[rows])
    pictures: Pictures = {f"{data} {row + 1}" if n_pictures > 1 else data: {} for row in range(n_pictures)}
    for test in shown:
        # what was generated is so again, for these rows alone: the draws of an image depend on its row only
        made = test.shifted and test.origin == "generated" and isinstance(clean.images, torch.Tensor)
        images = first.under(test.split).images if made else opened.split(test.split).images[rows]
        heading = test.split.replace("_", " ").replace("-", " ") if test.shifted else "clean"
        for columns, image in zip(pictures.values(), images[rows], strict=True):
            columns[heading] = image.permute(1, 2, 0).squeeze(2).numpy()
    return pictures
