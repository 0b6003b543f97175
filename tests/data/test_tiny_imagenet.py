"""Tiny-ImageNet in its official layout, in small: order of classes, splits, published and generated shifts."""

from pathlib import Path

import torch

import calibrant as cb
from calibrant.data import ImageFiles, TinyImageNet, open_dataset
from made.datasets import SORTED, TINY_PER_CLASS, write_corrupted, write_tiny_imagenet
from made.image_files import colours


def test_classes_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    data = TinyImageNet(tmp_path)
    assert data.wnids == SORTED
    assert data.class_names == ("goldfish", "crane (n02012849)", "crane (n03126707)", "n09999999")
    assert (data.image_size, data.n_classes, data.channels) == (64, 4, 3)
    assert len(data.shifts) == 95
    (tmp_path / "tiny-imagenet-200/words.txt").unlink()
    assert open_dataset("tiny_imagenet", tmp_path).class_names == SORTED


def test_a_share_of_the_training_images_is_held_out(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    data = open_dataset("tiny_imagenet", tmp_path)
    train, val = data.split("train"), data.split("val")
    assert (len(train), len(val)) == (57, 3)  # 5 % of 60
    assert isinstance(train.images, ImageFiles)
    assert isinstance(val.images, ImageFiles)
    listed = [split.images.names.to_pylist() for split in (train, val)]
    everything = [f"{wnid}/images/{wnid}_{i}.JPEG" for wnid in SORTED for i in range(TINY_PER_CLASS)]
    assert sorted(listed[0] + listed[1]) == sorted(f"tiny-imagenet-200/train/{name}" for name in everything)
    assert listed[0] == sorted(listed[0])
    for split, names in zip((train, val), listed, strict=True):
        assert [SORTED[label] for label in split.labels] == [name.split("/")[2] for name in names]
        numbers = [int(name[:-5].rsplit("_", 1)[1]) for name in names]
        wanted = [[40 * int(label) + 2 * i] * 3 for label, i in zip(split.labels, numbers, strict=True)]
        assert colours(split) == wanted  # grey ones become red, green and blue
    assert data.prior.sum() == 1


def test_the_official_val_images_are_the_test(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    test = open_dataset("tiny_imagenet", tmp_path).split("test")
    assert isinstance(test.images, ImageFiles)
    names = [name.rsplit("/", 1)[1] for name in test.images.names.to_pylist()]
    assert names == ["val_0.JPEG", "val_1.JPEG", "val_2.JPEG", "val_10.JPEG"]  # by number, not by text
    assert test.labels.tolist() == [1, 0, 3, 0]
    assert test.labels.dtype == torch.int64
    assert (torch.tensor(colours(test)) - torch.tensor([[20 * i, 100, 50] for i in (0, 1, 2, 10)])).abs().max() <= 3


def test_test_image_files_are_corrupted_as_they_are_asked_for(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    data = open_dataset("tiny_imagenet", tmp_path, image_size=32)
    clean, foggy = data.split("test"), data.split("fog-3")
    whole = cb.corrupt(clean.images[torch.arange(4)], "fog", 3)
    assert torch.equal(foggy.images[torch.tensor([2, 0])], whole[[2, 0]])
    assert torch.equal(foggy.labels, clean.labels)
    assert foggy.columns == {"corruption": ["fog"] * 4, "severity": [3] * 4, "origin": ["generated"] * 4}
    assert clean.columns == {}


def test_published_images_come_first(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    write_corrupted(tmp_path, "fog", 3)
    data = open_dataset("tiny_imagenet", tmp_path)
    found = data.split("fog-3")
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]  # the classes of the training images
    assert colours(found) == [[50 * label + i] * 3 for label in range(4) for i in range(2)]
    assert found.columns == {"corruption": ["fog"] * 8, "severity": [3] * 8, "origin": ["published"] * 8}
    assert len(data.split("fog-2")) == 4
