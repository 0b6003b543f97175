"""Files, local or by URL: where they are, and how they are replaced whole."""

import errno
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
from filelock import FileLock, Timeout
from fsspec.implementations.local import LocalFileSystem

from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError

CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # of fsspec: simplecache::s3://…
UMASK = os.umask(0)  # it can only be read by setting it, which is no business of threads
os.umask(UMASK)


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets are: the root, or the environment variable CALIBRANT_DATA, or data."""
    return Path(root or os.environ.get("CALIBRANT_DATA") or "data")


def filesystem_of(url: str) -> tuple[Any, str]:
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise NoDataError(f"{url} cannot be opened: {first_line(error)}") from None
    if isinstance(filesystem, LocalFileSystem) and "://" not in url:
        path = url  # as the user wrote it, so that messages name it so
    return filesystem, path


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoDataError(f"the folder {folder} cannot be made: {error.strerror}") from None


@contextmanager
def replacing(url: str | os.PathLike[str]) -> Iterator[Any]:
    """A binary file to write; when it is closed it replaces the one of that name, which else stays as it was."""
    filesystem, path = filesystem_of(os.fspath(url))
    if not isinstance(filesystem, LocalFileSystem):
        beside = f"{path}.{uuid4().hex}.tmp"
        try:
            with filesystem.open(beside, "wb") as file:
                yield file
            filesystem.mv(beside, path)
        except BaseException:
            if filesystem.exists(beside):
                filesystem.rm(beside)
            raise
        return
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise NoDataError(f"{target} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~UMASK)
        _replace(temporary, target)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG):
            raise NoDataError(f"{target} cannot be written: {error.strerror}") from None
        raise


@contextmanager
def alone(lock: Path, busy: str) -> Iterator[None]:
    """Hold a lock file; where another process holds it, the error says that it is busy. A killed process holds none."""
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise InvalidInputError(busy) from None
    except OSError as error:
        raise NoDataError(f"{lock} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        held.release()


def _replace(temporary: str, target: Path) -> None:
    if target.is_dir():
        raise InvalidInputError(f"{target} cannot be written: it is a folder")
    try:
        os.replace(temporary, target)
    except PermissionError as error:  # Windows, where somebody has it open
        raise NoDataError(f"{target} cannot be written: {error.strerror}") from None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file. Raises: NoDataError, CorruptFileError."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is not TOML: {error}") from None


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def without_secrets(argument: str) -> str:
    """One argument or file; of a URL neither what stands before the host nor the query is shown.

    What is no URL stays as it is. Passwords need not be encoded: "/", "?" and "#" do not end one that an "@" follows.

    >>> without_secrets("s3://key:sec/ret@bucket/a.parquet"), without_secrets("https://x.org/a?sig=1")
    ('s3://…@bucket/a.parquet', 'https://x.org/a?…')
    """
    if "://" not in argument:
        return argument
    return "::".join(map(_without_secrets, CHAINED.split(argument)))


def _without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://")
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
