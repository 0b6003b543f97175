"""`calibrant report`: the figures of an experiment as files, and all that it found in one page."""

from pathlib import Path

from calibrant.cli.figure import images_from
from calibrant.cli.output import working
from calibrant.errors import printable


def report(folder: Path, /, *, root: Path | None = None) -> None:
    """Write the figures of an experiment, and a page of all that it found.

    The page opens in any browser, without network: what was found in words, what is missing, tables to sort, charts to
    switch, and how it was made. While `calibrant run` is at work, it writes the page anew after each run.

    Parameters
    ----------
    folder
        The folder of an experiment that has been run.
    root
        The folder of the data sets, for images of them; by default that of the experiment, CALIBRANT_DATA or data.
    """
    print(printable(f"open {write_page(folder, root=root)}"))


def write_page(folder: Path, *, root: str | Path | None = None, refresh: int | None = None) -> Path:
    """Write the page with a sign of life, and images of the data sets; see `write_experiment`."""
    from calibrant.report.experiment import write_experiment
    from calibrant.report.figures import open_experiment

    images = images_from(root or open_experiment(folder).read_data_root())
    with working("drawing") as say:
        return write_experiment(folder, images=images, refresh=refresh, report=say)
