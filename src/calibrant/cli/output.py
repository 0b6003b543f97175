"""Output of the commands: text that is safe to print, JSON, progress bars on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calibrant.errors import printable
from calibrant.report.formats import as_text, json_text
from calibrant.report.table import Table

if TYPE_CHECKING:
    from rich.progress import ProgressColumn
    from rich.text import Text


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
