"""The callback of a training run: what it is told, and when."""

from typing import Any


class TrainingCallback:
    """Is told of the progress of a run; this one ignores it."""

    def on_start(self, n_epochs: int, n_steps: int, done: int) -> None:
        """Training starts or resumes; ``done`` of ``n_steps`` steps were taken before."""

    def on_log(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        """The loop logs: ``steps`` since the last call, and means over the epoch so far."""

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        """An epoch is done; ``record`` is its line of log.jsonl."""

    def on_predict(self, name: str, number: int, total: int) -> None:
        """The next split or shifted test is predicted."""

    def on_end(self) -> None:
        """The run is done, or has stopped."""
