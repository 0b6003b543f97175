"""Files of experiments, for commands that need none of the libraries that read them."""

from pathlib import Path

from calibrant.errors import NoDataError

EXPERIMENT = "experiment.toml"  # in the folder of an experiment: the copy of the experiment file
ROWS_FILE = "rows.parquet"


def packaged(name: str) -> Path:
    """A file of the folder experiments, in the installed package or in the repository."""
    installed = Path(__file__).with_name(name)
    return installed if installed.is_file() else Path(__file__).parents[3] / "experiments" / name


def check_has_run(folder: Path, name: str = ROWS_FILE) -> None:
    """Raises: NoDataError where the folder of an experiment lacks a file that its runs make."""
    if not (folder / name).is_file():
        raise NoDataError(f"{folder} has no {name}: it is not the folder of an experiment that has been run")
