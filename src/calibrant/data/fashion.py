"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): the part of it that comes with the package, and the whole."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calibrant.data.idx import read_idx
from calibrant.errors import CorruptFileError, NoDataError

EMBEDDED = Path(__file__).parent / "files" / "fashion_mnist_mini.npz"
CLASS_NAMES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
FILES = {"train": "train", "test": "t10k"}

Part = Literal["train", "test"]


@lru_cache(maxsize=1)
def _embedded() -> dict[str, Tensor]:
    with np.load(EMBEDDED, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def read_fashion_mnist_mini(part: Part) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 1, 28, 28), and labels, int64 (n,): 800 (train) or 200 (test) of each of ten classes."""
    arrays = _embedded()
    return arrays[f"{part}_images"][:, None].clone(), arrays[f"{part}_labels"].long()


def read_fashion_mnist(folder: str | os.PathLike[str], part: Part) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 1, 28, 28), and labels, int64 (n,), of the official files, gzipped or not; also MNIST's."""
    images, labels = (_read(Path(folder), f"{FILES[part]}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        shapes = f"{tuple(images.shape)} and {tuple(labels.shape)}"
        raise CorruptFileError(f"{folder} must hold as many images (n, h, w) as labels (n,), got {shapes}")
    return images[:, None], labels.long()


def _read(folder: Path, name: str) -> Tensor:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return read_idx(path)
    raise NoDataError(f"no {name}.gz in {folder}: put the four IDX files of the data set there")
