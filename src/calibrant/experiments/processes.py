"""Runs in processes of this machine, several at a time; one that is killed does not take the others with it."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from calibrant._files import make_folder
from calibrant.errors import InterruptedRunError
from calibrant.experiments.work import Outcome, Report, Task, work

GRACE = 60.0  # seconds that a stopped run has to write its checkpoint
ATTEMPTS = 2  # of a run whose process dies: it goes on from its checkpoint


@dataclass(frozen=True)
class Processes:
    """Does tasks in so many processes, each with so many threads, and where there are GPUs with one of them."""

    jobs: int
    threads: int
    gpus: int = 0

    def __call__(self, tasks: Sequence[Task], report: Report) -> Iterator[Outcome]:
        left, attempts = deque(tasks), dict.fromkeys((task.run for task in tasks), 0)
        workers = [Worker(number, self) for number in range(min(self.jobs, len(tasks)))]
        try:
            while left or any(worker.task for worker in workers):
                for worker in workers:
                    if left and not worker.task:
                        attempts[left[0].run] += 1
                        worker.begin(left.popleft())
                for worker in _heard(workers):
                    task = worker.task
                    outcome = worker.hear(report)
                    if outcome is None:
                        continue
                    if outcome.failure and worker.is_dead and task and attempts[task.run] < ATTEMPTS:
                        left.append(task)
                    else:
                        yield outcome
        finally:
            _stop(workers)


@dataclass
class Worker:
    """A process and what it is doing."""

    number: int
    backend: Processes
    task: Task | None = None
    is_dead: bool = False
    process: SpawnProcess = field(init=False)
    pipe: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")  # a fork would inherit threads and locks
        self.pipe, theirs = context.Pipe()
        gpu = self.number % self.backend.gpus if self.backend.gpus else None
        self.process = context.Process(target=_serve, args=(theirs, self.backend.threads, gpu), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, task: Task) -> None:
        if self.is_dead:
            self._start()
        self.task, self.is_dead = task, False
        self.pipe.send(task)

    def hear(self, report: Report) -> Outcome | None:
        """What the process has to say: how far it is, or the outcome, which also is that it has died."""
        assert self.task is not None
        run = self.task.run
        try:
            said = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code, self.task, self.is_dead = self.process.exitcode, None, True
            why = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            return Outcome(run, f"its process died ({why})")
        if isinstance(said, float):
            report(run, said)
            return None
        self.task = None
        if isinstance(said, Outcome):
            return said
        raise InterruptedRunError(said)


def _heard(workers: list[Worker]) -> list[Worker]:
    busy = {worker.pipe: worker for worker in workers if worker.task}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _stop(workers: list[Worker]) -> None:
    """Ask the processes to stop: those that train write their checkpoint first."""
    for worker in workers:
        if worker.task and worker.process.is_alive():
            worker.process.terminate()
        worker.pipe.close()
    deadline = time.monotonic() + GRACE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _serve(pipe: Connection, threads: int, gpu: int | None) -> None:
    """What a process does: a task after the other, until the other end of the pipe is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent, which then asks each process once
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    threading.Thread(target=_follow_parent, daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        _say_into(Path(task.folder))
        try:
            said: Outcome | str = work(task, lambda run, share: pipe.send(share))
        except (InterruptedRunError, BrokenPipeError) as error:
            said = str(error)
        try:
            pipe.send(said)
        except OSError:
            return


def _say_into(folder: Path) -> None:
    """Let whatever libraries print go to a file of the run instead of the terminal, where the progress is."""
    make_folder(folder)
    file = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _follow_parent() -> None:
    """Stop where the parent was killed: its runs would be nobody's."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
