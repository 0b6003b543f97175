"""Runs on a Ray cluster, one Ray task each; a run whose node is lost resumes elsewhere from its last checkpoint."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from calibrant._checks import check_integer, check_number, check_positive
from calibrant._files import data_folder, make_folder, write_error
from calibrant._paths import first_line
from calibrant.errors import CalibrantError, InterruptedRunError, InvalidInputError, ResourceError
from calibrant.experiments.folder import RunOutcome
from calibrant.experiments.tasks import STOP_SECONDS, RunProgress, RunTask, run_task
from calibrant.parallel import ray_session

LOCK_SECONDS = 60.0  # for a process on a lost node to release the folder


@dataclass(frozen=True)
class RayBackend:
    """Runs tasks on the cluster at an address: auto, local for this machine alone, host:6379 or ray://host:10001.

    The folders of the runs and of the data must be on a disk that all nodes share. A Ray session that exists is used
    and not closed.
    """

    address: str
    cpus: float = 1  # of a run
    gpus: float | None = None  # of a run; None: one if the cluster has any
    retries: int = 3  # of a run whose node or process is lost
    run_task: Callable[[RunTask], RunOutcome] = run_task

    def __post_init__(self) -> None:
        check_positive("cpus", self.cpus)
        check_integer("retries", self.retries, 0)
        if self.gpus is not None:
            check_number("gpus", self.gpus, minimum=0)
            if self.gpus > 1 and not float(self.gpus).is_integer():
                raise InvalidInputError(f"gpus must be a fraction of one, or an integer, got {self.gpus}")

    def __call__(self, tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]:
        with ray_session(self.address) as ray:
            remote, start = self._remote(ray), time.perf_counter()
            pending: dict[Any, RunTask] = {}
            try:
                for task in map(_with_absolute_root, tasks):
                    pending[remote.options(name=task.name).remote(self.run_task, task, max(1, int(self.cpus)))] = task
                while pending:
                    (reference,), _ = ray.wait(list(pending), num_returns=1)
                    task = pending.pop(reference)
                    outcome = _outcome(ray, reference, task, start)
                    progress(task.name, 1.0)
                    yield outcome
            finally:
                _stop(ray, list(pending))

    def _remote(self, ray: Any) -> Any:
        """The Ray task of a run. Raises: InvalidInputError where this machine has too few cores or GPUs."""
        available = ray.cluster_resources()
        gpus = float(available.get("GPU", 0) >= 1) if self.gpus is None else self.gpus
        if self.address == "local":  # Ray would wait forever; a cluster may still grow
            check_number("cpus", self.cpus, minimum=0, maximum=available.get("CPU", 0))
            check_number("gpus", gpus, minimum=0, maximum=available.get("GPU", 0))
        # a node that shuts down stops its runs by a signal: a lost node, not a failure
        return ray.remote(
            num_cpus=self.cpus, num_gpus=gpus, max_retries=self.retries, retry_exceptions=[InterruptedRunError]
        )(_run_on_node)


def _with_absolute_root(task: RunTask) -> RunTask:
    """The task with an absolute data folder: nodes have another working directory."""
    root = os.path.abspath(data_folder(task.settings.root))
    return replace(task, settings=task.settings.model_copy(update={"root": root}))


def _run_on_node(run_task: Callable[[RunTask], RunOutcome], task: RunTask, n_threads: int) -> RunOutcome:
    torch.set_num_threads(n_threads)
    with _lock_folder(task.folder.path):
        return run_task(task)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder, which a process of a lost node may still hold for a while."""
    make_folder(folder)
    lock = FileLock(folder / ".node.lock")
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise ResourceError(f"{folder} is still in use by another process after {LOCK_SECONDS:g} s") from None
    except OSError as error:
        raise write_error(folder, error) from None
    try:
        yield
    finally:
        lock.release()


def _outcome(ray: Any, reference: Any, task: RunTask, start: float) -> RunOutcome:
    """The outcome of a task; where Ray gave it up, or it raised, that is a failure, and the others continue."""
    try:
        outcome: RunOutcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        return RunOutcome(task.name, _failure(ray, error), seconds=time.perf_counter() - start)
    return outcome


def _failure(ray: Any, error: Exception) -> str:
    """One line; for an error in a run its own, since that of Ray starts with a traceback."""
    if not isinstance(error, ray.exceptions.RayTaskError):
        return f"Ray gave it up: {type(error).__name__}: {first_line(error)}"
    cause: BaseException = error.cause
    return str(cause) if isinstance(cause, CalibrantError) else f"{type(cause).__name__}: {first_line(cause)}"


def _stop(ray: Any, pending: list[Any]) -> None:
    """Cancel tasks that wait; tasks that run may write their checkpoint before they are killed."""
    if not ray.is_initialized():  # the owner of the session has closed it, and the tasks with it
        return
    try:
        for reference in reversed(pending):  # those that wait first: they must not start in the place of others
            ray.cancel(reference)
        pending = _unfinished(ray, pending)
    finally:  # also after a second Ctrl-C
        for reference in pending:
            ray.cancel(reference, force=True)
        _unfinished(ray, pending)


def _unfinished(ray: Any, pending: list[Any]) -> list[Any]:
    """The tasks that still run after STOP_SECONDS."""
    left: list[Any] = ray.wait(pending, num_returns=len(pending), timeout=STOP_SECONDS)[1] if pending else []
    return left
