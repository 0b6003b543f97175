"""Samples of splits, each class in proportion; files that are missing or damaged, and arguments that are wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrant import Predictions
from calibrant.data import ImageFiles, Split, open_dataset
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.shifts import Shift
from calibrant.training import Settings, train
from made.datasets import SORTED, WRITERS, write_corrupted, write_tiny_imagenet, write_train
from made.image_files import paint

N_ROWS = 100
COUNTS = {"train/cat": 9, "train/dog": 9, "test/cat": 30, "test/dog": 10}
SMALL: dict[str, Any] = {"data": "digits", "model": "mlp", "epochs": 1, "shifts": ("fog-3", "glass_blur-2")}


def a_split() -> Split:
    """Images whose pixels are their row, of five classes."""
    rows = torch.arange(50)
    return Split(rows.byte()[:, None, None, None].repeat(1, 1, 8, 8), rows % 5, {"row": rows.tolist()})


@pytest.fixture
def painted(tmp_path: Path) -> Path:
    for folder, count in COUNTS.items():
        for i in range(count):
            paint(tmp_path / f"{folder}/{i:02d}.png", (50 if "cat" in folder else 150, 5 * i, 90))
    return tmp_path


# Splits


@pytest.mark.parametrize("n", [1, 5, 7, 20, 49])
def test_a_sample_has_its_rows_in_order_and_each_class_in_proportion(n: int) -> None:
    split = a_split()
    sample = split.sample(n)
    rows = [int(row) for row in sample.columns["row"]]  # type: ignore[call-overload]
    assert len(sample) == len(rows) == len(set(rows)) == n
    assert rows == sorted(rows)
    assert sample.images[:, 0, 0, 0].tolist() == rows
    assert sample.labels.tolist() == [row % 5 for row in rows]
    counts = torch.bincount(sample.labels, minlength=5)
    assert counts.max() - counts.min() <= 1
    assert n == 1 or rows != list(range(n))  # not the first ones


def test_samples_of_all_rows_of_fewer_and_of_unequal_classes() -> None:
    split = a_split()
    for n in (50, 51, 10**9):
        assert torch.equal(split.sample(n).images, split.images)
        assert torch.equal(split.sample(n).labels, split.labels)
    few, many = (set(split.sample(n).columns["row"]) for n in (10, 20))
    assert few < many
    labels = torch.cat([torch.zeros(80), torch.ones(15), torch.full((5,), 2)]).long()
    unequal = Split(torch.zeros(100, 1, 8, 8, dtype=torch.uint8), labels)
    assert torch.bincount(unequal.sample(20).labels).tolist() == [16, 3, 1]


# Images in files


def every(split: Split) -> torch.Tensor:
    return split.images[torch.arange(len(split))]


@pytest.mark.parametrize("shift", [None, "fog-3", "gaussian_noise-4"], ids=["clean", "fog", "noise"])
def test_image_files_are_sampled_without_reading_them(painted: Path, shift: str | None) -> None:
    data = open_dataset("image_folder", painted, image_size=16)
    whole = data.split(shift or "test")
    sample = whole.sample(8)
    assert isinstance(sample.images, ImageFiles)
    assert len(sample) == len(sample.images) == 8
    assert torch.bincount(sample.labels).tolist() == [6, 2]
    files = [str(file) for file in whole.columns["file"]]
    rows = torch.tensor([files.index(str(file)) for file in sample.columns["file"]])
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert torch.equal(sample.labels, whole.labels[rows])
    assert torch.equal(every(sample), every(whole)[rows])


def test_samples_of_samples_of_images_are_other_splits(painted: Path) -> None:
    split = open_dataset("image_folder", painted, image_size=16).split("test")
    once = split.sample(20)
    twice = once.sample(8)
    files = [str(file) for file in once.columns["file"]]
    rows = torch.tensor([files.index(str(file)) for file in twice.columns["file"]])
    assert torch.equal(every(twice), every(once)[rows])
    assert len({split.digest, once.digest, split.sample(8).digest}) == 3
    assert split.sample(8).digest == split.sample(8).digest
    renamed = ImageFiles.of(painted, [f"new/{file}" for file in split.columns["file"]], 16)
    assert Split(renamed, split.labels).digest != split.digest  # the same labels of other files


# Runs


def test_predictions_of_a_sample_are_rows_of_those_of_all(tmp_path: Path) -> None:
    runs = train(Settings(**SMALL), tmp_path / "all"), train(Settings(**SMALL, test_sample=N_ROWS), tmp_path / "some")
    for name in ("test", "fog-3", "glass_blur-2"):
        whole, sample = (Predictions.load(run / "predictions" / f"{name}.parquet") for run in runs)
        assert len(sample) == N_ROWS < len(whole)
        every: Any = Split(torch.zeros(len(whole), 1, 8, 8), whole.labels, {"row": range(len(whole))}).sample(N_ROWS)
        rows = torch.tensor(every.columns["row"])
        assert torch.equal(sample.labels, whole.labels[rows])
        assert torch.allclose(sample.logits, whole.logits[rows], atol=1e-5)
    assert torch.equal(*(Predictions.load(run / "predictions" / "val.parquet").logits for run in runs))  # all rows


# Refusals

Damage = Callable[[Path], object]
WRITE: dict[str, Damage] = {**WRITERS, "tiny_imagenet": write_tiny_imagenet, "image_folder": write_train}
MISSING, DAMAGED, WRONG, UNKNOWN = NoDataError, CorruptFileError, InvalidInputError, UnknownNameError
TINY, META, FMOW = "tiny-imagenet-200", "camelyon17_v1.0/metadata.csv", "fmow_v1.1/rgb_metadata.csv"
IWILDCAM, CATEGORIES = "iwildcam_v2.0/metadata.csv", "iwildcam_v2.0/categories.csv"
IMAGE = "fmow_v1.1/images/rgb_img_2.png"
WNIDS, VAL = f"{TINY}/wnids.txt", f"{TINY}/val/val_annotations.txt"


def edit(file: str, old: str, new: str) -> Damage:
    def damage(root: Path) -> None:
        text = (root / file).read_bytes().decode()
        assert old in text
        (root / file).write_bytes(text.replace(old, new, 1).encode())

    return damage


def put(file: str, data: bytes = b"") -> Damage:
    def damage(root: Path) -> None:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(data)

    return damage


def remove(pattern: str) -> Damage:
    return lambda root: [path.unlink() for path in root.glob(pattern)]


def read_all(name: str, root: Path, split: str) -> torch.Tensor:
    found = open_dataset(name, root, image_size=16).split(split)
    return found.images[torch.arange(len(found))]


def fetched(name: str) -> str:
    return f"; run calibrant data fetch {name}$"


# data set, what is done to it, the split that is asked for, the error and its message
CASES: list[tuple[str, Damage, str, type[CalibrantError], str]] = [
    ("camelyon17", remove(META), "train", MISSING, f"no metadata.csv .* unpack the .*{fetched('camelyon17')}"),
    ("camelyon17", edit(META, "tumor", "tumour"), "val", DAMAGED, "metadata.csv has no column 'tumor'"),
    ("camelyon17", edit(META, "21795,0", "21795,2"), "val", DAMAGED, "0 or 1, got '2' at row 3"),
    ("camelyon17", edit(META, "14,4,0", "14,4,2"), "val", DAMAGED, "split must be 0 or 1, got '2' at row 4"),
    ("camelyon17", edit(META, "14,4,0", "14,north,0"), "val", DAMAGED, "an integer, got 'north' at row 4"),
    ("camelyon17", edit(META, ",14,4,0", ",14,4"), "val", DAMAGED, "metadata.csv cannot be read as CSV"),
    ("camelyon17", edit(META, "0,11,3,1", "0,11,3,0"), "id_val", DAMAGED, "no rows of the split 'id_val'"),
    ("iwildcam", remove(CATEGORIES), "train", MISSING, f"no categories.csv of .*{fetched('iwildcam')}"),
    ("iwildcam", edit(IWILDCAM, "a-b,2,7", "a-b,3,7"), "val", DAMAGED, r"y must be in \[0, 2\], got '3' at row 2"),
    ("iwildcam", edit(IWILDCAM, "id_val", "extra"), "val", DAMAGED, "split must be .*, got 'extra' at row 4"),
    ("iwildcam", edit(CATEGORIES, "1,5,lion", "99999,5,lion"), "val", DAMAGED, "got 2 where 1 is expected"),
    ("iwildcam", edit(CATEGORIES, "2,372,zebra", "1,372,zebra"), "val", DAMAGED, "got 1 where 2 is expected"),
    ("iwildcam", put(CATEGORIES), "val", DAMAGED, "categories.csv has no"),
    ("iwildcam", put(CATEGORIES, b"y,name\n"), "val", DAMAGED, "categories.csv has no rows"),
    ("iwildcam", put(CATEGORIES, b"\xff\xfe\0\0"), "val", DAMAGED, "categories.csv has no"),
    ("fmow", remove("fmow_v1.1/country*"), "train", MISSING, f"no country_code_mapping.csv .*{fetched('fmow')}"),
    ("fmow", edit(FMOW, "barn", "bern"), "val", DAMAGED, "one of the 62 classes, got 'bern' at row 2"),
    ("fmow", edit(FMOW, "2012-12-31T", "31.12.2012 "), "val", DAMAGED, "timestamp must be .* at row 1"),
    ("fmow", edit(FMOW, "\r\nval,", "\r\nvalid,"), "val", DAMAGED, "split must be .*, got 'valid' at row 4"),
    ("fmow", put(IMAGE, b"x"), "train", DAMAGED, "rgb_img_2.png cannot be read as a"),
    ("fmow", remove(IMAGE), "train", MISSING, r"there is no file .*rgb_img_2.png"),
    ("tiny_imagenet", remove(WNIDS), "train", MISSING, f"unpack tiny-.*{fetched('tiny_imagenet')}"),
    ("tiny_imagenet", remove(f"{TINY}/val/*.txt"), "test", MISSING, f"unpack tiny-.*{fetched('tiny_imagenet')}"),
    ("tiny_imagenet", put(WNIDS), "test", DAMAGED, r"must be WordNet ids .* got \[\]"),
    ("tiny_imagenet", put(WNIDS, b"n01443537\n../../x\n"), "test", DAMAGED, r"got '\.\./\.\./x'"),
    ("tiny_imagenet", put(WNIDS, b"\xff\xfe"), "test", DAMAGED, "is not text in UTF-8"),
    ("tiny_imagenet", put(VAL), "test", DAMAGED, "annotations.txt is empty"),
    ("tiny_imagenet", put(VAL, b"val_0.JPEG\tn01443537\nval_1.JPEG n0\n"), "test", DAMAGED, r"line 2 .* got 'val_1"),
    ("tiny_imagenet", put(VAL, b"v_0.JPEG\tn01440764\n"), "test", DAMAGED, r"line 1 .* wnids\.txt, .*n01440764"),
    ("tiny_imagenet", remove(f"{TINY}/train/{SORTED[1]}/*/*"), "val", MISSING, f"{SORTED[1]}: unpack {TINY} in"),
    ("tiny_imagenet", lambda root: None, "fogg-5", UNKNOWN, "did you mean 'fog-5'"),
    ("image_folder", lambda root: None, "trian", UNKNOWN, "unknown split 'trian'; did you mean 'train'"),
    ("image_folder", put("test/dog/a.bmp", b"BM"), "test", DAMAGED, r"test/dog/a\.bmp cannot be read as an image"),
    ("image_folder", remove("train/cat/*"), "train", MISSING, r"no image in .*train/cat: put files \.png, \.jpg"),
    ("image_folder", put("val/c/x.png"), "train", WRONG, "val/c must be named as one of the classes in"),
    ("image_folder", put("notes/x.txt"), "train", MISSING, "no folder of a class in .*/notes"),
    ("image_folder", lambda r: (r / "test/cat").mkdir(parents=True), "test", MISSING, "no image in .*/test: put"),
]


@pytest.mark.parametrize(("name", "damage", "split", "error", "message"), CASES, ids=[case[-1][:40] for case in CASES])
def test_what_is_damaged_is_named(
    tmp_path: Path, name: str, damage: Damage, split: str, error: type[CalibrantError], message: str
) -> None:
    WRITE[name](tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=message) as refused:
        read_all(name, tmp_path, split)
    assert "\n" not in str(refused.value)
    assert error is UnknownNameError or str(tmp_path) in str(refused.value)


def test_too_few_classes_and_images(tmp_path: Path) -> None:
    for classes, (error, message) in {
        "": (NoDataError, r"no folder of a class in .*/train: put images in train/<class>/ there"),
        "a": (InvalidInputError, "train must have folders of at least 2 classes, got 'a'"),
        "ab": (InvalidInputError, "train/[ab] must have an image more"),
    }.items():
        for name in classes:
            paint(tmp_path / f"train/{name}/x.png", (0, 0, 0))
        with pytest.raises(error, match=message):
            open_dataset("image_folder", tmp_path).split("train")


def test_folders_of_corrupted_images_that_are_not_tiny_imagenet_c(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    paint(write_corrupted(tmp_path, "frost", 1) / "n01440764/ILSVRC2012_val_0.JPEG", 1, "L")
    with pytest.raises(CorruptFileError, match=r"frost/1 has 1 classes .*, such as n01440764: .* Zenodo 8206060"):
        open_dataset("tiny_imagenet", tmp_path).split("frost-1")
    for image in (write_corrupted(tmp_path, "snow", 1) / SORTED[2]).iterdir():
        image.unlink()
    with pytest.raises(NoDataError, match=f"no image in .*snow/1/{SORTED[2]}: unpack Tiny-ImageNet-C in"):
        open_dataset("tiny_imagenet", tmp_path).split("snow-1")


def test_wrong_arguments() -> None:
    with pytest.raises(InvalidInputError, match="image_size must be an integer from 8 to 4096, got 0"):
        open_dataset("tiny_imagenet", image_size=0)
    with pytest.raises(InvalidInputError, match="image_size must be 8 for digits, got 32"):
        open_dataset("digits", image_size=32)
    for split, message in {
        "tset": "unknown split 'tset'; did you mean 'test'",
        "fog-6": "fog-6",
        "fog-1+snow-2": "unknown split 'fog-1'",
        "val+snow": "unknown corruption 'snow'",
    }.items():
        with pytest.raises(UnknownNameError, match=message):
            open_dataset("digits").split(split)
    for text in ("fog", "fog-", "-3", "fog-x", "fog-²"):
        with pytest.raises(InvalidInputError, match=f"as fog-3, got '{text}'"):
            Shift.parse(text)
