"""What is known of a data set before it is opened: its size, its licence, its downloads and their files."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant._names import CORRUPTIONS

if TYPE_CHECKING:
    from calibrant.data.base import DataSet

ARCHIVES = "archives"  # the folder below the root that archives are downloaded to
MD5SUMS = Path(__file__).parent / "files" / "MD5SUMS"  # in the format of md5sum; paths below the root


@dataclass(frozen=True)
class ExpectedFile:
    """A file or folder below the root that a data set needs, with its size and MD5 where they are known."""

    path: str
    n_bytes: int | None = None
    md5: str | None = None  # of a gzipped file that of its content, which may be packed again or not at all


@dataclass(frozen=True)
class Download:
    """A file to download to a path below the root, and the files that it provides there.

    An archive names the folder that it is unpacked into; any other file is the data itself. approximate_bytes is a size
    that was published in blocks of a disk, without a checksum.
    """

    url: str
    path: str
    files: tuple[ExpectedFile, ...]
    folder: str | None = None
    md5: str | None = None
    approximate_bytes: int | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """An entry of `DATASETS`: what is known of a data set, and how it is opened.

    Args:
        licence: The licence, as far as it is known.
        n_classes: The number of classes; None where the user's folder decides.
        image_size: The side of the images in pixels; None where the user decides.
        opens: opens(root, image_size=...) returns the `DataSet` that reads the files.
        splits: The official number of rows of each split.
        shifts: The same of each shifted test, where these are not corruptions.
        downloads: The files to download.
        corrupted: Whether the shifted tests are the nineteen corruptions at five severities.
        n_per_shift: The number of images of each, where each is a folder of images.
    """

    licence: str
    n_classes: int | None
    image_size: int | None
    opens: "Callable[..., DataSet]"
    splits: Mapping[str, int] = field(default_factory=dict)
    shifts: Mapping[str, int] = field(default_factory=dict)
    downloads: tuple[Download, ...] = ()
    corrupted: bool = True
    n_per_shift: int | None = None

    @property
    def files(self) -> tuple[ExpectedFile, ...]:
        """The files that all downloads together provide."""
        return tuple(file for download in self.downloads for file in download.files)


@cache
def published_md5() -> dict[str, str]:
    """The MD5 checksums of published files and of their contents, by the path below the root."""
    lines = MD5SUMS.read_text(encoding="ascii").splitlines()
    return {path: md5 for md5, path in (line.split(maxsplit=1) for line in lines)}


def plain_files(url: str, folder: str, names: Iterable[str]) -> tuple[Download, ...]:
    """Files that are read as they are."""
    paths = {name: f"{folder}/{name}" for name in names}
    md5 = published_md5()
    return tuple(
        Download(f"{url}/{name}", path, (ExpectedFile(path, md5=md5[path.removesuffix(".gz")]),), md5=md5[path])
        for name, path in paths.items()
    )


def archive(
    url: str, file: str, folder: str, files: Mapping[str, int | None], approximate_bytes: int | None = None
) -> Download:
    """An archive that is unpacked into a folder; files: those needed, with their sizes where these are known."""
    md5, path = published_md5(), f"{ARCHIVES}/{file}"
    paths = {f"{folder}/{name}": n_bytes for name, n_bytes in files.items()}
    expected = tuple(ExpectedFile(name, n_bytes, md5.get(name)) for name, n_bytes in paths.items())
    return Download(
        url=url,
        path=path,
        files=expected,
        folder=folder,
        md5=None if approximate_bytes else md5[path],
        approximate_bytes=approximate_bytes,
    )


def zenodo(record: int, file: str, folder: str, files: Mapping[str, int | None]) -> Download:
    """An archive of a record of Zenodo."""
    return archive(f"https://zenodo.org/records/{record}/files/{file}", file, folder, files)


def cifar_c(record: int, folder: str) -> tuple[Download, ...]:
    """CIFAR-10-C or CIFAR-100-C: an array of 50,000 images for each corruption, behind a header of 128 bytes."""
    sizes: dict[str, int | None] = {f"{name}.npy": 128 + 50_000 * 32 * 32 * 3 for name in CORRUPTIONS}
    return (zenodo(record, f"{folder}.tar", folder, {**sizes, "labels.npy": 128 + 50_000}),)
