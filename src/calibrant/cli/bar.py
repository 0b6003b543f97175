"""Progress of training: a bar on a terminal, and a line for each epoch of a run or each run of an experiment."""

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from calibrant.cli.output import safe_text
from calibrant.errors import printable
from calibrant.experiments.folder import RunOutcome
from calibrant.report.numbers import duration
from calibrant.training.callback import TrainingCallback


def _new_bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class TrainingBar(TrainingCallback):
    """Loss, accuracy, validation ECE, images per second and the time left; without a terminal, a line per epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.n_epochs, self.ece = 0, "–"
        self.bar = _new_bar(console)
        self.task = self.bar.add_task("reading the data", total=None)
        self.bar.start()

    def on_start(self, n_epochs: int, n_steps: int, done: int) -> None:
        self.n_epochs = n_epochs
        self.bar.reset(self.task, total=n_steps, completed=done, description="first step")

    def on_log(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        numbers = f"loss {loss:.3f}  accuracy {accuracy:.3f}  val ece {self.ece}  {images_per_second:,.0f} images/s"
        self.bar.update(self.task, advance=steps, description=f"epoch {epoch}/{self.n_epochs}  {numbers}")

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        self.ece = f"{record['val_ece']:.4f}"
        training = f"loss {record['train_loss']:.4f}  accuracy {record['train_accuracy']:.4f}"
        validation = f"val accuracy {record['val_accuracy']:.4f}  ece {self.ece}  nll {record['val_nll']:.4f}"
        pace = f"{record['images_per_second']:,.0f} images/s"
        warning = "  at chance" if record["val_at_chance"] else ""
        warning += ", all predictions the same class" if record["val_constant"] else ""
        self.console.print(
            f"epoch {record['epoch']}/{self.n_epochs}  {training}  {validation}  {pace}{warning}",
            highlight=False,
            soft_wrap=True,
        )

    def on_predict(self, name: str, number: int, total: int) -> None:
        self.bar.update(self.task, total=total, completed=number, description=printable(f"predicting {name}"))

    def on_end(self) -> None:
        self.bar.stop()


class SweepBar:
    """A bar over all runs of an experiment on a terminal, and a line for each run that ends."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.n_ended = console, total, 0
        self.shares: dict[str, float] = {}
        self.bar = _new_bar(console)
        self.task = self.bar.add_task("starting", total=total)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def progress(self, run: str, share: float) -> None:
        self.shares[run] = share
        description = printable(f"{self.n_ended} of {self.total} runs, now {run}")
        self.bar.update(self.task, completed=sum(self.shares.values()), description=description)

    def on_run_end(self, outcome: RunOutcome) -> None:
        self.n_ended += 1
        self.progress(outcome.run, 1.0)
        how = f"failed: {outcome.failure}" if outcome.failure else f"done in {duration(outcome.seconds)}"
        line = f"{self.n_ended}/{self.total} {outcome.run} {'; '.join([how, *outcome.notes])}"
        self.console.print(safe_text(line), soft_wrap=True)
