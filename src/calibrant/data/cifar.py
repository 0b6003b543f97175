"""CIFAR-10 and CIFAR-100 in their binary layout: a row of label bytes and 3 x 32 x 32 pixels per image."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import CorruptFileError, NoDataError

TEST_FILES = {  # the file in the folder of its archive, and how many bytes of labels begin a row; the last one counts
    "cifar10": (Path("cifar-10-batches-bin/test_batch.bin"), 1),
    "cifar100": (Path("cifar-100-binary/test.bin"), 2),
}
N_VALUES = 3 * 32 * 32


def read_cifar_test(folder: str | os.PathLike[str], name: str | None = None) -> tuple[Tensor, Tensor]:
    """The test images, uint8 (n, 3, 32, 32), and labels, uint8 (n,), of CIFAR-10 or CIFAR-100 in official order.

    folder: where the archive was unpacked, or the folder in it. name: "cifar10" or "cifar100"; else what is there.
    """
    for known in TEST_FILES if name is None else [name]:
        file, n_label_bytes = TEST_FILES[known]
        for path in (Path(folder) / file, Path(folder) / file.name):
            if path.is_file():
                return _read(path, n_label_bytes)
    wanted = " or ".join(str(TEST_FILES[known][0]) for known in (TEST_FILES if name is None else [name]))
    raise NoDataError(f"no test images of CIFAR in {folder}: put {wanted}, from the binary version's archive, there")


def _read(path: Path, n_label_bytes: int) -> tuple[Tensor, Tensor]:
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror}") from None
    width = n_label_bytes + N_VALUES
    if len(values) == 0 or len(values) % width:
        raise CorruptFileError(f"{path} must be rows of {width} bytes, got {len(values)} bytes")
    rows = torch.from_numpy(values).view(-1, width)
    return rows[:, n_label_bytes:].contiguous().view(-1, 3, 32, 32), rows[:, n_label_bytes - 1].clone()
