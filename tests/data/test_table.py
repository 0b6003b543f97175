"""The table of data sets: splits that are disjoint, whole, balanced and never change; shifted tests."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.data import (
    DATASETS,
    ArrayData,
    corruption_shifts,
    open_dataset,
    read_fashion_mnist_mini,
    validation_rows,
)
from calibrant.data.embedded import EMBEDDED
from calibrant.data.table import all_infos

SPLITS = ("train", "val", "test")
SIZES = {"fashion_mnist_mini": (7_000, 1_000, 2_000), "digits": (997, 200, 600)}
# SHA-256, first 16 digits, of the labels and pixels of each split: a change would change every result
HASHES = {
    ("fashion_mnist_mini", "train"): "269ca7c75a9f1eea",
    ("fashion_mnist_mini", "val"): "0e37bdb99ac76877",
    ("fashion_mnist_mini", "test"): "3bf1a18e41a5bde8",
    ("digits", "train"): "397d79d01826077f",
    ("digits", "val"): "644a10ba07925f05",
    ("digits", "test"): "817d9796bf0d14dd",
}


def test_every_data_set_of_the_paper_is_in_the_table() -> None:
    wanted = {"cifar10", "cifar100", "tiny_imagenet", "camelyon17", "iwildcam", "fmow", "image_folder"}
    assert wanted <= set(DATASETS)
    assert [open_dataset(name).name for name in DATASETS] == list(DATASETS)
    sizes = {name: open_dataset(name).image_size for name in ("cifar10", "tiny_imagenet", "camelyon17", "fmow")}
    assert sizes == {"cifar10": 32, "tiny_imagenet": 64, "camelyon17": 96, "fmow": 224}
    for name in DATASETS:
        data = open_dataset(name)
        if isinstance(data, ArrayData):
            assert len(set(data.class_names)) == data.n_classes >= 10
            assert (len(data.shifts), data.channels in (1, 3)) == (19 * 5, True)


def test_any_clean_split_can_be_put_under_a_corruption() -> None:
    data = open_dataset("digits", image_size=8)
    counts = np.bincount(data.split("train").labels.numpy(), minlength=10)
    assert data.prior.tolist() == pytest.approx((counts / counts.sum()).tolist())
    clean, shifted = data.split("val"), data.split("val+snow-2")
    assert torch.equal(shifted.images, cb.corrupt(clean.images, "snow", 2))
    assert torch.equal(shifted.labels, clean.labels)
    assert shifted.columns == {"corruption": ["snow"] * 200, "severity": [2] * 200, "origin": ["generated"] * 200}


def test_corrupted_validation_images_are_kept_and_training_images_are_not(tmp_path: Path) -> None:
    """What is kept is read: here other images, so that one sees where they come from."""
    shifted = open_dataset("digits", tmp_path).split("val+fog-3")
    [kept] = (tmp_path / "generated" / "digits").iterdir()
    np.save(kept, 255 - shifted.images.numpy())
    again = open_dataset("digits", tmp_path).split("val+fog-3")
    assert torch.equal(again.images, 255 - shifted.images)
    assert (again.columns, again.labels.tolist()) == (shifted.columns, shifted.labels.tolist())
    open_dataset("digits", tmp_path).split("train+fog-3")
    assert list(kept.parent.iterdir()) == [kept]


def test_a_corruption_of_ones_own_is_a_shifted_test_of_every_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is added after the data set was opened; the published sets stay as they are."""
    data = open_dataset("digits")
    invert = cb.corruptions.Corruption(lambda images, _draws, add: 255 - images + add, {"cifar": ((0,),) * 5})
    monkeypatch.setitem(cb.CORRUPTIONS, "invert", invert)
    assert {"invert-1", "invert-5"} <= {*data.shifts, *corruption_shifts()}
    assert "invert-1" not in data.clean
    for name, clean in (("invert-2", "test"), ("val+invert-2", "val")):
        assert torch.equal(data.split(name).images, 255 - data.split(clean).images)
    assert not any("invert" in file.path for info in all_infos().values() for file in info.files)


@pytest.mark.parametrize("name", SIZES)
def test_splits_never_change(name: str) -> None:
    """They are also disjoint and whole."""
    data = open_dataset(name)
    splits = [data.split(split) for split in SPLITS]
    assert tuple(map(len, splits)) == SIZES[name]
    images = [image.numpy().tobytes() for split in splits for image in split.images]
    assert len(set(images)) == len(images)
    for part, split in zip(SPLITS, splits, strict=True):
        assert split.images.shape[1:] == (data.channels, data.image_size, data.image_size)
        assert split.images.dtype == torch.uint8
        assert split.labels.unique().tolist() == list(range(data.n_classes))
        digest = hashlib.sha256(split.labels.numpy().tobytes() + split.images.numpy().tobytes())
        assert digest.hexdigest()[:16] == HASHES[name, part]


def test_validation_takes_its_share_of_each_class() -> None:
    labels = torch.arange(10).repeat_interleave(torch.arange(10, 110, 10))
    held_out = validation_rows(labels, 55)
    assert torch.bincount(labels[held_out]).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert validation_rows(labels, 57).sum() == 57
    assert not validation_rows(labels, 0).any()
    assert validation_rows(labels, len(labels)).all()


def test_the_rows_of_cifar_are_fixed() -> None:
    """The 5,000 of 50,000 rows that are held out where classes come one after the other."""
    rows = validation_rows(torch.arange(50_000) % 10, 5_000).nonzero()[:, 0]
    assert torch.bincount(rows % 10).tolist() == [500] * 10
    assert rows[:5].tolist() == [18, 29, 47, 55, 66]


def test_the_embedded_images_are_small_licensed_and_not_shared() -> None:
    assert EMBEDDED.stat().st_size < 5e6
    assert (EMBEDDED.parent / "LICENSE.fashion_mnist").is_file()
    read_fashion_mnist_mini("test")[0].zero_()
    assert read_fashion_mnist_mini("test")[0].any()
