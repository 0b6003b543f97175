"""`calibrant report --watch`: the page of an experiment while it runs."""

from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.cli.output import shown
from calibrant.cli.report import drawn_page
from calibrant.errors import NoDataError

if TYPE_CHECKING:
    from calibrant.experiments.config import Experiment, Run
    from calibrant.experiments.evaluate import Measures
    from calibrant.report.serve import State

LOG = "log.jsonl"


def serve_page(folder: Path, *, port: int = 0, root: str | Path | None = None) -> None:
    """Serve the page of an experiment until Ctrl-C; it is drawn anew when a run has ended."""
    from rich.console import Console

    from calibrant.report.serve import Server

    watched = Watched(folder, root)
    with Server(watched.look, watched.page, port) as server:
        console = Console()
        console.print(shown(f"watching {folder}: open {server.url} (Ctrl-C stops)"), soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("stopped watching")


class Watched:
    """The folder of an experiment that a sweep writes to; here it is only read."""

    def __init__(self, folder: Path, root: str | Path | None = None) -> None:
        self.folder, self.root = folder, root
        self._done: set[tuple[str, str, tuple[int, ...]]] = set()  # what was found done, so that it is read once
        self.experiment()

    def experiment(self) -> "Experiment":
        """As the sweep has it, which may have grown. Raises: NoDataError, CorruptFileError, InvalidInputError."""
        from calibrant.experiments.config import COPY, read_experiment

        if not (self.folder / COPY).is_file():
            raise NoDataError(f"{self.folder} has no {COPY}: it is not the folder of an experiment that has begun")
        return read_experiment(self.folder / COPY)

    def look(self) -> "State":
        """How far the experiment is; a run is done or begun where the page says so.

        A line of the log changes the word only where it tells of a failure: the files of a run that is done do already.
        """
        from calibrant.experiments.config import planned
        from calibrant.experiments.evaluate import Measures, evaluation_files
        from calibrant.report.serve import State

        experiment = self.experiment()
        runs, measures = planned(experiment), Measures.of(experiment)
        dates = [tuple(map(_date, evaluation_files(self.folder / run.name))) for run in runs]
        done = [self._is_done(run, measures, found) for run, found in zip(runs, dates, strict=True)]
        left = [run for run, is_done in zip(runs, done, strict=True) if not is_done]
        n_begun = sum((self.folder / run.name / "config.json").is_file() for run in left)
        last = max([_date(self.folder / LOG), *(date for found in dates for date in found)])
        seen = [run.name for run in runs], dates, done, self._n_failures()
        word = blake2b(repr(seen).encode(), digest_size=8).hexdigest()
        said = f"{sum(done)} of {len(runs)} runs are done" + (f", {n_begun} begun" if n_begun else "")
        when = f"; last news {datetime.fromtimestamp(last / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC" if last else ""
        return State(word, f"{said}{when}.")

    def _is_done(self, run: "Run", measures: "Measures", dates: tuple[int, ...]) -> bool:
        """Whether its files, which are of these dates, are there and measured by the same."""
        from calibrant.experiments.evaluate import is_evaluated

        key = run.name, measures.digest(run), dates
        if key not in self._done and all(dates) and is_evaluated(run, self.folder / run.name, measures):
            self._done.add(key)
        return key in self._done

    def _n_failures(self) -> int:
        from calibrant.report.experiment.records import read_records

        return sum(record.get("failure") is not None for record in read_records(self.folder / LOG).records)

    def page(self, state: "State") -> str:
        """The page of all that is done."""
        from calibrant.experiments.config import planned
        from calibrant.experiments.evaluate import Measures
        from calibrant.experiments.run import gathered

        experiment = self.experiment()
        found = gathered(self.folder, planned(experiment), Measures.of(experiment))
        figures = experiment.figures
        return drawn_page(self.folder, found.rows, found.curves, figures=figures, root=self.root, state=state.word)[0]


def _date(path: Path) -> int:
    """When a file was last written, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
