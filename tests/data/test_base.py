"""Samples of tests: so many rows, each class in proportion, the same ones under every shift and in every run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from calibrant import Predictions
from calibrant.data import ImageFiles, Split, open_dataset
from calibrant.training import Settings, train
from made.image_files import paint

N_ROWS = 100
CLASSES = ("cat", "dog")
PER_CLASS = {"train": (9, 9), "test": (30, 10)}
SMALL: dict[str, Any] = {"data": "digits", "model": "mlp", "epochs": 1, "shifts": ("fog-3", "glass_blur-2")}


def a_split(n: int = 50, n_classes: int = 5) -> Split:
    """Images whose pixels are their row."""
    images = torch.arange(n, dtype=torch.uint8)[:, None, None, None].expand(n, 1, 8, 8)
    labels = torch.arange(n) % n_classes
    return Split(images.clone(), labels, {"row": list(range(n))})


@pytest.fixture
def painted(tmp_path: Path) -> Path:
    for part, counts in PER_CLASS.items():
        for label, (name, count) in enumerate(zip(CLASSES, counts, strict=True)):
            for i in range(count):
                paint(tmp_path / f"{part}/{name}/{i:02d}.png", (100 * label + 50, 5 * i, 90), side=16)
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
        every: Any = Split(torch.zeros(len(whole)), whole.labels, {"row": list(range(len(whole)))}).sample(N_ROWS)
        rows = torch.tensor(every.columns["row"])
        assert torch.equal(sample.labels, whole.labels[rows])
        assert torch.allclose(sample.logits, whole.logits[rows], atol=1e-5)
    assert torch.equal(*(Predictions.load(run / "predictions" / "val.parquet").logits for run in runs))  # all rows
