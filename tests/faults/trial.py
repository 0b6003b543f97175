"""What one fault is: every module of this package that tries faults has a function ``trials(n, seed)`` of these."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Trial:
    """One fault, and whether calibrant held.

    Args:
        kind: The row of the table that it counts in, such as "flipped bit, predictions".
        name: What is tried, enough to try it again.
        attempt: Tries it in an empty folder; returns what did not hold in one line, or None.
    """

    kind: str
    name: str
    attempt: Callable[[Path], str | None]
