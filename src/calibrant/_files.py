"""Files, local or by URL: where they are, and how they are replaced atomically."""

import errno
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import fsspec
from filelock import FileLock, Timeout
from fsspec.implementations.local import LocalFileSystem

from calibrant._digests import is_sealed
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, ResourceError

ON_WINDOWS = os.name == "nt"
if not ON_WINDOWS:
    import fcntl

CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # of fsspec: simplecache::s3://…
REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.EISDIR, errno.EACCES, errno.EPERM)
CONNECT_SECONDS, READ_SECONDS = 10, 30  # to wait for a web server, and for more of its answer
MAX_TEMPORARIES = 4  # processes that write the same file at the same time, each with a temporary file


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the root, else the environment variable CALIBRANT_DATA, else data."""
    return Path(root or os.environ.get("CALIBRANT_DATA") or "data")


def filesystem_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path in it; local paths stay as the user wrote them."""
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **_time_limits(url))
    except (ValueError, ImportError) as error:
        raise InvalidInputError(f"{url} cannot be opened: {first_line(error)}") from None
    return filesystem, url if isinstance(filesystem, LocalFileSystem) and "://" not in url else path


def _time_limits(url: str) -> dict[str, Any]:
    """The options of fsspec that limit how long a web server may be silent; by default it is minutes."""
    protocols = [protocol for protocol in ("http", "https") if f"{protocol}://" in url]
    if not protocols:
        return {}
    from aiohttp import ClientTimeout

    timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
    return {protocol: {"client_kwargs": {"timeout": timeout}} for protocol in protocols}


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"the folder {folder} cannot be made: {error.strerror}") from None


@contextmanager
def atomic_write(url: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a binary file that replaces the one of that name when it closes; after an error the old one stays.

    Of a process that was killed a temporary file stays, which the next one that writes the same local file removes.
    """
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
    try:
        temporary, file = _open_temporary(path)
    except OSError as error:
        raise write_error(path, error) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not ON_WINDOWS:
                os.replace(temporary, path)  # before the lock is released
        if ON_WINDOWS:  # Windows renames closed files only
            os.replace(temporary, path)
    except BaseException as error:
        with suppress(FileNotFoundError):  # an interrupt may come when it has just been renamed
            os.unlink(temporary)
        # The error may also come from the caller, about another file.
        if isinstance(error, OSError) and error.errno in REFUSED and error.filename in (None, temporary):
            raise write_error(path, error) from None
        raise


def _open_temporary(path: str) -> tuple[str, BinaryIO]:
    """Open a new temporary file, locked as long as it is open, after removing those of killed processes for this path.

    The names are few and known, since to list a folder of a million files takes seconds. Where living processes use
    all of them, or files cannot be locked, the name is random, and a killed process leaves the file behind.
    """
    folder, name = os.path.split(path)
    digest = blake2b(os.fsencode(name), digest_size=4).hexdigest()
    names = [os.path.join(folder, f".{name[:40]}.{digest}-{number}.tmp") for number in range(MAX_TEMPORARIES)]
    for temporary in names:
        _remove_abandoned(temporary)
    for temporary in names:
        with suppress(FileExistsError):
            file = open(temporary, "xb")  # noqa: SIM115
            if _lock(file.fileno(), temporary):
                return temporary, file
            file.close()
    temporary = os.path.join(folder, f".{name[:40]}.{uuid4().hex}.tmp")
    return temporary, open(temporary, "xb")


def _remove_abandoned(temporary: str) -> None:
    with suppress(OSError):  # there is none, or it cannot be removed
        if ON_WINDOWS:
            os.unlink(temporary)  # Windows refuses where a process has it open
            return
        file = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _lock(file, temporary):
                os.unlink(temporary)
        finally:
            os.close(file)


def _lock(file: int, path: str) -> bool:
    """Lock an open file until it is closed or its process dies; False where another process has locked or moved it."""
    if ON_WINDOWS:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except OSError:
        return False


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
    if isinstance(error, TimeoutError):
        return ResourceError(f"{os.fspath(path)} cannot be read: the server was silent for {READ_SECONDS} s")
    return ResourceError(f"{os.fspath(path)} cannot be read: {error.strerror}")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file. Raises: NoDataError, ResourceError, CorruptFileError."""
    try:
        content = Path(path).read_bytes()
        is_sealed(content, path)  # refuses a damaged copy of an experiment file
        return tomllib.loads(content.decode())
    except OSError as error:
        raise read_error(path, error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
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
