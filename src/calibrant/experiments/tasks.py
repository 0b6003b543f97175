"""One run of an experiment: train, predict, evaluate; a failure is an outcome, not an exception."""

import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calibrant._files import make_folder
from calibrant._paths import first_line
from calibrant._signals import StopRequest, handle_signals
from calibrant.errors import CalibrantError, InterruptedRunError, NoDataError
from calibrant.experiments.evaluate import EvaluationConfig, evaluate, is_evaluated
from calibrant.experiments.folder import RunOutcome
from calibrant.models import read_tensors
from calibrant.predictions import Predictions
from calibrant.runs import RunFolder, RunKey, remedy
from calibrant.training.callback import TrainingCallback
from calibrant.training.results import chance_warning
from calibrant.training.run import train
from calibrant.training.settings import Settings

TRAINING_SHARE = 0.8  # the fraction of the progress of a run that is training
STOP_SECONDS = 60.0  # for a stopped run to write its checkpoint

RunProgress = Callable[[str, float], None]  # the name of a run, and the fraction of it that is done


@dataclass(frozen=True)
class RunTask:
    """A run to do; it can be pickled for another process."""

    key: RunKey
    settings: Settings
    folder: RunFolder  # its path is absolute
    config: EvaluationConfig
    redo: bool = False  # make damaged files again
    members: tuple[RunFolder, ...] = ()  # of an ensemble, which is evaluated only

    @property
    def name(self) -> str:
        return self.key.name


class Backend(Protocol):
    """Runs tasks in any order and yields each outcome when it ends; closing it stops the runs."""

    def __call__(self, tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]: ...


def in_this_process(tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]:
    """The simplest backend: one run after the other."""
    request = StopRequest()
    with handle_signals(request):
        for task in tasks:
            if request.asked:
                raise InterruptedRunError(f"stopped before {task.name}; the same command resumes there")
            yield run_task(task, progress)


def run_task(task: RunTask, progress: RunProgress | None = None) -> RunOutcome:
    """Do what is left of a run; a failure goes to its error.log, and other runs continue.

    Raises: InterruptedRunError where a signal stopped the run.
    """
    began, failure = time.perf_counter(), None
    notes: tuple[str, ...] = ()
    try:
        notes = _do(task, progress)
        task.folder.error_log.unlink(missing_ok=True)
    except InterruptedRunError:
        raise
    except Exception as error:  # a bug in one run must not stop the others; error.log has the traceback
        deliberate = isinstance(error, CalibrantError)
        failure = str(error) if deliberate else f"{type(error).__name__}: {first_line(error)}"
        _write_error_log(task.folder, failure if deliberate else traceback.format_exc())
    return RunOutcome(task.name, failure, time.perf_counter() - began, notes)


def _do(task: RunTask, progress: RunProgress | None) -> tuple[str, ...]:
    if task.members:
        make_folder(task.folder.path)
        return evaluate(task.key, task.settings, task.folder, task.config, task.members)
    if task.redo:
        remove_damaged(task.folder)
    elif task.folder.is_done and is_evaluated(task.key, task.folder, task.config):
        return ()
    callback = None if progress is None else RunProgressCallback(task.name, progress)
    train(task.settings, task.folder.path, scored=False, callback=callback)
    warning = chance_warning(task.folder, task.settings.keep)
    with remedy("--redo makes it again"):
        return (*([warning] if warning else []), *evaluate(task.key, task.settings, task.folder, task.config))


def _write_error_log(folder: RunFolder, text: str) -> None:
    try:
        make_folder(folder.path)
        folder.error_log.write_text(text.rstrip() + "\n", encoding="utf-8")
    except (OSError, CalibrantError):
        pass  # the disk may be full: the outcome has the message


def remove_damaged(run: RunFolder) -> None:
    """Remove damaged weights, checkpoints and predictions and what depends on them; the run then makes them again."""
    damaged = [path for path in (run.best, run.last, run.weights) if not _can_be_read(path, read_tensors)]
    damaged += [run.last] if run.best in damaged else []  # which refers to it
    damaged += [path for path in sorted(run.predictions.glob("*.parquet")) if not _can_be_read(path, Predictions.load)]
    if damaged:
        for path in (run.done, run.metrics, run.curves, *damaged):  # DONE first
            path.unlink(missing_ok=True)


def _can_be_read(path: Path, read: Callable[[Path], object]) -> bool:
    """Whether a file is there and can be read, or is not there."""
    try:
        read(path)
    except NoDataError:
        return True
    except CalibrantError:
        return False
    return True


class RunProgressCallback(TrainingCallback):
    """Passes the fraction of a run that is done on to a progress function."""

    def __init__(self, run: str, progress: RunProgress) -> None:
        self.run, self.progress = run, progress
        self.n_steps, self.done = 1, 0

    def on_start(self, n_epochs: int, n_steps: int, done: int) -> None:
        self.n_steps, self.done = n_steps, done

    def on_log(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        self.done += steps
        self.progress(self.run, TRAINING_SHARE * self.done / self.n_steps)

    def on_predict(self, name: str, number: int, total: int) -> None:
        self.progress(self.run, TRAINING_SHARE + (1 - TRAINING_SHARE) * number / total)
