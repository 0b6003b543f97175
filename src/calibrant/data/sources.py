"""What is known of a data set before it is opened: its size, its licence, its downloads and what they leave behind."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from calibrant.corruptions.severities import PARAMETERS
from calibrant.data.base import DataSet

ARCHIVES = "archives"  # the folder below the root where archives wait to be unpacked
MD5SUMS = Path(__file__).parent / "files" / "MD5SUMS"  # as published, in the format of md5sum; paths below the root


@dataclass(frozen=True)
class Wanted:
    """A file or folder below the root that must be there, with its size and MD5 where they are known."""

    path: str
    n_bytes: int | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Download:
    """A file to fetch, its place below the root, and what it leaves behind there.

    An archive names the folder that it is unpacked into; any other file is the data itself. about_bytes is a size that
    was published in whole blocks of a disk, where no sum was.
    """

    url: str
    file: str
    leaves: tuple[Wanted, ...]
    folder: str | None = None
    md5: str | None = None
    about_bytes: int | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """An entry of the table: what is known of a data set, and how it is opened.

    Args:
        licence: The licence, as far as it is known.
        n_classes: The number of classes; None where the user's folder decides.
        image_size: The side of the images in pixels; None where the user decides.
        opens: Makes the data set that reads the files, from root and image_size.
        splits: The official number of rows of each split.
        shifts: The same of each shifted test, where these are not corruptions.
        downloads: What is to be fetched.
        corrupted: Whether the shifted tests are the nineteen corruptions at five severities.
        per_cell: Where each of these is a folder of images, how many it has.
    """

    licence: str
    n_classes: int | None
    image_size: int | None
    opens: Callable[..., DataSet]
    splits: Mapping[str, int] = field(default_factory=dict)
    shifts: Mapping[str, int] = field(default_factory=dict)
    downloads: tuple[Download, ...] = ()
    corrupted: bool = True
    per_cell: int | None = None

    @property
    def leaves(self) -> tuple[Wanted, ...]:
        """What all downloads together leave behind."""
        return tuple(wanted for download in self.downloads for wanted in download.leaves)


@cache
def published_md5() -> dict[str, str]:
    """The MD5 sums that were published, by the path of the file below the root."""
    lines = MD5SUMS.read_text(encoding="ascii").splitlines()
    return {path: md5 for md5, path in (line.split(maxsplit=1) for line in lines)}


def plain_files(url: str, folder: str, names: Iterable[str]) -> tuple[Download, ...]:
    """Files that are read as they are."""
    found = []
    for name in names:
        path = f"{folder}/{name}"
        md5 = published_md5()[path]
        found.append(Download(f"{url}/{name}", path, (Wanted(path, md5=md5),), md5=md5))
    return tuple(found)


def archive(
    url: str, file: str, folder: str, leaves: Mapping[str, int | None], about_bytes: int | None = None
) -> Download:
    """An archive that is unpacked into a folder; leaves: its files with their sizes, where these are known."""
    md5, path = published_md5(), f"{ARCHIVES}/{file}"
    placed = {f"{folder}/{name}": n_bytes for name, n_bytes in leaves.items()}
    wanted = tuple(Wanted(name, n_bytes, md5.get(name)) for name, n_bytes in placed.items())
    return Download(url, path, wanted, folder, None if about_bytes else md5[path], about_bytes)


def zenodo(record: int, file: str, folder: str, leaves: Mapping[str, int | None]) -> Download:
    """An archive of a record of Zenodo."""
    return archive(f"https://zenodo.org/records/{record}/files/{file}", file, folder, leaves)


def cifar_c(record: int, folder: str) -> tuple[Download, ...]:
    """CIFAR-10-C or CIFAR-100-C: one array of 50,000 images for each corruption, behind a head of 128 bytes."""
    sizes: dict[str, int | None] = {f"{name}.npy": 128 + 50_000 * 32 * 32 * 3 for name in PARAMETERS}
    return (zenodo(record, f"{folder}.tar", folder, {**sizes, "labels.npy": 128 + 50_000}),)
