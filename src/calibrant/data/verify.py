"""What of a data set is there, and whether it is what was published: files, rows, pictures."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from calibrant._checks import check_choice
from calibrant._files import data_folder
from calibrant.corruptions import CORRUPTIONS
from calibrant.data.archives import Report
from calibrant.data.base import CORRUPTED, SEVERITIES, DataSet
from calibrant.data.pictures import Pictures, read_picture
from calibrant.data.sources import SOURCES, Source, Wanted
from calibrant.data.table import open_dataset
from calibrant.errors import CalibrantError

Watch = Callable[[str, int], AbstractContextManager[Report]]  # a task and its length; a bar, say


@contextmanager
def unwatched(_task: str, _total: int) -> Iterator[Report]:
    yield lambda done: None


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; expected is None where nothing is known of it but that it must be there."""

    what: str
    found: str | int
    expected: str | int | None
    ok: bool
    first: str = ""  # the first that is wrong, of many


def find_source(name: str) -> Source:
    return SOURCES[check_choice("data", name, SOURCES)]


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
    return not missing(find_source(name).leaves, folder)


def digest(path: Path, algorithm: str) -> str:
    """The sum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def check_data(
    name: str, root: str | os.PathLike[str] | None = None, *, deep: bool = False, watch: Watch = unwatched
) -> list[Finding]:
    """Hold the files of a data set against the published sums, and its splits against the official sizes.

    Every picture that a split names must be there; deep decodes each. Splits are opened where all files are in order.
    """
    source, folder = find_source(name), data_folder(root)
    with watch("reading files", len(source.leaves)) as report:
        findings = [_file(folder, wanted, report) for wanted in source.leaves]
    if all(finding.ok for finding in findings):
        if source.reads:
            findings += _splits(open_dataset(name, root), source, deep, watch)
        if source.per_cell is not None:
            place = folder / str(source.downloads[0].folder)
            findings += [_cells(place, corruption, source, deep, watch) for corruption in CORRUPTIONS]
    return findings


def _length_is_wrong(path: Path, wanted: Wanted) -> bool:
    return wanted.n_bytes is not None and path.stat().st_size != wanted.n_bytes


def _file(root: Path, wanted: Wanted, report: Report) -> Finding:
    path = locate(root, wanted)
    report(1)
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


def _splits(data: DataSet, source: Source, deep: bool, watch: Watch) -> Iterator[Finding]:
    official = {**source.splits, **source.shifts}
    try:
        names = list(official) or [*data.splits, *(shift for shift in data.shifts if shift not in CORRUPTED)]
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
        if isinstance(split.images, Pictures):
            yield _pictures(f"{name} pictures", split.images, deep, watch)


def _pictures(what: str, pictures: Pictures, deep: bool, watch: Watch) -> Finding:
    paths = (pictures.folder / name.as_py() for name in pictures.names)
    good, first = _sound(what, paths, len(pictures), (pictures.size, pictures.channels) if deep else None, watch)
    return Finding(what, good, len(pictures), good == len(pictures), first)


def _sound(
    what: str, paths: Iterable[Path], total: int, decoded: tuple[int, int] | None, watch: Watch
) -> tuple[int, str]:
    """How many of the pictures are there, or can be decoded to this size, and what is wrong with the first other."""
    good, first = 0, ""
    with watch(what, total) as report:
        for path in paths:
            wrong = _fault(path, decoded)
            good, first = good + (not wrong), first or wrong
            report(1)
    return good, first


def _fault(path: Path, decoded: tuple[int, int] | None) -> str:
    if decoded is None:
        return "" if path.is_file() else f"{path} is not there"
    try:
        read_picture(path, *decoded)
    except CalibrantError as error:
        return str(error)
    return ""


def _cells(place: Path, corruption: str, source: Source, deep: bool, watch: Watch) -> Finding:
    """The pictures of a corruption in place/corruption/severity/class, all severities."""
    classes = [path for s in SEVERITIES for path in (place / corruption / str(s)).glob("*") if path.is_dir()]
    files = [path for folder in classes for path in sorted(folder.iterdir())]
    what = f"{place.name}/{corruption}"
    good, first = _sound(what, files, len(files), (source.image_size or 64, 3) if deep else None, watch)
    wanted_files, wanted_classes = len(SEVERITIES) * (source.per_cell or 0), len(SEVERITIES) * (source.n_classes or 0)
    found, expected = (
        f"{n_files:,} pictures in {n_folders:,} folders"
        for n_files, n_folders in ((good, len(classes)), (wanted_files, wanted_classes))
    )
    return Finding(what, found, expected, found == expected and not first, first)
