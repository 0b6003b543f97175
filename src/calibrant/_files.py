"""Files, local or by URL: where they are, and how they are replaced atomically."""

import errno
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
from filelock import FileLock, Timeout
from fsspec.implementations.local import LocalFileSystem

from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, ResourceError

CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # of fsspec: simplecache::s3://…
REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.EISDIR, errno.EACCES, errno.EPERM)
# How files begin that are written where a user says: a file that begins otherwise is not replaced.
KINDS = {
    "a Parquet file": rb"PAR1",
    "a calibrator": rb'\{\s*"calibrant_calibrator"',
    "an HTML page": rb"(?i)\s*<!doctype html",
    "an SVG image": rb"<svg|<\?xml",
    "a PNG image": rb"\x89PNG\r\n",
    "a PDF file": rb"%PDF-",
    "a Vega-Lite specification": rb'\{\s*"\$schema": "https://vega',
    "a JSON schema": rb'\{\s*"\$defs"',
    "a table": rb'(?:\*\*|\{\s*"caption": ")?(?:Table|Appendix)|% needs \\usepackage|table,',
}
FOLDERS = {  # what a folder belongs to, by the file that says so
    "config.json": "a run",
    "experiment.toml": "an experiment",
    "rows.parquet": "an experiment",
    "corruption.json": "corrupted images",
}


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the root, else the environment variable CALIBRANT_DATA, else data."""
    return Path(root or os.environ.get("CALIBRANT_DATA") or "data")


def filesystem_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path in it; local paths stay as the user wrote them."""
    if not url or "\0" in url:
        raise InvalidInputError(f"a path must not be empty or have a NUL character, got {url!r}")
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


def check_folder(folder: Path, what: str) -> None:
    """Raises: InvalidInputError where the folder belongs to something else than this (see `FOLDERS`), ResourceError."""
    try:
        os.stat(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResourceError(f"the folder {folder} cannot be made: {error.strerror}") from None
    for name, owner in FOLDERS.items():
        if owner != what and os.path.lexists(folder / name):
            raise InvalidInputError(f"{folder} is the folder of {owner}, as its {name} says: choose another folder")


class _NotWrittenError(Exception):
    pass


def check_output(url: str | os.PathLike[str], kind: str, inputs: Iterable[str] = ()) -> None:
    """Check that `atomic_write` can write a file that is no input, before long work. Raises: as `atomic_write`."""
    for name in inputs:
        if _is_same_file(os.fspath(url), name):
            raise InvalidInputError(f"{os.fspath(url)} must not be written: it is an input; choose another output")
    with suppress(_NotWrittenError), atomic_write(url, kind):
        raise _NotWrittenError  # the file stays as it is


def _is_same_file(first: str, second: str) -> bool:
    """Whether two paths or URLs name one file, also by links."""
    (filesystem, path), (other, other_path) = filesystem_of(first), filesystem_of(second)
    if isinstance(filesystem, LocalFileSystem) and isinstance(other, LocalFileSystem):
        return os.path.exists(path) and os.path.exists(other_path) and os.path.samefile(path, other_path)
    return bool(filesystem.unstrip_protocol(path) == other.unstrip_protocol(other_path))


def _check_kind(path: str, head: bytes, kind: str | None) -> None:
    """Refuse to replace a file that begins otherwise, unless it is empty, or zeros after a crash."""
    if kind is not None and head.strip(b"\0") and not re.match(KINDS[kind], head):
        raise InvalidInputError(f"{path} exists and is not {kind}: choose another name, or remove it")


def _state_to_replace(path: str, kind: str | None) -> os.stat_result | None:
    """The owner and permissions of a local file that may be replaced; None where there is none."""
    try:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):
            folder = stat.S_ISDIR(state.st_mode)
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR) if folder else "Not a regular file")
        if kind is not None:
            with open(path, "rb") as file:
                _check_kind(path, file.read(100), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise write_error(path, error) from None
    return state


@contextmanager
def atomic_write(url: str | os.PathLike[str], kind: str | None = None) -> Iterator[Any]:
    """Open a binary file that replaces the one of that name when it closes; after an error the old one stays.

    The new file has the permissions of the old one, and its owner where the system allows that.

    Args:
        url: A path or an fsspec URL.
        kind: One of `KINDS`, for a file that a user names: only a file of that kind is replaced.

    Raises:
        InvalidInputError: The path is empty, or there is a file of another kind.
        ResourceError: The file cannot be written.
    """
    filesystem, path = filesystem_of(os.fspath(url))
    if not isinstance(filesystem, LocalFileSystem):
        _check_kind(os.fspath(url), filesystem.cat_file(path, 0, 100) if filesystem.isfile(path) else b"", kind)
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
    old = _state_to_replace(path, kind)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:40]}.{uuid4().hex}.tmp")
    try:
        file = open(temporary, "xb")  # noqa: SIM115
    except OSError as error:
        raise write_error(path, error) from None
    try:
        with file:
            if old is not None:
                if sys.platform != "win32":
                    with suppress(PermissionError):
                        os.chown(temporary, old.st_uid, old.st_gid)
                os.chmod(temporary, stat.S_IMODE(old.st_mode) & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        # The error may also come from the caller, about another file.
        if isinstance(error, OSError) and error.errno in REFUSED and error.filename in (None, temporary):
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
