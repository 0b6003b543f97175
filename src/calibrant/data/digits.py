"""The handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels."""

from pathlib import Path

import torch
from torch import Tensor

from calibrant.data.splits import validation_rows

N_TEST = 600


def read_digits(_root: Path, part: str) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 1, 8, 8), and labels, int64 (n,); there is no official test, so a fixed third is one."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.from_numpy(data.images).mul_(255 / 16).round_().to(torch.uint8)[:, None]
    labels = torch.from_numpy(data.target).long()
    is_test = validation_rows(labels, N_TEST)
    rows = is_test if part == "test" else ~is_test
    return images[rows], labels[rows]
