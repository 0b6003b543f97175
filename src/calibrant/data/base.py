"""What a data set is: its classes, its official splits, and the shifted tests that it has."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import ClassVar

import pyarrow as pa
from torch import Tensor

from calibrant._checks import check_integer
from calibrant._files import data_folder
from calibrant._names import check_choice
from calibrant.corruptions import CORRUPTIONS, Corrupt, corrupt
from calibrant.data.image_files import ImageFiles
from calibrant.data.splits import class_prior, validation_rows
from calibrant.errors import NoDataError
from calibrant.shifts import SEVERITIES, Shift

SHIFT_SEED = 0


def corruption_shifts() -> tuple[str, ...]:
    """The shifted tests of every corruption in `CORRUPTIONS` at every severity, such as fog-3.

    The table is read at each call: corruptions that a user added are among them.

    Returns:
        The names, by corruption and severity.
    """
    return tuple(str(Shift(name, severity)) for name in CORRUPTIONS for severity in SEVERITIES)


@dataclass(frozen=True)
class Split:
    """Images with their labels, int64 (n,), and columns of what else is known of each.

    ``images[rows]`` is uint8 (n, c, h, w): they are a tensor, or in files that are read as they are asked for.
    """

    images: Tensor | ImageFiles
    labels: Tensor
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def digest(self) -> str:
        """A hash of the labels, in their order, and of the names of images in files."""
        found = blake2b(self.labels.numpy().tobytes(), digest_size=8)
        for name in self.images.names if isinstance(self.images, ImageFiles) else ():
            found.update(name.as_buffer())
        return found.hexdigest()

    def where(self, rows: Tensor) -> "Split":
        """The rows that a mask, bool (n,), holds, as a split of their own."""
        images = self.images[rows] if isinstance(self.images, Tensor) else self.images.where(rows)
        taken = rows.nonzero()[:, 0].tolist()
        return Split(images, self.labels[rows], {name: _rows_of(self.columns[name], taken) for name in self.columns})

    def sample(self, n_rows: int) -> "Split":
        """So many of the rows, each class in proportion, in their order; all where there are no more."""
        if n_rows >= len(self):
            return self
        taken = validation_rows(self.labels, n_rows).nonzero()[:, 0]
        if isinstance(self.images, Tensor):
            images: Tensor | ImageFiles = self.images[taken]
        else:
            before = self.images.taken
            images = replace(self.images, taken=taken if before is None else before[taken])
        columns = {name: _rows_of(values, taken.tolist()) for name, values in self.columns.items()}
        return Split(images, self.labels[taken], columns)

    def under(self, shift: Shift) -> "Split":
        """The same rows under a corruption; the key of each image is its row."""
        if isinstance(self.images, Tensor):
            images: Tensor | ImageFiles = corrupt(self.images, shift.corruption, shift.severity, seed=SHIFT_SEED)
        else:
            images = replace(self.images, corruption=Corrupt(shift.corruption, shift.severity, seed=SHIFT_SEED))
        return replace(self, images=images).called(shift, "generated")

    def called(self, shift: Shift, origin: str) -> "Split":
        """The same rows, with columns that name the corruption they are under, and whether it was published so."""
        named: dict[str, Sequence[object]] = {
            "corruption": [shift.corruption] * len(self),
            "severity": [shift.severity] * len(self),
            "origin": [origin] * len(self),
        }
        return replace(self, columns={**self.columns, **named})


def _rows_of(values: Sequence[object], rows: list[int]) -> Sequence[object]:
    return values.take(rows) if isinstance(values, pa.Array) else [values[row] for row in rows]


class DataSet(ABC):
    """A data set in a folder; nothing is read before a split is asked for.

    root: the folder; by default the environment variable CALIBRANT_DATA, or data. image_size: the side to which
    images in files are brought, where not that of the data set.
    """

    splits: tuple[str, ...] = ("train", "val", "test")
    validation: str = "val"  # the split that choices are made on
    can_be_fetched: ClassVar[bool] = True
    channels: int = 3
    mean: ClassVar[float] = 0.5  # the paper normalises every channel of every data set with these
    std: ClassVar[float] = 0.5

    def __init__(self, name: str, root: str | os.PathLike[str] | None = None, *, image_size: int) -> None:
        self.name = name
        self.root = data_folder(root)
        self.image_size = check_integer("image_size", image_size, 8)

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

    def split(self, name: str) -> Split:
        """The rows of one of ``splits``, or of one of the shifted tests in ``shifts``.

        val+fog-3 is the validation split under that corruption, for calibrators that are fitted to shifted rows; so
        for every part that is not corrupted already.
        """
        part, plus, shift = name.rpartition("+")
        try:
            if not plus or name in self.shifts:
                return self._read(check_choice("split", name, (*self.splits, *self.shifts)))
            check_choice("split", part, self.clean)
            return self._read(part).under(Shift.parse(check_choice("corruption", shift, corruption_shifts())))
        except NoDataError as error:
            hint = f"; calibrant data fetch {self.name} does it" if self.can_be_fetched else ""
            raise NoDataError(f"{error}{hint}") from None

    @abstractmethod
    def _read(self, name: str) -> Split: ...
