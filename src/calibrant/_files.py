"""Files, local or by URL: where they are, and how they are replaced whole."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
from filelock import FileLock, Timeout
from fsspec.implementations.local import LocalFileSystem

from calibrant.errors import InvalidInputError, NoDataError

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


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
