"""Data sets fetched: downloads that go on where they broke off, held against their published sums, then unpacked."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._files import alone, data_folder, first_line, make_folder, replacing
from calibrant.data.archives import unpack
from calibrant.data.sources import ARCHIVES, Download
from calibrant.data.verify import Watch, digest, find_source, missing, unwatched
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError

if TYPE_CHECKING:
    import requests

CHUNK = 2**18
TIMEOUT = (20, 60)  # seconds to connect, and between bytes
MOST_TRIES = 10  # each of which must bring the file further
OF_A_RANGE = (206, 416)  # the rest of a file, or the answer that it is shorter
BLOCKS = 2**20  # how far a size that was published in blocks of a disk may be off


@dataclass(frozen=True)
class Arrival:
    """A file that was fetched, or lay ready; sha256 where no sum was published that it could be held against."""

    file: Path
    n_bytes: int
    sha256: str | None


def fetch(
    name: str, root: str | os.PathLike[str] | None = None, *, keep: bool = False, watch: Watch = unwatched
) -> list[Arrival]:
    """Bring what a data set lacks into its place below the root; nothing where it is complete.

    An archive that lies in root/archives already is not fetched. keep: leave archives there that were unpacked. watch:
    is told of each task and its bytes.

    Raises: NoDataError where a file cannot be fetched, CorruptFileError where it is another than was published.
    """
    source, folder = find_source(name), data_folder(root)
    if name == "image_folder":
        raise InvalidInputError("image_folder is a folder of your own: there is nothing to fetch")
    if not missing(source.leaves, folder):
        return []
    make_folder(folder / ARCHIVES)
    # two processes that went on with the same partial file would spoil it
    with alone(folder / ARCHIVES / f".{name}.lock", f"another process fetches into {folder}; wait for it"):
        wanting = [download for download in source.downloads if missing(download.leaves, folder)]
        return [_bring(download, folder, keep, watch) for download in wanting]


def _bring(download: Download, root: Path, keep: bool, watch: Watch) -> Arrival:
    target = root / download.file
    if target.is_file():
        _check_md5(target, download)
    else:
        _download(download, target, watch)
    arrival = Arrival(target, target.stat().st_size, None if download.md5 else _note_sha256(target))
    if download.folder is not None:
        with watch(f"unpacking {target.name}", arrival.n_bytes) as report:
            unpack(target, root / download.folder, report)
        if lacking := missing(download.leaves, root):
            raise CorruptFileError(f"{target} was unpacked, but did not leave {root / lacking[0]} as it should be")
        if not keep:
            target.unlink()
    return arrival


def _check_md5(target: Path, download: Download) -> None:
    """Of a file that a user has put there, which is for the user to remove."""
    if download.md5 is None:
        _check_length(target, download)
    elif (md5 := digest(target, "md5")) != download.md5:
        raise CorruptFileError(f"{target} has MD5 {md5}, the published file {download.md5}: remove it to fetch it")


def _check_length(path: Path, download: Download) -> None:
    n_bytes, exact, about = path.stat().st_size, download.n_bytes, download.about_bytes
    if exact is not None and n_bytes != exact:
        raise CorruptFileError(f"{path} has {n_bytes:,} bytes, the published file {exact:,}")
    if about is not None and abs(n_bytes - about) > BLOCKS:
        raise CorruptFileError(f"{path} has {n_bytes:,} bytes, the published file about {about:,}")


def _note_sha256(path: Path) -> str:
    """The sum of a file, which is written beside it, or held against the one that is there."""
    found, note = digest(path, "sha256"), path.with_name(f"{path.name}.sha256")
    if not note.is_file():
        with replacing(note) as file:
            file.write(f"{found}  {path.name}\n".encode())
        return found
    known = note.read_text(errors="replace").split()[:1]
    if known != [found]:
        raise CorruptFileError(f"{path} has SHA-256 {found}, {note} says {' '.join(known)}: remove the wrong one")
    return found


def _download(download: Download, target: Path, watch: Watch) -> None:
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError:
        raise NoDataError(
            f"fetching needs the extra train: pip install 'calibrant[train]', or put {download.url} as {target}"
        ) from None
    pooch.get_logger().setLevel("WARNING")  # it would talk on standard error
    make_folder(target.parent)
    part = target.with_name(f"{target.name}.part")

    def bring(url: str, output: object, _pooch: object) -> None:
        _fill(url, part, target, watch)
        _check_part(part, download)
        os.replace(part, str(output))

    known = None if download.md5 is None else f"md5:{download.md5}"
    try:
        pooch.retrieve(download.url, known, target.name, target.parent.resolve(), downloader=bring)
    except CalibrantError:
        raise
    except ValueError as error:  # pooch has removed the file
        md5 = re.search(r"got (\w+)", str(error))
        got = f"has MD5 {md5[1]}" if md5 else first_line(error)
        raise CorruptFileError(f"{download.url} {got}, the published file {download.md5}; it was removed") from None
    except OSError as error:
        raise NoDataError(f"{target} cannot be written: {first_line(error)}") from None


def _check_part(part: Path, download: Download) -> None:
    """A file of the wrong length is no beginning to go on from."""
    try:
        _check_length(part, download)
    except CorruptFileError as error:
        part.unlink()
        raise CorruptFileError(f"{error}; it was removed") from None


def _fill(url: str, part: Path, target: Path, watch: Watch) -> None:
    """Request what the partial file lacks until it is whole, as long as each request brings it further."""
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    for _ in range(MOST_TRIES):
        before = _length(part)
        try:
            _request(url, part, watch)
        except (RequestException, HTTPError) as error:
            reason = _reason(error)
            if _length(part) <= before:
                break
        except CalibrantError:
            raise
        except OSError as error:
            raise NoDataError(f"{part} cannot be written: {error.strerror}") from None
        else:
            return
    raise NoDataError(
        f"{url} cannot be fetched ({reason}): run the same again to go on, or put the file by hand as {target}"
    )


def _request(url: str, part: Path, watch: Watch) -> None:
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
            _request(url, part, watch)
            return
        answer.raise_for_status()
        start = done if answer.status_code == requests.codes.partial_content else 0
        _write(answer, part, start, watch)


def _write(answer: "requests.Response", part: Path, start: int, watch: Watch) -> None:
    length = answer.headers.get("Content-Length", "")
    left = int(length) if length.isdecimal() else 0
    free = shutil.disk_usage(part.parent).free
    if left > free:
        raise NoDataError(f"{part} cannot be written: {left:,} bytes do not fit in the {free:,} that are free")
    with watch(part.stem, start + left) as report, part.open("ab" if start else "wb") as file:
        report(start)
        for chunk in answer.raw.stream(CHUNK, decode_content=False):
            file.write(chunk)
            report(len(chunk))


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
