"""The table `DATASETS`."""

from functools import partial

from calibrant.data import cifar, fashion
from calibrant.data.base import DataSet
from calibrant.data.digits import read_digits
from calibrant.data.idx import read_mnist_files

TEN = tuple(str(digit) for digit in range(10))

DATASETS: dict[str, DataSet] = {
    "fashion_mnist_mini": DataSet(
        fashion.CLASS_NAMES,
        image_size=28,
        channels=1,
        read=lambda _root, part: fashion.read_fashion_mnist_mini(part),
        n_validation=1_000,
    ),
    "digits": DataSet(TEN, image_size=8, channels=1, read=read_digits, n_validation=200),
    "fashion_mnist": DataSet(
        fashion.CLASS_NAMES,
        image_size=28,
        channels=1,
        read=lambda root, part: read_mnist_files(root / "fashion-mnist", part),
        n_validation=5_000,
    ),
    "mnist": DataSet(
        TEN,
        image_size=28,
        channels=1,
        read=lambda root, part: read_mnist_files(root / "mnist", part),
        n_validation=5_000,
    ),
    "cifar10": DataSet(
        cifar.CIFAR10_CLASSES,
        image_size=32,
        channels=3,
        read=partial(cifar.read_cifar, name="cifar10"),
        n_validation=5_000,
        published="CIFAR-10-C",
    ),
    "cifar100": DataSet(
        cifar.CIFAR100_CLASSES,
        image_size=32,
        channels=3,
        read=partial(cifar.read_cifar, name="cifar100"),
        n_validation=5_000,
        published="CIFAR-100-C",
    ),
}
