"""WILDS (Koh et al., ICML 2021): Camelyon17 by hospital, iWildCam by camera trap, FMoW by year and region."""

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from calibrant._signatures import checked
from calibrant.data.base import DataSet, Split
from calibrant.data.csv_columns import CsvColumns, mask, read_csv_columns
from calibrant.data.image_files import ImageFiles
from calibrant.errors import CorruptFileError, NoDataError

UNUSED_CATEGORY = 99_999  # iWildCam lists categories that no image shows
SPLITS = ("train", "id_val", "id_test")
SHIFTS = ("val", "test")
VAL_HOSPITAL, TEST_HOSPITAL = 1, 2
VAL_YEAR, TEST_YEAR = 2013, 2016  # the first years of the splits out of distribution
SEQUESTERED = "seq"  # images that WILDS does not publish; files are numbered by all rows
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|\+00:00)?$"
OTHER_REGION = "Other"


class WildsData(DataSet):
    """A data set of WILDS in its folder below the root, such as camelyon17_v1.0.

    The splits have the names of WILDS: "val" and "test" are out of distribution, of other hospitals, cameras or years
    than the training images; "id_val" and "id_test" are not. Models are selected on "val".

    Args:
        name: The name of the data set.
        root: The folder of the data sets.
        folder: The folder of the data set below the root.
        native_size: The side of the images in pixels.
        files: The files of the metadata.
        read: read(folder, class_names) returns a row for each image: its path below the folder, its label, its split
            ("" for none) and any other columns.
        class_names: The names, or class_names(folder) that reads them.
        splits: The splits that are not shifted.
        image_size: The side to which images are resized, if not native_size.
    """

    shifts = SHIFTS

    @checked
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
                what = f"unpack the archive {self.folder.name} of WILDS there"
                raise NoDataError(f"no {file} of {self.name} in {self.folder}: {what}")

    def _read(self, name: str) -> Split:
        rows = self._rows.filter(pc.field("split") == name)
        if len(rows) == 0:
            raise CorruptFileError(f"{self.folder / self.files[0]} has no rows of the split {name!r}")
        columns = {column: pa.concat_arrays(rows[column].chunks) for column in rows.column_names if column != "split"}
        paths, labels = columns.pop("path"), columns.pop("label")
        return Split(ImageFiles(self.folder, paths, self.image_size), torch.from_numpy(np.array(labels)), columns)


def read_camelyon17(folder: Path, class_names: Sequence[str]) -> pa.Table:
    """Every patch, with its hospital, slide and patient; the hospital overrides the split of the file."""
    wanted = ("patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
    file = read_csv_columns(folder / "metadata.csv", wanted)
    patient, node, x, y = (file.text(name) for name in wanted[:4])  # a patient is "004", not 4
    hospital, labels, written = file.integers("center"), file.integers("tumor"), file.integers("split")
    file.require("tumor", (labels >= 0) & (labels < len(class_names)), "0 or 1")
    file.require("split", (written == 0) | (written == 1), "0 or 1")
    splits = np.select(
        [hospital == VAL_HOSPITAL, hospital == TEST_HOSPITAL, written == 0], ["val", "test", "train"], "id_val"
    )
    node_folder = _join("patient_", patient, "_node_", node)
    names = _join("patches/", node_folder, "/patch_", node_folder, "_x_", x, "_y_", y, ".png")
    columns = {"hospital": hospital, "slide": file.integers("slide"), "patient": patient}
    return pa.table({"path": names, "label": labels, "split": splits, **columns})


def read_iwildcam(folder: Path, class_names: Sequence[str]) -> pa.Table:
    """Every image of a camera trap, with its location, sequence and time."""
    wanted = ("split", "location_remapped", "sequence_remapped", "y", "datetime", "filename")
    file = read_csv_columns(folder / "metadata.csv", wanted)
    labels, splits = file.integers("y"), np.array(file.text("split").to_pylist())
    file.require("y", (labels >= 0) & (labels < len(class_names)), f"in [0, {len(class_names) - 1}]")
    known = (*SPLITS, *SHIFTS)
    file.require("split", np.isin(splits, known), f"one of {', '.join(known)}")
    return pa.table(
        {
            "path": _join("train/", file.text("filename")),
            "label": labels,
            "split": splits,
            "location": file.integers("location_remapped"),
            "sequence": file.integers("sequence_remapped"),
            "datetime": file.text("datetime"),
        }
    )


def read_iwildcam_classes(folder: Path) -> tuple[str, ...]:
    """The categories that images show, 182 in the official file."""
    file = read_csv_columns(folder / "categories.csv", ("y", "name"))
    labels, names = file.integers("y"), file.text("name").to_pylist()
    used = np.flatnonzero(labels != UNUSED_CATEGORY)
    order = used[labels[used].argsort(kind="stable")]
    wrong = np.flatnonzero(labels[order] != np.arange(len(order)))
    if len(wrong) or len(order) < 2:
        got = f"{labels[order[wrong[0]]]} where {wrong[0]} is expected" if len(wrong) else f"{len(order)} classes"
        raise CorruptFileError(f"{file.path}: y must count from 0 to 1 or more without a gap, got {got}")
    return tuple(names[row] for row in order)


def read_fmow(folder: Path, class_names: Sequence[str]) -> pa.Table:
    """Every image, with its region, year and country_code; an image whose year contradicts its split is in none."""
    file = read_csv_columns(folder / "rgb_metadata.csv", ("split", "category", "country_code", "timestamp"))
    written = np.array(file.text("split").to_pylist())
    file.require("split", np.isin(written, ("train", "val", "test", SEQUESTERED)), "train, val, test or seq")
    open_to_all = written != SEQUESTERED
    labels = np.asarray(pc.index_in(file.text("category"), pa.array(class_names)).fill_null(-1), dtype=np.int64)
    file.require("category", (labels >= 0) | ~open_to_all, f"one of the {len(class_names)} classes")
    years, country = _years(file, open_to_all), file.text("country_code")
    columns = {"region": _regions(folder, country), "year": years, "country_code": country}
    numbers = pa.array(np.arange(len(file))).cast(pa.string())
    names = _join("images/rgb_img_", numbers, ".png")
    return pa.table({"path": names, "label": labels, "split": _fmow_splits(written, years), **columns})


def _years(file: CsvColumns, needed: np.ndarray) -> np.ndarray:
    """The year of each timestamp; 0 where none is needed."""
    times = file.text("timestamp")
    readable = pc.match_substring_regex(times, TIME)
    file.require("timestamp", mask(readable) | ~needed, "a time as 2016-02-04T19:29:21Z")
    first_four = pc.if_else(readable, pc.utf8_slice_codeunits(times, 0, 4), "0")
    return np.asarray(first_four.cast(pa.int64()))


def _fmow_splits(written: np.ndarray, years: np.ndarray) -> np.ndarray:
    past, middle, recent = years < VAL_YEAR, (years >= VAL_YEAR) & (years < TEST_YEAR), years >= TEST_YEAR
    rules = {
        "train": past & (written == "train"),
        "id_val": past & (written == "val"),
        "id_test": past & (written == "test"),
        "val": middle & (written == "val"),
        "test": recent & (written == "test"),
    }
    return np.select(list(rules.values()), list(rules), "")


def _regions(folder: Path, country: pa.StringArray) -> pa.StringArray:
    file = read_csv_columns(folder / "country_code_mapping.csv", ("alpha-3", "region"))
    regions = file.text("region")
    named = pc.if_else(pc.equal(regions, ""), OTHER_REGION, regions)  # Antarctica has none
    return named.take(pc.index_in(country, file.text("alpha-3"))).fill_null(OTHER_REGION)


def _join(*parts: str | pa.StringArray) -> pa.StringArray:
    """Concatenate texts, each a constant or one for each row."""
    return pc.binary_join_element_wise(*parts, "")
