"""Progress of long work: callbacks that open a bar for each task, which the work advances, or take a line of text."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[float], None]  # by so many bytes, files or images
Say = Callable[[str], None]  # of a line for the user
ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]  # of a task and its length


@contextmanager
def no_bar(_task: str, _total: int) -> Iterator[Advance]:
    """A bar that shows nothing."""
    yield lambda _done: None


def silent(_: str) -> None:
    """Say nothing; unlike a lambda, other processes can do so too."""
