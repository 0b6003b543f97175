"""`Split`, and `DataSet`, the base class of data sets: classes, official splits and shifted tests."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import blake2b
from typing import ClassVar

import pyarrow as pa
from torch import Tensor

from calibrant._checks import MAX_IMAGE_SIZE, check_integer, check_integer_labels
from calibrant._files import data_folder
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.corruptions import CORRUPTIONS, Corrupt, corrupt
from calibrant.data.image_files import ImageFiles, check_mask
from calibrant.data.splits import class_prior, validation_rows
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.shifts import SEVERITIES, Shift

SHIFT_SEED = 0


def corruption_shifts() -> tuple[str, ...]:
    """The shifted tests of every corruption in `CORRUPTIONS` at every severity, such as fog-3.

    The table is read at each call: corruptions that a user added are among them.

    Returns:
        The names, by corruption and severity.
    """
    return _shift_names(tuple(CORRUPTIONS))


@cache
def _shift_names(corruptions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(Shift(name, severity)) for name in corruptions for severity in SEVERITIES)


@checked
@dataclass(frozen=True)
class Split:
    """Images with labels and columns.

    Args:
        images: uint8 (n, c, h, w), as a tensor or in files; ``images[rows]`` is a tensor in either case.
        labels: int64 (n,).
        columns: Other values of each row, by name.
    """

    images: Tensor | ImageFiles
    labels: Tensor
    columns: Mapping[str, Sequence[object] | pa.Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.images, Tensor) and self.images.ndim != 4:
            raise InvalidInputError(f"images must be (n, c, h, w), got shape {tuple(self.images.shape)}")
        check_integer_labels("labels", self.labels, (len(self.images),))

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def digest(self) -> str:
        """A hash of the labels, in their order, and of the names of images in files."""
        found = blake2b(self.labels.numpy().tobytes(), digest_size=8)
        for name in self.images.names if isinstance(self.images, ImageFiles) else ():
            found.update(name.as_buffer())
        return found.hexdigest()

    @checked
    def where(self, mask: Tensor) -> "Split":
        """The rows that a mask selects; the key of each image is its new row.

        Args:
            mask: bool (n,).

        Returns:
            The selected rows.
        """
        check_mask("mask", mask, len(self))
        images = self.images[mask] if isinstance(self.images, Tensor) else self.images.where(mask)
        return self._with_rows(images, mask.nonzero()[:, 0])

    @checked
    def sample(self, n_rows: int) -> "Split":
        """A sample of the rows in their order, each class in proportion; images keep their keys.

        Args:
            n_rows: The size of the sample; all rows if there are no more.

        Returns:
            The sampled rows.
        """
        if check_integer("n_rows", n_rows, 1) >= len(self):
            return self
        rows = validation_rows(self.labels, n_rows).nonzero()[:, 0]
        if isinstance(self.images, Tensor):
            return self._with_rows(self.images[rows], rows)
        before = self.images.taken
        return self._with_rows(replace(self.images, taken=rows if before is None else before[rows]), rows)

    def _with_rows(self, images: Tensor | ImageFiles, rows: Tensor) -> "Split":
        columns = {name: _rows_of(values, rows.tolist()) for name, values in self.columns.items()}
        return Split(images, self.labels[rows], columns)

    @checked
    def under(self, shift: Shift) -> "Split":
        """The same rows under a corruption; the key of each image is its row.

        Args:
            shift: The corruption and its severity.

        Returns:
            The corrupted rows, with the columns corruption, severity and origin.
        """
        if isinstance(self.images, Tensor):
            images: Tensor | ImageFiles = corrupt(self.images, shift.corruption, shift.severity, seed=SHIFT_SEED)
        else:
            images = replace(self.images, corruption=Corrupt(shift.corruption, shift.severity, seed=SHIFT_SEED))
        return replace(self, images=images).with_shift(shift, "generated")

    @checked
    def with_shift(self, shift: Shift, origin: str) -> "Split":
        """The same rows with the columns corruption, severity and origin.

        Args:
            shift: The corruption and its severity.
            origin: "published" or "generated".

        Returns:
            The rows with these columns.
        """
        added = {"corruption": shift.corruption, "severity": shift.severity, "origin": origin}
        return replace(self, columns={**self.columns, **{name: [value] * len(self) for name, value in added.items()}})


def _rows_of(values: Sequence[object] | pa.Array, rows: list[int]) -> Sequence[object] | pa.Array:
    return values.take(rows) if isinstance(values, pa.Array) else [values[row] for row in rows]


class DataSet(ABC):
    """A data set in a folder; nothing is read before a split is.

    Args:
        name: The name of the data set.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        image_size: The side of the images in pixels.
    """

    splits: tuple[str, ...] = ("train", "val", "test")
    validation: str = "val"  # the split that models are selected on
    can_be_fetched: ClassVar[bool] = True
    channels: int = 3
    mean: ClassVar[float] = 0.5  # the paper normalises every channel of every data set with these
    std: ClassVar[float] = 0.5

    @checked
    def __init__(self, name: str, root: str | os.PathLike[str] | None = None, *, image_size: int) -> None:
        self.name = name
        self.root = data_folder(root)
        self.image_size = check_integer("image_size", image_size, 8, MAX_IMAGE_SIZE)

    @property
    def shifts(self) -> tuple[str, ...]:
        """The names of the shifted tests."""
        return corruption_shifts()

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of their numbers."""

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def prior(self) -> Tensor:
        """The share of each class in the training split, float64 (n_classes,)."""
        return class_prior(self.split("train").labels, self.n_classes)

    @property
    def clean(self) -> list[str]:
        """The splits and shifted tests that are not corrupted."""
        corrupted = corruption_shifts()
        return [name for name in (*self.splits, *self.shifts) if name not in corrupted]

    @checked
    def split(self, name: str) -> Split:
        """Read a split or a shifted test.

        Args:
            name: One of ``splits`` or ``shifts``. val+fog-3 is the validation split under that corruption, for
                calibrators that are fitted to shifted rows; so for every part that is not corrupted already.

        Returns:
            The rows.

        Raises:
            UnknownNameError: there is no such split.
            NoDataError: a file is missing.
            CorruptFileError: a file cannot be read.
        """
        part, plus, shift = name.rpartition("+")
        try:
            if not plus or name in self.shifts:
                return self._read(check_choice("split", name, (*self.splits, *self.shifts)))
            check_choice("split", part, self.clean)
            return self._corrupted(part, Shift.parse(check_choice("corruption", shift, corruption_shifts())))
        except NoDataError as error:
            hint = f"; run calibrant data fetch {self.name}" if self.can_be_fetched else ""
            raise NoDataError(f"{error}{hint}") from None

    @abstractmethod
    def _read(self, name: str) -> Split: ...

    def _corrupted(self, part: str, shift: Shift) -> Split:
        return self._read(part).under(shift)
