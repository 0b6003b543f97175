"""CIFAR-10 and CIFAR-100 in their binary layout: a row of label bytes and 3 x 32 x 32 pixels per image."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant._files import read_error
from calibrant._names import check_choice
from calibrant._paths import as_path
from calibrant._signatures import checked
from calibrant.errors import CorruptFileError, NoDataError

N_VALUES = 3 * 32 * 32
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905  (a list of a hundred quoted names is harder to read)
)


@dataclass(frozen=True)
class CifarLayout:
    """The files of an archive by part, and the number of label bytes of a row, of which the last is the label."""

    archive: str
    folder: str
    files: dict[str, tuple[str, ...]]
    n_label_bytes: int
    pickled: str  # the folder of the version that is not read

    def sizes(self, n_train: int, n_test: int) -> dict[str, int | None]:
        """The bytes of each file."""
        width = self.n_label_bytes + N_VALUES
        rows = {"train": n_train, "test": n_test}
        return {file: rows[part] // len(files) * width for part, files in self.files.items() for file in files}


LAYOUTS = {
    "cifar10": CifarLayout(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)},
        n_label_bytes=1,
        pickled="cifar-10-batches-py",
    ),
    "cifar100": CifarLayout(
        "cifar-100-binary.tar.gz",
        "cifar-100-binary",
        {"train": ("train.bin",), "test": ("test.bin",)},
        n_label_bytes=2,
        pickled="cifar-100-python",
    ),
}


@checked
def read_cifar(folder: str | os.PathLike[str], part: str, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Read CIFAR-10 or CIFAR-100 in the binary version, in official order.

    Args:
        folder: The folder where the archive was unpacked, or the folder in it.
        part: "train" or "test".
        name: "cifar10" or "cifar100"; by default the one that is there.

    Returns:
        Images, uint8 (n, 3, 32, 32), and labels, int64 (n,).

    Raises:
        UnknownNameError: there is no such part or name.
        NoDataError: the files are not there.
        CorruptFileError: a file is not of rows of labels and pixels.
    """
    layouts = list(LAYOUTS.values()) if name is None else [LAYOUTS[check_choice("name", name, LAYOUTS)]]
    check_choice("part", part, layouts[0].files)
    folder = as_path("folder", folder)
    for layout in layouts:
        files = layout.files[part]
        for parent in (folder / layout.folder, folder):
            if (parent / files[0]).is_file():
                parts = [_read_batch(parent / file, layout.n_label_bytes) for file in files]
                images, labels = zip(*parts, strict=True)
                return torch.cat(images), torch.cat(labels)
    needed = " or ".join(f"{layout.folder}/{layout.files[part][0]}" for layout in layouts)
    if any((folder / layout.pickled).is_dir() for layout in layouts):
        raise NoDataError(f"{folder} has the pickled version of CIFAR, which is not read: put {needed} there instead")
    raise NoDataError(f"no {part} images of CIFAR in {folder}: put {needed}, from the binary version's archive, there")


def _read_batch(path: Path, n_label_bytes: int) -> tuple[Tensor, Tensor]:
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise read_error(path, error) from None
    width = n_label_bytes + N_VALUES
    if len(values) == 0 or len(values) % width:
        raise CorruptFileError(f"{path} must be rows of {width} bytes, got {len(values)} bytes")
    rows = torch.from_numpy(values).view(-1, width)
    return rows[:, n_label_bytes:].contiguous().view(-1, 3, 32, 32), rows[:, n_label_bytes - 1].long()
