"""What the verbs print: tables and progress; nothing a user wrote is obeyed as markup or by the terminal."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calibrant.errors import printable

if TYPE_CHECKING:
    from rich.progress import ProgressColumn
    from rich.table import Table
    from rich.text import Text


def shown(value: object) -> "Text":
    """What a user wrote, as text: no markup, and no character that a terminal would obey."""
    from rich.text import Text

    return Text(printable(str(value)))


def new_table(title: str, headings: Sequence[str], n_left: int) -> "Table":
    """A table whose first columns are text and whose others are numbers, in one line each."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=shown(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column, heading in enumerate(headings):
        table.add_column(shown(heading), justify="left" if column < n_left else "right", no_wrap=column != 1)
    return table


def finite(value: Any) -> Any:
    """JSON has no infinity: it becomes a string."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_text(group: object) -> str | None:
    return None if group is None else str(group)


@contextmanager
def working(task: str) -> Iterator[Callable[[str], None]]:
    """A sign of life on standard error, where that is a terminal; call what it yields with the name of each step."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    with console.status(shown(task)) as status:
        yield lambda step: status.update(shown(f"{task}: {step}"))


@contextmanager
def progress_bar(task: str, n_bytes: int) -> Iterator[Callable[[float], None]]:
    """A bar over bytes on standard error, where that is a terminal."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _bar(task, n_bytes, DownloadColumn(), TransferSpeedColumn()) as report:
        yield report


@contextmanager
def counting_bar(task: str, total: int) -> Iterator[Callable[[float], None]]:
    """A bar over things that are counted, on standard error, where that is a terminal."""
    from rich.progress import MofNCompleteColumn

    with _bar(task, total, MofNCompleteColumn()) as report:
        yield report


@contextmanager
def _bar(task: str, total: int, *columns: "ProgressColumn") -> Iterator[Callable[[float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    ends: tuple[ProgressColumn, ...] = (*columns, TimeRemainingColumn())
    quiet = not console.is_terminal
    with Progress(task, BarColumn(), *ends, console=console, transient=True, disable=quiet) as progress:
        number = progress.add_task(task, total=total)
        yield lambda done: progress.advance(number, done)
