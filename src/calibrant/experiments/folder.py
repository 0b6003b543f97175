"""The folder of an experiment: every file in it is named, read and written here; no torch is needed to read it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from calibrant._files import atomic_write, read_toml
from calibrant._parquet import read_table, write_table
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.runs import CURVES, RAW, ROWS, UNSHIFTED, RunFolder, RunKey, append_json_line, read_json_lines, run_keys

__all__ = ["RAW", "UNSHIFTED", "ExperimentFolder", "RunFolder", "RunKey", "RunOutcome", "run_keys"]

EXPERIMENT = "experiment.toml"  # the copy of the experiment file


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: a line of the experiment's log."""

    run: str
    failure: str | None = None  # one line
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # what could not be measured of a run that is done


@dataclass(frozen=True)
class ExperimentFolder:
    """All that comes of an experiment; a folder that somebody copied is as good as the first.

    Rows, curves and log can be read with pyarrow alone, title, figures and data root as well; only `read_plan` needs
    the extra train. Nothing is cached: a sweep may be at work in the folder.

    Args:
        path: The folder; it need not exist yet.
    """

    path: Path

    @property
    def experiment_file(self) -> Path:
        """The copy of the experiment file; a folder of rows from elsewhere may have none."""
        return self.path / EXPERIMENT

    @property
    def rows_file(self) -> Path:
        """The rows of all runs that are done, in the columns of `ROWS`."""
        return self.path / "rows.parquet"

    @property
    def curves_file(self) -> Path:
        """The curves of all runs that are done, in the columns of `CURVES`."""
        return self.path / "curves.parquet"

    @property
    def log_file(self) -> Path:
        """A line of JSON for every run that ended, see `RunOutcome`."""
        return self.path / "log.jsonl"

    @property
    def page_file(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def figures_folder(self) -> Path:
        """The figures of the report as files."""
        return self.path / "figures"

    @property
    def lock_file(self) -> Path:
        """Held by the sweep that is at work in the folder."""
        return self.path / ".lock"

    def run(self, name: str) -> RunFolder:
        """The folder of a run, by its name; it need not exist.

        Raises:
            InvalidInputError: The name is not that of a folder: rows from elsewhere must not lead anywhere.
        """
        if name in ("", ".", "..") or set(name) & set("/\\\0"):
            raise InvalidInputError(f"run must be the name of a folder in {self.path}, got {name!r}")
        return RunFolder(self.path / name)

    # Rows and curves

    def read_rows(self) -> pa.Table:
        """The rows of the experiment: one per run, test, calibrator and metric.

        Raises:
            NoDataError: The experiment has not been run.
            CorruptFileError: The file is damaged, or has other columns.
        """
        return self._read(self.rows_file, ROWS)

    def read_curves(self) -> pa.Table:
        """The curves behind reliability and risk-coverage figures; raises as `read_rows` does."""
        return self._read(self.curves_file, CURVES)

    def _read(self, path: Path, schema: pa.Schema) -> pa.Table:
        if not path.is_file():
            raise NoDataError(
                f"{self.path} has no {path.name}: it is not the folder of an experiment that has been run"
            )
        return read_table(path, schema)

    def write_tables(self, rows: pa.Table, curves: pa.Table) -> None:
        """Replace rows and curves, each file whole."""
        write_table(self.rows_file, rows)
        write_table(self.curves_file, curves)

    # The log

    def read_log(self) -> tuple[list[RunOutcome], int]:
        """How runs ended, in the order in which they did, and how many lines are broken; no log has no lines."""
        records, n_broken = read_json_lines(self.log_file)
        outcomes = [outcome for record in records if (outcome := _outcome(record)) is not None]
        return outcomes, n_broken + len(records) - len(outcomes)

    def append_log(self, outcome: RunOutcome) -> None:
        """Add how a run ended."""
        append_json_line(self.log_file, asdict(outcome) | {"seconds": round(outcome.seconds, 3)})

    # The plan

    @property
    def has_plan(self) -> bool:
        """Whether there is an experiment file to read a plan from."""
        return self.experiment_file.is_file()

    def read_plan(self) -> list[RunKey]:
        """The runs that the experiment file asks for, in its order; the name of each is that of its folder.

        Raises:
            NoDataError: There is no experiment file, or the extra train, which reads it, is not installed.
            CorruptFileError: It is not TOML.
            InvalidInputError: It asks for something that is not possible; UnknownNameError likewise.
        """
        if not self.has_plan:
            raise NoDataError(f"{self.path} has no {EXPERIMENT}: it is not the folder of an experiment that has begun")
        try:
            from calibrant.experiments.config import read_experiment
        except ImportError:
            raise NoDataError(
                f"the plan in {self.experiment_file} needs the extra train: pip install 'calibrant[train]'"
            ) from None
        return list(read_experiment(self.experiment_file).runs)

    def read_title(self) -> str:
        """The title that the experiment file gives; empty where it gives none, or there is no file."""
        title = self._read_file().get("title", "")
        return title if isinstance(title, str) else self._refuse("title must be a string", title)

    def read_figures(self) -> list[str]:
        """The figures that the experiment file asks for, by default all."""
        figures = self._read_file().get("figures", ["all"])
        if not isinstance(figures, list) or not all(isinstance(name, str) for name in figures):
            self._refuse("figures must be a list of names", figures)
        return list(figures)

    def read_data_root(self) -> str | None:
        """The folder of the data sets that the experiment file names, if it does."""
        settings = self._read_file().get("settings", {})
        root = (
            settings.get("root") if isinstance(settings, dict) else self._refuse("settings must be a table", settings)
        )
        return root if isinstance(root, str | None) else self._refuse("root must be a string", root)

    def _read_file(self) -> dict[str, Any]:
        return read_toml(self.experiment_file) if self.has_plan else {}

    def _refuse(self, rule: str, got: object) -> NoReturn:
        raise InvalidInputError(f"{self.experiment_file}: {rule}, got {got!r}")

    def copy_experiment(self, file: Path) -> None:
        """Keep a copy of the experiment file."""
        content = file.read_bytes()
        with atomic_write(self.experiment_file) as copy:
            copy.write(content)

    # The runs

    def read_environments(self, names: Iterable[str]) -> dict[str, dict[str, Any] | None]:
        """What each of these runs was computed with, by name; None where its file is missing or broken."""
        return {name: self.run(name).read_environment() for name in names}


def _outcome(record: dict[str, Any]) -> RunOutcome | None:
    """The outcome that a line of the log tells; None where it is something else."""
    run, failure, seconds = record.get("run"), record.get("failure"), record.get("seconds")
    if not isinstance(run, str) or not isinstance(failure, str | None):
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:  # nor NaN
        return None
    return RunOutcome(run, failure, float(seconds), tuple(map(str, record.get("notes") or ())))
