"""The callback of a training run."""

from typing import Any


class TrainingCallback:
    """Base class of callbacks: override the methods you need, each does nothing here."""

    def on_start(self, n_epochs: int, n_steps: int, done: int) -> None:
        """Called when training starts or resumes.

        Args:
            n_epochs: Epochs of the whole run.
            n_steps: Steps of the whole run.
            done: Steps that were taken before it resumed.
        """

    def on_log(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        """Called after one or more steps.

        Args:
            epoch: The current epoch, from 1.
            steps: Steps since the last call.
            loss: Mean over the epoch so far.
            accuracy: Mean over the epoch so far.
            images_per_second: Mean over the epoch so far.
        """

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        """Called after an epoch.

        Args:
            record: The line of the epoch in log.jsonl.
        """

    def on_predict(self, name: str, number: int, total: int) -> None:
        """Called before a split or shifted test is predicted.

        Args:
            name: The split or test.
            number: Its number, from 0.
            total: How many there are.
        """

    def on_end(self) -> None:
        """Called when the run is done, stopped or failed."""
