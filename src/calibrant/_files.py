"""Files, local or by URL: how they are read, and replaced atomically."""

import errno
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4
from zlib import crc32

from calibrant._digests import SEALED_LINE, is_sealed
from calibrant._paths import LOCAL, as_path, check_path, filesystem_of
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError, ResourceError

ON_WINDOWS = os.name == "nt"
if not ON_WINDOWS:
    import fcntl

REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)
MAX_SMALL_BYTES = 2**25  # of settings and priors; /dev/zero has no end
MAX_TEMPORARIES = 4  # processes that write the same file at the same time, each with a temporary file

HEAD = 200  # bytes of a file that tell its kind
# How files begin that are written where a user says: a file that begins otherwise is not replaced.
KINDS = {
    "a Parquet file": rb"PAR1",
    "a calibrator": rb'\{\s*"calibrant_calibrator"',
    "an estimator": rb'\{\s*"calibrant_estimator"',
    "a threshold": rb'\{\s*"calibrant_threshold"',
    "a conformal predictor": rb'\{\s*"calibrant_conformal_predictor"',
    "an HTML page of calibrant": rb'<!DOCTYPE html>[^{}]{0,60}<meta name="generator" content="calibrant">',
    "an SVG image": rb"<svg|<\?xml",
    "a PNG image of calibrant": rb"(?s)\x89PNG\r\n.{31}tEXtSoftware\0calibrant",
    "a PDF file": rb"%PDF-",
    "a Vega-Lite specification": rb'\{\s*"\$schema": "https://vega',
    "a monitor": rb'\{\s*"calibrant_monitor"',
    "a metrics file": rb"# HELP calibrant_",
    "an ONNX file of calibrant": rb"(?s)\x08.\x12\tcalibrant\x1a",
    "a JSON schema": rb'\{\s*"\$defs"',
    "a table": rb'(?:\*\*|\{\s*"caption": ")?(?:Table|Appendix)|% needs \\usepackage|table,',
}
FOLDERS = {  # what a folder belongs to, by the file that says so, and by what it holds
    "config.json": ("a run", b'"test_sample"'),
    "experiment.toml": ("an experiment", b""),
    "rows.parquet": ("an experiment", b""),
    "corruption.json": ("corrupted images", b""),
}


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of data sets: the root, else the environment variable CALIBRANT_DATA, else data."""
    return Path(os.environ.get("CALIBRANT_DATA") or "data" if root is None else check_path("root", root))


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
    for name, (owner, mark) in FOLDERS.items():
        if owner != what and os.path.lexists(folder / name) and (not mark or mark in read_bytes(folder / name)):
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
    if filesystem is LOCAL and other is LOCAL:
        return os.path.exists(path) and os.path.exists(other_path) and os.path.samefile(path, other_path)
    if filesystem is LOCAL or other is LOCAL:
        return False
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
                _check_kind(path, file.read(HEAD), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise write_error(path, error) from None
    return state


@contextmanager
def atomic_write(url: str | os.PathLike[str], kind: str | None = None) -> Iterator[Any]:
    """Open a binary file that replaces the one of that name when it closes; after an error the old one stays.

    The new file has the permissions of the old one, and its owner where the system allows that. Of a process that was
    killed a temporary file stays, which the next one that writes the same local file removes.

    Args:
        url: A path or an fsspec URL.
        kind: One of `KINDS`, for a file that a user names: only a file of that kind is replaced.

    Raises:
        InvalidInputError: It is not a path, or there is a file of another kind.
        ResourceError: The file cannot be written.
    """
    filesystem, path = filesystem_of(check_path("path", url))
    if filesystem is not LOCAL:
        if set(path) & set("*?[") and not path.startswith("http"):  # nothing can be written there
            raise InvalidInputError(f"{os.fspath(url)} cannot be written: *, ? and [ stand for other files there")
        _check_kind(os.fspath(url), filesystem.cat_file(path, 0, HEAD) if filesystem.isfile(path) else b"", kind)
        temporary = f"{path}.{uuid4().hex}.tmp"
        try:
            with filesystem.open(temporary, "wb") as file:
                yield file
            filesystem.mv(temporary, path)
        except BaseException:
            with suppress(CalibrantError):  # the first error says more
                if filesystem.exists(temporary):
                    filesystem.rm(temporary)
            raise
        return
    old = _state_to_replace(path, kind)
    try:
        temporary, file = _open_temporary(path)
    except OSError as error:
        raise write_error(path, error) from None
    except BaseException:  # an interrupt, when the file has just been made
        with suppress(OSError):
            _remove_abandoned(path)
        raise
    try:
        with file:
            if old is not None:
                if not ON_WINDOWS:
                    with suppress(OSError):  # another user's, or the file system has no owners
                        os.chown(temporary, old.st_uid, old.st_gid)
                _set_mode(temporary, old.st_mode | stat.S_IWUSR)  # the next process must be able to lock it
            yield file
            file.flush()
            os.fsync(file.fileno())
            if old is not None:
                _set_mode(temporary, old.st_mode)
            if not ON_WINDOWS:
                os.replace(temporary, path)  # before the lock is released
        if ON_WINDOWS:  # Windows renames closed files only
            os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # it was just renamed before an interrupt, or its folder is gone
            os.unlink(temporary)
        # The error may also come from the caller, about another file.
        if isinstance(error, OSError) and (
            error.filename == temporary or (error.filename is None and error.errno in REFUSED)
        ):
            raise write_error(path, error) from None
        raise


def _set_mode(path: str, mode: int) -> None:
    try:
        os.chmod(path, stat.S_IMODE(mode) & 0o777)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP):  # the file system has no permissions
            raise


def _open_temporary(path: str) -> tuple[str, BinaryIO]:
    """Open a new temporary file, locked as long as it is open, after removing those of killed processes for this path.

    The names are few and known, since to list a folder of a million files takes seconds. Where living processes use
    all of them, or files cannot be locked, as on Windows, the name is random, and a killed process leaves the file
    behind.
    """
    with suppress(OSError):  # files cannot be locked here
        _remove_abandoned(path)
        for temporary in _temporary_names(path):
            if (file := _open_locked(temporary)) is not None:
                return temporary, file
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:40]}.{uuid4().hex}.tmp")
    return temporary, open(temporary, "xb")


def _temporary_names(path: str) -> list[str]:
    folder, name = os.path.split(path)
    digest = blake2b(os.fsencode(name), digest_size=4).hexdigest()
    numbers = range(0 if ON_WINDOWS else MAX_TEMPORARIES)
    return [os.path.join(folder, f".{name[:40]}.{digest}-{number}.tmp") for number in numbers]


def _open_locked(temporary: str) -> BinaryIO | None:
    """A new file; None where a process has one of that name. Raises: OSError where files cannot be locked."""
    try:
        file = open(temporary, "xb")  # noqa: SIM115
    except FileExistsError:
        return None
    try:
        if _lock(file.fileno(), temporary):
            return file
    except BaseException:
        os.unlink(temporary)
        file.close()
        raise
    file.close()
    return None


def _remove_abandoned(path: str) -> None:
    """Remove the temporary files for this path that no process has locked. Raises: OSError where none can be."""
    for temporary in _temporary_names(path):
        try:
            file = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # there is none, or it is not ours, as a planted link
            continue
        try:
            if _lock(file, temporary):
                os.unlink(temporary)
        finally:
            os.close(file)


def _lock(file: int, path: str) -> bool:
    """Lock an open file until it is closed or its process dies; False where another process has locked or moved it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def hold_lock(lock: Path, busy: str) -> Iterator[None]:
    """Hold a lock file, which a killed process releases; ``busy`` is the message where another process holds it."""
    from filelock import FileLock, Timeout

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


def mark_png(content: bytes) -> bytes:
    """A PNG image with a text that says who wrote it."""
    chunk, end_of_header = b"tEXtSoftware\0calibrant", 33
    marked = (len(chunk) - 4).to_bytes(4, "big") + chunk + crc32(chunk).to_bytes(4, "big")
    return content[:end_of_header] + marked + content[end_of_header:]


def write_error(path: str | os.PathLike[str], error: OSError) -> ResourceError:
    return ResourceError(f"{os.fspath(path)} cannot be written: {error.strerror}")


def read_error(path: str | os.PathLike[str], error: OSError) -> NoDataError | ResourceError:
    if isinstance(error, FileNotFoundError):
        return NoDataError(f"there is no file {os.fspath(path)}")
    return ResourceError(f"{os.fspath(path)} cannot be read: {error.strerror}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file, or of a URL: a device may be endless, a pipe silent.

    Raises: NoDataError, ResourceError.
    """
    filesystem, name = filesystem_of(os.fspath(path))
    if filesystem is not LOCAL:
        return bytes(filesystem.cat_file(name))
    try:
        if not stat.S_ISREG(os.stat(name).st_mode) and not os.path.isdir(name):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return Path(name).read_bytes()
    except OSError as error:
        raise read_error(path, error) from None


@contextmanager
def open_to_read(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """A file whose errors are ours. Raises: NoDataError, ResourceError."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise read_error(path, error) from None


def open_at_once(path: str, flags: int) -> int:
    """An opener for `open`: a pipe without a writer would wait for one."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_small(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file that people write, or of a pipe. Raises: InvalidInputError, NoDataError, ResourceError."""
    try:
        with open(as_path("path", path), "rb", opener=open_at_once) as file:
            if hasattr(os, "O_NONBLOCK"):
                os.set_blocking(file.fileno(), True)
            content = file.read(MAX_SMALL_BYTES + 1)
    except OSError as error:
        raise read_error(path, error) from None
    if len(content) > MAX_SMALL_BYTES:
        raise InvalidInputError(f"{os.fspath(path)} must have at most {MAX_SMALL_BYTES:,} bytes")
    return content


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file. Raises: InvalidInputError, NoDataError, ResourceError, CorruptFileError."""
    import tomllib

    content = read_small(path)
    is_sealed(content, path, len(SEALED_LINE))  # refuses a damaged copy of an experiment file
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not TOML: {error}") from None
