"""CIFAR's binary layout: rows, splits, published and generated shifts; other versions and damaged files."""

from pathlib import Path

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant.corruptions.layout import write_cifar_c
from calibrant.data import ArrayData, open_dataset, read_cifar
from calibrant.errors import CorruptFileError, NoDataError


def write_cifar(folder: Path, per_batch: int = 40) -> np.ndarray:
    """All files of CIFAR-10's binary layout with random pixels; their rows, the training ones first."""
    rows = np.random.default_rng(0).integers(0, 256, (6 * per_batch, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(len(rows)) % 10
    (folder / "cifar-10-batches-bin").mkdir()
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        part = rows[number * per_batch : (number + 1) * per_batch]
        part.tofile(folder / "cifar-10-batches-bin" / f"{name}.bin")
    return rows


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


def test_generated_shifts_are_kept_for_these_images_alone(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    shifted = open_dataset("cifar10", tmp_path).split("fog-3").images
    [kept] = (tmp_path / "generated" / "cifar10").iterdir()
    assert kept.name.startswith("fog-3-")
    np.save(kept, 255 - shifted.numpy())  # so that one sees where they come from
    assert torch.equal(open_dataset("cifar10", tmp_path).split("fog-3").images, 255 - shifted)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)[::-1].tobytes())
    reversed_images = open_dataset("cifar10", tmp_path).split("test").images
    again = open_dataset("cifar10", tmp_path).split("fog-3").images
    assert torch.equal(again, cb.corrupt(reversed_images, "fog", 3))
    assert len(list(kept.parent.iterdir())) == 2


def damages(content: bytes) -> list[bytes]:
    """A bit of a pixel, a bit of the digest after the array, and a tail of zeros."""
    flipped = content[:5000] + bytes([content[5000] ^ 4]) + content[5001:]
    return [flipped, content[:-40] + b"c" + content[-39:], content[:-1000] + bytes(1000)]


def test_damaged_shifts_are_generated_again(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    shifted = open_dataset("cifar10", tmp_path).split("fog-3").images
    [kept] = (tmp_path / "generated" / "cifar10").iterdir()
    content = kept.read_bytes()
    for damaged in damages(content):
        kept.write_bytes(damaged)
        assert torch.equal(open_dataset("cifar10", tmp_path).split("fog-3").images, shifted)
        assert kept.read_bytes() == content


def test_damaged_files_of_corrupt_are_refused(tmp_path: Path) -> None:
    """They end with their digest, which numpy ignores; published files have none."""
    write_cifar(tmp_path)
    path = tmp_path / "CIFAR-10-C" / "contrast.npy"
    write_cifar_c(tmp_path, path.parent, "contrast", jobs=1)
    images = open_dataset("cifar10", tmp_path).split("test").images
    found = open_dataset("cifar10", tmp_path).split("contrast-2")
    assert (found.columns["origin"][0], found.images.shape) == ("published", images.shape)
    assert np.load(path).shape == (200, 32, 32, 3)
    content = path.read_bytes()
    for damaged in damages(content):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=r"contrast\.npy is damaged"):
            open_dataset("cifar10", tmp_path).split("contrast-2")
    path.write_bytes(content[:-40])  # as of another program
    assert torch.equal(open_dataset("cifar10", tmp_path).split("contrast-2").images, found.images)


def test_cifar_is_shifted_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = write_cifar(tmp_path)
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path))
    data = open_dataset("cifar10")
    assert isinstance(data, ArrayData)
    reads = []
    read = data.read
    monkeypatch.setattr(data, "read", lambda root, part: (reads.append(part), read(root, part))[1])
    test, shifted = data.split("test"), data.split("fog-3")
    assert np.array_equal(test.images.numpy().reshape(40, -1), rows[200:, 1:])
    assert test.labels.tolist() == rows[200:, 0].tolist()
    assert torch.equal(shifted.images, cb.corrupt(test.images, "fog", 3))
    assert shifted.columns == {"corruption": ["fog"] * 40, "severity": [3] * 40, "origin": ["generated"] * 40}
    foggy = cb.corrupt(test.images, "fog", 1)
    test.images.zero_()  # which is a copy
    assert torch.equal(data.split("fog-1").images, foggy)
    assert reads == ["test"]


def test_published_files_come_first(tmp_path: Path) -> None:
    rows = write_cifar(tmp_path)
    (tmp_path / "CIFAR-10-C").mkdir()
    published = np.random.default_rng(1).integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", published)
    with pytest.raises(CorruptFileError, match=r"labels\.npy cannot be read"):
        open_dataset("cifar10", tmp_path).split("fog-2")
    labels = np.tile(rows[200:, 0], 5)
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.roll(labels, 1))  # of the same rows in another order
    with pytest.raises(CorruptFileError, match=r"labels\.npy has other labels than the test images, or .* order"):
        open_dataset("cifar10", tmp_path).split("fog-2")
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", labels)
    found = open_dataset("cifar10", tmp_path).split("fog-2")
    assert np.array_equal(found.images.permute(0, 2, 3, 1).numpy(), published[40:80])
    np.save(tmp_path / "CIFAR-10-C" / "snow.npy", published[:7])
    with pytest.raises(CorruptFileError, match=r"must be uint8 \(200, 32, 32, 3\), got uint8 \(7, 32, 32, 3\)"):
        open_dataset("cifar10", tmp_path).split("snow-1")
    (tmp_path / "CIFAR-10-C" / "frost.npy").write_bytes(b"no array")
    with pytest.raises(CorruptFileError, match=r"frost\.npy cannot be read"):
        open_dataset("cifar10", tmp_path).split("frost-1")
