"""kill -9 at random moments of every command that takes time: the same command again gives the same results."""

import signal
from collections.abc import Iterator
from itertools import islice

from faults.signals import SECONDS, SLOW, SUITE, all_trials
from faults.trial import Trial

__all__ = ["SECONDS", "SLOW", "SUITE", "TRIALS", "trials"]

TRIALS = 120


def trials(n: int, seed: int) -> Iterator[Trial]:
    """Every verb, in another order for each seed, and again at other moments."""
    yield from islice(all_trials(seed, {"kill -9": (signal.SIGKILL, False)}), n)
