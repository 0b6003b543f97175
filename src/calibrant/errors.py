"""Every deliberate exception of calibrant; each also is the built-in that a caller expects."""


class CalibrantError(Exception):
    """Base of every error that calibrant raises on purpose; its message is one line for the user."""


class InvalidInputError(CalibrantError, ValueError):
    """An argument breaks its rule; the message names the argument, the rule and the offending value."""


class UnknownNameError(CalibrantError, LookupError):
    """A name is in none of our tables; the message gives the nearest known one."""


class NotConvergedError(CalibrantError, ArithmeticError):
    """A solver found no answer that meets its tolerance; the message says for which class, and why."""


class NoDataError(CalibrantError, FileNotFoundError):
    """Data are not where they should be; the message says what to put where."""


class MissingExtraError(CalibrantError, ImportError):
    """An optional dependency is not installed; the message names the extra and the command that installs it."""

    def __init__(self, purpose: str, *extras: str) -> None:
        names = " and ".join(extras)
        plural = "s" if len(extras) > 1 else ""
        super().__init__(f"{purpose} needs the extra{plural} {names}: pip install 'calibrant[{','.join(extras)}]'")


class ResourceError(CalibrantError, OSError):
    """The system refused: a file cannot be read or written, the disk is full, a port is busy, a worker has died."""


class CorruptFileError(CalibrantError, ValueError):
    """A file is there but cannot be read as what it should be; the message names the place."""


class UndefinedMetricError(CalibrantError, ArithmeticError):
    """A metric has no value on these rows, as the NLL of the errors where there is none."""


class InterruptedRunError(CalibrantError, RuntimeError):
    """A signal asked a run to stop, and it did where it can resume; the message says where."""


class FailedRunsError(CalibrantError, RuntimeError):
    """Some runs of an experiment failed; the others were done."""


def printable(text: str) -> str:
    """The text with control characters spelled out, so that a terminal shows them and does not obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
