"""Files, local or by URL: where they are, and how they are replaced atomically."""

import errno
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
from filelock import FileLock, Timeout
from fsspec.implementations.local import LocalFileSystem

from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, ResourceError

CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # of fsspec: simplecache::s3://…
REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the root, else the environment variable CALIBRANT_DATA, else data."""
    return Path(root or os.environ.get("CALIBRANT_DATA") or "data")


def filesystem_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path in it; local paths stay as the user wrote them."""
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise InvalidInputError(f"{url} cannot be opened: {first_line(error)}") from None
    return filesystem, url if isinstance(filesystem, LocalFileSystem) and "://" not in url else path


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"the folder {folder} cannot be made: {error.strerror}") from None


@contextmanager
def atomic_write(url: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a binary file that replaces the one of that name when it closes; after an error the old one stays."""
    filesystem, path = filesystem_of(os.fspath(url))
    if not isinstance(filesystem, LocalFileSystem):
        temporary = f"{path}.{uuid4().hex}.tmp"
        try:
            with filesystem.open(temporary, "wb") as file:
                yield file
            filesystem.mv(temporary, path)
        except BaseException:
            if filesystem.exists(temporary):
                filesystem.rm(temporary)
            raise
        return
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:40]}.{uuid4().hex}.tmp")
    try:
        file = open(temporary, "xb")  # noqa: SIM115
    except OSError as error:
        raise write_error(path, error) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # its folder may be gone
            os.unlink(temporary)
        # The error may also come from the caller, about another file.
        if isinstance(error, OSError) and (
            error.filename == temporary or (error.filename is None and error.errno in REFUSED)
        ):
            raise write_error(path, error) from None
        raise


@contextmanager
def hold_lock(lock: Path, busy: str) -> Iterator[None]:
    """Hold a lock file, which a killed process releases; ``busy`` is the message where another process holds it."""
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise ResourceError(busy) from None
    except OSError as error:
        raise write_error(lock, error) from None
    try:
        yield
    finally:
        held.release()


def write_error(path: str | os.PathLike[str], error: OSError) -> ResourceError:
    return ResourceError(f"{os.fspath(path)} cannot be written: {error.strerror}")


def read_error(path: str | os.PathLike[str], error: OSError) -> NoDataError | ResourceError:
    if isinstance(error, FileNotFoundError):
        return NoDataError(f"there is no file {os.fspath(path)}")
    return ResourceError(f"{os.fspath(path)} cannot be read: {error.strerror}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file. Raises: NoDataError, ResourceError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file. Raises: NoDataError, ResourceError, CorruptFileError."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise read_error(path, error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is not TOML: {error}") from None


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def without_secrets(argument: str) -> str:
    """The argument; of a URL without the user, the password and the query.

    Passwords need not be encoded: "/", "?" and "#" do not end one that an "@" follows.

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
