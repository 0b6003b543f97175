"""Downloads of data sets: resumed after a break, compared with the published checksums, then unpacked."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._files import atomic_write, data_folder, hold_lock, make_folder, write_error
from calibrant._paths import CONNECT_SECONDS, READ_SECONDS, first_line
from calibrant._progress import ProgressBar, no_bar
from calibrant._signatures import checked
from calibrant.data.archives import unpack
from calibrant.data.sources import ARCHIVES, Download
from calibrant.data.table import find_info
from calibrant.data.verify import check_file, file_digest, missing_files
from calibrant.errors import (
    CalibrantError,
    CorruptFileError,
    InvalidInputError,
    MissingExtraError,
    NoDataError,
    ResourceError,
)

if TYPE_CHECKING:
    import requests

CHUNK_BYTES = 2**18
MAX_REQUESTS = 10  # for one file; each must add bytes
RANGE_STATUS = (206, 416)  # the rest of a file, or that the file is shorter
SIZE_TOLERANCE = 2**20  # bytes; of a size that was published in blocks of a disk


@dataclass(frozen=True)
class FetchedFile:
    """A file that was downloaded, or put there by hand; sha256 is set where no checksum was published."""

    path: Path
    n_bytes: int
    sha256: str | None


@checked
def fetch(
    name: str, root: str | os.PathLike[str] | None = None, *, keep: bool = False, bar: ProgressBar = no_bar
) -> list[FetchedFile]:
    """Download and unpack the missing files of a data set.

    An archive that is in root/archives already is not downloaded.

    Args:
        name: The data set, or one of the published tests such as cifar10_c.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        keep: Keep archives after they were unpacked.
        bar: Opens a progress bar over the bytes of each task.

    Returns:
        The files that were downloaded; none where the data set is complete, with the published checksums where these
        are known.

    Raises:
        UnknownNameError: there is no data set of this name.
        NoDataError: a file cannot be downloaded.
        CorruptFileError: a file differs from the published one.
        ResourceError: a file cannot be written, or another process fetches the same data set.
        MissingExtraError: requests is not installed.
    """
    info, folder = find_info(name), data_folder(root)
    if name == "image_folder":
        raise InvalidInputError("image_folder is a folder of your own: there is nothing to fetch")
    if not missing_files(info.files, folder):
        if wrong := [finding for file in info.files if not (finding := check_file(folder, file)).ok]:
            raise wrong[0].error(name)
        return []
    make_folder(folder / ARCHIVES)
    # two processes that resume the same partial file would damage it
    with hold_lock(folder / ARCHIVES / f".{name}.lock", f"another process fetches into {folder}; wait for it"):
        needed = [download for download in info.downloads if missing_files(download.files, folder)]
        return [_fetch_file(download, folder, keep, bar) for download in needed]


def _fetch_file(download: Download, root: Path, keep: bool, bar: ProgressBar) -> FetchedFile:
    target = root / download.path
    if target.is_file():
        _check_published(target, download, ": remove it to fetch it")  # a user has put it there
    else:
        _download(download, target, bar)
    fetched = FetchedFile(target, target.stat().st_size, None if download.md5 else _record_sha256(target))
    if download.folder is not None:
        with bar(f"unpacking {target.name}", fetched.n_bytes) as advance:
            unpack(target, root / download.folder, advance)
        if missing := missing_files(download.files, root):
            raise CorruptFileError(f"{target} was unpacked, but {root / missing[0]} is missing or of another size")
        if not keep:
            target.unlink()
    return fetched


def _check_published(path: Path, download: Download, hint: str) -> None:
    """Compare a file with the published MD5, or with the approximate size where there is none."""
    n_bytes, about = path.stat().st_size, download.approximate_bytes
    if download.md5 is not None and (md5 := file_digest(path, "md5")) != download.md5:
        raise CorruptFileError(f"{path} has MD5 {md5}, the published file {download.md5}{hint}")
    if about is not None and abs(n_bytes - about) > SIZE_TOLERANCE:
        raise CorruptFileError(f"{path} has {n_bytes:,} bytes, the published file about {about:,}{hint}")


def _record_sha256(path: Path) -> str:
    """The SHA-256 of a file; it is written next to the file, or compared with the one recorded there."""
    found, note = file_digest(path, "sha256"), path.with_name(f"{path.name}.sha256")
    if not note.is_file():
        with atomic_write(note) as file:
            file.write(f"{found}  {path.name}\n".encode())
        return found
    known = note.read_text(errors="replace").split()[:1]
    if known != [found]:
        raise CorruptFileError(f"{path} has SHA-256 {found}, {note} says {' '.join(known)}: remove the wrong one")
    return found


def _download(download: Download, target: Path, bar: ProgressBar) -> None:
    """Download a file as .part, and rename it when it is complete and as published."""
    part = target.with_name(f"{target.name}.part")
    make_folder(target.parent)
    try:
        _fill(download.url, part, target, bar)
        _check_published(part, download, "; it was removed")
        part.replace(target)
    except CorruptFileError:
        part.unlink()  # not a part of the published file
        raise
    except CalibrantError:
        raise
    except OSError as error:
        raise write_error(target, error) from None


def _fill(url: str, part: Path, target: Path, bar: ProgressBar) -> None:
    """Request the rest of the partial file until it is complete, as long as each request adds bytes."""
    try:
        from requests import RequestException
        from urllib3.exceptions import HTTPError
    except ImportError:
        raise MissingExtraError(f"fetching {url} as {target}", "train") from None
    for _ in range(MAX_REQUESTS):
        before = _length(part)
        try:
            _request(url, part, bar)
            return
        except (RequestException, HTTPError) as error:
            reason = _reason(error)
            if _length(part) <= before:
                break
    raise NoDataError(
        f"{url} cannot be fetched ({reason}): run the same again to resume, or put the file by hand as {target}"
    )


def _request(url: str, part: Path, bar: ProgressBar) -> None:
    import requests

    done = _length(part)
    headers = {"Accept-Encoding": "identity"}  # the checksum is of the uncompressed response
    if done:
        headers["Range"] = f"bytes={done}-"
    with requests.get(url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)) as response:
        bounds = response.headers.get("Content-Range", "")
        if response.status_code == requests.codes.requested_range_not_satisfiable and bounds == f"bytes */{done}":
            return  # the file is complete
        if done and response.status_code in RANGE_STATUS and not bounds.startswith(f"bytes {done}-"):
            part.unlink()  # not a part of this file
            _request(url, part, bar)
            return
        response.raise_for_status()
        start = done if response.status_code == requests.codes.partial_content else 0
        _save_response(response, part, start, bar)


def _save_response(response: "requests.Response", part: Path, start: int, bar: ProgressBar) -> None:
    length = response.headers.get("Content-Length", "")
    left = int(length) if length.isdecimal() else 0
    free = shutil.disk_usage(part.parent).free
    if left > free:
        raise ResourceError(f"{part} cannot be written: {left:,} bytes do not fit in the {free:,} that are free")
    with bar(part.stem, start + left) as advance, part.open("ab" if start else "wb") as file:
        advance(start)
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            file.write(chunk)
            advance(len(chunk))


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _reason(error: BaseException) -> str:
    """The innermost cause of a failed request; the outer errors repeat the address."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    connected = type(error).__name__ != "ConnectTimeout"
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    if isinstance(error, TimeoutError):
        return f"the server was silent for {READ_SECONDS} s" if connected else f"no answer within {CONNECT_SECONDS} s"
    return first_line(error)
