"""The exceptions of calibrant; each also inherits the built-in that a caller expects."""

import re

MAX_MESSAGE = 1000  # characters; a value that a message shows may be of any length


def printable(text: str) -> str:
    """The text with control characters escaped, for a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class CalibrantError(Exception):
    """Base of every error that calibrant raises; its message is one line, without control characters."""

    def __str__(self) -> str:
        line = printable(re.sub(r"\n\s+", " ", super().__str__()))  # arrays are shown with indented lines
        return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE // 2]} … {line[-MAX_MESSAGE // 2 :]}"


class InvalidInputError(CalibrantError, ValueError):
    """An argument breaks its rule; the message names the argument, the rule and the value."""


class UnknownNameError(CalibrantError, LookupError):
    """A name is not known; the message suggests the nearest known one."""


class NotConvergedError(CalibrantError, ArithmeticError):
    """A solver did not reach its tolerance; the message names the class or the cause."""


class NoDataError(CalibrantError, FileNotFoundError):
    """Data are missing: a file, rows, the runs of an experiment; the message says what to put where."""


class MissingExtraError(CalibrantError, ImportError):
    """An optional dependency is not installed; the message names the extra and the command that installs it.

    Args:
        purpose: What needs it.
        extras: The extras of calibrant to install.
    """

    def __init__(self, purpose: str, *extras: str) -> None:
        names = " and ".join(extras)
        plural = "s" if len(extras) > 1 else ""
        super().__init__(f"{purpose} needs the extra{plural} {names}: pip install 'calibrant[{','.join(extras)}]'")


class ResourceError(CalibrantError, OSError):
    """The system cannot read or write a file, a port or folder is in use, or a worker process has died."""


class CorruptFileError(CalibrantError, ValueError):
    """A file does not have the expected content; the message names the file and the position."""


class UndefinedMetricError(CalibrantError, ArithmeticError):
    """A metric has no value on these rows, for example the NLL of the errors where there are none."""


class InterruptedRunError(CalibrantError, RuntimeError):
    """A signal stopped a run at a point from which it can resume; the message names it."""


class FailedRunsError(CalibrantError, RuntimeError):
    """Some runs of an experiment failed; the others are done."""
