"""Data sets that need no download: a part of Fashion-MNIST, and the handwritten digits of scikit-learn."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.data.splits import validation_rows

EMBEDDED = Path(__file__).parent / "files" / "fashion_mnist_mini.npz"
N_TEST_DIGITS = 600


@lru_cache(maxsize=1)
def _embedded_arrays() -> dict[str, Tensor]:
    with np.load(EMBEDDED, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


@checked
def read_fashion_mnist_mini(part: str) -> tuple[Tensor, Tensor]:
    """Read the part of Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017) that comes with the package.

    Args:
        part: "train", 800 images of each of ten classes, or "test", 200.

    Returns:
        Images, uint8 (n, 1, 28, 28), and labels, int64 (n,).
    """
    check_choice("part", part, ("train", "test"))
    arrays = _embedded_arrays()
    return arrays[f"{part}_images"][:, None].clone(), arrays[f"{part}_labels"].long()


def read_digits(_root: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 1, 8, 8), and labels, int64 (n,); there is no official test, hence a fixed third is used."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.from_numpy(data.images).mul_(255 / 16).round_().to(torch.uint8)[:, None]
    labels = torch.from_numpy(data.target).long()
    is_test = validation_rows(labels, N_TEST_DIGITS)
    rows = is_test if part == "test" else ~is_test
    return images[rows], labels[rows]
