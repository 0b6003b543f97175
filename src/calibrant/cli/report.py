"""`calibrant report`: the figures of an experiment as files, and its results as one page."""

from pathlib import Path

from calibrant.cli.figure import images_from
from calibrant.cli.options import File
from calibrant.cli.output import status
from calibrant.errors import printable
from calibrant.experiments.files import check_has_run


def report(folder: File, /, *, root: File | None = None) -> None:
    """Write the figures and the HTML page of an experiment.

    The page is one file that any browser opens without network: findings, charts, sortable tables, progress and
    provenance. `calibrant run` also writes the page after each run.

    Parameters
    ----------
    folder
        The folder of an experiment that has been run.
    root
        The folder of the data sets, for sample images; by default that of the experiment, CALIBRANT_DATA or data.
    """
    if not Path(folder).is_dir():
        check_has_run(Path(folder))
    print(printable(f"open {write_page(Path(folder), root=root)}"))


def write_page(folder: Path, *, root: str | Path | None = None, refresh: int | None = None) -> Path:
    """Write the page with sample images, and show the progress; see `write_experiment`."""
    from calibrant.report.experiment import write_experiment
    from calibrant.report.figures import open_experiment

    images = images_from(root or open_experiment(folder).read_data_root())
    with status("drawing") as progress:
        return write_experiment(folder, images=images, refresh=refresh, progress=progress)
