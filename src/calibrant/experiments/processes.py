"""Runs in several processes of this machine; a process that is killed does not stop the others."""

import os
import signal
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait

from calibrant._checks import MAX_JOBS, check_integer
from calibrant._files import make_folder
from calibrant._signals import blocked_signals
from calibrant.errors import CalibrantError, InterruptedRunError
from calibrant.experiments.folder import RunOutcome
from calibrant.experiments.tasks import STOP_SECONDS, RunProgress, RunTask, run_task
from calibrant.parallel import call_at_end
from calibrant.runs import RunFolder
from calibrant.training.batches import default_workers

ATTEMPTS = 2  # of a run whose process dies: it resumes from its checkpoint


@dataclass(frozen=True)
class ProcessBackend:
    """Runs tasks in ``jobs`` processes, each with this many threads and, where there are GPUs, one of them."""

    jobs: int
    threads: int
    gpus: int = 0

    def __post_init__(self) -> None:
        check_integer("jobs", self.jobs, 1, MAX_JOBS)
        check_integer("threads", self.threads, 1)

    def __call__(self, tasks: Sequence[RunTask], progress: RunProgress) -> Generator[RunOutcome]:
        waiting, attempts = deque(map(self._with_workers, tasks)), dict.fromkeys((task.name for task in tasks), 0)
        workers: list[WorkerProcess] = []
        try:
            workers += (WorkerProcess(number, self) for number in range(min(self.jobs, len(tasks))))
            while waiting or any(worker.task for worker in workers):
                for worker in workers:
                    if waiting and not worker.task:
                        attempts[waiting[0].name] += 1
                        worker.submit(waiting.popleft())
                busy = {worker.pipe: worker for worker in workers if worker.task}
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    task = worker.task
                    outcome = worker.receive(progress)
                    if worker.is_lost and task and attempts[task.name] < ATTEMPTS:
                        waiting.append(task)
                    elif outcome is not None:
                        yield outcome
        finally:
            _stop(workers)

    def _with_workers(self, task: RunTask) -> RunTask:
        """The task with its share of the cores as processes that decode images."""
        if task.settings.workers is not None:
            return task
        return replace(task, settings=task.settings.model_copy(update={"workers": default_workers(self.jobs)}))


class WorkerProcess:
    """A process and its current task."""

    def __init__(self, number: int, backend: ProcessBackend) -> None:
        self.task: RunTask | None = None
        self.is_lost = False  # whether the process died, or was stopped, in its last task
        self.arguments = (backend.threads, _gpu(number, backend.gpus))
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")  # a fork would inherit threads and locks
        self.pipe, child_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(child_end, *self.arguments))
        with blocked_signals():  # Ctrl-C must not reach it while it loads the libraries
            self.process.start()
        child_end.close()

    def submit(self, task: RunTask) -> None:
        if not self.process.is_alive():
            self.pipe.close()
            self._start()
        self.task, self.is_lost = task, False
        with suppress(OSError):  # it died just now: `receive` will notice
            self.pipe.send(task)

    def receive(self, progress: RunProgress) -> RunOutcome | None:
        """Read a message: the fraction done, the outcome, or why there is none; a dead process is an outcome, too."""
        assert self.task is not None
        run = self.task.name
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            why = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            message = f"its process died ({why})"
        if isinstance(message, float):
            progress(run, message)
            return None
        self.task, self.is_lost = None, not isinstance(message, RunOutcome)
        return message if isinstance(message, RunOutcome) else RunOutcome(run, message)


def _gpu(number: int, n_gpus: int) -> str | None:
    """The GPU of a process, one of those that CUDA_VISIBLE_DEVICES lists."""
    if not n_gpus:
        return None
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (visible or [str(i) for i in range(n_gpus)])[number % n_gpus]


def _stop(workers: list[WorkerProcess]) -> None:
    """Terminate the processes: those that train write their checkpoint first."""
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
    """Run tasks from the pipe until it sends None or closes."""
    parent = parent_process()
    assert parent is not None
    call_at_end(parent.sentinel, partial(os.kill, os.getpid(), signal.SIGTERM))
    if hasattr(os, "setsid"):
        os.setsid()  # signals to the process group reach the parent alone, which stops each process once
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    import torch

    torch.set_num_threads(threads)
    with suppress(EOFError, OSError):  # the parent is gone
        while (task := pipe.recv()) is not None:
            with suppress(OSError, CalibrantError):  # a folder that cannot be written is the outcome of the run
                _redirect_output(task.folder)
            try:
                message: RunOutcome | str = run_task(task, partial(_send_progress, pipe))
            except InterruptedRunError as error:
                message = str(error)
            pipe.send(message)


def _send_progress(pipe: Connection, run: str, fraction: float) -> None:
    with suppress(OSError):  # the parent may be stopping; the checkpoint is written all the same
        pipe.send(fraction)


def _redirect_output(run: RunFolder) -> None:
    """Redirect what libraries print to a file of the run: the terminal has the progress bar."""
    make_folder(run.path)
    file = os.open(run.output_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
