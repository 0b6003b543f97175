"""Data sets that fit in memory, whose shifted tests are their test images under every corruption."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import calibrant
from calibrant._files import atomic_write
from calibrant.corruptions import corrupt
from calibrant.data.base import SHIFT_SEED, DataSet, Split
from calibrant.data.splits import validation_rows
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.shifts import SEVERITIES, Shift


class ArrayData(DataSet):
    """A data set whose training part is divided into training and validation rows, which never change.

    read(root, part) returns images, uint8 (n, c, h, w), and labels, int64 (n,), of the part "train" or "test".
    published is the folder with the files of its corrupted test, as CIFAR-10-C. Where a file is not there, the test
    images are corrupted as they are asked for, and kept beside it in the folder generated.
    """

    def __init__(
        self,
        name: str,
        root: str | os.PathLike[str] | None = None,
        *,
        class_names: tuple[str, ...],
        native_size: int,
        channels: int,
        read: Callable[[Path, str], tuple[Tensor, Tensor]],
        n_validation: int,
        published: str | None = None,
        image_size: int | None = None,
    ) -> None:
        super().__init__(name, root, image_size=native_size)
        if image_size not in (None, native_size):
            raise InvalidInputError(f"image_size must be {native_size} for {name}, got {image_size}")
        self.names, self.channels, self.read = class_names, channels, read
        self.n_validation, self.published = n_validation, published

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.names

    def _read(self, name: str) -> Split:
        if name == "train":
            return Split(*self._training(held_out=False))
        if name == "val":
            images, labels = self._validation
            return Split(images.clone(), labels)
        images, labels = self._test
        if name == "test":
            return Split(images.clone(), labels)
        shift = Shift.parse(name)
        if self.published is not None and (path := self.root / self.published / f"{shift.corruption}.npy").is_file():
            return Split(_published(path, shift.severity, images), labels).called(shift, "published")
        return Split(self._generated(images, shift), labels).called(shift, "generated")

    def _training(self, *, held_out: bool) -> tuple[Tensor, Tensor]:
        """Images and labels of the training part that are trained on, or of those that are not."""
        images, labels = self.read(self.root, "train")
        rows = validation_rows(labels, self.n_validation) == held_out
        return images[rows], labels[rows]

    @cached_property
    def _validation(self) -> tuple[Tensor, Tensor]:
        """Read once for all of its corrupted versions."""
        return self._training(held_out=True)

    @cached_property
    def _test(self) -> tuple[Tensor, Tensor]:
        """Images and labels of the test, read once for all of its shifted versions."""
        return self.read(self.root, "test")

    def _generated(self, images: Tensor, shift: Shift) -> Tensor:
        """The corrupted images, from the file they were kept in; its name tells of which images, by which version."""
        version = calibrant.__version__.encode()
        digest = blake2b(images.numpy().tobytes(), digest_size=8, key=version).hexdigest()
        path = self.root / "generated" / self.name / f"{shift}-{digest}.npy"
        if path.is_file():
            return torch.from_numpy(np.array(_load(path, tuple(images.shape))))
        shifted = corrupt(images, shift.corruption, shift.severity, seed=SHIFT_SEED)
        with suppress(OSError):  # where it cannot be kept it is made again
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                np.save(file, shifted.numpy())
        return shifted


def _published(path: Path, severity: int, images: Tensor) -> Tensor:
    """The rows of a severity in a file of the layout of CIFAR-10-C."""
    n, channels, height, width = images.shape
    values = _load(path, (len(SEVERITIES) * n, height, width, channels))
    rows = np.array(values[(severity - 1) * n : severity * n])
    return torch.from_numpy(rows).permute(0, 3, 1, 2).contiguous()


def _load(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The array of a file, which must be bytes of this shape."""
    try:
        values: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptFileError(f"{path} cannot be read as an array: {error}") from None
    if values.shape != shape or values.dtype != np.uint8:
        raise CorruptFileError(f"{path} must be uint8 {shape}, got {values.dtype} {values.shape}")
    return values
