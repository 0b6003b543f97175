"""The entry point: signals are handled before the libraries are imported, which takes longer than many commands."""

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from calibrant._signals import StopRequest, exit_code, interrupt, is_repeated, remember, set_handlers

RETRY_SECONDS = 0.02
CAN_RETRY = hasattr(signal, "setitimer")  # not on Windows


def main() -> None:
    """Run the command line; a signal ends it with one line and the exit code 128 + its number, a later one at once."""
    atexit.register(set_handlers, signal.SIG_IGN)  # last of all: the rest of Python's end must not change the exit code
    sys.unraisablehook = _on_unraisable
    set_handlers(_stop)
    try:
        from calibrant.cli import main as run

        run()
    except KeyboardInterrupt:
        _print_stopped(exit_code() - 128)
        sys.exit(exit_code())
    finally:
        set_handlers(_end)
        if CAN_RETRY:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(number: int, frame: FrameType | None) -> None:
    if not is_repeated():
        _stop_once(number, frame)


def _stop_once(number: int, frame: FrameType | None) -> None:
    remember(number)
    set_handlers(_end)
    # An extension module that is being imported may ignore an exception, and continue with half of a library.
    if CAN_RETRY and _is_importing(frame):
        _retry(number)
    else:
        interrupt(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    if not is_repeated():
        _print_stopped(number)
        os._exit(128 + number)


def _print_stopped(number: int) -> None:
    if os.environ.get("RANK", "0") == "0":  # under torchrun, one process prints
        with suppress(OSError):  # the terminal may be closed
            os.write(2, f"calibrant: stopped by {signal.Signals(number).name}\n".encode())  # a handler must not print


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _on_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Stop a moment later where the signal came in a finalizer or a callback, from which nothing can be raised."""
    if CAN_RETRY and isinstance(unraisable.exc_value, KeyboardInterrupt):
        _retry(exit_code() - 128)
    else:
        sys.__unraisablehook__(unraisable)


def _retry(number: int) -> None:
    """Stop in a moment; or ask for it, where a run is trained by then."""

    def stop(_: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(number)
        (handler if isinstance(handler, StopRequest) else _stop_once)(number, frame)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)


if __name__ == "__main__":
    main()
