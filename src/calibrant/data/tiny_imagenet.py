"""Tiny-ImageNet, 200 classes of 64 x 64 pixels, and Tiny-ImageNet-C (Hendrycks and Dietterich, ICLR 2019)."""

import os
import re
from collections import Counter
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from calibrant._files import read_error
from calibrant._signatures import checked
from calibrant.data.base import DataSet, Split
from calibrant.data.image_files import ImageFiles, images_by_class, visible_folders
from calibrant.data.layouts import TINY_CORRUPTED_FOLDER, TINY_FOLDER, TINY_SIZE
from calibrant.data.splits import validation_rows
from calibrant.errors import CorruptFileError, NoDataError
from calibrant.shifts import Shift

CORRECTED = "Zenodo 8206060"  # the first edition's frost has the 1,000 classes of ImageNet
TINY_VALIDATION_SHARE = 0.05  # 5,000 of the 100,000 training images
WNID = re.compile(r"n\d{8}")
ANNOTATION = re.compile(r"(val_(\d+)\.JPEG)\t(n\d{8})(\t.*)?")  # then the corners of a box


class TinyImageNet(DataSet):
    """Tiny-ImageNet: 5 % of the official training images are held out as "val"; the official val images are "test".

    Classes are in the order of their WordNet ids. The shifted tests are those of Tiny-ImageNet-C if its folders are
    there; its images were cropped from ImageNet again and are not the test images. If not, the test images are
    corrupted when they are read.

    Args:
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        image_size: The side to which images are resized, 64 by default.
    """

    @checked
    def __init__(self, root: str | os.PathLike[str] | None = None, *, image_size: int | None = None) -> None:
        super().__init__("tiny_imagenet", root, image_size=TINY_SIZE if image_size is None else image_size)
        self.folder = self.root / TINY_FOLDER

    @cached_property
    def wnids(self) -> tuple[str, ...]:
        """The WordNet ids of the classes, sorted; the file has another order."""
        path = self.folder / "wnids.txt"
        found = sorted(set(filter(None, self._lines("wnids.txt"))))
        wrong = [wnid for wnid in found if not WNID.fullmatch(wnid)]
        if wrong or len(found) < 2:
            raise CorruptFileError(f"{path} must be WordNet ids as n01443537, got {wrong[0] if wrong else found!r}")
        return tuple(found)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        has_words = (self.folder / "words.txt").is_file()
        words = dict(line.split("\t", 1) for line in self._lines("words.txt") if "\t" in line) if has_words else {}
        first = [words.get(wnid, wnid).split(",")[0].strip() or wnid for wnid in self.wnids]
        n_uses = Counter(first)  # "crane" is a bird and a machine
        return tuple(
            name if n_uses[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(first, self.wnids, strict=True)
        )

    def _read(self, name: str) -> Split:
        if name in ("train", "val"):
            everything, held_out = self._training_part
            return everything.where(held_out if name == "val" else ~held_out)
        return self._test_part if name == "test" else self._shifted(Shift.parse(name))

    @cached_property
    def _training_part(self) -> tuple[Split, Tensor]:
        """The official training images, and the mask of those held out."""
        everything = self._images_in(self.folder / "train", TINY_FOLDER)
        return everything, validation_rows(everything.labels, max(1, round(TINY_VALIDATION_SHARE * len(everything))))

    @cached_property
    def _test_part(self) -> Split:
        """The official val images, in the order of their numbers."""
        file = "val/val_annotations.txt"
        label_of = {wnid: label for label, wnid in enumerate(self.wnids)}
        rows = []
        for number, line in enumerate(self._lines(file), 1):
            match = ANNOTATION.fullmatch(line)
            if match is None or match[3] not in label_of:
                rule = "must be val_<number>.JPEG, a tab and one of wnids.txt"
                raise CorruptFileError(f"{self.folder / file}: line {number} {rule}, got {line[:80]!r}")
            rows.append((int(match[2]), f"{TINY_FOLDER}/val/images/{match[1]}", label_of[match[3]]))
        if not rows:
            raise CorruptFileError(f"{self.folder / file} is empty")
        _, names, labels = zip(*sorted(rows), strict=True)
        return Split(ImageFiles.of(self.root, names, self.image_size), torch.tensor(labels))

    def _shifted(self, shift: Shift) -> Split:
        folder = self.root / TINY_CORRUPTED_FOLDER / shift.corruption / str(shift.severity)
        if not folder.is_dir():
            return self._test_part.under(shift)
        foreign = sorted(set(visible_folders(folder)) - set(self.wnids))
        if foreign:
            what = f"{len(foreign)} classes that are not in Tiny-ImageNet, such as {foreign[0]}"
            raise CorruptFileError(f"{folder} has {what}: put the corrected copy there, {CORRECTED}")
        return self._images_in(folder, TINY_CORRUPTED_FOLDER).with_shift(shift, "published")

    def _images_in(self, folder: Path, archive: str) -> Split:
        folders = [folder / wnid for wnid in self.wnids]
        hint = f"unpack {archive} in {self.root} again"
        return Split(*images_by_class(self.root, folders, self.image_size, hint=hint))

    def _lines(self, file: str) -> list[str]:
        path = self.folder / file
        try:
            return path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            what = f"unpack {TINY_FOLDER}.zip in {self.root}"
            raise NoDataError(f"no {file} of {self.name} in {self.folder}: {what}") from None
        except OSError as error:
            raise read_error(path, error) from None
        except UnicodeDecodeError:
            raise CorruptFileError(f"{path} is not text in UTF-8") from None
