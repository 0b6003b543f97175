"""The IDX files of MNIST and its relatives, plain or gzipped: a magic number, the sizes, then bytes."""

import gzip
import os
import zlib
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from calibrant.errors import CorruptFileError, NoDataError

UNSIGNED_BYTES = 0x08
IDX_KINDS = ("images-idx3", "labels-idx1")
MNIST_FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in IDX_KINDS)


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """The array of a file, uint8, of as many dimensions as its head says."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise CorruptFileError(f"{path} is not a whole gzip file") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UNSIGNED_BYTES or len(data) < 4 + 4 * data[3]:
        raise CorruptFileError(f"{path} is not an IDX file of unsigned bytes")
    head = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[start : start + 4], "big") for start in range(4, head, 4))
    if len(data) - head != prod(shape):
        raise CorruptFileError(f"{path} must hold {prod(shape)} values {shape}, got {len(data) - head}")
    return torch.frombuffer(bytearray(data[head:]), dtype=torch.uint8).view(shape)


def read_mnist_files(folder: str | os.PathLike[str], part: str) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 1, h, w), and labels, int64 (n,), of the part "train" or "test" of MNIST or a relative."""
    prefix = "t10k" if part == "test" else "train"
    images, labels = (read_idx(_find(Path(folder), f"{prefix}-{kind}-ubyte")) for kind in IDX_KINDS)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        shapes = f"{tuple(images.shape)} and {tuple(labels.shape)}"
        raise CorruptFileError(f"{folder} must hold as many images (n, h, w) as labels (n,), got {shapes}")
    return images[:, None], labels.long()


def _find(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise NoDataError(f"no {name}.gz in {folder}: put the four IDX files of the data set there")
