"""Readers of image data: the embedded set, IDX files, CIFAR's binary layout; damaged files."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.data import open_dataset, read_cifar, read_fashion_mnist_mini, read_idx, read_mnist_files
from calibrant.data.embedded import EMBEDDED
from calibrant.errors import CorruptFileError, NoDataError
from made.datasets import idx_bytes


def test_the_embedded_set_is_small_balanced_and_stays_as_it_is() -> None:
    assert EMBEDDED.stat().st_size < 5e6
    assert (EMBEDDED.parent / "LICENSE.fashion_mnist").is_file()
    digest, known = hashlib.sha256(), set()
    for part, per_class in (("train", 800), ("test", 200)):
        images, labels = read_fashion_mnist_mini(part)
        assert (images.shape, images.dtype) == ((10 * per_class, 1, 28, 28), torch.uint8)
        assert torch.bincount(labels).tolist() == [per_class] * 10
        digest.update(images.numpy().tobytes() + labels.numpy().tobytes())
        known |= {image.numpy().tobytes() for image in images}
        images.zero_()
        assert read_fashion_mnist_mini(part)[0].any()  # which share no memory
    assert len(known) == 10_000  # no image twice
    assert digest.hexdigest()[:16] == "857efff51ec8702d"


@pytest.mark.parametrize("packed", [True, False])
def test_official_files_are_read(tmp_path: Path, packed: bool) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (5, 28, 28)), np.array([3, 1, 4, 1, 5])
    for name, values in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        data = idx_bytes(values)
        (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    found, known = read_mnist_files(tmp_path, "test")
    assert np.array_equal(found[:, 0].numpy(), images)
    assert known.tolist() == labels.tolist()


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("name", "folder", "file", "n_labels"),
    [("cifar10", "cifar-10-batches-bin", "test_batch.bin", 1), ("cifar100", "cifar-100-binary", "test.bin", 2)],
)
def test_cifar_is_read_by_name(tmp_path: Path, name: str, folder: str, file: str, n_labels: int, inside: bool) -> None:
    rows = np.random.default_rng(0).integers(0, 100, (7, n_labels + 3072), dtype=np.uint8)
    (tmp_path / folder).mkdir()
    rows.tofile(tmp_path / folder / file)
    images, labels = read_cifar(tmp_path / folder if inside else tmp_path, "test", name)
    assert labels.tolist() == rows[:, n_labels - 1].tolist()
    assert np.array_equal(images.numpy(), rows[:, n_labels:].reshape(7, 3, 32, 32))


# Refusals

GOOD = idx_bytes(np.arange(6).reshape(2, 3))
BAD_IDX = {
    "empty": (b"", "not an IDX file"),
    "short head": (b"\0\0\x08", "not an IDX file"),
    "cut sizes": (GOOD[:9], "not an IDX file"),
    "other type": (b"\0\0\x0d" + GOOD[3:], "not an IDX file"),
    "cut": (GOOD[:-1], r"must hold 6 values \(2, 3\), got 5"),
    "too long": (GOOD + b"x", "got 7"),
    "cut gzip": (gzip.compress(GOOD)[:-9], "not a complete gzip file"),
}


@pytest.mark.parametrize("kind", BAD_IDX)
def test_damaged_idx_files(tmp_path: Path, kind: str) -> None:
    data, message = BAD_IDX[kind]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(CorruptFileError, match=message):
        read_idx(tmp_path / "file")


def test_missing_files_and_labels(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match=r"there is no file .*nowhere"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(NoDataError, match=r"no train-images-idx3-ubyte\.gz"):
        read_mnist_files(tmp_path, "train")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((5, 4, 4))))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(4)))
    with pytest.raises(CorruptFileError, match=r"\(5, 4, 4\) and \(4,\)"):
        read_mnist_files(tmp_path, "train")


def test_cifar_of_another_version(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match=r"cifar-100-binary/train\.bin"):
        open_dataset("cifar100", tmp_path).split("train")
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(NoDataError, match=r"pickled version .* put cifar-10-batches-bin/data_batch_1\.bin there"):
        open_dataset("cifar10", tmp_path).split("train")
    for name, width in (("cifar-10-batches-bin/test_batch.bin", 3073), ("cifar-100-binary/test.bin", 3074)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x" * (width + 1))
        with pytest.raises(CorruptFileError, match=f"rows of {width} bytes, got {width + 1}"):
            read_cifar(tmp_path / Path(name).parent, "test")
