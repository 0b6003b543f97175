"""A user's own folder of images: train/<class>/..., with val, test and shifted tests beside it."""

import os
from functools import cached_property

from torch import Tensor, bincount

from calibrant.data.base import DataSet, Split, corruption_shifts
from calibrant.data.image_files import IMAGE_SUFFIXES, images_by_class, visible_folders
from calibrant.data.splits import validation_rows
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.shifts import Shift

DEFAULT_SIZE = 64
DEFAULT_VALIDATION_SHARE = 0.1
OFFICIAL = ("train", "val", "test")


class ImageFolder(DataSet):
    """Images in root/train/<class>/, root/val/<class>/, root/test/<class>/, at any depth below their class.

    The classes are the folders in train, sorted; elsewhere some may be missing. Without val, a tenth of train is held
    out, the same one for ever. Every other folder in root is a shifted test of its name, as root/hospital_b/<class>/;
    where there is a test, so are its corruptions, as fog-3. Hidden folders and files are left out. The column "file"
    is the path below root.
    """

    can_be_fetched = False

    def __init__(self, root: str | os.PathLike[str] | None = None, *, image_size: int | None = None) -> None:
        super().__init__("image_folder", root, image_size=DEFAULT_SIZE if image_size is None else image_size)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        found = visible_folders(self.root / "train")
        if not found:
            raise NoDataError(f"no folder of a class in {self.root / 'train'}: put images in train/<class>/ there")
        if len(found) == 1:
            raise InvalidInputError(f"{self.root / 'train'} must have folders of at least 2 classes, got {found[0]!r}")
        return tuple(found)

    @cached_property
    def splits(self) -> tuple[str, ...]:  # type: ignore[override]
        return OFFICIAL if "test" in self._folders else OFFICIAL[:2]

    @property
    def shifts(self) -> tuple[str, ...]:
        """The user's own come first, also where one is called fog-3."""
        own = tuple(name for name in self._folders if name not in OFFICIAL)
        generated = corruption_shifts() if "test" in self._folders else ()
        return (*own, *(name for name in generated if name not in own))

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        """The folders in root; a wrong one is refused now, not when a training is over."""
        known = set(self.class_names)
        found = {name: visible_folders(self.root / name) for name in visible_folders(self.root)}
        for name, classes in found.items():
            foreign = [one for one in classes if one not in known]
            if foreign:
                where = self.root / name / foreign[0]
                raise InvalidInputError(f"{where} must be named as one of the classes in {self.root / 'train'}")
            if not classes:
                hide = "put images in <class>/ there, or hide it by a dot before its name"
                raise NoDataError(f"no folder of a class in {self.root / name}: {hide}")
        return tuple(found)

    def _read(self, name: str) -> Split:
        if name == "train" or (name == "val" and name not in self._folders):
            everything, held_out = self._training_part
            return everything.where(held_out if name == "val" else ~held_out)
        if name in self._folders:
            return self._images_in(name)
        return self._read("test").under(Shift.parse(name))

    @cached_property
    def _training_part(self) -> tuple[Split, Tensor]:
        """The images in train, and which of them are held out."""
        everything = self._images_in("train")
        if "val" in self._folders:
            return everything, everything.labels < 0
        held_out = validation_rows(everything.labels, max(1, round(DEFAULT_VALIDATION_SHARE * len(everything))))
        left = bincount(everything.labels[~held_out], minlength=self.n_classes)
        if not left.all():
            lone = self.root / "train" / self.class_names[int(left.argmin())]
            raise InvalidInputError(f"{lone} must have an image more: its only one is held out, as there is no val")
        return everything, held_out

    def _images_in(self, name: str) -> Split:
        folders = [self.root / name / one for one in self.class_names]
        hint = f"put files {', '.join(IMAGE_SUFFIXES)} there"
        every = name == "train"
        images, labels = images_by_class(self.root, folders, self.image_size, hint=hint, every_class=every)
        return Split(images, labels, {"file": images.names})
