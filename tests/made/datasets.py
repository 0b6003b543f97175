"""Data sets in their official layouts, in small: what the readers are tested with."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from made.image_files import paint

# MNIST


def idx_bytes(values: np.ndarray) -> bytes:
    """The official layout: two zeros, the type, the number of dimensions, the sizes (big-endian), the values."""
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


# A folder of one's own

CLASSES = ("cat", "dog", "emu")
PER_CLASS = 10


def write_train(root: Path) -> None:
    for label, name in enumerate(CLASSES):
        for i in range(PER_CLASS):
            paint(root / f"train/{name}/{i}.png", (label, i, 0))


def write_test(root: Path) -> None:
    paint(root / "test/dog/b.PNG", (10, 20, 30))
    paint(root / "test/dog/a.bmp", (40, 50, 60))
    paint(root / "test/cat/deep/er/z.tiff", (70, 80, 90))


# Tiny-ImageNet

WNIDS = ("n02012849", "n01443537", "n03126707", "n09999999")  # in the order of wnids.txt
SORTED = ("n01443537", "n02012849", "n03126707", "n09999999")
WORDS = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02012849\tcrane\nn03126707\tcrane, hoist\n"
TINY_PER_CLASS = 15
VAL = ((10, 0), (2, 3), (0, 1), (1, 0))  # number and class of each official val image, as they are listed
TINY_C = "Tiny-ImageNet-C"


def write_tiny_imagenet(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    for label, wnid in enumerate(SORTED):
        for i in range(TINY_PER_CLASS):
            paint(folder / f"train/{wnid}/images/{wnid}_{i}.JPEG", 40 * label + 2 * i, "L", side=64)
        (folder / f"train/{wnid}/{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    lines = [f"val_{number}.JPEG\t{SORTED[label]}\t0\t32\t44\t62\n" for number, label in VAL]
    for number, _label in VAL:
        paint(folder / f"val/images/val_{number}.JPEG", (20 * number, 100, 50), side=64)
    paint(folder / "test/images/test_0.JPEG", 7, "L", side=64)
    (folder / "val/val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    (folder / "words.txt").write_text(WORDS)
    return folder


def write_corrupted(root: Path, corruption: str, severity: int) -> Path:
    folder = root / TINY_C / corruption / str(severity)
    for label, wnid in enumerate(SORTED):
        for i in range(2):
            paint(folder / wnid / f"ILSVRC2012_val_{i}.JPEG", 50 * label + i, "L", side=64)
    return folder


# WILDS

CAMELYON_HEAD = ("", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
# center, split, tumor, patient; the comment is the split that the rules give
CAMELYON_ROWS = [
    (0, 0, 1, "004"),  # train
    (3, 1, 0, "060"),  # id_val
    (1, 0, 1, "020"),  # val, whatever is written
    (2, 1, 0, "044"),  # test
    (4, 0, 0, "081"),  # train
    (1, 1, 0, "021"),  # val
]
IWILDCAM_HEAD = (
    *("split", "location_remapped", "location", "sequence_remapped", "seq_id", "y", "category_id", "datetime"),
    *("filename", "image_id"),
)
IWILDCAM_SPLITS = ["id_test", "train", "val", "test", "id_val", "train"]
FMOW_HEAD = (
    *("split", "img_filename", "img_path", "spatial_reference", "epsg", "category", "visible", "img_width"),
    *("img_height", "country_code", "cloud_cover", "timestamp", "lat", "lon"),
)
# split, category, country, time
FMOW_ROWS = [
    ("seq", "zoo", "DEU", "2005-01-01T00:00:00Z"),
    ("train", "airport", "DEU", "2012-12-31T23:59:59Z"),
    ("train", "barn", "KEN", "2002-06-09T09:40:12.123Z"),
    ("seq", "nothing known", "", ""),
    ("val", "zoo", "XKX", "2010-05-05T10:00:00Z"),  # id_val, of a country that the mapping has not
    ("test", "zoo", "ATA", "2011-05-05T10:00:00.5Z"),  # id_test, of a country without a region
    ("val", "dam", "DEU", "2013-01-01T00:00:00Z"),
    ("val", "dam", "DEU", "2015-12-31T23:59:59.999Z"),
    ("test", "port", "KEN", "2016-01-01T00:00:00Z"),
    ("test", "port", "KEN", "2017-07-07T07:07:07.070Z"),
    ("train", "port", "KEN", "2014-01-01T00:00:00Z"),  # the last four are in no split
    ("train", "port", "KEN", "2016-01-01T00:00:00Z"),
    ("val", "port", "KEN", "2016-01-01T00:00:00Z"),
    ("test", "port", "KEN", "2014-01-01T00:00:00Z"),
]
FMOW_FOUND = {"train": [1, 2], "id_val": [4], "id_test": [5], "val": [6, 7], "test": [8, 9]}


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def write_camelyon17(root: Path) -> None:
    folder = root / "camelyon17_v1.0"
    rows = []
    for i, (center, split, tumor, patient) in enumerate(CAMELYON_ROWS):
        rows.append((i, patient, i % 2, 3328 + i, 21792 + i, tumor, 10 + i, center, split))
        node = f"patient_{patient}_node_{i % 2}"
        transparent = (10 * i, 20, 30, 128)
        paint(folder / f"patches/{node}/patch_{node}_x_{3328 + i}_y_{21792 + i}.png", transparent, "RGBA", side=96)
    write_csv(folder / "metadata.csv", CAMELYON_HEAD, rows)


def write_iwildcam(root: Path) -> None:
    folder = root / "iwildcam_v2.0"
    rows = []
    for i, split in enumerate(IWILDCAM_SPLITS):
        time = f"2013-06-05 05:44:{i:02d}.000"
        rows.append((split, 30 + i, 3, f"{40 + i}.0", "a-b", i % 3, 7, time, f"image_{i}.jpg", f"image_{i}"))
        paint(folder / f"train/image_{i}.jpg", 10 * i, "L", side=40)
    write_csv(folder / "metadata.csv", IWILDCAM_HEAD, rows)
    categories = [(2, 372, "zebra"), (99999, 9, "never seen"), (0, 1, "empty"), (1, 5, "lion"), (99999, 8, "nor this")]
    write_csv(folder / "categories.csv", ("y", "category_id", "name"), categories)


def write_fmow(root: Path) -> None:
    folder = root / "fmow_v1.1"
    reference = 'GEOGCS["WGS 84",\nDATUM["WGS_1984"]]'  # commas, quotes and a line's end within a value
    rows = []
    for i, (split, category, country, time) in enumerate(FMOW_ROWS):
        rows.append((split, "a.jpg", "a/b.jpg", reference, 4326, category, 1, 9, 9, country, 0, time, 1.5, 2.5))
        paint(folder / f"images/rgb_img_{i}.png", (i, 100, 200))
    write_csv(folder / "rgb_metadata.csv", FMOW_HEAD, rows)
    mapping = [("Germany", "DE", "DEU", "Europe"), ("Kenya", "KE", "KEN", "Africa"), ("Antarctica", "AQ", "ATA", "")]
    write_csv(folder / "country_code_mapping.csv", ("name", "alpha-2", "alpha-3", "region"), mapping)


WRITERS: dict[str, Callable[[Path], None]] = {
    "camelyon17": write_camelyon17,
    "iwildcam": write_iwildcam,
    "fmow": write_fmow,
}
