"""A user's folder of images: train/<class>/..., and optionally val, test and shifted tests."""

import os
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor, bincount

from calibrant._signatures import checked
from calibrant.data.base import DataSet, Split, corruption_shifts
from calibrant.data.csv_columns import CsvColumns, read_csv_columns
from calibrant.data.image_files import IMAGE_SUFFIXES, images_by_class, visible_folders
from calibrant.data.splits import validation_rows
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.predictions import RESERVED
from calibrant.shifts import Shift

DEFAULT_SIZE = 64
DEFAULT_VALIDATION_SHARE = 0.1
COLUMNS_FILE = "columns.csv"
SHIFT_COLUMNS = ("split", "corruption", "severity", "origin")
OF_PREDICTIONS = ("image", "logit_norm", "feature_norm", "member_disagreement", "mutual_information")
OWN_COLUMNS = ("folder", *SHIFT_COLUMNS, *OF_PREDICTIONS)
SPLIT_FOLDERS = ("train", "val", "test")


class ImageFolder(DataSet):
    """Images in root/train/<class>/, root/val/<class>/, root/test/<class>/, at any depth below their class.

    The classes are the folders in train, sorted; in other folders some may be missing. Without val, a fixed tenth of
    train is held out. Every other folder in root is a shifted test of its name, such as root/hospital_b/<class>/; with
    a test, its corruptions, such as fog-3, are shifted tests too. Hidden folders and files are ignored. The column
    "file" is the path below root. Where images lie in folders below a class, "folder" is the path below it. A file
    root/columns.csv with a column "file" gives the others of it to the images.

    Args:
        root: The folder; by default the environment variable CALIBRANT_DATA, or data.
        image_size: The side to which images are resized, 64 by default.
    """

    can_be_fetched = False

    @checked
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
        return SPLIT_FOLDERS if "test" in self._folders else SPLIT_FOLDERS[:2]

    @property
    def shifts(self) -> tuple[str, ...]:
        """The folders of the user come first, also if one is called fog-3."""
        own = tuple(name for name in self._folders if name not in SPLIT_FOLDERS)
        generated = corruption_shifts() if "test" in self._folders else ()
        return (*own, *(name for name in generated if name not in own))

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        """The folders in root; a wrong one is refused before training."""
        known = set(self.class_names)
        found = {name: visible_folders(self.root / name) for name in visible_folders(self.root)}
        for name, classes in found.items():
            foreign = [one for one in classes if one not in known]
            if foreign:
                where = self.root / name / foreign[0]
                raise InvalidInputError(f"{where} must be named as one of the classes in {self.root / 'train'}")
            if not classes:
                hide = "put images in <class>/ there, or start its name with a dot to ignore it"
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
        """The images in train, and the mask of those held out."""
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
        columns = {"file": images.names}
        if self._has_subfolders:
            below = [name.split("/", 2)[2].rpartition("/")[0] for name in images.names.to_pylist()]
            columns["folder"] = pa.array([folder or None for folder in below], pa.string())
        return Split(images, labels, columns | self._listed_columns(images.names))

    @cached_property
    def _has_subfolders(self) -> bool:
        return any(visible_folders(self.root / part / one) for part in self._folders for one in self.class_names)

    @cached_property
    def _listed(self) -> CsvColumns | None:
        """The file columns.csv, if there is one."""
        path = self.root / COLUMNS_FILE
        if not path.is_file():
            return None
        listed = read_csv_columns(path, ["file"], others=True)
        for name in listed.table.column_names:
            if name in (*RESERVED, *OWN_COLUMNS) or listed.table.column_names.count(name) > 1:
                raise InvalidInputError(f"{path} must not have a column {name!r}, or it twice: give it another name")
        files = listed.text("file")
        counts = pc.value_counts(files)
        twice = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(twice):
            raise InvalidInputError(f"{path} must name every file once, got {twice[0]['values'].as_py()!r} twice")
        return listed

    def _listed_columns(self, names: pa.StringArray) -> dict[str, pa.Array]:
        """The columns of columns.csv for these images, each of which it must name."""
        if self._listed is None:
            return {}
        rows = pc.index_in(names, value_set=self._listed.text("file"))
        if rows.null_count:
            missing = names.filter(rows.is_null())[0].as_py()
            raise InvalidInputError(f"{self._listed.path} must name every image, got none of {missing!r}")
        table = self._listed.table.drop_columns("file").take(rows)
        return {name: table.column(name).combine_chunks() for name in table.column_names}
