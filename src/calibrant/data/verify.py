"""Which files of a data set are present, and whether files, rows and images are those that were published."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._files import data_folder
from calibrant._names import CORRUPTIONS
from calibrant._paths import first_line
from calibrant._progress import ProgressBar, no_bar
from calibrant._signatures import checked
from calibrant.data.sources import DatasetInfo, ExpectedFile
from calibrant.data.table import DATASETS, all_infos, find_info, open_dataset
from calibrant.errors import CalibrantError, CorruptFileError, NoDataError
from calibrant.shifts import SEVERITIES

if TYPE_CHECKING:
    from calibrant.data.base import DataSet

OTHER_BYTES = "not the published bytes: rows in another order make other splits"
LISTED_FACTS = ("n_classes", "image_size", "splits", "shifts", "corrupted", "licence")


@dataclass(frozen=True)
class Finding:
    """A check of a data set; expected is None where only the presence is known, first is the first of many problems."""

    what: str
    found: str | int
    expected: str | int | None
    ok: bool
    first: str = ""

    def error(self, name: str) -> CalibrantError:
        """The problem with the data set of this name, in one line."""
        if self.found == "missing":
            return NoDataError(f"{name} is not complete: {self.what} is missing; run calibrant data fetch {name}")
        line = f"{name} is not as published: {self.what}: {format_count(self.found)}"
        if self.expected is not None:
            line += f", expected {format_count(self.expected)}"
        return CorruptFileError(f"{line}; {self.first}" if self.first else line)


def format_count(value: str | int | None) -> str:
    """A value of a finding as text."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else value


def find_file(root: Path, file: ExpectedFile) -> Path | None:
    """The path of a file, which may have been unpacked if it is gzipped; None where it is missing."""
    path = root / file.path
    candidates = (path, path.with_suffix("")) if path.suffix == ".gz" else (path,)
    return next((one for one in candidates if one.exists()), None)


def missing_files(files: Iterable[ExpectedFile], root: Path) -> list[str]:
    """The files that are missing or of another length; no file is opened."""
    found = {file: find_file(root, file) for file in files}
    return [
        file.path
        for file, path in found.items()
        if path is None or (file.n_bytes is not None and path.stat().st_size != file.n_bytes)
    ]


def is_here(name: str, root: str | os.PathLike[str] | None = None) -> bool:
    """Whether the files of a data set are below the root."""
    folder = data_folder(root)
    if name == "image_folder":
        return (folder / "train").is_dir()
    return not missing_files(find_info(name).files, folder)


def describe_all(root: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """A JSON record of each data set and published test, with whether its files are below the root."""
    return [
        {"name": name}
        | {key: getattr(info, key) for key in LISTED_FACTS}
        | {"urls": [download.url for download in info.downloads], "here": is_here(name, root)}
        for name, info in all_infos().items()
    ]


def file_digest(path: Path, algorithm: str) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


@checked
def check_data(
    name: str, root: str | os.PathLike[str] | None = None, *, deep: bool = False, bar: ProgressBar = no_bar
) -> list[Finding]:
    """Compare the files of a data set with the published checksums, and its splits with the official sizes.

    Every image that a split names must be present. Splits are opened if all files are as published.

    Args:
        name: The data set, or one of the published tests such as cifar10_c.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        deep: Decode every image.
        bar: Opens a progress bar for each task.

    Returns:
        A finding for each check, good or not, in order.

    Raises:
        UnknownNameError: there is no data set of this name.
    """
    info, folder = find_info(name), data_folder(root)
    with bar("reading files", len(info.files)) as advance:
        findings = []
        for file in info.files:
            findings.append(check_file(folder, file))
            advance(1)
    if all(finding.ok for finding in findings):
        if name in DATASETS:
            findings += _check_splits(open_dataset(name, root), info, deep, bar)
        if info.n_per_shift is not None:
            tests = folder / str(info.downloads[0].folder)
            findings += [_check_corruption(tests / corruption, info, deep, bar) for corruption in CORRUPTIONS]
    return findings


def is_published(name: str, root: str | os.PathLike[str] | None = None) -> bool | None:
    """Whether the files of a data set have the published bytes, without opening its splits.

    Args:
        name: The data set.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.

    Returns:
        None where a file is missing or has no known checksum, or nothing was published.

    Raises:
        UnknownNameError: there is no data set of this name.
    """
    info, folder = find_info(name), data_folder(root)
    if not info.splits or any(file.md5 is None or find_file(folder, file) is None for file in info.files):
        return None
    return all(check_file(folder, file).ok for file in info.files)


def check_file(root: Path, file: ExpectedFile) -> Finding:
    """Compare a file with its published size and checksum, where these are known."""
    path = find_file(root, file)
    expected = _describe_file(file.n_bytes, file.md5)
    if path is None:
        return Finding(file.path, "missing", expected, False)
    what = path.relative_to(root).as_posix()
    if file.n_bytes is None and file.md5 is None:
        return Finding(what, "there, not verified", None, True)
    n_bytes = None if file.n_bytes is None else path.stat().st_size
    if n_bytes != file.n_bytes:  # its checksum would only take time
        return Finding(what, _describe_file(n_bytes, None), expected, False)
    try:
        found = _describe_file(n_bytes, None if file.md5 is None else _content_md5(path))
    except (OSError, EOFError, zlib.error) as error:
        return Finding(what, f"cannot be read: {first_line(error)}", expected, False)
    return Finding(what, found, expected, found == expected, "" if found == expected else OTHER_BYTES)


def _content_md5(path: Path) -> str:
    """The MD5 of a file, unpacked if it is gzipped."""
    if path.suffix != ".gz":
        return file_digest(path, "md5")
    return hashlib.md5(gzip.decompress(path.read_bytes()), usedforsecurity=False).hexdigest()


def _describe_file(n_bytes: int | None, md5: str | None) -> str:
    parts = [] if n_bytes is None else [f"{n_bytes:,} bytes"]
    return ", ".join(parts if md5 is None else [*parts, f"MD5 {md5}"]) or "there"


def _check_splits(data: "DataSet", info: DatasetInfo, deep: bool, bar: ProgressBar) -> Iterator[Finding]:
    from calibrant.data.image_files import ImageFiles

    official = {**info.splits, **info.shifts}
    try:
        names = list(official) or data.clean
    except CalibrantError as error:  # a user's folder that is missing
        yield Finding("splits", str(error), None, False)
        return
    for name in names:
        expected = official.get(name)
        try:
            split = data.split(name)
        except CalibrantError as error:
            yield Finding(f"{name} rows", str(error), expected, False)
            continue
        yield Finding(f"{name} rows", len(split), expected, expected in (None, len(split)))
        if isinstance(images := split.images, ImageFiles):
            what, paths = f"{name} images", (images.folder / file.as_py() for file in images.names)
            size = (images.size, images.channels) if deep else None
            good, first = _count_images(what, paths, len(images), size, bar)
            yield Finding(what, good, len(images), good == len(images), first)


def _check_corruption(folder: Path, info: DatasetInfo, deep: bool, bar: ProgressBar) -> Finding:
    """The images of a corruption in folder/severity/class, all severities together."""
    classes = [path for s in SEVERITIES for path in (folder / str(s)).glob("*") if path.is_dir()]
    files = [path for one in classes for path in sorted(one.iterdir())]
    what = f"{folder.parent.name}/{folder.name}"
    good, first = _count_images(what, files, len(files), (info.image_size or 64, 3) if deep else None, bar)
    n_expected, n_classes = len(SEVERITIES) * (info.n_per_shift or 0), len(SEVERITIES) * (info.n_classes or 0)
    found = f"{good:,} images in {len(classes):,} folders"
    expected = f"{n_expected:,} images in {n_classes:,} folders"
    return Finding(what, found, expected, found == expected and not first, first)


def _count_images(
    what: str, paths: Iterable[Path], total: int, decoded: tuple[int, int] | None, bar: ProgressBar
) -> tuple[int, str]:
    """The number of images that are present, or can be decoded to a size and channels, and the first problem."""
    from calibrant.data.image_files import read_image

    good, first = 0, ""
    with bar(what, total) as advance:
        for path in paths:
            try:
                if decoded is not None:
                    read_image(path, *decoded)
                elif not path.is_file():
                    raise NoDataError(f"{path} is not there")
                good += 1
            except CalibrantError as error:
                first = first or str(error)
            advance(1)
    return good, first
