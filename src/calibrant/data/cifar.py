"""CIFAR-10 and CIFAR-100 in their binary layout: a row of label bytes and 3 x 32 x 32 pixels per image."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
class Layout:
    """The files of an archive, and how many bytes of labels begin a row; the last one counts."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    n_label_bytes: int
    pickled: str  # the folder of the version that is not read

    def files(self, part: str) -> tuple[str, ...]:
        return self.test if part == "test" else self.train

    def sizes(self, n_train: int, n_test: int) -> dict[str, int | None]:
        """The bytes of each file, for so many images in all of its part."""
        width = self.n_label_bytes + N_VALUES
        train = {file: n_train // len(self.train) * width for file in self.train}
        return {**train, **{file: n_test // len(self.test) * width for file in self.test}}


LAYOUTS = {
    "cifar10": Layout(
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        ("test_batch.bin",),
        n_label_bytes=1,
        pickled="cifar-10-batches-py",
    ),
    "cifar100": Layout(
        "cifar-100-binary.tar.gz",
        "cifar-100-binary",
        ("train.bin",),
        ("test.bin",),
        n_label_bytes=2,
        pickled="cifar-100-python",
    ),
}


def read_cifar(folder: str | os.PathLike[str], part: str, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Images, uint8 (n, 3, 32, 32), and labels, int64 (n,), of the part "train" or "test", in official order.

    folder: where the archive was unpacked, or the folder in it. name: "cifar10" or "cifar100"; else what is there.
    """
    layouts = list(LAYOUTS.values()) if name is None else [LAYOUTS[name]]
    for layout in layouts:
        files = layout.files(part)
        for place in (Path(folder) / layout.folder, Path(folder)):
            if (place / files[0]).is_file():
                parts = [_read(place / file, layout.n_label_bytes) for file in files]
                images, labels = zip(*parts, strict=True)
                return torch.cat(images), torch.cat(labels)
    wanted = " or ".join(f"{layout.folder}/{layout.files(part)[0]}" for layout in layouts)
    if any((Path(folder) / layout.pickled).is_dir() for layout in layouts):
        raise NoDataError(f"{folder} has the pickled version of CIFAR, which is not read: put {wanted} there instead")
    raise NoDataError(f"no {part} images of CIFAR in {folder}: put {wanted}, from the binary version's archive, there")


def _read(path: Path, n_label_bytes: int) -> tuple[Tensor, Tensor]:
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror}") from None
    width = n_label_bytes + N_VALUES
    if len(values) == 0 or len(values) % width:
        raise CorruptFileError(f"{path} must be rows of {width} bytes, got {len(values)} bytes")
    rows = torch.from_numpy(values).view(-1, width)
    return rows[:, n_label_bytes:].contiguous().view(-1, 3, 32, 32), rows[:, n_label_bytes - 1].long()
