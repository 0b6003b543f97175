"""Data sets that fit in memory; their shifted tests are their test images under every corruption."""

import io
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from hashlib import blake2b
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import calibrant
from calibrant._arrays import load_npy
from calibrant._checks import check_integer, check_label_range
from calibrant._digests import is_sealed, with_seal
from calibrant._files import atomic_write
from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.corruptions import corrupt
from calibrant.data.base import SHIFT_SEED, DataSet, Split
from calibrant.data.splits import validation_rows
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.shifts import SEVERITIES, Shift


class ArrayData(DataSet):
    """A data set in memory, with fixed validation rows.

    Shifted tests are read from the published files if they are there. If not, the test images are corrupted.
    Corrupted images of the test and of the validation split are kept in the folder generated below the root.

    Args:
        name: The name of the data set.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        class_names: The names of the classes.
        native_size: The side of the images in pixels.
        channels: 1 or 3.
        read: read(root, part) returns images, uint8 (n, c, h, w), and labels, int64 (n,), of "train" or "test".
        n_validation: The number of training rows that are held out.
        published: The folder of the published corrupted test, such as CIFAR-10-C.
        image_size: native_size or None.
    """

    @checked
    def __init__(
        self,
        name: str,
        root: str | os.PathLike[str] | None = None,
        *,
        class_names: tuple[str, ...],
        native_size: int,
        channels: int = 3,
        read: Callable[[Path, str], tuple[Tensor, Tensor]],
        n_validation: int,
        published: str | None = None,
        image_size: int | None = None,
    ) -> None:
        super().__init__(name, root, image_size=native_size)
        if image_size is not None and check_integer("image_size", image_size, 8) != native_size:
            raise InvalidInputError(f"image_size must be {native_size} for {name}, got {image_size}")
        self.names = class_names
        self.channels, self.read = check_integer("channels", channels, 1, 3), read
        self.n_validation, self.published = check_integer("n_validation", n_validation, 0), published

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.names

    def _read(self, name: str) -> Split:
        if name == "train":
            return Split(*self._training_rows(held_out=False))
        if name == "val":
            images, labels = self._validation
            return Split(images.clone(), labels)
        images, labels = self._test
        if name == "test":
            return Split(images.clone(), labels)
        shift = Shift.parse(name)
        if self.published is not None and (path := self.root / self.published / f"{shift.corruption}.npy").is_file():
            _check_same_labels(path.with_name("labels.npy"), labels)
            return Split(_published(path, shift.severity, images), labels).with_shift(shift, "published")
        return Split(self._generated(images, shift), labels).with_shift(shift, "generated")

    def _corrupted(self, part: str, shift: Shift) -> Split:
        if part == "train":  # would fill a disk
            return super()._corrupted(part, shift)
        split = self._read(part)
        assert isinstance(split.images, Tensor)
        return Split(self._generated(split.images, shift), split.labels).with_shift(shift, "generated")

    def _rows(self, part: str) -> tuple[Tensor, Tensor]:
        """Images and labels as read; the labels are classes of the data set."""
        images, labels = self.read(self.root, part)
        try:
            check_label_range(labels, self.n_classes, None, argument=f"the {part} labels of {self.name} in {self.root}")
        except InvalidInputError as error:
            raise CorruptFileError(str(error)) from None
        return images, labels

    def _training_rows(self, *, held_out: bool) -> tuple[Tensor, Tensor]:
        """Images and labels of the training part: those for training, or those held out."""
        images, labels = self._rows("train")
        rows = validation_rows(labels, self.n_validation) == held_out
        return images[rows], labels[rows]

    @cached_property
    def _validation(self) -> tuple[Tensor, Tensor]:
        """Read once for all corruptions."""
        return self._training_rows(held_out=True)

    @cached_property
    def _test(self) -> tuple[Tensor, Tensor]:
        """Read once for all corruptions."""
        return self._rows("test")

    def _generated(self, images: Tensor, shift: Shift) -> Tensor:
        """The corrupted images, cached in a file whose name has a hash of the clean images and the version."""
        version = calibrant.__version__.encode()
        digest = blake2b(images.numpy().tobytes(), digest_size=8, key=version).hexdigest()
        path = self.root / "generated" / self.name / f"{shift}-{digest}.npy"
        if path.is_file():
            with suppress(CorruptFileError):  # a damaged one is made again
                return torch.from_numpy(np.array(_load(path, tuple(images.shape))))
        shifted = corrupt(images, shift.corruption, shift.severity, seed=SHIFT_SEED)
        with suppress(OSError):  # a read-only folder: they are generated again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                array = io.BytesIO()
                np.save(array, shifted.numpy())
                file.writelines(with_seal([array.getvalue()]))
        return shifted


def _published(path: Path, severity: int, images: Tensor) -> Tensor:
    """The images of a severity in a file of CIFAR-10-C."""
    n, channels, height, width = images.shape
    values = _load(path, (len(SEVERITIES) * n, height, width, channels))
    rows = np.array(values[(severity - 1) * n : severity * n])
    return torch.from_numpy(rows).permute(0, 3, 1, 2).contiguous()


def _check_same_labels(path: Path, labels: Tensor) -> None:
    """The labels of a published test must be those of the test images, or these rows stand in another order."""
    if not np.array_equal(_load_array(path), np.tile(labels.numpy(), len(SEVERITIES))):
        raise CorruptFileError(f"{path} has other labels than the test images, or the same in another order")


def _load_array(path: Path) -> np.ndarray:
    try:
        values = load_npy(path, mmap=True)
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as an array: {first_line(error)}") from None
    status = path.stat()
    # Published files end with their array. Those of calibrant have their digest after it.
    if not isinstance(values, np.memmap) or (
        status.st_size > values.offset + values.nbytes and not _has_seal(path, status.st_mtime_ns)
    ):
        raise CorruptFileError(f"{path} is damaged: it is not one array, or has other bytes after it")
    return values


@cache  # of a file of 150 MB, each severity is read by itself
def _has_seal(path: Path, written: int) -> bool:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return is_sealed(content, path)


def _load(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The array of a file, which must be uint8 of this shape."""
    values = _load_array(path)
    if values.shape != shape or values.dtype != np.uint8:
        raise CorruptFileError(f"{path} must be uint8 {shape}, got {values.dtype} {values.shape}")
    return values
