"""The shifts in the wild of WILDS (Koh et al., ICML 2021): Camelyon17 by hospital, iWildCam by camera trap."""

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from calibrant.data.base import DataSet, Split
from calibrant.data.csv_columns import read_csv_columns
from calibrant.data.image_files import ImageFiles
from calibrant.errors import CorruptFileError, NoDataError

CAMELYON17_CLASSES = ("normal", "tumor")
UNUSED_CATEGORY = 99_999  # iWildCam lists categories that no image shows
SPLITS = ("train", "id_val", "id_test")
SHIFTS = ("val", "test")
VAL_HOSPITAL, TEST_HOSPITAL = 1, 2


class WildsData(DataSet):
    """A data set of WILDS in its folder below the root, as camelyon17_v1.0.

    The splits have the names that WILDS gave them: "val" and "test" are out of distribution, of other hospitals,
    cameras or years than the training images, "id_val" and "id_test" are not. Choices are made on "val".

    files: those of the metadata, which read(folder, class_names) reads: a row for each image, with its path below
    the folder, its label, its split ("" for none) and any other columns. class_names: as they are, or read(folder).
    """

    shifts = SHIFTS

    def __init__(
        self,
        name: str,
        root: str | os.PathLike[str] | None = None,
        *,
        folder: str,
        native_size: int,
        files: Sequence[str],
        read: Callable[[Path, Sequence[str]], pa.Table],
        class_names: tuple[str, ...] | Callable[[Path], tuple[str, ...]],
        splits: tuple[str, ...] = SPLITS,
        image_size: int | None = None,
    ) -> None:
        super().__init__(name, root, image_size=native_size if image_size is None else image_size)
        self.folder = self.root / folder
        self.names, self.files, self.read, self.splits = class_names, files, read, splits

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        if isinstance(self.names, tuple):
            return self.names
        self._check_files()
        return self.names(self.folder)

    @cached_property
    def _rows(self) -> pa.Table:
        self._check_files()
        return self.read(self.folder, self.class_names)

    def _check_files(self) -> None:
        for file in self.files:
            if not (self.folder / file).is_file():
                what = f"unpack WILDS' archive {self.folder.name} there"
                raise NoDataError(f"no {file} of {self.name} in {self.folder}: {what}")

    def _read(self, name: str) -> Split:
        rows = self._rows.filter(pc.field("split") == name)
        if len(rows) == 0:
            raise CorruptFileError(f"{self.folder / self.files[0]} has no rows of the split {name!r}")
        columns = {column: pa.concat_arrays(rows[column].chunks) for column in rows.column_names if column != "split"}
        paths, labels = columns.pop("path"), columns.pop("label")
        return Split(ImageFiles(self.folder, paths, self.image_size), torch.from_numpy(np.array(labels)), columns)


def read_camelyon17(folder: Path, class_names: Sequence[str]) -> pa.Table:
    """Every patch, with its hospital, slide and patient; the hospital decides before the split that is written."""
    wanted = ("patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
    file = read_csv_columns(folder / "metadata.csv", wanted)
    patient, node, x, y = (file.text(name) for name in wanted[:4])  # a patient is "004", not 4
    hospital, labels, written = file.whole("center"), file.whole("tumor"), file.whole("split")
    file.require("tumor", (labels >= 0) & (labels < len(class_names)), "0 or 1")
    file.require("split", (written == 0) | (written == 1), "0 or 1")
    splits = np.select(
        [hospital == VAL_HOSPITAL, hospital == TEST_HOSPITAL, written == 0], ["val", "test", "train"], "id_val"
    )
    node_folder = joined("patient_", patient, "_node_", node)
    names = joined("patches/", node_folder, "/patch_", node_folder, "_x_", x, "_y_", y, ".png")
    columns = {"hospital": hospital, "slide": file.whole("slide"), "patient": patient}
    return pa.table({"path": names, "label": labels, "split": splits, **columns})


def read_iwildcam(folder: Path, class_names: Sequence[str]) -> pa.Table:
    """Every image of a camera trap, with its location, sequence and time as written."""
    wanted = ("split", "location_remapped", "sequence_remapped", "y", "datetime", "filename")
    file = read_csv_columns(folder / "metadata.csv", wanted)
    labels, splits = file.whole("y"), np.array(file.text("split").to_pylist())
    file.require("y", (labels >= 0) & (labels < len(class_names)), f"in [0, {len(class_names) - 1}]")
    known = (*SPLITS, *SHIFTS)
    file.require("split", np.isin(splits, known), f"one of {', '.join(known)}")
    return pa.table(
        {
            "path": joined("train/", file.text("filename")),
            "label": labels,
            "split": splits,
            "location": file.whole("location_remapped"),
            "sequence": file.whole("sequence_remapped"),
            "datetime": file.text("datetime"),
        }
    )


def read_iwildcam_classes(folder: Path) -> tuple[str, ...]:
    """The categories that images show, 182 in the official file."""
    file = read_csv_columns(folder / "categories.csv", ("y", "name"))
    labels, names = file.whole("y"), file.text("name").to_pylist()
    used = np.flatnonzero(labels != UNUSED_CATEGORY)
    order = used[labels[used].argsort(kind="stable")]
    wrong = np.flatnonzero(labels[order] != np.arange(len(order)))
    if len(wrong) or len(order) < 2:
        got = f"{labels[order[wrong[0]]]} in the place of {wrong[0]}" if len(wrong) else f"{len(order)} classes"
        raise CorruptFileError(f"{file.path}: y must count from 0 to 1 or more without a gap, got {got}")
    return tuple(names[row] for row in order)


def joined(*parts: str | pa.StringArray) -> pa.StringArray:
    """The parts, of text or one for each row, after one another."""
    return pc.binary_join_element_wise(*parts, "")
