"""One run of an experiment, wherever it is done: trained, predicted, measured; what goes wrong is an outcome."""

import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calibrant._files import first_line, make_folder
from calibrant.errors import CalibrantError, CorruptFileError, InterruptedRunError
from calibrant.experiments.evaluate import EvaluationConfig, evaluate, is_evaluated
from calibrant.experiments.folder import RunOutcome
from calibrant.predictions import Predictions
from calibrant.runs import RunFolder, RunKey
from calibrant.training.callback import TrainingCallback
from calibrant.training.settings import Settings

TRAINING_SHARE = 0.8  # the share of a run that training is taken for, of what a watcher is told

RunProgress = Callable[[str, float], None]  # the run, and how much of it is done


@dataclass(frozen=True)
class RunTask:
    """A run to be done, which can be sent to another process."""

    key: RunKey
    settings: Settings
    folder: RunFolder  # its path is absolute
    measures: EvaluationConfig
    redo: bool = False  # make damaged files again

    @property
    def name(self) -> str:
        return self.key.name


class Backend(Protocol):
    """Does tasks in any order and yields each outcome as it comes; when it is closed, what runs is stopped."""

    def __call__(self, tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]: ...


def in_this_process(tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]:
    """The plainest of the back-ends: one run after the other."""
    from calibrant.training.engine import handle_signals

    with handle_signals() as request:
        for task in tasks:
            if request.asked:
                raise InterruptedRunError(f"stopped before {task.name}; the same command resumes there")
            yield run_task(task, progress)


def run_task(task: RunTask, progress: RunProgress | None = None) -> RunOutcome:
    """Do a run, or what is left of it. A failure is told and kept in its error.log, so that other runs can go on.

    Raises: InterruptedRunError where a signal asked to stop.
    """
    began, failure = time.perf_counter(), None
    notes: tuple[str, ...] = ()
    try:
        notes = _do(task, progress)
        task.folder.error_log.unlink(missing_ok=True)
    except InterruptedRunError:
        raise
    except Exception as error:  # a mistake of ours in one run must not end the others; the log has all of it
        deliberate = isinstance(error, CalibrantError)
        failure = str(error) if deliberate else f"{type(error).__name__}: {first_line(error)}"
        _keep(task.folder, failure if deliberate else traceback.format_exc())
    return RunOutcome(task.name, failure, time.perf_counter() - began, notes)


def _do(task: RunTask, progress: RunProgress | None) -> tuple[str, ...]:
    from calibrant.training.run import train  # with Lightning Fabric, which a plan need not wait for

    if task.redo:
        remove_damaged(task.folder)
    elif task.folder.is_done and is_evaluated(task.key, task.folder, task.measures):
        return ()
    callback = None if progress is None else RunProgressCallback(task.name, progress)
    train(task.settings, task.folder.path, scored=False, callback=callback)
    try:
        return evaluate(task.key, task.settings, task.folder, task.measures)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; --redo makes it again") from None


def _keep(folder: RunFolder, text: str) -> None:
    try:
        make_folder(folder.path)
        folder.error_log.write_text(text.rstrip() + "\n", encoding="utf-8")
    except (OSError, CalibrantError):
        pass  # the disk may be full: the outcome has the line


def remove_damaged(run: RunFolder) -> None:
    """Remove the files of a run that cannot be read, and what was made of them, so that they are made again."""
    damaged = [path for path in sorted(run.predictions.glob("*.parquet")) if not _can_be_read(path)]
    if damaged:
        for path in (run.done, run.metrics, run.curves, *damaged):  # never done without its files
            path.unlink(missing_ok=True)


def _can_be_read(path: Path) -> bool:
    try:
        Predictions.load(path)
    except CalibrantError:
        return False
    return True


class RunProgressCallback(TrainingCallback):
    """Tells how much of a run is done."""

    def __init__(self, run: str, progress: RunProgress) -> None:
        self.run, self.progress = run, progress
        self.n_steps, self.steps = 1, 0

    def on_start(self, n_epochs: int, n_steps: int, done: int) -> None:
        self.n_steps, self.steps = n_steps, done

    def on_log(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        self.steps += steps
        self.progress(self.run, TRAINING_SHARE * self.steps / self.n_steps)

    def on_predict(self, name: str, number: int, total: int) -> None:
        self.progress(self.run, TRAINING_SHARE + (1 - TRAINING_SHARE) * number / total)
