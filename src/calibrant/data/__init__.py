"""Data sets, read from the files of their official layout, with splits that do not change."""

from typing import TYPE_CHECKING

from calibrant._lazy import on_first_use

if TYPE_CHECKING:
    from calibrant.data.arrays import ArrayData
    from calibrant.data.base import DataSet, Split, corruption_shifts
    from calibrant.data.cifar import read_cifar
    from calibrant.data.embedded import read_fashion_mnist_mini
    from calibrant.data.folder import ImageFolder
    from calibrant.data.idx import read_idx, read_mnist_files
    from calibrant.data.image_files import ImageFiles, read_image
    from calibrant.data.sources import DatasetInfo
    from calibrant.data.splits import class_prior, validation_rows
    from calibrant.data.table import DATASETS, open_dataset
    from calibrant.data.tiny_imagenet import TinyImageNet
    from calibrant.data.wilds import WildsData

__all__ = [
    "DATASETS",
    "ArrayData",
    "DataSet",
    "DatasetInfo",
    "ImageFiles",
    "ImageFolder",
    "Split",
    "TinyImageNet",
    "WildsData",
    "class_prior",
    "corruption_shifts",
    "open_dataset",
    "read_cifar",
    "read_fashion_mnist_mini",
    "read_idx",
    "read_image",
    "read_mnist_files",
    "validation_rows",
]

# on first use: the list of data sets must not wait for torch
__getattr__ = on_first_use(
    __name__,
    {
        "ArrayData": "arrays",
        "DATASETS": "table",
        "DataSet": "base",
        "DatasetInfo": "sources",
        "ImageFiles": "image_files",
        "ImageFolder": "folder",
        "Split": "base",
        "TinyImageNet": "tiny_imagenet",
        "WildsData": "wilds",
        "class_prior": "splits",
        "corruption_shifts": "base",
        "open_dataset": "table",
        "read_cifar": "cifar",
        "read_fashion_mnist_mini": "embedded",
        "read_idx": "idx",
        "read_image": "image_files",
        "read_mnist_files": "idx",
        "validation_rows": "splits",
    },
)
