"""Data sets with further tests in folders of images, and with validation images out of their test."""

from pathlib import Path

import pytest
import torch

from calibrant.data import open_dataset
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError
from made.image_files import colours, paint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, colour in {"3/a.png": 30, "3/b.png": 31, "9/deep/c.png": 90}.items():
        paint(tmp_path / "wild/photos" / name, (colour, colour, colour))
    return tmp_path


def test_a_folder_is_a_shifted_test_by_the_names_of_the_classes(root: Path) -> None:
    data = open_dataset("fashion_mnist_mini", root, test_folders=["wild/photos"])
    plain = open_dataset("fashion_mnist_mini", root)
    assert data.shifts == (*plain.shifts, "photos")
    assert (data.splits, data.image_size, data.channels) == (plain.splits, 28, 1)
    rule = "photos/3 must be named as one of the classes of fashion_mnist_mini; known: T-shirt/top, trouser, "
    with pytest.raises(InvalidInputError, match=rule):
        data.split("photos")
    digits = open_dataset("digits", root, test_folders=["wild/photos"])
    photos = digits.split("photos")
    assert photos.labels.tolist() == [3, 3, 9]
    assert [grey for (grey,) in colours(photos)] == [30, 31, 90]
    assert photos.images[torch.arange(3)].shape == (3, 1, 8, 8)
    assert photos.columns["file"].to_pylist() == ["3/a.png", "3/b.png", "9/deep/c.png"]
    assert torch.equal(digits.split("fog-3").images, open_dataset("digits").split("fog-3").images)
    assert len(digits.split("photos+fog-3")) == 3


def test_half_of_the_test_is_held_out_under_every_corruption() -> None:
    plain, halves = open_dataset("digits"), open_dataset("digits", hold_out="test")
    assert torch.equal(halves.split("train").images, plain.split("train").images)
    whole = {name: plain.split(name) for name in ("test", "fog-3")}
    validation, test, fog = (halves.split(name) for name in ("val", "test", "fog-3"))
    assert len(validation) == len(test) == len(whole["test"]) // 2
    images = [one.numpy().tobytes() for one in whole["test"].images]
    parts = [one.numpy().tobytes() for split in (validation, test) for one in split.images]
    assert sorted(images) == sorted(parts)
    rows = [images.index(one.numpy().tobytes()) for one in test.images]
    assert torch.equal(fog.images, whole["fog-3"].images[rows])  # the same rows as in the test
    assert (torch.bincount(test.labels) - torch.bincount(validation.labels)).abs().max() <= 1


REFUSED: dict[str, tuple[dict[str, object], type[CalibrantError], str]] = {
    "a name twice": ({"test_folders": ["a/x", "b/x"]}, InvalidInputError, "names that no .*got a/x, b/x$"),
    "a corruption": ({"test_folders": ["fog-3"]}, InvalidInputError, "names that no split"),
    "a split": ({"test_folders": ["test"]}, InvalidInputError, "names that no split"),
    "a type of corruption": ({"test_folders": ["fog"]}, InvalidInputError, "names that no split"),
    "a word for tests": ({"test_folders": ["all"]}, InvalidInputError, "names that no split"),
    "a missing folder": ({"test_folders": ["nowhere"]}, NoDataError, "no folder of a class in .*nowhere"),
    "no test": (
        {"data": "camelyon17", "hold_out": "test"},
        InvalidInputError,
        "must be train for camelyon17.*got test",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(tmp_path: Path, case: str) -> None:
    options, error, message = REFUSED[case]
    name = str(options.pop("data", "digits"))
    with pytest.raises(error, match=message):
        open_dataset(name, tmp_path, **options).split("nowhere")  # type: ignore[arg-type]
