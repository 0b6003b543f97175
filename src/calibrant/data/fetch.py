"""Data sets fetched: downloads that resume where they broke off, held against their published sums, then unpacked."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._files import atomic_write, data_folder, first_line, hold_lock, make_folder
from calibrant._progress import ProgressBar, no_bar
from calibrant.data.archives import unpack
from calibrant.data.sources import ARCHIVES, Download
from calibrant.data.table import find_info
from calibrant.data.verify import digest, missing
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError

if TYPE_CHECKING:
    import requests

CHUNK_BYTES = 2**18
TIMEOUT = (20, 60)  # seconds to connect, and between bytes
MAX_TRIES = 10  # each of which must bring the file further
OF_A_RANGE = (206, 416)  # the rest of a file, or the answer that it is shorter
BLOCKS = 2**20  # how far a size that was published in blocks of a disk may be off


@dataclass(frozen=True)
class Arrival:
    """A file that was fetched, or lay ready; sha256 where no sum was published that it could be held against."""

    file: Path
    n_bytes: int
    sha256: str | None


def fetch(
    name: str, root: str | os.PathLike[str] | None = None, *, keep: bool = False, bar: ProgressBar = no_bar
) -> list[Arrival]:
    """Bring what a data set lacks into its place below the root; nothing where it is complete.

    An archive that lies in root/archives already is not fetched.

    Args:
        name: The data set, or one of the published tests as cifar10_c.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        keep: Leave archives there that were unpacked.
        bar: Opens a progress bar over the bytes of each task.

    Raises:
        NoDataError: a file cannot be fetched.
        CorruptFileError: a file is another than was published.
    """
    info, folder = find_info(name), data_folder(root)
    if name == "image_folder":
        raise InvalidInputError("image_folder is a folder of your own: there is nothing to fetch")
    if not missing(info.leaves, folder):
        return []
    make_folder(folder / ARCHIVES)
    # two processes that resumed the same partial file would spoil it
    with hold_lock(folder / ARCHIVES / f".{name}.lock", f"another process fetches into {folder}; wait for it"):
        wanting = [download for download in info.downloads if missing(download.leaves, folder)]
        return [_bring(download, folder, keep, bar) for download in wanting]


def _bring(download: Download, root: Path, keep: bool, bar: ProgressBar) -> Arrival:
    target = root / download.file
    if target.is_file():
        _check_published(target, download, ": remove it to fetch it")  # a user has put it there
    else:
        _download(download, target, bar)
    arrival = Arrival(target, target.stat().st_size, None if download.md5 else _note_sha256(target))
    if download.folder is not None:
        with bar(f"unpacking {target.name}", arrival.n_bytes) as advance:
            unpack(target, root / download.folder, advance)
        if lacking := missing(download.leaves, root):
            raise CorruptFileError(f"{target} was unpacked, but did not leave {root / lacking[0]} as it should be")
        if not keep:
            target.unlink()
    return arrival


def _check_published(path: Path, download: Download, remedy: str) -> None:
    """That a file has the MD5 that was published, or about the size where that is all that was."""
    n_bytes, about = path.stat().st_size, download.about_bytes
    if download.md5 is not None and (md5 := digest(path, "md5")) != download.md5:
        raise CorruptFileError(f"{path} has MD5 {md5}, the published file {download.md5}{remedy}")
    if about is not None and abs(n_bytes - about) > BLOCKS:
        raise CorruptFileError(f"{path} has {n_bytes:,} bytes, the published file about {about:,}{remedy}")


def _note_sha256(path: Path) -> str:
    """The sum of a file, which is written beside it, or held against the one that is there."""
    found, note = digest(path, "sha256"), path.with_name(f"{path.name}.sha256")
    if not note.is_file():
        with atomic_write(note) as file:
            file.write(f"{found}  {path.name}\n".encode())
        return found
    known = note.read_text(errors="replace").split()[:1]
    if known != [found]:
        raise CorruptFileError(f"{path} has SHA-256 {found}, {note} says {' '.join(known)}: remove the wrong one")
    return found


def _download(download: Download, target: Path, bar: ProgressBar) -> None:
    """Fetch a file beside its place, and rename it when it is whole and the published one."""
    part = target.with_name(f"{target.name}.part")
    make_folder(target.parent)
    try:
        _fill(download.url, part, target, bar)
        _check_published(part, download, "; it was removed")
        part.replace(target)
    except CorruptFileError:
        part.unlink()  # no beginning to resume from
        raise
    except CalibrantError:
        raise
    except OSError as error:
        raise NoDataError(f"{target} cannot be written: {error.strerror}") from None


def _fill(url: str, part: Path, target: Path, bar: ProgressBar) -> None:
    """Request what the partial file lacks until it is whole, as long as each request brings it further."""
    try:
        from requests import RequestException
        from urllib3.exceptions import HTTPError
    except ImportError:
        extra = "fetching needs the extra train: pip install 'calibrant[train]'"
        raise NoDataError(f"{extra}, or put {url} as {target}") from None
    for _ in range(MAX_TRIES):
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
    headers = {"Accept-Encoding": "identity"}  # the bytes as they are, of which the sum was published
    if done:
        headers["Range"] = f"bytes={done}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        bounds = answer.headers.get("Content-Range", "")
        if answer.status_code == requests.codes.requested_range_not_satisfiable and bounds == f"bytes */{done}":
            return  # nothing is left
        if done and answer.status_code in OF_A_RANGE and not bounds.startswith(f"bytes {done}-"):
            part.unlink()  # it is no beginning of this file
            _request(url, part, bar)
            return
        answer.raise_for_status()
        start = done if answer.status_code == requests.codes.partial_content else 0
        _write(answer, part, start, bar)


def _write(answer: "requests.Response", part: Path, start: int, bar: ProgressBar) -> None:
    length = answer.headers.get("Content-Length", "")
    left = int(length) if length.isdecimal() else 0
    free = shutil.disk_usage(part.parent).free
    if left > free:
        raise NoDataError(f"{part} cannot be written: {left:,} bytes do not fit in the {free:,} that are free")
    with bar(part.stem, start + left) as advance, part.open("ab" if start else "wb") as file:
        advance(start)
        for chunk in answer.raw.stream(CHUNK_BYTES, decode_content=False):
            file.write(chunk)
            advance(len(chunk))


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _reason(error: BaseException) -> str:
    """What lies at the bottom of a failed request: the layers above it repeat the address."""
    answer = getattr(error, "response", None)
    if answer is not None:
        return f"HTTP {answer.status_code}"
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return first_line(error)
