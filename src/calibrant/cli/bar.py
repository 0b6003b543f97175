"""What a training run shows: a bar on a terminal, and a line for each epoch."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from calibrant.training.watch import Watch


class TrainingBar(Watch):
    """Loss, accuracy, validation ECE, images per second and the time left; without a terminal, the lines alone."""

    def __init__(self, console: Console) -> None:
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
