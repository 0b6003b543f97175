"""The table of data sets: splits that are disjoint, whole, balanced and never change; shifted tests."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.data import DATASETS, ArrayData, corruption_shifts, open_dataset, validation_rows
from calibrant.data.table import all_infos
from calibrant.errors import CorruptFileError

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


def write_cifar(folder: Path, per_batch: int = 40) -> np.ndarray:
    """All files of CIFAR-10's binary layout with random pixels; their rows, the training ones first."""
    rows = np.random.default_rng(0).integers(0, 256, (6 * per_batch, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(len(rows)) % 10
    (folder / "cifar-10-batches-bin").mkdir()
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        part = rows[number * per_batch : (number + 1) * per_batch]
        part.tofile(folder / "cifar-10-batches-bin" / f"{name}.bin")
    return rows


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


def test_generated_shifts_are_kept_for_these_images_alone(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    shifted = open_dataset("cifar10", tmp_path).split("fog-3").images
    [kept] = (tmp_path / "generated" / "cifar10").iterdir()
    assert kept.name.startswith("fog-3-")
    np.save(kept, 255 - shifted.numpy())  # so that one sees where they come from
    assert torch.equal(open_dataset("cifar10", tmp_path).split("fog-3").images, 255 - shifted)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[::-1])
    reversed_images = open_dataset("cifar10", tmp_path).split("test").images
    again = open_dataset("cifar10", tmp_path).split("fog-3").images
    assert torch.equal(again, cb.corrupt(reversed_images, "fog", 3))
    assert len(list(kept.parent.iterdir())) == 2


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


def test_cifar_is_split_and_shifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = write_cifar(tmp_path)
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path))
    data = open_dataset("cifar10")
    test, shifted = data.split("test"), data.split("fog-3")
    assert np.array_equal(test.images.numpy().reshape(40, -1), rows[200:, 1:])
    assert test.labels.tolist() == rows[200:, 0].tolist()
    assert torch.equal(shifted.images, cb.corrupt(test.images, "fog", 3))
    assert shifted.columns == {"corruption": ["fog"] * 40, "severity": [3] * 40, "origin": ["generated"] * 40}


def test_published_files_come_first(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "CIFAR-10-C").mkdir()
    published = np.random.default_rng(1).integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", published)
    found = open_dataset("cifar10", tmp_path).split("fog-2")
    assert np.array_equal(found.images.permute(0, 2, 3, 1).numpy(), published[40:80])
    np.save(tmp_path / "CIFAR-10-C" / "snow.npy", published[:7])
    with pytest.raises(CorruptFileError, match=r"must be uint8 \(200, 32, 32, 3\), got uint8 \(7, 32, 32, 3\)"):
        open_dataset("cifar10", tmp_path).split("snow-1")
    (tmp_path / "CIFAR-10-C" / "frost.npy").write_bytes(b"no array")
    with pytest.raises(CorruptFileError, match=r"frost\.npy cannot be read"):
        open_dataset("cifar10", tmp_path).split("frost-1")


def test_the_test_is_read_once_and_never_spoilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(tmp_path)
    data = open_dataset("cifar10", tmp_path)
    assert isinstance(data, ArrayData)
    reads = []
    read = data.read
    monkeypatch.setattr(data, "read", lambda root, part: (reads.append(part), read(root, part))[1])
    images = data.split("test").images
    assert isinstance(images, torch.Tensor)
    foggy = cb.corrupt(images, "fog", 1)
    images.zero_()
    assert torch.equal(data.split("fog-1").images, foggy)
    data.split("fog-2")
    assert reads == ["test"]
