"""How long work tells of its progress: it opens a bar for each task, and advances it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[float], None]  # by so many bytes, files or images
ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]  # of a task and its length


@contextmanager
def no_bar(_task: str, _total: int) -> Iterator[Advance]:
    """The bar of work that nobody watches."""
    yield lambda _done: None
