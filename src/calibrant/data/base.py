"""What a data set is: its classes, its official splits, and the shifted tests that it has."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant._checks import check_choice
from calibrant.corruptions import CORRUPTIONS, corrupt
from calibrant.data.splits import validation_rows
from calibrant.errors import CorruptFileError

SPLITS = ("train", "val", "test")
SEVERITIES = range(1, 6)
SHIFT_SEED = 0


@dataclass(frozen=True)
class Split:
    """Images, uint8 (n, c, h, w), with their labels, int64 (n,), and columns of what else is known of each."""

    images: Tensor
    labels: Tensor
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A data set whose training part is divided into training and validation rows, which never change.

    read(root, part) returns images, uint8 (n, c, h, w), and labels, int64 (n,), of the part "train" or "test".
    published is the folder with the files of its corrupted test, as CIFAR-10-C; where they are not there, and for
    other data sets, the test images are corrupted as they are asked for.
    """

    class_names: tuple[str, ...]
    image_size: int
    channels: int
    read: Callable[[Path, str], tuple[Tensor, Tensor]]
    n_validation: int
    published: str | None = None
    mean: float = 0.5  # the paper normalises every channel of every data set with these
    std: float = 0.5

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @property
    def shifts(self) -> tuple[str, ...]:
        """The shifted tests, as fog-3: every corruption at every severity."""
        return tuple(f"{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES)

    def split(self, name: str, root: str | os.PathLike[str] | None = None) -> Split:
        """The rows for training ("train") and validation ("val"), the test ("test"), or a shifted test.

        root: the folder with the data set's files; by default the environment variable CALIBRANT_DATA, or data.
        """
        check_choice("split", name, (*SPLITS, *self.shifts))
        folder = data_folder(root)
        if name not in SPLITS:
            return self._shifted(name, folder)
        images, labels = self.read(folder, "test" if name == "test" else "train")
        if name == "test":
            return Split(images, labels)
        held_out = validation_rows(labels, self.n_validation)
        rows = held_out if name == "val" else ~held_out
        return Split(images[rows], labels[rows])

    def _shifted(self, name: str, folder: Path) -> Split:
        corruption, severity = name.rsplit("-", 1)
        images, labels = self.read(folder, "test")
        path = folder / self.published / f"{corruption}.npy" if self.published else None
        if path is not None and path.is_file():
            shifted = _published(path, int(severity), images)
        else:
            shifted = corrupt(images, corruption, int(severity), seed=SHIFT_SEED)
        n = len(images)
        return Split(shifted, labels, {"corruption": [corruption] * n, "severity": [int(severity)] * n})


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    return Path(root or os.environ.get("CALIBRANT_DATA") or "data")


def _published(path: Path, severity: int, images: Tensor) -> Tensor:
    """The rows of a severity in a file of the layout of CIFAR-10-C."""
    n, channels, height, width = images.shape
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptFileError(f"{path} cannot be read as an array: {error}") from None
    if values.shape != (len(SEVERITIES) * n, height, width, channels) or values.dtype != np.uint8:
        expected = f"uint8 {(len(SEVERITIES) * n, height, width, channels)}"
        raise CorruptFileError(f"{path} must be {expected}, got {values.dtype} {values.shape}")
    rows = np.array(values[(severity - 1) * n : severity * n])
    return torch.from_numpy(rows).permute(0, 3, 1, 2).contiguous()
