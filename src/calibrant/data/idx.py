"""The IDX files of MNIST and Fashion-MNIST, plain or gzipped: a magic number, the sizes, then bytes."""

import gzip
import os
import zlib
from math import prod
from typing import BinaryIO

import torch
from torch import Tensor

from calibrant._files import read_error
from calibrant._names import check_choice
from calibrant._paths import as_path
from calibrant._signatures import checked
from calibrant.data.layouts import IDX_KINDS
from calibrant.errors import CorruptFileError, NoDataError

UNSIGNED_BYTES = 0x08
MAX_VALUES = 2**31  # in a file: those of MNIST have 47 million


@checked
def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """Read an IDX file of unsigned bytes.

    Args:
        path: The file, plain or gzipped.

    Returns:
        The array, uint8.

    Raises:
        NoDataError: the file is not there.
        CorruptFileError: it is not an IDX file of unsigned bytes.
    """
    try:
        with as_path("path", path).open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return _read_array(gzip.open(file) if zipped else file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise CorruptFileError(f"{path} is not a complete gzip file") from None
    except OSError as error:
        raise read_error(path, error) from None


def _read_array(file: BinaryIO | gzip.GzipFile, path: str | os.PathLike[str]) -> Tensor:
    """As many bytes as the sizes say, and no more are read: a small file may unzip to a very large one."""
    magic = file.read(4)
    sizes = file.read(4 * magic[3]) if len(magic) == 4 else b""
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != UNSIGNED_BYTES or len(sizes) < 4 * magic[3]:
        raise CorruptFileError(f"{path} is not an IDX file of unsigned bytes")
    shape = tuple(int.from_bytes(sizes[start : start + 4], "big") for start in range(0, len(sizes), 4))
    data = bytearray(file.read(min(prod(shape), MAX_VALUES) + 1))
    if len(data) != prod(shape):
        got = f"more than {prod(shape)}" if len(data) > prod(shape) else len(data)
        raise CorruptFileError(f"{path} must hold {prod(shape)} values {shape}, got {got}")
    return torch.frombuffer(data, dtype=torch.uint8).view(shape)


@checked
def read_mnist_files(folder: str | os.PathLike[str], part: str) -> tuple[Tensor, Tensor]:
    """Read the images and labels of MNIST, or of a data set in the same files.

    Args:
        folder: The folder of the four files.
        part: "train" or "test".

    Returns:
        Images, uint8 (n, 1, h, w), and labels, int64 (n,).

    Raises:
        UnknownNameError: there is no such part.
        NoDataError: a file is not there.
        CorruptFileError: a file cannot be read.
    """
    prefix = "t10k" if check_choice("part", part, ("train", "test")) == "test" else "train"
    folder = as_path("folder", folder)
    paths = []
    for name in (f"{prefix}-{kind}-ubyte" for kind in IDX_KINDS):
        found = [path for path in (folder / f"{name}.gz", folder / name) if path.is_file()]
        if not found:
            raise NoDataError(f"no {name}.gz in {folder}: put the four IDX files of the data set there")
        paths.append(found[0])
    images, labels = map(read_idx, paths)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        shapes = f"{tuple(images.shape)} and {tuple(labels.shape)}"
        raise CorruptFileError(f"{folder} must hold as many images (n, h, w) as labels (n,), got {shapes}")
    return images[:, None], labels.long()
