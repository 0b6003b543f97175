"""IDX files: what is in them, plain and gzipped; damaged and missing ones."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from calibrant.data import open_dataset, read_idx, read_mnist_files
from calibrant.errors import CorruptFileError, NoDataError
from made.datasets import idx_bytes


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


GOOD = idx_bytes(np.arange(6).reshape(2, 3))
BAD_IDX = {
    "empty": (b"", "not an IDX file"),
    "short head": (b"\0\0\x08", "not an IDX file"),
    "cut sizes": (GOOD[:9], "not an IDX file"),
    "other type": (b"\0\0\x0d" + GOOD[3:], "not an IDX file"),
    "cut": (GOOD[:-1], r"must hold 6 values \(2, 3\), got 5"),
    "too long": (GOOD + b"x", "got more than 6"),
    "sizes of 10^19": (b"\0\0\x08\x02" + b"\xff" * 8, "got 0"),
    "gzip of more": (gzip.compress(GOOD + bytes(10**7)), "got more than 6"),  # which is not unzipped to its end
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


def test_labels_of_no_class(tmp_path: Path) -> None:
    """255, as in a file of unlabelled images."""
    (tmp_path / "mnist").mkdir()
    for name, values in (("images-idx3", np.zeros((20, 28, 28))), ("labels-idx1", np.array([*range(10)] * 2))):
        values = np.where(np.arange(20) == 7, 255, values) if values.ndim == 1 else values
        (tmp_path / "mnist" / f"t10k-{name}-ubyte").write_bytes(idx_bytes(values))
    with pytest.raises(CorruptFileError, match=r"test labels of mnist .* must lie in \[0, 9\], got 255 at row 7"):
        open_dataset("mnist", tmp_path).split("test")
