"""The table `DATASETS`, with an entry for each data set; `open_dataset` opens one."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from calibrant._names import CORRUPTIONS, check_choice
from calibrant._signatures import checked
from calibrant.data.layouts import (
    CAMELYON17_CLASSES,
    CIFAR10_CLASSES,
    CIFAR100_CLASSES,
    FASHION_CLASSES,
    FMOW_CLASSES,
    LAYOUTS,
    MNIST_FILES,
    TINY_CORRUPTED_FOLDER,
    TINY_FOLDER,
    TINY_SIZE,
)
from calibrant.data.sources import DatasetInfo, Download, archive, cifar_c, plain_files, zenodo

if TYPE_CHECKING:
    from calibrant.data.base import DataSet

RESEARCH = "research only (ImageNet)"
DIGIT_NAMES = tuple(str(digit) for digit in range(10))
EXTRA_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # a second archive of Tiny-ImageNet-C


def _imported(module: str, name: str) -> Callable[..., Any]:
    """A function or class of this package, imported when it is called: the list of data sets needs no torch."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(f"calibrant.data.{module}"), name)(*args, **options)

    return call


def _in_memory(
    name: str, licence: str, rows: tuple[int, int, int], downloads: tuple[Download, ...] = (), **options: Any
) -> DatasetInfo:
    """A data set of `ArrayData`; rows: of training, validation and test; options: those of `ArrayData`."""
    opens = partial(_imported("arrays", "ArrayData"), name, n_validation=rows[1], **options)
    splits = dict(zip(("train", "val", "test"), rows, strict=True))
    return DatasetInfo(licence, len(options["class_names"]), options["native_size"], opens, splits, downloads=downloads)


def _mnist(name: str, licence: str, class_names: tuple[str, ...], folder: str, url: str) -> DatasetInfo:
    """MNIST, or a data set in the same files."""
    return _in_memory(
        name,
        licence,
        (55_000, 5_000, 10_000),
        plain_files(url, folder, MNIST_FILES),
        class_names=class_names,
        native_size=28,
        channels=1,
        read=lambda root, part: _imported("idx", "read_mnist_files")(root / folder, part),
    )


def _cifar(name: str, class_names: tuple[str, ...], published: str) -> DatasetInfo:
    layout = LAYOUTS[name]
    url = f"https://www.cs.toronto.edu/~kriz/{layout.archive}"
    return _in_memory(
        name,
        "none stated",
        (45_000, 5_000, 10_000),
        (archive(url, layout.archive, layout.folder, layout.sizes(50_000, 10_000)),),
        class_names=class_names,
        native_size=32,
        read=partial(_imported("cifar", "read_cifar"), name=name),
        published=published,
    )


def _wilds(
    name: str,
    licence: str,
    n_classes: int,
    *,
    folder: str,
    bundle: str,
    approximate_bytes: int,
    images: str,
    splits: Mapping[str, int],
    shifts: Mapping[str, int],
    **options: Any,
) -> DatasetInfo:
    """A data set of `WildsData`; images: the folder of its images; options: those of `WildsData`."""
    url = f"https://worksheets.codalab.org/rest/bundles/{bundle}/contents/blob/"
    opens = partial(_imported("wilds", "WildsData"), name, folder=folder, splits=tuple(splits), **options)
    files = dict.fromkeys([*options["files"], images])
    download = archive(url, f"{folder}.tar.gz", folder, files, approximate_bytes)
    return DatasetInfo(
        licence=licence,
        n_classes=n_classes,
        image_size=options["native_size"],
        opens=opens,
        splits=splits,
        shifts=shifts,
        downloads=(download,),
        corrupted=False,
    )


DATASETS: dict[str, DatasetInfo] = {
    "fashion_mnist_mini": _in_memory(
        "fashion_mnist_mini",
        "MIT",
        (7_000, 1_000, 2_000),
        class_names=FASHION_CLASSES,
        native_size=28,
        channels=1,
        read=lambda _root, part: _imported("embedded", "read_fashion_mnist_mini")(part),
    ),
    "digits": _in_memory(
        "digits",
        "CC BY 4.0",
        (997, 200, 600),
        class_names=DIGIT_NAMES,
        native_size=8,
        channels=1,
        read=_imported("embedded", "read_digits"),
    ),
    "fashion_mnist": _mnist(
        "fashion_mnist",
        "MIT",
        FASHION_CLASSES,
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
    "mnist": _mnist("mnist", "CC BY-SA 3.0", DIGIT_NAMES, "mnist", "https://ossci-datasets.s3.amazonaws.com/mnist"),
    "cifar10": _cifar("cifar10", CIFAR10_CLASSES, "CIFAR-10-C"),
    "cifar100": _cifar("cifar100", CIFAR100_CLASSES, "CIFAR-100-C"),
    "tiny_imagenet": DatasetInfo(
        RESEARCH,
        200,
        TINY_SIZE,
        _imported("tiny_imagenet", "TinyImageNet"),
        {"train": 95_000, "val": 5_000, "test": 10_000},
        downloads=(
            archive(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                TINY_FOLDER,
                dict.fromkeys(("wnids.txt", "words.txt", "train", "val/images", "val/val_annotations.txt")),
            ),
        ),
    ),
    "camelyon17": _wilds(
        "camelyon17",
        "CC0",
        len(CAMELYON17_CLASSES),
        folder="camelyon17_v1.0",
        native_size=96,
        bundle="0xe45e15f39fb54e9d9e919556af67aabe",
        approximate_bytes=10_658_709_504,
        images="patches",
        files=("metadata.csv",),
        splits={"train": 302_436, "id_val": 33_560},
        shifts={"val": 34_904, "test": 85_054},
        class_names=CAMELYON17_CLASSES,
        read=_imported("wilds", "read_camelyon17"),
    ),
    "iwildcam": _wilds(
        "iwildcam",
        "CDLA-Permissive 1.0",
        182,
        folder="iwildcam_v2.0",
        native_size=224,  # the images are of many sizes; WILDS trains on 448
        bundle="0x6313da2b204647e79a14b468131fcd64",
        approximate_bytes=11_957_420_032,
        images="train",
        files=("metadata.csv", "categories.csv"),
        splits={"train": 129_809, "id_val": 7_314, "id_test": 8_154},
        shifts={"val": 14_961, "test": 42_791},
        class_names=_imported("wilds", "read_iwildcam_classes"),
        read=_imported("wilds", "read_iwildcam"),
    ),
    "fmow": _wilds(
        "fmow",
        "fMoW Challenge Public License",
        len(FMOW_CLASSES),
        folder="fmow_v1.1",
        native_size=224,
        bundle="0xaec91eb7c9d548ebb15e1b5e60f966ab",
        approximate_bytes=53_893_324_800,
        images="images",
        files=("rgb_metadata.csv", "country_code_mapping.csv"),
        splits={"train": 76_863, "id_val": 11_483, "id_test": 11_327},
        shifts={"val": 19_915, "test": 22_108},
        class_names=FMOW_CLASSES,
        read=_imported("wilds", "read_fmow"),
    ),
    "image_folder": DatasetInfo("yours", None, None, _imported("folder", "ImageFolder")),
}
# Published tests, which are fetched separately; the data set of the same name without _c reads them.
CORRUPTED_TESTS: dict[str, DatasetInfo] = {
    "cifar10_c": replace(DATASETS["cifar10"], licence="CC BY 4.0", splits={}, downloads=cifar_c(2535967, "CIFAR-10-C")),
    "cifar100_c": replace(
        DATASETS["cifar100"], licence="CC BY 4.0", splits={}, downloads=cifar_c(3555552, "CIFAR-100-C")
    ),
    "tiny_imagenet_c": replace(
        DATASETS["tiny_imagenet"],
        splits={},
        downloads=tuple(
            zenodo(8206060, f"{file}.tar", TINY_CORRUPTED_FOLDER, dict.fromkeys(names))
            for file, names in {
                "Tiny-ImageNet-C": [name for name in CORRUPTIONS if name not in EXTRA_CORRUPTIONS],
                "Tiny-ImageNet-C-extra": EXTRA_CORRUPTIONS,
            }.items()
        ),
        n_per_shift=10_000,
    ),
}


def all_infos() -> dict[str, DatasetInfo]:
    """Every data set that can be opened, and every published test, by name."""
    return DATASETS | CORRUPTED_TESTS


def find_info(name: str) -> DatasetInfo:
    """The entry of a data set or of a published test.

    Raises:
        UnknownNameError: there is none of this name.
    """
    known = all_infos()
    return known[check_choice("data", name, known)]


@checked
def open_dataset(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    image_size: int | None = None,
    hold_out: Literal["train", "test"] = "train",
    test_folders: Sequence[str] = (),
) -> "DataSet":
    """Open a data set; nothing is read before a split is.

    Args:
        name: A name in `DATASETS`.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        image_size: The side to which images in files are resized, if not that of the data set.
        hold_out: Where validation images come from: "train" for the data set's own split, "test" for half of its test,
            if a model was trained on all training images elsewhere.
        test_folders: Folders below root with images in folders of the classes' names, each a further shifted test.

    Returns:
        The data set.

    Raises:
        UnknownNameError: there is no data set of this name.
        InvalidInputError: two tests would have one name, or there is no test to halve.

    >>> digits = open_dataset("digits")
    >>> digits.n_classes, len(digits.split("test")), digits.split("fog-3").images.shape
    (10, 600, torch.Size([600, 1, 8, 8]))
    """
    base: DataSet = DATASETS[check_choice("data", name, DATASETS)].opens(root, image_size=image_size)
    halve_test = check_choice("hold_out", hold_out, ("train", "test")) == "test"
    if not (halve_test or test_folders):
        return base
    from calibrant.data.extended import ExtendedData

    return ExtendedData(base, test_folders, halve_test=halve_test)
