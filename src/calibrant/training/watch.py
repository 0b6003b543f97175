"""What a run tells whoever watches it."""

from typing import Any


class Watch:
    """Hears of every look at the training and of every finished epoch; this one does nothing with it."""

    def begin(self, n_epochs: int, n_steps: int, done: int) -> None:
        """How many epochs and steps there are in all, and how many steps are done already."""

    def look(self, *, epoch: int, steps: int, loss: float, accuracy: float, images_per_second: float) -> None:
        """The epoch, the steps since the last look, and the means of the epoch so far."""

    def epoch(self, record: dict[str, Any]) -> None:
        """The line of log.jsonl."""

    def predicting(self, name: str, number: int, total: int) -> None:
        """The split or shifted test that is predicted next."""

    def end(self) -> None:
        """There will be nothing more."""
