"""The folder of an experiment: the names of its files, reading and writing them; none of it needs torch."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from calibrant._digests import SEALED_LINE, UNSEALED, is_sealed, seal
from calibrant._files import atomic_write, read_toml
from calibrant._parquet import read_table, write_table
from calibrant._paths import as_path
from calibrant.errors import CorruptFileError, InvalidInputError, MissingExtraError, NoDataError
from calibrant.experiments.files import EXPERIMENT, ROWS_FILE, check_has_run
from calibrant.run_tables import CURVES, ROWS, run_keys
from calibrant.runs import RAW, UNSHIFTED, RunFolder, RunKey, append_json_line, read_json_lines, remedy

__all__ = ["RAW", "UNSHIFTED", "ExperimentFolder", "RunFolder", "RunKey", "RunOutcome", "run_keys"]


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: a line of the experiment's log."""

    run: str
    failure: str | None = None  # one line
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # a run at chance, and why calibrators could not be fitted


@dataclass(frozen=True)
class ExperimentFolder:
    """The files of an experiment.

    Only `read_plan` needs the extra train, the other methods need pyarrow alone. Nothing is cached: the experiment may
    be running.

    Args:
        path: The folder, a path or text; it need not exist yet.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_path("path", self.path))

    @property
    def experiment_file(self) -> Path:
        """The copy of the experiment file."""
        return self.path / EXPERIMENT

    @property
    def rows_file(self) -> Path:
        """The rows of all finished runs, in the columns of `ROWS`."""
        return self.path / ROWS_FILE

    @property
    def curves_file(self) -> Path:
        """The curves of all finished runs, in the columns of `CURVES`."""
        return self.path / "curves.parquet"

    @property
    def log_file(self) -> Path:
        """A line of JSON for every run that ended; see `read_log`."""
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
        """Locked while the experiment runs."""
        return self.path / ".lock"

    def run(self, name: str) -> RunFolder:
        """The folder of a run; it need not exist.

        Args:
            name: The name of the run.

        Returns:
            The folder.

        Raises:
            InvalidInputError: The name leads out of the folder of the experiment.
        """
        if name in ("", ".", "..") or set(name) & set("/\\\0"):
            raise InvalidInputError(f"run must be the name of a folder in {self.path}, got {name!r}")
        return RunFolder(self.path / name)

    # Rows and curves

    def read_rows(self) -> pa.Table:
        """Read the rows of the experiment.

        Returns:
            A row per run, test, calibrator and metric, in the columns of `ROWS`.

        Raises:
            NoDataError: The experiment has not been run.
            CorruptFileError: The file is damaged, or has other columns.
        """
        return self._read(self.rows_file, ROWS)

    def read_curves(self) -> pa.Table:
        """Read the reliability and risk-coverage curves of the experiment.

        Returns:
            A row per run, test, calibrator and point, in the columns of `CURVES`.

        Raises:
            NoDataError: The experiment has not been run.
            CorruptFileError: The file is damaged, or has other columns.
        """
        return self._read(self.curves_file, CURVES)

    def _read(self, path: Path, schema: pa.Schema) -> pa.Table:
        check_has_run(self.path, path.name)
        with remedy("calibrant run makes it again, without training"):
            return read_table(path, schema)

    def write_tables(self, rows: pa.Table, curves: pa.Table) -> None:
        """Replace rows and curves atomically.

        Args:
            rows: In the columns of `ROWS`.
            curves: In the columns of `CURVES`.
        """
        write_table(self.rows_file, rows)
        write_table(self.curves_file, curves)

    # The log

    def read_log(self) -> tuple[list[RunOutcome], int]:
        """Read how the runs ended.

        Returns:
            The outcomes in the order of the log, and the number of broken lines.

        Raises:
            ResourceError: The log cannot be read.
        """
        records, n_broken = read_json_lines(self.log_file)
        outcomes = [outcome for record in records if (outcome := _outcome(record)) is not None]
        return outcomes, n_broken + len(records) - len(outcomes)

    def append_log(self, outcome: RunOutcome) -> None:
        """Append a line to the log.

        Args:
            outcome: How a run ended.
        """
        append_json_line(self.log_file, asdict(outcome) | {"seconds": round(outcome.seconds, 3)})

    # The plan

    @property
    def has_plan(self) -> bool:
        """Whether the folder has an experiment file."""
        return self.experiment_file.is_file()

    def read_plan(self) -> list[RunKey]:
        """Read the runs of the experiment file.

        Returns:
            The keys of the runs, in the order of the file, then those of the ensembles.

        Raises:
            NoDataError: There is no experiment file.
            MissingExtraError: The extra train is not installed.
            CorruptFileError: The file is not TOML.
            InvalidInputError: A value is not possible.
            UnknownNameError: An unknown key.
        """
        if not self.has_plan:
            raise NoDataError(f"{self.path} has no {EXPERIMENT}: it is not the folder of an experiment")
        try:
            from calibrant.experiments.config import parse_experiment
        except ImportError:
            raise MissingExtraError(f"reading {self.experiment_file}", "train") from None
        experiment = parse_experiment(self.experiment_file)
        return [*experiment.runs, *experiment.members]

    def read_title(self) -> str:
        """The title of the experiment file; empty where it has none or there is no file."""
        title = self._read_file().get("title", "")
        return title if isinstance(title, str) else self._refuse("title must be a string", title)

    def read_figures(self) -> list[str]:
        """The figures of the experiment file, by default all."""
        figures = self._read_file().get("figures", ["all"])
        if not isinstance(figures, list) or not all(isinstance(name, str) for name in figures):
            self._refuse("figures must be a list of names", figures)
        return list(figures)

    def read_data_root(self) -> str | None:
        """The folder of the data sets in the experiment file, if it has one."""
        settings = self._read_file().get("settings", {})
        root = (
            settings.get("root") if isinstance(settings, dict) else self._refuse("settings must be a table", settings)
        )
        return root if isinstance(root, str | None) else self._refuse("root must be a string", root)

    def _read_file(self) -> dict[str, Any]:
        found = read_toml(self.experiment_file) if self.has_plan else {}
        if self.has_plan and not found:
            raise CorruptFileError(f"{self.experiment_file} is damaged: it has no runs")
        return found

    def _refuse(self, rule: str, got: object) -> NoReturn:
        raise InvalidInputError(f"{self.experiment_file}: {rule}, got {got!r}")

    def copy_experiment(self, file: Path) -> None:
        """Copy an experiment file into the folder, with its digest in a first line.

        Args:
            file: The file.
        """
        content = file.read_bytes()
        if not is_sealed(content, file, len(SEALED_LINE)):  # as the copy itself is
            content = seal(SEALED_LINE + UNSEALED + b"\n" + content, len(SEALED_LINE))
        with atomic_write(self.experiment_file) as copy:
            copy.write(content)

    # The runs

    def read_environments(self, names: Iterable[str]) -> dict[str, dict[str, Any] | None]:
        """Read versions and hardware of runs.

        Args:
            names: The names of the runs.

        Returns:
            The record of each run by name; None where its file is missing or broken.
        """
        return {name: self.run(name).read_environment() for name in names}


def _outcome(record: dict[str, Any]) -> RunOutcome | None:
    """The outcome of a line of the log; None where it is something else."""
    run, failure, seconds = record.get("run"), record.get("failure"), record.get("seconds")
    if not isinstance(run, str) or not isinstance(failure, str | None):
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:  # nor NaN
        return None
    return RunOutcome(run, failure, float(seconds), tuple(map(str, record.get("notes") or ())))
