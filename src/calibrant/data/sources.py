"""Where each data set comes from: its downloads with their published sums, what they leave behind, its licence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from calibrant.corruptions import CORRUPTIONS
from calibrant.corruptions.published import CIFAR10_C, CIFAR10_C_LABELS

ARCHIVES = "archives"  # the folder below the root where archives wait to be unpacked
NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Wanted:
    """A file or folder below the root that must be there, with its size and MD5 where they are known."""

    path: str
    n_bytes: int | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Download:
    """A file to fetch, its place below the root, and what it leaves behind there.

    An archive names the folder that it is unpacked into; any other file is the data itself. about_bytes is a size that
    was published in whole blocks of a disk, where neither the exact one nor a sum was.
    """

    url: str
    file: str
    leaves: tuple[Wanted, ...]
    folder: str | None = None
    md5: str | None = None
    n_bytes: int | None = None
    about_bytes: int | None = None


@dataclass(frozen=True)
class Source:
    """What is known of a data set without opening it; splits and shifts count the official rows.

    corrupted: whether its shifted tests are the nineteen corruptions at five severities. per_cell: where each of these
    is a folder of pictures, how many. reads: whether a table entry of the same name reads it.
    """

    licence: str
    n_classes: int | None
    image_size: int | None
    downloads: tuple[Download, ...] = ()
    splits: Mapping[str, int] = field(default_factory=lambda: NONE)
    shifts: Mapping[str, int] = field(default_factory=lambda: NONE)
    corrupted: bool = True
    per_cell: int | None = None
    reads: bool = True

    @property
    def leaves(self) -> tuple[Wanted, ...]:
        return tuple(wanted for download in self.downloads for wanted in download.leaves)


def _split(train: int, val: int, test: int) -> Mapping[str, int]:
    return MappingProxyType({"train": train, "val": val, "test": test})


def _idx(url: str, folder: str, sums: Mapping[str, str]) -> tuple[Download, ...]:
    """The four files of MNIST or a relative, which are read as they are."""
    files = {f"{name}-ubyte.gz": md5 for name, md5 in sums.items()}
    return tuple(
        Download(f"{url}{name}", f"{folder}/{name}", (Wanted(f"{folder}/{name}", md5=md5),), md5=md5)
        for name, md5 in files.items()
    )


def _archive(url: str, file: str, folder: str, leaves: Iterable[Wanted], **known: object) -> Download:
    placed = tuple(Wanted(f"{folder}/{wanted.path}", wanted.n_bytes, wanted.md5) for wanted in leaves)
    return Download(url, f"{ARCHIVES}/{file}", placed, folder, **known)  # type: ignore[arg-type]


def _toronto(name: str, folder: str, md5: str, sizes: Mapping[str, int]) -> tuple[Download, ...]:
    leaves = [Wanted(file, n_bytes) for file, n_bytes in sizes.items()]
    return (_archive(f"https://www.cs.toronto.edu/~kriz/{name}", name, folder, leaves, md5=md5),)


def _zenodo(record: int, file: str, folder: str, md5: str, leaves: Iterable[Wanted]) -> Download:
    return _archive(f"https://zenodo.org/records/{record}/files/{file}", file, folder, leaves, md5=md5)


def _cifar_c(record: int, folder: str, md5: str, labels: str, sums: Mapping[str, str]) -> tuple[Download, ...]:
    """One array of 50,000 images for each corruption, behind a head of 128 bytes."""
    leaves = [Wanted(f"{name}.npy", 128 + 50_000 * 32 * 32 * 3, sums[name]) for name in CORRUPTIONS if name in sums]
    return (_zenodo(record, f"{folder}.tar", folder, md5, [*leaves, Wanted("labels.npy", 128 + 50_000, labels)]),)


def _wilds(bundle: str, folder: str, about_bytes: int, leaves: Iterable[str]) -> tuple[Download, ...]:
    url = f"https://worksheets.codalab.org/rest/bundles/{bundle}/contents/blob/"
    return (_archive(url, f"{folder}.tar.gz", folder, map(Wanted, leaves), about_bytes=about_bytes),)


FASHION_MNIST_MD5 = {
    "train-images-idx3": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1": "bb300cfdad3c16e7a12a480ee83cd310",
}
MNIST_MD5 = {
    "train-images-idx3": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1": "ec29112dd5afa0611ce80d1b7f02629c",
}
CIFAR10_C_MD5 = CIFAR10_C | {  # those that draw, beside those that draw nothing
    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
    "snow": "bb238de8555123da9c282dea23bd6e55",
    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
}
CIFAR100_C_MD5 = {
    "brightness": "f22d7195aecd6abb541e27fca230c171",
    "contrast": "322bb385f1d05154ee197ca16535f71e",
    "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
    "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
    "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
    "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
    "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
    "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
    "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
    "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
    "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
    "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
    "pixelate": "96c00c60f144539e14cffb02ddbd0640",
    "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
    "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
    "snow": "0237be164583af146b7b144e73b43465",
    "spatter": "12ccf41d62564d36e1f6a6ada5022728",
    "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
    "zoom_blur": "0204613400c034a81c4830d5df81cb82",
}
CIFAR100_C_LABELS = "bb4026e9ce52996b95f439544568cdb2"
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # of Tiny-ImageNet-C: in an archive of their own
CIFAR10_SIZES = {f"{name}.bin": 30_730_000 for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")}
CIFAR100_SIZES = {"train.bin": 153_700_000, "test.bin": 30_740_000}
RESEARCH = "research only (ImageNet)"

SOURCES: dict[str, Source] = {
    "fashion_mnist_mini": Source("MIT", 10, 28, splits=_split(7_000, 1_000, 2_000)),
    "digits": Source("CC BY 4.0", 10, 8, splits=_split(997, 200, 600)),
    "fashion_mnist": Source(
        "MIT",
        10,
        28,
        _idx("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", "fashion-mnist", FASHION_MNIST_MD5),
        _split(55_000, 5_000, 10_000),
    ),
    "mnist": Source(
        "CC BY-SA 3.0",
        10,
        28,
        _idx("https://ossci-datasets.s3.amazonaws.com/mnist/", "mnist", MNIST_MD5),
        _split(55_000, 5_000, 10_000),
    ),
    "cifar10": Source(
        "none stated",
        10,
        32,
        _toronto("cifar-10-binary.tar.gz", "cifar-10-batches-bin", "c32a1d4ab5d03f1284b67883e8d87530", CIFAR10_SIZES),
        _split(45_000, 5_000, 10_000),
    ),
    "cifar100": Source(
        "none stated",
        100,
        32,
        _toronto("cifar-100-binary.tar.gz", "cifar-100-binary", "03b5dce01913d631647c71ecec9e9cb8", CIFAR100_SIZES),
        _split(45_000, 5_000, 10_000),
    ),
    "cifar10_c": Source(
        "CC BY 4.0",
        10,
        32,
        _cifar_c(2535967, "CIFAR-10-C", "56bf5dcef84df0e2308c6dcbcbbd8499", CIFAR10_C_LABELS, CIFAR10_C_MD5),
        reads=False,
    ),
    "cifar100_c": Source(
        "CC BY 4.0",
        100,
        32,
        _cifar_c(3555552, "CIFAR-100-C", "11f0ed0f1191edbf9fa23466ae6021d3", CIFAR100_C_LABELS, CIFAR100_C_MD5),
        reads=False,
    ),
    "tiny_imagenet": Source(
        RESEARCH,
        200,
        64,
        (
            _archive(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                "tiny-imagenet-200",
                map(Wanted, ("wnids.txt", "words.txt", "train", "val/images", "val/val_annotations.txt")),
                md5="90528d7ca1a48142e341f4ef8d21d0de",
                n_bytes=248_100_043,
            ),
        ),
        _split(95_000, 5_000, 10_000),
    ),
    "tiny_imagenet_c": Source(
        RESEARCH,
        200,
        64,
        (
            _zenodo(
                8206060,  # record 2536630 has a frost of 1,000 classes
                "Tiny-ImageNet-C.tar",
                "Tiny-ImageNet-C",
                "f9c9a9dbdc11469f0b850190f7ad8be1",
                [Wanted(name) for name in CORRUPTIONS if name not in EXTRA],
            ),
            _zenodo(
                8206060,
                "Tiny-ImageNet-C-extra.tar",
                "Tiny-ImageNet-C",
                "0db0588d243cf403ef93449ec52b70eb",
                map(Wanted, EXTRA),
            ),
        ),
        per_cell=10_000,
        reads=False,
    ),
    "camelyon17": Source(
        "CC0",
        2,
        96,
        _wilds("0xe45e15f39fb54e9d9e919556af67aabe", "camelyon17_v1.0", 10_658_709_504, ("metadata.csv", "patches")),
        MappingProxyType({"train": 302_436, "id_val": 33_560}),
        MappingProxyType({"val": 34_904, "test": 85_054}),
        corrupted=False,
    ),
    "iwildcam": Source(
        "CDLA-Permissive 1.0",
        182,
        224,
        _wilds(
            "0x6313da2b204647e79a14b468131fcd64",
            "iwildcam_v2.0",
            11_957_420_032,
            ("metadata.csv", "categories.csv", "train"),
        ),
        MappingProxyType({"train": 129_809, "id_val": 7_314, "id_test": 8_154}),
        MappingProxyType({"val": 14_961, "test": 42_791}),
        corrupted=False,
    ),
    "fmow": Source(
        "fMoW Challenge Public License",
        62,
        224,
        _wilds(
            "0xaec91eb7c9d548ebb15e1b5e60f966ab",
            "fmow_v1.1",
            53_893_324_800,
            ("rgb_metadata.csv", "country_code_mapping.csv", "images"),
        ),
        MappingProxyType({"train": 76_863, "id_val": 11_483, "id_test": 11_327}),
        MappingProxyType({"val": 19_915, "test": 22_108}),
        corrupted=False,
    ),
    "image_folder": Source("yours", None, None),
}
