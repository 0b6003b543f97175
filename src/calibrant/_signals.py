"""Signals that stop a command: Ctrl-C, SIGTERM of a batch system or container, SIGHUP of a terminal that was closed."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None

REPEAT_SECONDS = 1.0  # closed terminals and batch systems send several signals at once, which are one request
_received: int = signal.SIGINT  # the last one that was handled here
_received_at = -REPEAT_SECONDS
_n_blocked = 0  # how many `blocked_signals` the main thread is in
_is_waiting = False  # whether a signal came there


def exit_code() -> int:
    """The exit code of a command that a signal stopped, as shells have it: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + _received


class _SignalInterrupt(KeyboardInterrupt):
    """Python ends by SIGINT, whatever the exit code, where KeyboardInterrupt itself passed an extension module."""


def is_repeated() -> bool:
    """Whether a signal that comes now only repeats the last one."""
    return time.monotonic() - _received_at < REPEAT_SECONDS


def remember(number: int) -> None:
    global _received, _received_at
    _received, _received_at = number, time.monotonic()


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler that raises KeyboardInterrupt, as that of Python for SIGINT, or at the end of `blocked_signals`."""
    global _is_waiting
    remember(number)
    if not _n_blocked:
        raise _SignalInterrupt
    _is_waiting = True


class StopRequest:
    """The handler that remembers that a signal has asked the run to stop; a later signal does not wait for it."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked = True
            remember(number)
        elif not is_repeated():
            interrupt(number, frame)


@contextmanager
def handle_signals(handler: Handler) -> Iterator[None]:
    """Handle the signals that stop a command; not those that the caller ignores, as nohup does, and in no other thread.

    Where a StopRequest is handled within another, as a run within a sweep, a stop of the inner one stops both.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = set_handlers(handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
            if isinstance(handler, StopRequest) and handler.asked and isinstance(previous, StopRequest):
                previous.asked = True


def set_handlers(handler: Handler) -> dict[int, Handler]:
    """Set the handler of each signal that is not ignored; returns those that were set before."""
    return {
        number: signal.signal(number, handler)
        for number in STOP_SIGNALS
        if signal.getsignal(number) not in (signal.SIG_IGN, None)  # None: it was not set from Python
    }


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block the signals: processes that start here have them blocked until they decide otherwise.

    A signal to all processes of a command would otherwise end its workers before the command can stop them, and one to
    another thread of this process would leave a worker half started, which then prints a traceback.
    """
    global _n_blocked, _is_waiting
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    _n_blocked += 1
    try:
        yield
    finally:
        _n_blocked -= 1
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if _is_waiting and not _n_blocked:
            _is_waiting = False
            raise _SignalInterrupt
