"""A user's own folder of images: its classes, splits and shifted tests, and what is refused in it."""

import os
from pathlib import Path

import pytest
import torch

import calibrant as cb
from calibrant.data import ImageFiles, Split, open_dataset
from calibrant.errors import InvalidInputError
from made.datasets import CLASSES, write_test, write_train
from made.image_files import colours, paint


def files(split: Split) -> list[str]:
    """The column of files as it is in predictions made of the split."""
    predictions = cb.Predictions.from_logits(torch.zeros(len(split), 3), split.labels, columns=split.columns)
    return predictions.column("file").to_pylist()


def test_a_tenth_of_train_is_held_out(tmp_path: Path) -> None:
    write_train(tmp_path)
    data = open_dataset("image_folder", tmp_path)
    assert data.class_names == CLASSES
    assert (data.splits, data.shifts, data.image_size) == (("train", "val"), (), 64)
    train, val = data.split("train"), data.split("val")
    assert torch.bincount(train.labels).tolist() == [9, 9, 9]
    assert torch.bincount(val.labels).tolist() == [1, 1, 1]
    assert sorted(files(train) + files(val)) == sorted(f"train/{name}/{i}.png" for name in CLASSES for i in range(10))
    for split in (train, val):
        assert isinstance(split.images, ImageFiles)
        assert split.labels.dtype == torch.int64
        assert files(split) == sorted(files(split))
        wanted = [[CLASSES.index(name.split("/")[1]), int(Path(name).stem), 0] for name in files(split)]
        assert colours(split) == wanted
        assert split.labels.tolist() == [label for label, _, _ in wanted]
    assert torch.equal(val.labels, open_dataset("image_folder", tmp_path).split("val").labels)


def test_val_is_taken_as_it_is_and_other_folders_are_shifted_tests(tmp_path: Path) -> None:
    data = open_dataset("image_folder", tmp_path)  # which reads nothing
    write_train(tmp_path)
    paint(tmp_path / "val/emu/x.jpg", 9, "L")
    paint(tmp_path / "hospital_b/emu/x.webp", (1, 2, 3))
    (tmp_path / "hospital_b/dog").mkdir()  # a class of which it has no image
    assert (data.splits, data.shifts) == (("train", "val"), ("hospital_b",))
    assert len(data.split("train")) == 30
    val, found = data.split("val"), data.split("hospital_b")
    assert (files(val), val.labels.tolist(), colours(val)) == (["val/emu/x.jpg"], [2], [[9, 9, 9]])
    assert (files(found), found.labels.tolist(), set(found.columns)) == (["hospital_b/emu/x.webp"], [2], {"file"})


def columns(split: Split, *names: str) -> list[tuple[object, ...]]:
    """These columns as they are in predictions made of the split."""
    predictions = cb.Predictions.from_logits(torch.zeros(len(split), 3), split.labels, columns=split.columns)
    return list(zip(*(predictions.column(name).to_pylist() for name in names), strict=True))


def test_folders_below_a_class_are_a_column(tmp_path: Path) -> None:
    write_train(tmp_path)
    paint(tmp_path / "ward/emu/north/2024/x.png", (1, 2, 3))
    paint(tmp_path / "ward/emu/y.png", (1, 2, 3))
    data = open_dataset("image_folder", tmp_path)
    wanted = [("ward/emu/north/2024/x.png", "north/2024"), ("ward/emu/y.png", None)]
    assert columns(data.split("ward"), "file", "folder") == wanted
    assert set(columns(data.split("val"), "folder")) == {(None,)}  # every split has the same columns


def test_a_csv_of_columns(tmp_path: Path) -> None:
    write_train(tmp_path)
    names = [f"train/{name}/{i}.png" for name in CLASSES for i in range(10)]
    lines = [f"{name},{i},{'A' if i % 2 else ''}" for i, name in enumerate(names)]
    listing = tmp_path / "columns.csv"
    listing.write_text("\n".join(["file,age,site", *reversed(lines), "train/gone.png,1,B"]))
    found = columns(open_dataset("image_folder", tmp_path).split("train"), "file", "age", "site")
    assert len(found) == 27
    assert all((age, site) == (names.index(name), "A" if names.index(name) % 2 else None) for name, age, site in found)
    for content, message in {
        "file,age\n" + "\n".join(f"{name},1" for name in names[:-1]): f"every image, got none of '{names[-1]}'",
        "file,age\na,1\na,2": "every file once, got 'a' twice",
        "path,age\na,1": "has no column 'file'",
        "file,label\na,1": "must not have a column 'label'",
        "file,split\na,1": "must not have a column 'split'",
        "file,x,x\na,1,2": "must not have a column 'x', or it twice",
    }.items():
        listing.write_text(content)
        with pytest.raises(cb.errors.CalibrantError, match=message):
            open_dataset("image_folder", tmp_path).split("val")


def test_a_test_has_its_corruptions(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_test(tmp_path)
    data = open_dataset("image_folder", tmp_path, image_size=24)
    assert data.splits == ("train", "val", "test")
    assert len(data.shifts) == 95
    test, foggy = data.split("test"), data.split("fog-3")
    assert files(test) == ["test/cat/deep/er/z.tiff", "test/dog/a.bmp", "test/dog/b.PNG"]
    assert test.labels.tolist() == foggy.labels.tolist() == [0, 1, 1]
    assert colours(test) == [[70, 80, 90], [40, 50, 60], [10, 20, 30]]
    images = test.images[torch.arange(3)]
    assert images.shape == (3, 3, 24, 24)
    assert torch.equal(foggy.images[torch.tensor([2, 1])], cb.corrupt(images, "fog", 3)[[2, 1]])
    assert foggy.columns["corruption"] == ["fog"] * 3
    assert foggy.columns["severity"] == [3] * 3
    assert files(foggy) == files(test)
    paint(tmp_path / "fog-3/cat/x.png", (1, 2, 3))  # a folder of that name is the user's
    data = open_dataset("image_folder", tmp_path)
    assert len(data.shifts) == len(set(data.shifts)) == 95
    assert data.shifts[0] == "fog-3"
    assert files(data.split("fog-3")) == ["fog-3/cat/x.png"]


def test_image_files_become_red_green_and_blue(tmp_path: Path) -> None:
    write_train(tmp_path)
    modes = {"RGBA": ((1, 2, 3, 0), [1, 2, 3]), "L": (77, [77] * 3), "LA": ((77, 5), [77] * 3), "1": (1, [255] * 3)}
    for i, (mode, (colour, _)) in enumerate(modes.items()):
        paint(tmp_path / f"test/cat/{i}.png", colour, mode)
    assert colours(open_dataset("image_folder", tmp_path).split("test")) == [wanted for _, wanted in modes.values()]


def test_hidden_and_other_files_are_left_out_and_links_are_not_followed(tmp_path: Path) -> None:
    write_train(tmp_path / ".outside")
    (tmp_path / "train").mkdir()
    for name in CLASSES:  # a class may be a link
        (tmp_path / "train" / name).symlink_to(tmp_path / ".outside/train" / name, target_is_directory=True)
    (tmp_path / "train/cat/round").symlink_to(tmp_path / "train/cat", target_is_directory=True)
    write_test(tmp_path)
    for name in (".cache/cat/x.png", "train/.trash/x.png", "test/cat/.hidden.png", "test/cat/.thumbs/x.png"):
        paint(tmp_path / name, (0, 0, 0))
    paint(tmp_path / "test/cat/x.gif", (0, 0, 0))
    paint(tmp_path / "loose.png", (0, 0, 0))
    (tmp_path / "test/cat/notes.txt").write_text("no image")
    data = open_dataset("image_folder", tmp_path)
    assert data.class_names == CLASSES
    assert len(data.shifts) == 95
    assert len(data.split("test")) == 3
    assert len(data.split("train")) + len(data.split("val")) == 30


def test_names_that_are_not_text_are_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    try:
        os.rename(tmp_path / "train/cat/0.png", os.fsencode(tmp_path / "train/cat") + b"/\xff.png")
    except OSError:
        pytest.skip("this filesystem has no such names")
    with pytest.raises(InvalidInputError, match=r"must be UTF-8, got 'train/cat/\\udcff\.png'"):
        open_dataset("image_folder", tmp_path).split("train")
