"""`calibrant report`: the figures of an experiment as files, and all that it found in one page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.cli.figure import ALL, check_figures, sample_pictures
from calibrant.cli.options import Switch
from calibrant.cli.output import working
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from calibrant.report.experiment import PlannedRun

PAGE = "report.html"


def report(
    folder: Path,
    /,
    *,
    root: Path | None = None,
    watch: Switch = False,
    port: int = 0,
) -> None:
    """Write the figures of an experiment, and a page of all that it found.

    The page opens in any browser, without network: what was found in words, what is missing, tables to sort, charts to
    switch, and how it was made.

    Parameters
    ----------
    folder
        The folder of an experiment that has been run.
    root
        The folder of the data sets, for pictures of them; by default CALIBRANT_DATA or data.
    watch
        Write nothing, but serve the page to this machine, and draw it anew as runs end, until Ctrl-C.
    port
        With --watch: where on 127.0.0.1; by default any that is free.
    """
    said = read_said(folder)
    if watch:
        from calibrant.cli.watch import serve_page

        serve_page(folder, port=port, root=root or root_of(said))
        return
    if port:
        raise InvalidInputError("--port belongs to --watch: a page that is written needs none")
    page = write_page(folder, figures=said.get("figures", [ALL]), root=root or root_of(said))
    print(printable(f"open {page}"))


def write_page(folder: Path, *, figures: Sequence[str] = (ALL,), root: str | Path | None = None) -> Path:
    """Write FOLDER/figures/*.svg and FOLDER/report.html; returns the latter. root: the folder of the data sets."""
    check_figures(figures)
    from calibrant._files import replacing
    from calibrant.experiments.rows import read_rows

    with working("drawing") as say:
        page, files = drawn_page(folder, read_rows(folder), curves_of(folder), figures=figures, root=root, report=say)
    _write_figures(folder / "figures", files)
    with replacing(folder / PAGE) as file:
        file.write(page.encode())
    return folder / PAGE


def drawn_page(
    folder: Path,
    rows: "pa.Table",
    curves: "pa.Table | None",
    *,
    figures: Sequence[str],
    root: str | Path | None,
    state: str = "",
    report: Callable[[str], None] = lambda name: None,
) -> tuple[str, dict[str, str]]:
    """The page of an experiment, and its figures by name as SVG; see `experiment_page`."""
    from calibrant.report.experiment import draw_experiment, experiment_page

    planned, place = planned_runs(folder), None if root is None else Path(root)
    drawings = draw_experiment(
        folder,
        rows,
        curves,
        planned=planned,
        figures=figures,
        pictures=lambda: sample_pictures(rows, place),
        report=report,
    )
    title = str(read_said(folder).get("title") or "")
    page = experiment_page(folder, rows, drawings, title=title, planned=planned, state=state)
    return page, drawings.files


def _write_figures(folder: Path, files: dict[str, str]) -> None:
    from calibrant._files import make_folder, replacing

    make_folder(folder)
    for name, svg in files.items():
        with replacing(folder / f"{name}.svg") as file:
            file.write(svg.encode())


def curves_of(folder: Path) -> "pa.Table | None":
    """None where there is no such file: the page then says which figures cannot be drawn."""
    from calibrant.experiments.rows import read_curves

    try:
        return read_curves(folder)
    except NoDataError:
        return None


def planned_runs(folder: Path) -> "list[PlannedRun]":
    """The runs that the experiment names; none where its file cannot be read, or what reads it is not installed."""
    from calibrant.report.experiment import PlannedRun, RunKind

    try:
        from calibrant.experiments.config import COPY, planned, read_experiment

        runs = planned(read_experiment(folder / COPY))
    except (CalibrantError, ImportError):
        return []
    said = [run.described for run in runs]
    return [PlannedRun(run["run"], RunKind(*(run[name] for name in RunKind._fields)), run["seed"]) for run in said]


def read_said(folder: Path) -> dict[str, Any]:
    """What the file of the experiment says, of which a copy is in its folder."""
    import tomllib

    try:
        return tomllib.loads((folder / "experiment.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def root_of(said: dict[str, Any]) -> str | None:
    settings = said.get("settings", {})
    root = settings.get("root") if isinstance(settings, dict) else None
    return root if isinstance(root, str) else None
