"""Progress of long work: a callback that opens a bar for each task, which the work advances."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[float], None]  # by so many bytes, files or images
ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]  # of a task and its length


@contextmanager
def no_bar(_task: str, _total: int) -> Iterator[Advance]:
    """A bar that shows nothing."""
    yield lambda _done: None
