"""The table `DATASETS`: each entry makes a data set of a folder, `DATASETS["cifar10"]("data")`."""

import os
from functools import partial
from typing import Protocol

from calibrant._checks import check_choice
from calibrant.data import cifar, fashion, fmow, wilds
from calibrant.data.arrays import ArrayData
from calibrant.data.base import DataSet
from calibrant.data.digits import read_digits
from calibrant.data.folder import ImageFolder
from calibrant.data.idx import read_mnist_files
from calibrant.data.tiny_imagenet import TinyImageNet
from calibrant.data.wilds import WildsData

TEN = tuple(str(digit) for digit in range(10))


class OpensData(Protocol):
    """An entry of the table; see :class:`DataSet` for root and image_size."""

    def __call__(self, root: str | os.PathLike[str] | None = None, *, image_size: int | None = None) -> DataSet: ...


DATASETS: dict[str, OpensData] = {
    "fashion_mnist_mini": partial(
        ArrayData,
        "fashion_mnist_mini",
        class_names=fashion.CLASS_NAMES,
        native_size=28,
        channels=1,
        read=lambda _root, part: fashion.read_fashion_mnist_mini(part),
        n_validation=1_000,
    ),
    "digits": partial(
        ArrayData, "digits", class_names=TEN, native_size=8, channels=1, read=read_digits, n_validation=200
    ),
    "fashion_mnist": partial(
        ArrayData,
        "fashion_mnist",
        class_names=fashion.CLASS_NAMES,
        native_size=28,
        channels=1,
        read=lambda root, part: read_mnist_files(root / "fashion-mnist", part),
        n_validation=5_000,
    ),
    "mnist": partial(
        ArrayData,
        "mnist",
        class_names=TEN,
        native_size=28,
        channels=1,
        read=lambda root, part: read_mnist_files(root / "mnist", part),
        n_validation=5_000,
    ),
    "cifar10": partial(
        ArrayData,
        "cifar10",
        class_names=cifar.CIFAR10_CLASSES,
        native_size=32,
        channels=3,
        read=partial(cifar.read_cifar, name="cifar10"),
        n_validation=5_000,
        published="CIFAR-10-C",
    ),
    "cifar100": partial(
        ArrayData,
        "cifar100",
        class_names=cifar.CIFAR100_CLASSES,
        native_size=32,
        channels=3,
        read=partial(cifar.read_cifar, name="cifar100"),
        n_validation=5_000,
        published="CIFAR-100-C",
    ),
    "tiny_imagenet": TinyImageNet,
    "camelyon17": partial(
        WildsData,
        "camelyon17",
        version="1.0",
        class_names=wilds.CAMELYON17_CLASSES,
        native_size=96,
        files=("metadata.csv",),
        read=wilds.read_camelyon17,
        splits=("train", "id_val"),
    ),
    "iwildcam": partial(
        WildsData,
        "iwildcam",
        version="2.0",
        class_names=wilds.read_iwildcam_classes,
        native_size=224,  # the pictures are of many sizes; WILDS trains on 448
        files=("metadata.csv", "categories.csv"),
        read=wilds.read_iwildcam,
    ),
    "fmow": partial(
        WildsData,
        "fmow",
        version="1.1",
        class_names=fmow.CLASSES,
        native_size=224,
        files=("rgb_metadata.csv", "country_code_mapping.csv"),
        read=fmow.read_fmow,
    ),
    "image_folder": ImageFolder,
}


def open_dataset(name: str, root: str | os.PathLike[str] | None = None, *, image_size: int | None = None) -> DataSet:
    """The data set of this name, in a folder.

    >>> digits = open_dataset("digits")
    >>> digits.n_classes, len(digits.split("test")), digits.split("fog-3").images.shape
    (10, 600, torch.Size([600, 1, 8, 8]))
    """
    return DATASETS[check_choice("data", name, DATASETS)](root, image_size=image_size)
