"""Tiny-ImageNet in its official layout, in small: order of classes, splits, published and generated shifts."""

from pathlib import Path

import pytest
import torch
from painted import colours, paint

import calibrant as cb
from calibrant.data import Pictures, TinyImageNet, open_dataset
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError

WNIDS = ("n02012849", "n01443537", "n03126707", "n09999999")  # in the order of wnids.txt
SORTED = ("n01443537", "n02012849", "n03126707", "n09999999")
WORDS = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02012849\tcrane\nn03126707\tcrane, hoist\n"
PER_CLASS = 15
VAL = ((10, 0), (2, 3), (0, 1), (1, 0))  # number and class of each official val picture, as they are listed
CORRUPTED = "Tiny-ImageNet-C"


def write_tiny_imagenet(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    for label, wnid in enumerate(SORTED):
        for i in range(PER_CLASS):
            paint(folder / f"train/{wnid}/images/{wnid}_{i}.JPEG", 40 * label + 2 * i, "L", side=64)
        (folder / f"train/{wnid}/{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    lines = [f"val_{number}.JPEG\t{SORTED[label]}\t0\t32\t44\t62\n" for number, label in VAL]
    for number, _label in VAL:
        paint(folder / f"val/images/val_{number}.JPEG", (20 * number, 100, 50), side=64)
    paint(folder / "test/images/test_0.JPEG", 7, "L", side=64)
    (folder / "val/val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    (folder / "words.txt").write_text(WORDS)
    return folder


def write_corrupted(root: Path, corruption: str, severity: int) -> Path:
    folder = root / CORRUPTED / corruption / str(severity)
    for label, wnid in enumerate(SORTED):
        for i in range(2):
            paint(folder / wnid / f"ILSVRC2012_val_{i}.JPEG", 50 * label + i, "L", side=64)
    return folder


def test_classes_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    data = TinyImageNet(tmp_path)
    assert data.wnids == SORTED
    assert data.class_names == ("goldfish", "crane (n02012849)", "crane (n03126707)", "n09999999")
    assert (data.image_size, data.n_classes, data.channels) == (64, 4, 3)
    assert len(data.shifts) == 95


def test_ids_are_the_names_where_there_are_no_words(tmp_path: Path) -> None:
    (write_tiny_imagenet(tmp_path) / "words.txt").unlink()
    assert open_dataset("tiny_imagenet", tmp_path).class_names == SORTED


def test_a_share_of_the_training_pictures_is_held_out(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    data = open_dataset("tiny_imagenet", tmp_path)
    train, val = data.split("train"), data.split("val")
    assert (len(train), len(val)) == (57, 3)  # 5 % of 60
    assert isinstance(train.images, Pictures)
    assert isinstance(val.images, Pictures)
    names = [*train.images.names.to_pylist(), *val.images.names.to_pylist()]
    everything = [f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{i}.JPEG" for wnid in SORTED for i in range(PER_CLASS)]
    assert sorted(names) == sorted(everything)
    assert train.images.names.to_pylist() == sorted(train.images.names.to_pylist())
    for split in (train, val):
        assert isinstance(split.images, Pictures)
        wnids = [name.split("/")[2] for name in split.images.names.to_pylist()]
        assert [SORTED[label] for label in split.labels] == wnids
        numbers = [int(name[:-5].rsplit("_", 1)[1]) for name in split.images.names.to_pylist()]
        wanted = [[40 * int(label) + 2 * i] * 3 for label, i in zip(split.labels, numbers, strict=True)]
        assert colours(split) == wanted  # grey ones become red, green and blue
    assert data.prior.sum() == 1


def test_the_official_val_pictures_are_the_test(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    test = open_dataset("tiny_imagenet", tmp_path).split("test")
    assert isinstance(test.images, Pictures)
    names = [name.rsplit("/", 1)[1] for name in test.images.names.to_pylist()]
    assert names == ["val_0.JPEG", "val_1.JPEG", "val_2.JPEG", "val_10.JPEG"]  # by number, not by text
    assert test.labels.tolist() == [1, 0, 3, 0]
    assert test.labels.dtype == torch.int64
    assert (torch.tensor(colours(test)) - torch.tensor([[20 * i, 100, 50] for i in (0, 1, 2, 10)])).abs().max() <= 3


def test_test_pictures_are_corrupted_as_they_are_asked_for(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    data = open_dataset("tiny_imagenet", tmp_path, image_size=32)
    clean, foggy = data.split("test"), data.split("fog-3")
    whole = cb.corrupt(clean.images[torch.arange(4)], "fog", 3)
    assert torch.equal(foggy.images[torch.tensor([2, 0])], whole[[2, 0]])
    assert torch.equal(foggy.labels, clean.labels)
    assert foggy.columns == {"corruption": ["fog"] * 4, "severity": [3] * 4, "origin": ["generated"] * 4}
    assert clean.columns == {}


def test_published_pictures_come_first(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    write_corrupted(tmp_path, "fog", 3)
    data = open_dataset("tiny_imagenet", tmp_path)
    found = data.split("fog-3")
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]  # the classes of the training pictures
    assert colours(found) == [[50 * label + i] * 3 for label in range(4) for i in range(2)]
    assert found.columns == {"corruption": ["fog"] * 8, "severity": [3] * 8, "origin": ["published"] * 8}
    assert len(data.split("fog-2")) == 4


def test_the_frost_of_a_thousand_classes_is_refused(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    folder = write_corrupted(tmp_path, "frost", 1)
    paint(folder / "n01440764/ILSVRC2012_val_0.JPEG", 1, "L")
    with pytest.raises(CorruptFileError, match=r"frost/1 has 1 classes .*, as n01440764: .* Zenodo 8206060"):
        open_dataset("tiny_imagenet", tmp_path).split("frost-1")


def test_an_unfinished_folder_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path)
    for picture in (write_corrupted(tmp_path, "snow", 1) / SORTED[2]).iterdir():
        picture.unlink()
    with pytest.raises(NoDataError, match=f"no picture in .*snow/1/{SORTED[2]}: unpack Tiny-ImageNet-C in"):
        open_dataset("tiny_imagenet", tmp_path).split("snow-1")
    (folder / "train" / SORTED[1]).rename(folder / "elsewhere")
    with pytest.raises(NoDataError, match=f"no picture in .*train/{SORTED[1]}: unpack tiny-imagenet-200 in"):
        open_dataset("tiny_imagenet", tmp_path).split("val")


@pytest.mark.parametrize(("file", "split"), [("wnids.txt", "train"), ("val/val_annotations.txt", "test")])
def test_missing_lists_are_named(tmp_path: Path, file: str, split: str) -> None:
    (write_tiny_imagenet(tmp_path) / file).unlink()
    message = f"no {file} of tiny_imagenet in {tmp_path}/tiny-imagenet-200: unpack tiny-imagenet-200.zip in {tmp_path}"
    message += "; calibrant data fetch tiny_imagenet does it"
    with pytest.raises(NoDataError) as refused:
        open_dataset("tiny_imagenet", tmp_path).split(split)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("wnids.txt", b"", r"wnids\.txt must be WordNet ids .* got \[\]"),
        ("wnids.txt", b"n01443537\n../../x\n", r"wnids\.txt must be WordNet ids .* got '\.\./\.\./x'"),
        ("wnids.txt", b"\xff\xfe", r"wnids\.txt is not text in UTF-8"),
        ("val/val_annotations.txt", b"", r"val_annotations\.txt is empty"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01443537\nval_1.JPEG n01443537\n", r"line 2 .* got 'val_1\.JPEG n"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01440764\n", r"line 1 .* one of wnids\.txt, got .*n01440764"),
    ],
    ids=["no ids", "no id", "no text", "no rows", "no tab", "another class"],
)
def test_damaged_lists_are_refused(tmp_path: Path, file: str, data: bytes, message: str) -> None:
    (write_tiny_imagenet(tmp_path) / file).write_bytes(data)
    with pytest.raises(CorruptFileError, match=message):
        open_dataset("tiny_imagenet", tmp_path).split("test")


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'fog-5'"):
        open_dataset("tiny_imagenet", tmp_path).split("fogg-5")
    with pytest.raises(InvalidInputError, match="image_size must be an integer of at least 8, got 0"):
        open_dataset("tiny_imagenet", tmp_path, image_size=0)
