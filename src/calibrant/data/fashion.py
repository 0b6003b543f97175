"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): its classes, and the part of it that comes with the package."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

EMBEDDED = Path(__file__).parent / "files" / "fashion_mnist_mini.npz"
CLASS_NAMES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


@lru_cache(maxsize=1)
def _embedded() -> dict[str, Tensor]:
    with np.load(EMBEDDED, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def read_fashion_mnist_mini(part: str) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 1, 28, 28), and labels, int64 (n,): 800 (train) or 200 (test) of each of ten classes."""
    arrays = _embedded()
    return arrays[f"{part}_images"][:, None].clone(), arrays[f"{part}_labels"].long()
