"""Paths and URLs: what may name a file, and the file system that has it."""

import os
import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import fsspec
from fsspec.implementations.local import LocalFileSystem

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


def filesystem_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path in it; local paths stay as the user wrote them.

    Raises: InvalidInputError, NoDataError, ResourceError; the file systems of URLs raise these at every use.
    """
    if url.startswith(("http://", "https://")) and re.search(r"\s", url):
        raise InvalidInputError("a URL must not have spaces: write %20")  # and is not shown: where does its secret end?
    try:
        filesystem, path = fsspec.core.url_to_fs(check_path("path", url), **_time_limits(url))
    except (ValueError, ImportError) as error:
        raise InvalidInputError(f"{url} cannot be opened: {first_line(error)}") from None
    except (TypeError, AttributeError):  # it needs options that a URL cannot give, as dir:// and reference://
        raise InvalidInputError(f"{url} cannot be opened: such a URL does not name a file") from None
    except Exception as error:
        raise remote_error(url, error) from None
    if filesystem.protocol == "data":
        raise InvalidInputError(f"{url} cannot be opened: such a URL does not name a file")
    if isinstance(filesystem, LocalFileSystem):
        return filesystem, path if "://" in url else url
    return Remote(filesystem, url), path


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


def remote_error(url: str, error: BaseException) -> NoDataError | ResourceError:
    """What a server, a network or an archive says, in one line."""
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
