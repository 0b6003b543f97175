"""The exceptions of calibrant; each also inherits the built-in that a caller expects."""

import re
from typing import Any

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,30}:/\S*")  # pathlib makes http:/ of http://; one letter is a drive
PUNCTUATION = ":;,.'\")]}>"  # behind a URL in a sentence
CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]+:/)")  # of fsspec: simplecache::s3://…
MAX_MESSAGE = 1000  # characters; a value that a message shows may be of any length


class CalibrantError(Exception):
    """Base of every error that calibrant raises; its message is one line, without the secrets of URLs."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_one_line(arg) if isinstance(arg, str) else arg for arg in args))


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
        self.given = (purpose, *extras)
        names = " and ".join(extras)
        plural = "s" if len(extras) > 1 else ""
        super().__init__(f"{purpose} needs the extra{plural} {names}: pip install 'calibrant[{','.join(extras)}]'")

    def __reduce__(self) -> tuple[Any, ...]:  # for another process; by default the message would be the purpose
        return type(self), self.given


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


def _one_line(text: str) -> str:
    line = printable(re.sub(r"\n\s+", " ", text))  # arrays are shown with indented lines
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE // 2]} … {line[-MAX_MESSAGE // 2 :]}"


def printable(text: str) -> str:
    """The text for a reader: control characters are escaped, which a terminal would obey, and URLs have no secrets."""
    text = without_secrets(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def without_secrets(text: str) -> str:
    """The text; its URLs without the user, the password and the query.

    Passwords need not be encoded: "/", "?" and "#" do not end one that an "@" follows.

    >>> without_secrets("s3://key:sec/ret@bucket/a.parquet is not https://x.org/a?sig=1, but a copy")
    's3://…@bucket/a.parquet is not https://x.org/a?…, but a copy'
    """
    if ":/" not in text:
        return text
    return URL.sub(_shown_url, text)


def _shown_url(found: re.Match[str]) -> str:
    url = found[0].rstrip(PUNCTUATION)
    return "::".join(map(_without_secrets, CHAINED.split(url))) + found[0][len(url) :]


def _without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://" if "://" in url else ":/")
    before, at, after = rest.rpartition("@")
    # A path may hold an "@" too (a branch, a version), but not after a colon, unless there is a port: better safe.
    if at and (":" in before or "/" not in before):
        rest = f"…@{after}"
    path, query, asked = rest.partition("?")
    if query and asked:
        rest = f"{path}?…"
    path, fragment, named = rest.partition("#")
    if fragment and "=" in named:
        rest = f"{path}#…"
    return scheme + mark + rest
