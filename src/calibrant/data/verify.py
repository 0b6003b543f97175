"""What of a data set is there, and whether it is what was published: files, rows, images."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._files import data_folder
from calibrant._progress import Advance, ProgressBar, no_bar
from calibrant.corruptions.severities import PARAMETERS
from calibrant.data.base import DataSet
from calibrant.data.image_files import ImageFiles, read_image
from calibrant.data.sources import DatasetInfo, Wanted
from calibrant.data.table import DATASETS, all_infos, find_info, open_dataset
from calibrant.errors import CalibrantError, CorruptFileError, NoDataError
from calibrant.shifts import SEVERITIES


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; expected is None where nothing is known of it but that it must be there."""

    what: str
    found: str | int
    expected: str | int | None
    ok: bool
    first: str = ""  # the first that is wrong, of many

    def error(self, name: str) -> CalibrantError:
        """What is wrong with the data set of this name, in one line."""
        if self.found == "missing":
            return NoDataError(f"{name} is not complete: {self.what} is missing; calibrant data fetch {name} brings it")
        line = f"{name} is not in order: {self.what}: {counted(self.found)}"
        if self.expected is not None:
            line += f", expected {counted(self.expected)}"
        return CorruptFileError(f"{line}; {self.first}" if self.first else line)


def counted(value: str | int | None) -> str:
    """What was found or expected, as text."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else value


def locate(root: Path, wanted: Wanted) -> Path | None:
    """Where it is: a gzipped file may have been unpacked."""
    path = root / wanted.path
    if path.exists():
        return path
    return plain if path.suffix == ".gz" and (plain := path.with_suffix("")).exists() else None


def missing(wanted: Iterable[Wanted], root: Path) -> list[str]:
    """What is not there, or not as long as it should be; no file is opened."""
    places = {one: locate(root, one) for one in wanted}
    return [one.path for one, path in places.items() if path is None or _length_is_wrong(path, one)]


def is_here(name: str, root: str | os.PathLike[str] | None = None) -> bool:
    """Whether the files of a data set are where its reader looks for them."""
    folder = data_folder(root)
    if name == "image_folder":
        return (folder / "train").is_dir()
    return not missing(find_info(name).leaves, folder)


def describe_all(root: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """A record of each data set and published test, as JSON can hold it, and whether its files are below the root."""
    return [
        {
            "name": name,
            "n_classes": info.n_classes,
            "image_size": info.image_size,
            "splits": dict(info.splits),
            "shifts": dict(info.shifts),
            "corrupted": info.corrupted,
            "licence": info.licence,
            "urls": [download.url for download in info.downloads],
            "here": is_here(name, root),
        }
        for name, info in all_infos().items()
    ]


def digest(path: Path, algorithm: str) -> str:
    """The sum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def check_data(
    name: str, root: str | os.PathLike[str] | None = None, *, deep: bool = False, bar: ProgressBar = no_bar
) -> list[Finding]:
    """Hold the files of a data set against the published sums, and its splits against the official sizes.

    Every image that a split names must be there. Splits are opened where all files are in order.

    Args:
        name: The data set, or one of the published tests as cifar10_c.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        deep: Decode every image.
        bar: Opens a progress bar for each task.

    Returns:
        What was looked at, good or not, in order.
    """
    info, folder = find_info(name), data_folder(root)
    with bar("reading files", len(info.leaves)) as advance:
        findings = [_file(folder, wanted, advance) for wanted in info.leaves]
    if all(finding.ok for finding in findings):
        if name in DATASETS:
            findings += _splits(open_dataset(name, root), info, deep, bar)
        if info.per_cell is not None:
            place = folder / str(info.downloads[0].folder)
            findings += [_cells(place, corruption, info, deep, bar) for corruption in PARAMETERS]
    return findings


def _length_is_wrong(path: Path, wanted: Wanted) -> bool:
    return wanted.n_bytes is not None and path.stat().st_size != wanted.n_bytes


def _file(root: Path, wanted: Wanted, advance: Advance) -> Finding:
    path = locate(root, wanted)
    advance(1)
    if path is None:
        return Finding(wanted.path, "missing", _known(wanted.n_bytes, wanted.md5), False)
    if wanted.n_bytes is None and (wanted.md5 is None or path.suffix != Path(wanted.path).suffix):
        return Finding(str(path.relative_to(root)), "there", None, True)
    n_bytes = None if wanted.n_bytes is None else path.stat().st_size
    # a file of another length is another file: its sum would only take time
    md5 = None if wanted.md5 is None or n_bytes != wanted.n_bytes else digest(path, "md5")
    found = _known(n_bytes, md5)
    expected = _known(wanted.n_bytes, wanted.md5)
    return Finding(wanted.path, found, expected, found == expected)


def _known(n_bytes: int | None, md5: str | None) -> str:
    parts = [] if n_bytes is None else [f"{n_bytes:,} bytes"]
    return ", ".join(parts if md5 is None else [*parts, f"MD5 {md5}"]) or "there"


def _splits(data: DataSet, info: DatasetInfo, deep: bool, bar: ProgressBar) -> Iterator[Finding]:
    official = {**info.splits, **info.shifts}
    try:
        names = list(official) or data.clean
    except CalibrantError as error:  # a folder of one's own that is not there
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
        if isinstance(split.images, ImageFiles):
            yield _images(f"{name} images", split.images, deep, bar)


def _images(what: str, images: ImageFiles, deep: bool, bar: ProgressBar) -> Finding:
    paths = (images.folder / name.as_py() for name in images.names)
    good, first = _sound(what, paths, len(images), (images.size, images.channels) if deep else None, bar)
    return Finding(what, good, len(images), good == len(images), first)


def _sound(
    what: str, paths: Iterable[Path], total: int, decoded: tuple[int, int] | None, bar: ProgressBar
) -> tuple[int, str]:
    """How many of the images are there, or can be decoded to this size, and what is wrong with the first other."""
    good, first = 0, ""
    with bar(what, total) as advance:
        for path in paths:
            wrong = _fault(path, decoded)
            good, first = good + (not wrong), first or wrong
            advance(1)
    return good, first


def _fault(path: Path, decoded: tuple[int, int] | None) -> str:
    if decoded is None:
        return "" if path.is_file() else f"{path} is not there"
    try:
        read_image(path, *decoded)
    except CalibrantError as error:
        return str(error)
    return ""


def _cells(place: Path, corruption: str, info: DatasetInfo, deep: bool, bar: ProgressBar) -> Finding:
    """The images of a corruption in place/corruption/severity/class, all severities."""
    classes = [path for s in SEVERITIES for path in (place / corruption / str(s)).glob("*") if path.is_dir()]
    files = [path for folder in classes for path in sorted(folder.iterdir())]
    what = f"{place.name}/{corruption}"
    good, first = _sound(what, files, len(files), (info.image_size or 64, 3) if deep else None, bar)
    wanted_files, wanted_classes = len(SEVERITIES) * (info.per_cell or 0), len(SEVERITIES) * (info.n_classes or 0)
    found, expected = (
        f"{n_files:,} images in {n_folders:,} folders"
        for n_files, n_folders in ((good, len(classes)), (wanted_files, wanted_classes))
    )
    return Finding(what, found, expected, found == expected and not first, first)
