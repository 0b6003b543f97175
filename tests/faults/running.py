"""Runs trials in workers: processes that may hang, crash or be killed, each trial in an empty folder of its own."""

import os
import pkgutil
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import faults
from faults.trial import Trial

SECONDS = 120  # a trial that takes longer did not hold; a module may state its own SECONDS
BETWEEN = 600  # seconds for imports, and for what a module makes between its trials


def batteries() -> dict[str, ModuleType]:
    """The modules that try faults, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(faults.__path__))
    modules = {name: import_module(f"faults.{name}") for name in names if not name.startswith(("_", "test_"))}
    return {name: module for name, module in modules.items() if hasattr(module, "trials")}


class Part(NamedTuple):
    """Trials of one module for one worker: every `step`-th of `trials(n, seed)` from number `first` on."""

    module: str
    n: int
    seed: int
    first: int
    step: int

    def command(self, number: int) -> str:
        return f"python -m faults --kinds {self.module} --trials {self.n} --seed {self.seed} --only {number}"


class Result(NamedTuple):
    """One trial that ended."""

    kind: str
    name: str
    failure: str | None  # what did not hold, in one line
    command: str
    folder: Path


# The worker: a process of its own, which may hang, crash or be killed


def work(part: Part, root: Path, pipe: Connection) -> None:
    """Try one trial after the other; say which one begins, and how it ended."""
    os.setsid()  # what a trial starts ends with its worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    try:
        trials = import_module(f"faults.{part.module}").trials(part.n, part.seed)
        for number, trial in islice(enumerate(trials), part.first, None, part.step):
            folder = root / f"{part.module}-{number}"
            folder.mkdir()
            pipe.send((number, trial.kind, trial.name))
            failure = failure_of(trial, folder)
            if failure is None:
                shutil.rmtree(folder, ignore_errors=True)
            pipe.send(failure)
    except Exception as error:  # of the module itself
        pipe.send((part.first, part.module, "its trials"))
        pipe.send(in_one_line(error))


def failure_of(trial: Trial, folder: Path) -> str | None:
    """What did not hold in one line; an exception that escapes is one too."""
    try:
        failure = trial.attempt(folder)
    except Exception as error:
        failure = in_one_line(error)
    return None if failure is None else " ".join(failure.split())[:800]


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class Worker:
    """The parent's side of a worker: the results as they come, and a new process in place of one that hangs or dies."""

    def __init__(self, part: Part, root: Path) -> None:
        self.part, self.root = part, root
        self.seconds: float = getattr(import_module(f"faults.{part.module}"), "SECONDS", SECONDS)
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(self.part, self.root, theirs))
        self.process.start()
        theirs.close()
        self.begun: tuple[int, str, str] | None = None
        self.deadline = time.monotonic() + BETWEEN

    def results(self) -> Iterator[Result]:
        """Results that are there now; the last one closes the pipe."""
        while not self.pipe.closed and (self.pipe.poll() or time.monotonic() > self.deadline):
            try:
                if time.monotonic() > self.deadline and not self.pipe.poll():
                    raise TimeoutError
                said = self.pipe.recv()
            except (EOFError, TimeoutError) as error:
                yield from self._ended(isinstance(error, TimeoutError))
                continue
            if isinstance(said, tuple):
                self.begun, self.deadline = said, time.monotonic() + self.seconds
            else:
                self.deadline = time.monotonic() + BETWEEN
                yield self._result(said)
                self.begun = None

    def _ended(self, hangs: bool) -> Iterator[Result]:
        if not hangs:
            self.process.join(self.seconds)
        self.stop()
        if self.process.exitcode == 0:
            return
        limit = BETWEEN if self.begun is None else self.seconds
        failure = f"took more than {limit} s" if hangs else f"the process ended: {self.process.exitcode}"
        if self.begun is None:  # not in a trial: the next process would end as this one
            self.begun = (self.part.first, self.part.module, "its trials")
            yield self._result(failure)
            return
        yield self._result(failure)
        self.part = self.part._replace(first=self.begun[0] + self.part.step)
        self._start()

    def _result(self, failure: str | None) -> Result:
        assert self.begun is not None
        number, kind, name = self.begun
        return Result(kind, name, failure, self.part.command(number), self.root / f"{self.part.module}-{number}")

    def stop(self) -> None:
        """End the process and whatever it started."""
        self.pipe.close()
        if self.process.pid is not None and self.process.exitcode != 0:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()
        self.process.join()


def run(parts: Sequence[Part], jobs: int, root: Path) -> Iterator[Result]:
    """The results of all parts, as many at a time as there are jobs."""
    todo, workers = list(parts), list[Worker]()
    try:
        while todo or workers:
            while todo and len(workers) < jobs:
                workers.append(Worker(todo.pop(0), root))
            wait([worker.pipe for worker in workers], timeout=1)
            for worker in workers:
                yield from worker.results()
            workers = [worker for worker in workers if not worker.pipe.closed]
    finally:
        for worker in workers:
            worker.stop()
