"""Runs in processes of this machine, several at a time; one that is killed does not take the others with it."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from calibrant._checks import check_integer
from calibrant._files import make_folder
from calibrant.errors import CalibrantError, InterruptedRunError
from calibrant.experiments.folder import RunOutcome
from calibrant.experiments.tasks import RunProgress, RunTask, run_task
from calibrant.runs import RunFolder
from calibrant.training.batches import default_workers

STOP_SECONDS = 60.0  # seconds that a stopped run has to write its checkpoint
ATTEMPTS = 2  # of a run whose process dies: it goes on from its checkpoint


@dataclass(frozen=True)
class ProcessBackend:
    """Does tasks in so many processes, each with so many threads, and where there are GPUs with one of them."""

    jobs: int
    threads: int
    gpus: int = 0

    def __post_init__(self) -> None:
        check_integer("jobs", self.jobs, 1)
        check_integer("threads", self.threads, 1)

    def __call__(self, tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]:
        left, attempts = deque(map(self._with_workers, tasks)), dict.fromkeys((task.name for task in tasks), 0)
        workers: list[WorkerProcess] = []
        try:
            workers += (WorkerProcess(number, self) for number in range(min(self.jobs, len(tasks))))
            while left or any(worker.task for worker in workers):
                for worker in workers:
                    if left and not worker.task:
                        attempts[left[0].name] += 1
                        worker.begin(left.popleft())
                for worker in _ready_workers(workers):
                    task = worker.task
                    outcome = worker.receive(progress)
                    if worker.is_lost and task and attempts[task.name] < ATTEMPTS:
                        left.append(task)
                    elif outcome is not None:
                        yield outcome
        finally:
            _stop(workers)

    def _with_workers(self, task: RunTask) -> RunTask:
        """The task with as many processes that decode images as its share of the cores."""
        if task.settings.workers is not None:
            return task
        return replace(task, settings=task.settings.model_copy(update={"workers": default_workers(self.jobs)}))


@dataclass
class WorkerProcess:
    """A process and what it is doing."""

    number: int
    backend: ProcessBackend
    task: RunTask | None = None
    is_lost: bool = False  # whether the process has died, or was stopped, in its last task
    process: SpawnProcess = field(init=False)
    pipe: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")  # a fork would inherit threads and locks
        self.pipe, theirs = context.Pipe()
        gpu = _gpu(self.number, self.backend.gpus)
        self.process = context.Process(target=_serve, args=(theirs, self.backend.threads, gpu))
        self.process.start()
        theirs.close()

    def begin(self, task: RunTask) -> None:
        if not self.process.is_alive():
            self.pipe.close()
            self._start()
        self.task, self.is_lost = task, False
        with suppress(OSError):  # that it has died just now is heard of
            self.pipe.send(task)

    def receive(self, progress: RunProgress) -> RunOutcome | None:
        """What the process has to say: how far it is, or the outcome, which also is that it has died."""
        assert self.task is not None
        run = self.task.name
        try:
            said = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            why = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            said = f"its process died ({why})"
        if isinstance(said, float):
            progress(run, said)
            return None
        self.task, self.is_lost = None, not isinstance(said, RunOutcome)
        return said if isinstance(said, RunOutcome) else RunOutcome(run, said)


def _gpu(number: int, n_gpus: int) -> str | None:
    """The GPU of a process, of those that the user lets us see."""
    if not n_gpus:
        return None
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (visible or [str(i) for i in range(n_gpus)])[number % n_gpus]


def _ready_workers(workers: list[WorkerProcess]) -> list[WorkerProcess]:
    busy = {worker.pipe: worker for worker in workers if worker.task}
    ready = wait(list(busy))
    return [worker for pipe, worker in busy.items() if pipe in ready]


def _stop(workers: list[WorkerProcess]) -> None:
    """Ask the processes to stop: those that train write their checkpoint first."""
    for worker in workers:
        with suppress(OSError):  # it may be dead
            worker.pipe.send(None)
        if worker.task and worker.process.is_alive():
            worker.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()


def _serve(pipe: Connection, threads: int, gpu: str | None) -> None:
    """What a process does: a task after the other, until it is told that there is none, or the pipe ends."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent, which then asks each process once
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        if task is None:
            return
        with suppress(OSError, CalibrantError):  # what is wrong with the folder is the outcome of the run
            _redirect_output(task.folder)
        try:
            said: RunOutcome | str = run_task(task, partial(_tell, pipe))
        except InterruptedRunError as error:
            said = str(error)
        try:
            pipe.send(said)
        except OSError:
            return


def _tell(pipe: Connection, run: str, share: float) -> None:
    with suppress(OSError):  # nobody listens to a run that is being stopped; its checkpoint is written all the same
        pipe.send(share)


def _redirect_output(run: RunFolder) -> None:
    """Let whatever libraries print go to a file of the run instead of the terminal, where the progress is."""
    make_folder(run.path)
    file = os.open(run.output_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _exit_with_parent() -> None:
    """Stop where the parent was killed: its runs would be nobody's."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
