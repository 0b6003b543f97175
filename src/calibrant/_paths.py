"""Paths and URLs: what may name a file, and the file system that has it."""

import glob
import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self

from calibrant.errors import InvalidInputError, NoDataError, ResourceError

MAX_NAME = 255  # bytes, of Linux, macOS and Windows
CONNECT_SECONDS, READ_SECONDS = 10, 30  # to wait for a web server, and for more of its answer
REASONS = {  # of errors that have no message
    "InvalidUrlClientError": "it is not a URL",
    "NotImplementedError": "such a URL can only be read",
    "TooManyRedirects": "it redirects without end",
}


def check_path(argument: str, value: object) -> str:
    """A path or URL that a file may have: not empty, of characters that file systems know, in names not too long."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(path, str) or not path or "\0" in path or not _encodes(path):
        raise InvalidInputError(f"{argument} must be a path, got {value!r}")
    if "://" not in path and max(map(len, os.fsencode(path).split(os.fsencode(os.sep)))) > MAX_NAME:
        raise InvalidInputError(f"{argument} must be a path of names of at most {MAX_NAME} bytes, got {path}")
    return path


def as_path(argument: str, value: object) -> Path:
    return Path(check_path(argument, value))


def _encodes(path: str) -> bool:
    try:
        return bool(os.fsencode(path))
    except UnicodeEncodeError:
        return False


def check_source(path: str | Path) -> None:
    """Raises: NoDataError where it is neither a folder nor a file."""
    if not (os.path.isdir(path) or os.path.isfile(path)):
        raise NoDataError(f"{path} is neither a folder nor a file")


def check_exists(*paths: str | os.PathLike[str] | None) -> None:
    """Check that local files exist, before the libraries that read them are imported. Raises: NoDataError."""
    for path in paths:
        name = "" if path is None else os.fspath(path)
        try:
            if name and not _is_url(name):
                os.lstat(name)
        except FileNotFoundError:
            if not any(glob.iglob(name, recursive=True)):
                raise NoDataError(f"there is no file {name}") from None
        except (OSError, ValueError):
            pass  # the message of who reads the file says more


class LocalFiles:
    """The methods of a file system of fsspec that are called for any; fsspec itself takes long to import."""

    open = staticmethod(open)
    isfile = staticmethod(os.path.isfile)
    isdir = staticmethod(os.path.isdir)
    size = staticmethod(os.path.getsize)
    makedirs = staticmethod(os.makedirs)

    @staticmethod
    def cat_file(path: str, start: int, end: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(end - start)


LOCAL = LocalFiles()


def filesystem_of(url: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it: LOCAL with the path as the user wrote it, or of fsspec.

    Raises: InvalidInputError, NoDataError, ResourceError; the file systems of URLs raise these at every use.
    """
    if url.startswith(("http://", "https://")) and re.search(r"\s", url):
        raise InvalidInputError("a URL must not have spaces: write %20")  # and is not shown: where does its secret end?
    check_path("path", url)
    if not _is_url(url):
        return LOCAL, url
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    try:
        filesystem, path = fsspec.core.url_to_fs(url, **_time_limits(url))
    except (ValueError, ImportError) as error:
        raise InvalidInputError(f"{url} cannot be opened: {first_line(error)}") from None
    except (TypeError, AttributeError):  # it needs options that a URL cannot give, as dir:// and reference://
        raise InvalidInputError(f"{url} cannot be opened: such a URL does not name a file") from None
    except Exception as error:
        raise remote_error(url, error) from None
    if filesystem.protocol == "data":
        raise InvalidInputError(f"{url} cannot be opened: such a URL does not name a file")
    if isinstance(filesystem, LocalFileSystem):
        return LOCAL, path if "://" in url else url
    return Remote(filesystem, url), path


def _is_url(path: str) -> bool:
    """Whether a path is one for fsspec; a chain has ::."""
    return "://" in path or "::" in path or path.startswith("data:")


class Remote:
    """A file system of fsspec, or an open file of one; what any package below it raises becomes one of our errors."""

    def __init__(self, wrapped: Any, url: str) -> None:
        self._wrapped, self._url = wrapped, url

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            found = method(*args, **options)
        except Exception as error:  # of aiohttp, requests, botocore, huggingface_hub, zipfile, …
            raise remote_error(self._url, error) from None
        return Remote(found, self._url) if hasattr(found, "readinto") else found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def find_files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files of paths, globs, folders and URLs, each once, in the given order. Raises: NoDataError."""
    names = [check_path("paths", path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not names:
        raise InvalidInputError("paths must name at least one file")
    found: dict[str, str] = {}  # by absolute URL
    for name in names:
        for url in _expand(name):
            found.setdefault(absolute_url(url), url)
    return list(found.values())


def absolute_url(url: str) -> str:
    """The absolute path, without links, or URL."""
    filesystem, path = filesystem_of(url)
    return os.path.realpath(path) if filesystem is LOCAL else str(filesystem.unstrip_protocol(path))


def _expand(name: str) -> list[str]:
    filesystem, path = filesystem_of(name)
    if filesystem.isfile(path):  # also where its name has the characters of a glob
        return [name]
    folder = filesystem.isdir(path)
    below = glob.escape(path.rstrip("/"))
    for pattern in (
        [f"{below}/**/*.parquet", f"{below}/part-*"] if folder else [path]
    ):  # part-… of Spark, as CSV or JSON
        if filesystem is LOCAL:
            found = sorted(file for file in glob.glob(pattern, recursive=True) if os.path.isfile(file))
        else:
            found = sorted(filesystem.unstrip_protocol(f) for f in filesystem.glob(pattern) if filesystem.isfile(f))
        if found:
            return found
    if folder:
        raise NoDataError(f"there is no .parquet file in {name}, and no part-… of Spark; name the files, or a pattern")
    if filesystem is not LOCAL:
        filesystem.info(path)  # raises the answer of a server, which isfile takes for no
    raise NoDataError(f"there is no file {name}")


def remote_error(url: str, error: BaseException) -> NoDataError | ResourceError:
    """What a server, a network or an archive says, in one line."""
    from http import HTTPStatus

    chain = [error]  # fsspec raises FileNotFoundError from the answer of a server, requests repeats its cause
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    answers = [getattr(e, "status", None) or getattr(getattr(e, "response", None), "status_code", None) for e in chain]
    status = next(filter(None, answers), None)
    refusal = next((e for e in reversed(chain) if isinstance(e, OSError) and e.errno and e.strerror), None)
    if status in (401, 403):
        return ResourceError(f"{url} cannot be opened: access is refused (HTTP {status})")
    if status in (404, 410) or isinstance(refusal or chain[-1], FileNotFoundError):
        return NoDataError(f"there is no file {url}")
    if status is not None:
        phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else "an unknown status"
        return ResourceError(f"{url} cannot be opened: the server says {status} {phrase}")
    if any(isinstance(e, TimeoutError) for e in chain):
        return ResourceError(f"{url} cannot be read: the server was silent for {READ_SECONDS} s")
    if refusal is not None:
        return ResourceError(f"{url} cannot be opened: {refusal.strerror}")
    error = next(e for e in chain if not isinstance(e, FileNotFoundError))
    return ResourceError(f"{url} cannot be opened: {REASONS.get(type(error).__name__) or first_line(error)}")


def _time_limits(url: str) -> dict[str, Any]:
    """The options of fsspec that limit how long a web server may be silent; by default it is minutes."""
    protocols = [protocol for protocol in ("http", "https") if f"{protocol}://" in url]
    if not protocols:
        return {}
    from aiohttp import ClientTimeout

    timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
    return {protocol: {"client_kwargs": {"timeout": timeout}} for protocol in protocols}


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
