"""Output of the commands: standard streams, text that is safe to print, JSON, progress bars on standard error."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

from calibrant.errors import ResourceError, printable
from calibrant.report.formats import as_text, json_text
from calibrant.report.table import Table

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.progress import ProgressColumn
    from rich.text import Text


class StandardStream(FileIO):
    """Standard output or error; after a failure, what follows is discarded.

    Where the reader has closed the pipe, as head does, the command goes on: its files and its exit code do not depend
    on who reads what it prints.
    """

    def write(self, data: "ReadableBuffer", /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if isinstance(error, BrokenPipeError) or self.fileno() != 1:
                return memoryview(data).nbytes
            raise ResourceError(f"standard output cannot be written: {error.strerror}") from None


def prepare_streams() -> None:
    """Standard streams that outlive their readers, and replace characters that they lack: Windows' code pages, C."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif stream is getattr(sys, f"__{name}__") and isinstance(stream, TextIOWrapper):
            raw = StandardStream(stream.fileno(), "w", closefd=False)
            # -u and PYTHONUNBUFFERED ask for write_through; without a buffer, a part of a long text could be lost.
            by_line = stream.line_buffering or stream.write_through
            options: dict[str, Any] = {"encoding": stream.encoding, "line_buffering": by_line}
            setattr(sys, name, TextIOWrapper(BufferedWriter(raw), errors="replace", **options))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


class Notes:
    """Prints lines on standard error, each once: a file may be read again. Worker processes can do so too."""

    def __init__(self) -> None:
        self.lines: set[str] = set()

    def __call__(self, line: str) -> None:
        if line not in self.lines:
            self.lines.add(line)
            print(printable(line), file=sys.stderr, flush=True)


def safe_text(value: object) -> "Text":
    """Text from a user without markup and control characters."""
    from rich.text import Text

    return Text(printable(str(value)))


def print_tables(*tables: Table) -> None:
    """Print tables that fit the terminal, with an empty line between two."""
    from rich.console import Console

    print("\n".join(as_text(table, Console().width) for table in tables), end="")


def print_json(value: Any) -> None:
    """Print JSON, with infinities and NaN as strings: JSON has no such numbers."""
    print(json_text(value))


@contextmanager
def status(task: str) -> Iterator[Callable[[str], None]]:
    """A spinner on standard error, if that is a terminal; yields a function that shows the current step."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    with console.status(safe_text(task)) as spinner:
        yield lambda step: spinner.update(safe_text(f"{task}: {step}"))


@contextmanager
def progress_bar(task: str, n_bytes: int) -> Iterator[Callable[[float], None]]:
    """A progress bar in bytes on standard error, if that is a terminal."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _bar(task, n_bytes, DownloadColumn(), TransferSpeedColumn()) as advance:
        yield advance


@contextmanager
def counting_bar(task: str, total: int) -> Iterator[Callable[[float], None]]:
    """A progress bar in items on standard error, if that is a terminal."""
    from rich.progress import MofNCompleteColumn

    with _bar(task, total, MofNCompleteColumn()) as advance:
        yield advance


@contextmanager
def _bar(task: str, total: int, *columns: "ProgressColumn") -> Iterator[Callable[[float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    ends: tuple[ProgressColumn, ...] = (*columns, TimeRemainingColumn())
    quiet = not console.is_terminal
    text = TextColumn("{task.description}", markup=False)
    with Progress(text, BarColumn(), *ends, console=console, transient=True, disable=quiet) as progress:
        number = progress.add_task(printable(task), total=total)
        yield lambda done: progress.advance(number, done)
