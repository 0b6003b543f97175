"""The IDX files of MNIST and Fashion-MNIST, plain or gzipped: a magic number, the sizes, then bytes."""

import gzip
import os
import zlib
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from calibrant._files import read_error
from calibrant.errors import CorruptFileError, NoDataError

UNSIGNED_BYTES = 0x08
IDX_KINDS = ("images-idx3", "labels-idx1")
MNIST_FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in IDX_KINDS)


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
        data = Path(path).read_bytes()
    except OSError as error:
        raise read_error(path, error) from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise CorruptFileError(f"{path} is not a complete gzip file") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UNSIGNED_BYTES or len(data) < 4 + 4 * data[3]:
        raise CorruptFileError(f"{path} is not an IDX file of unsigned bytes")
    head = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[start : start + 4], "big") for start in range(4, head, 4))
    if len(data) - head != prod(shape):
        raise CorruptFileError(f"{path} must hold {prod(shape)} values {shape}, got {len(data) - head}")
    return torch.frombuffer(bytearray(data[head:]), dtype=torch.uint8).view(shape)


def read_mnist_files(folder: str | os.PathLike[str], part: str) -> tuple[Tensor, Tensor]:
    """Read the images and labels of MNIST, or of a data set in the same files.

    Args:
        folder: The folder of the four files.
        part: "train" or "test".

    Returns:
        Images, uint8 (n, 1, h, w), and labels, int64 (n,).

    Raises:
        NoDataError: a file is not there.
        CorruptFileError: a file cannot be read.
    """
    prefix = "t10k" if part == "test" else "train"
    paths = []
    for name in (f"{prefix}-{kind}-ubyte" for kind in IDX_KINDS):
        found = [path for path in (Path(folder, f"{name}.gz"), Path(folder, name)) if path.is_file()]
        if not found:
            raise NoDataError(f"no {name}.gz in {folder}: put the four IDX files of the data set there")
        paths.append(found[0])
    images, labels = map(read_idx, paths)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        shapes = f"{tuple(images.shape)} and {tuple(labels.shape)}"
        raise CorruptFileError(f"{folder} must hold as many images (n, h, w) as labels (n,), got {shapes}")
    return images[:, None], labels.long()
