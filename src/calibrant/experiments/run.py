"""Running an experiment: its runs wherever they are done, then one table of all that was found."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import pyarrow as pa

from calibrant._files import alone, make_folder, replacing
from calibrant._parquet import read_table, write_table
from calibrant.errors import CorruptFileError, InterruptedRunError, NoDataError
from calibrant.experiments.config import COPY, Run, read_experiment
from calibrant.experiments.evaluate import Measures, evaluation_files, is_evaluated
from calibrant.experiments.plan import Plan, make_plan
from calibrant.experiments.rows import CURVES, ROWS
from calibrant.experiments.work import Backend, Outcome, Report, in_this_process

Heard = Callable[[Outcome], None]


@dataclass(frozen=True)
class Result:
    """What came of an experiment: its folder, and the runs that failed or are still missing."""

    folder: Path
    n_done: int
    failures: tuple[Outcome, ...]
    missing: tuple[str, ...]


def run_experiment(
    file: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    only: Mapping[str, str] | None = None,
    redo: bool = False,
    backend: Backend = in_this_process,
) -> Result:
    """Do the runs of an experiment file that are not done, and gather the rows of all that are.

    output: the folder, where not that of the file. only: as {"loss": "focal"}. redo: make damaged files again.
    backend: where the runs are done, by default one after the other in this process; `Processes` and `RayBackend` do
    several at a time.

    Raises: InvalidInputError where another sweep works in the folder, or a run in it is of another configuration;
    InterruptedRunError where it was stopped.
    """
    experiment = read_experiment(file)
    plan = make_plan(experiment, Path(output or experiment.output or "runs"), only)
    return carry_out(plan, Path(file), redo=redo, backend=backend)


def carry_out(
    plan: Plan,
    file: Path,
    *,
    redo: bool = False,
    backend: Backend = in_this_process,
    report: Report = lambda run, share: None,
    heard: Heard = lambda outcome: None,
) -> Result:
    """Do what is left of a plan. report: told how far each run is; heard: told of each that has ended."""
    make_folder(plan.folder)
    failures: list[Outcome] = []
    with alone(plan.folder / ".lock", f"another sweep is at work in {plan.folder}"):
        for left in plan.folder.glob(".*.tmp"):
            left.unlink()  # what a sweep was writing when it was killed
        with replacing(plan.folder / COPY) as copy:
            copy.write(file.read_bytes())
        with _heeding_termination():
            outcomes = backend(plan.tasks(redo=redo), report)
            try:
                for outcome in outcomes:
                    _append(plan.log, outcome)
                    heard(outcome)
                    failures += [outcome] if outcome.failure else []
            except (KeyboardInterrupt, InterruptedRunError):
                outcomes.close()
                n_done = _gather(plan, failures).n_done
                said = f"stopped with {n_done} of {len(plan.states)} runs done"
                raise InterruptedRunError(f"{said}; the same command goes on with {plan.folder}") from None
            finally:
                outcomes.close()
        return _gather(plan, failures)


def _append(log: Path, outcome: Outcome) -> None:
    record = {**asdict(outcome), "seconds": round(outcome.seconds, 3)}
    try:
        with log.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            cut_off = file.read(1) not in (b"", b"\n")  # by a kill or a full disk
            file.write(b"\n" * cut_off + json.dumps(record).encode() + b"\n")
    except OSError as error:
        raise NoDataError(f"{log} cannot be written: {error.strerror}") from None


def _gather(plan: Plan, failures: list[Outcome]) -> Result:
    """Write one table of the rows, and one of the curves, of all runs that are done, in the order of the plan."""
    failed = {outcome.run for outcome in failures}
    found = gathered(plan.folder, [run for run in plan.states if run.name not in failed], plan.measures)
    write_table(plan.folder / "rows.parquet", found.rows)
    write_table(plan.folder / "curves.parquet", found.curves)
    missing = tuple(run.name for run in plan.states if run.name not in found.done)
    return Result(plan.folder, len(found.done), tuple(failures), missing)


@dataclass(frozen=True)
class Gathered:
    """The rows and curves of the runs that are done, and their names."""

    rows: pa.Table
    curves: pa.Table
    done: tuple[str, ...]


def gathered(folder: Path, runs: Iterable[Run], measures: Measures) -> Gathered:
    """What there is of these runs, also while others are at work. Raises: CorruptFileError."""
    done = [run.name for run in runs if is_evaluated(run, folder / run.name, measures)]
    files = [evaluation_files(folder / name) for name in done]
    rows, curves = (
        pa.concat_tables([schema.empty_table(), *(_read(paths[position], schema) for paths in files)])
        for position, schema in enumerate((ROWS, CURVES))
    )
    return Gathered(rows, curves, tuple(done))


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return read_table(path, schema).replace_schema_metadata(None)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; --redo makes it again") from None


@contextmanager
def _heeding_termination() -> Iterator[None]:
    """SIGTERM asks to stop, as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
