"""What the verbs print: tables and progress; nothing a user wrote is obeyed as markup or by the terminal."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calibrant.errors import printable
from calibrant.training.watch import Watch

if TYPE_CHECKING:
    from rich.console import Console
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


class TrainingBar(Watch):
    """What a training run shows: a line for each epoch, and on a terminal a bar with the time left."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = console
        self.n_epochs, self.ece = 0, "–"
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("reading the data", total=None)
        self.bar.start()

    def begin(self, n_epochs: int, n_steps: int, done: int) -> None:
        self.n_epochs = n_epochs
        self.bar.reset(self.task, total=n_steps, completed=done, description="first step")

    def look(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        numbers = f"loss {loss:.3f}  accuracy {accuracy:.3f}  val ece {self.ece}  {images_per_second:,.0f} images/s"
        self.bar.update(self.task, advance=steps, description=f"epoch {epoch}/{self.n_epochs}  {numbers}")

    def epoch(self, record: dict[str, Any]) -> None:
        self.ece = f"{record['val_ece']:.4f}"
        trained = f"loss {record['train_loss']:.4f}  accuracy {record['train_accuracy']:.4f}"
        held_out = f"val accuracy {record['val_accuracy']:.4f}  ece {self.ece}  nll {record['val_nll']:.4f}"
        pace = f"{record['images_per_second']:,.0f} images/s"
        self.console.print(
            f"epoch {record['epoch']}/{self.n_epochs}  {trained}  {held_out}  {pace}", highlight=False, soft_wrap=True
        )

    def predicting(self, name: str, number: int, total: int) -> None:
        self.bar.update(self.task, total=total, completed=number, description=f"predicting {name}")

    def end(self) -> None:
        self.bar.stop()
