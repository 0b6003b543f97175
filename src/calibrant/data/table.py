"""The table `DATASETS`: each entry makes a data set of a folder, `DATASETS["cifar10"]("data")`."""

import os
from functools import partial
from typing import Protocol

from calibrant._checks import check_choice
from calibrant.data import cifar, fashion
from calibrant.data.arrays import ArrayData
from calibrant.data.base import DataSet
from calibrant.data.digits import read_digits
from calibrant.data.idx import read_mnist_files

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
}


def open_dataset(name: str, root: str | os.PathLike[str] | None = None, *, image_size: int | None = None) -> DataSet:
    """The data set of this name, in a folder.

    >>> digits = open_dataset("digits")
    >>> digits.n_classes, len(digits.split("test")), digits.split("fog-3").images.shape
    (10, 600, torch.Size([600, 1, 8, 8]))
    """
    return DATASETS[check_choice("data", name, DATASETS)](root, image_size=image_size)
