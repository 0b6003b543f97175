"""CIFAR-10 and CIFAR-100 in their binary layout: a row of label bytes and 3 x 32 x 32 pixels per image."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant._files import read_error
from calibrant._names import check_choice
from calibrant._paths import as_path
from calibrant._signatures import checked
from calibrant.data.layouts import LAYOUTS, N_VALUES
from calibrant.errors import CorruptFileError, NoDataError


@checked
def read_cifar(folder: str | os.PathLike[str], part: str, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Read CIFAR-10 or CIFAR-100 in the binary version, in official order.

    Args:
        folder: The folder where the archive was unpacked, or the folder in it.
        part: "train" or "test".
        name: "cifar10" or "cifar100"; by default the one that is there.

    Returns:
        Images, uint8 (n, 3, 32, 32), and labels, int64 (n,).

    Raises:
        UnknownNameError: there is no such part or name.
        NoDataError: the files are not there.
        CorruptFileError: a file is not of rows of labels and pixels.
    """
    layouts = list(LAYOUTS.values()) if name is None else [LAYOUTS[check_choice("name", name, LAYOUTS)]]
    check_choice("part", part, layouts[0].files)
    folder = as_path("folder", folder)
    for layout in layouts:
        files = layout.files[part]
        for parent in (folder / layout.folder, folder):
            if (parent / files[0]).is_file():
                parts = [_read_batch(parent / file, layout.n_label_bytes) for file in files]
                images, labels = zip(*parts, strict=True)
                return torch.cat(images), torch.cat(labels)
    needed = " or ".join(f"{layout.folder}/{layout.files[part][0]}" for layout in layouts)
    if any((folder / layout.pickled).is_dir() for layout in layouts):
        raise NoDataError(f"{folder} has the pickled version of CIFAR, which is not read: put {needed} there instead")
    raise NoDataError(f"no {part} images of CIFAR in {folder}: put {needed}, from the binary version's archive, there")


def _read_batch(path: Path, n_label_bytes: int) -> tuple[Tensor, Tensor]:
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise read_error(path, error) from None
    width = n_label_bytes + N_VALUES
    if len(values) == 0 or len(values) % width:
        raise CorruptFileError(f"{path} must be rows of {width} bytes, got {len(values)} bytes")
    rows = torch.from_numpy(values).view(-1, width)
    return rows[:, n_label_bytes:].contiguous().view(-1, 3, 32, 32), rows[:, n_label_bytes - 1].long()
