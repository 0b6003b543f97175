"""Small runs of training: their settings, what they leave behind, and children in which they may be killed."""

import json
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import lightning_fabric  # noqa: F401 - a run would import it, which takes a forked child seconds
import torch
from safetensors.torch import load_file
from torch import Tensor

from calibrant import cli
from calibrant.training import Settings

QUICK: dict[str, Any] = {"data": "digits", "model": "mlp", "epochs": 2, "shifts": ("fog-3",)}
TIMES = ("seconds", "images_per_second", "waiting", "digest")  # what differs between two runs of the same settings
PATIENCE = 600  # seconds after which a child that hangs is ended


def quick(**changes: Any) -> Settings:
    """Settings of a run that takes less than a second, but for these changes."""
    return Settings(**{**QUICK, **changes})


def flags(settings: Settings) -> list[str]:
    """The flags that give these settings to the command line."""
    tokens = []
    for name, value in settings.model_dump(exclude_none=True, exclude={"loss_options"}).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            tokens.append(f"--{flag}" if value else f"--no-{flag}")
        elif value != ():
            tokens += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return tokens


# What a run leaves behind


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def timeless(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name not in TIMES} for line in log]


def weights_of(run: Path) -> dict[str, Tensor]:
    return load_file(run / "weights.safetensors")


def results_of(run: Path) -> dict[str, bytes]:
    """The bytes of weights, predictions and metrics, which depend on the settings alone."""
    assert (run / "DONE").exists()
    files = [run / "weights.safetensors", run / "metrics.parquet", *sorted((run / "predictions").glob("*.parquet"))]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def times_of(folder: Path) -> dict[str, int]:
    """When each file was last written; the lock has nothing in it and does not count."""
    return {str(file): file.stat().st_mtime_ns for file in sorted(folder.rglob("*")) if file.name != ".lock"}


# Children: forks of this process, which has all libraries loaded


class Ended(NamedTuple):
    """How a child ended; a negative code is the signal that killed it."""

    code: int
    out: str
    err: str


@dataclass
class Child:
    """A forked process that does one thing."""

    pid: int
    out: IO[bytes]
    err: IO[bytes]

    def wait(self) -> Ended:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        return Ended(code, *texts)


def start(action: Callable[[], object], **environment: object) -> Child:
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - the child's `wait` closes them
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _live(action, out, err, {name: str(value) for name, value in environment.items()})
    return Child(pid, out, err)


def _live(action: Callable[[], object], out: IO[bytes], err: IO[bytes], environment: dict[str, str]) -> None:
    code: object = 1
    try:
        signal.alarm(PATIENCE)
        os.environ.update(environment)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        action()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # whatever happens, a child does not go on as its parent
            os._exit(code if isinstance(code, int) else 1)


def in_child(action: Callable[[], object], **environment: object) -> Ended:
    return start(action, **environment).wait()


def command(*arguments: object) -> Callable[[], None]:
    """The command line with these arguments; only for children."""
    app, tokens = cli.app, list(map(str, arguments))

    def run() -> None:
        cli.app = lambda **options: app(tokens, **options)  # type: ignore[assignment]
        cli.main()

    return run


# Moments of a run, seen from outside: a file of its folder is opened, written out or renamed, a layer has been passed


def at_moment(moment: int, act: Callable[[], object], action: Callable[[], object], run: Path) -> Callable[[], None]:
    """The action, with something that happens just before its moment of this number; only for children."""
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        if count == moment + 1:
            act()

    def watched() -> None:
        listen(tick, run)
        action()

    return watched


def n_moments(action: Callable[[], object], run: Path) -> int:
    """How many moments an action has."""
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    def watched() -> None:
        listen(tick, run)
        action()
        print(f"\nmoments {count}")

    ended = in_child(watched)
    assert ended.code == 0, ended.err
    return int(ended.out.rsplit("moments ", 1)[1])


def listen(tick: Callable[[], object], run: Path) -> None:
    fsync = os.fsync

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" or event.startswith(("os.", "tempfile.")):
            paths = [os.fsdecode(value) for value in arguments if isinstance(value, str | bytes | os.PathLike)]
            if any(path.startswith(str(run)) for path in paths):
                on_main_thread()

    def counted(handle: int) -> None:
        on_main_thread()
        fsync(handle)

    def on_main_thread(*_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            tick()

    sys.addaudithook(audit)
    os.fsync = counted
    torch.nn.modules.module.register_module_forward_hook(on_main_thread)


def some_moments(n: int, of: int, seed: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(of), n))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
