"""A data set with further tests in folders of images, or with validation images out of its test."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from calibrant._names import suggestion
from calibrant.corruptions import CORRUPTIONS
from calibrant.data.base import DataSet, Split, corruption_shifts
from calibrant.data.image_files import IMAGE_SUFFIXES, images_by_class, visible_folders
from calibrant.data.splits import validation_rows
from calibrant.errors import InvalidInputError, NoDataError


class ExtendedData(DataSet):
    """Another data set, extended.

    Args:
        base: The data set.
        test_folders: Folders below its root, of images in folders of its classes; some classes may be missing. Each
            is a shifted test, named as the last part of its path.
        halve_test: Whether half of the test images, each class in proportion, are the validation split, and the others
            the test, also under every corruption.
    """

    can_be_fetched = False  # the base says what to fetch

    def __init__(self, base: DataSet, test_folders: Sequence[str] = (), *, halve_test: bool = False) -> None:
        super().__init__(base.name, base.root, image_size=base.image_size)
        self.base, self.halve_test = base, halve_test
        self.splits, self.validation, self.channels = base.splits, base.validation, base.channels
        self.folders = {PurePath(folder).name: self.root / folder for folder in test_folders}
        others = {*base.splits, *base.shifts, *CORRUPTIONS, "all", "none", ""}
        if len(self.folders) < len(test_folders) or any(name in others or "+" in name for name in self.folders):
            rule = "test_folders must have names that no split, corruption or other test has, without +"
            raise InvalidInputError(f"{rule}, got {', '.join(test_folders)}")
        if halve_test and base.splits != DataSet.splits:
            raise InvalidInputError(f"hold_out must be train for {base.name}, which has no test to halve, got test")

    @property
    def shifts(self) -> tuple[str, ...]:
        """The shifted tests of the data set, and the folders."""
        return (*self.base.shifts, *self.folders)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.base.class_names

    def _read(self, name: str) -> Split:
        if name in self.folders:
            return self._images_in(name)
        if not self.halve_test or name not in ("val", "test", *corruption_shifts()):
            return self.base.split(name)
        test = self.base.split("test" if name == "val" else name)
        held_out = validation_rows(test.labels, len(test) // 2)
        return test.where(held_out if name == "val" else ~held_out)

    def _images_in(self, name: str) -> Split:
        folder, known = self.folders[name], self.class_names
        found = visible_folders(folder)
        for one in found:
            if one not in known:
                rule = f"{folder / one} must be named as one of the classes of {self.name}"
                raise InvalidInputError(f"{rule}; {suggestion(one, known)}")
        if not found:
            raise NoDataError(f"no folder of a class in {folder}: put images in {folder / known[0]} and so on")
        images, labels = images_by_class(
            folder,
            [folder / one for one in known],
            self.image_size,
            hint=f"put files {', '.join(IMAGE_SUFFIXES)} there",
            every_class=False,
        )
        columns = {"file": images.names, "corruption": [name] * len(labels), "origin": ["folder"] * len(labels)}
        return Split(replace(images, channels=self.channels), labels, columns)
