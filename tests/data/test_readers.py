"""Readers of image data: the embedded set, IDX files, CIFAR's binary layout; damaged files."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.data import read_cifar, read_fashion_mnist_mini, read_mnist_files
from calibrant.data.embedded import EMBEDDED


def idx_bytes(values: np.ndarray) -> bytes:
    """The official layout: two zeros, the type, the number of dimensions, the sizes (big-endian), the values."""
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


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
