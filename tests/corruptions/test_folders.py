"""Folders of images and files in the layout of CIFAR-C: the same tree, corrupted; resumed, kept, refused."""

import io
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import calibrant as cb
from calibrant.corruptions import folders, layout
from calibrant.corruptions.folders import corrupt_folder
from calibrant.corruptions.frost import PHOTOGRAPHS
from calibrant.corruptions.layout import write_cifar_c
from calibrant.corruptions.sheet import contact_sheet, save_sheet
from calibrant.errors import (
    CalibrantError,
    CorruptFileError,
    InvalidInputError,
    NoDataError,
    ResourceError,
    UnknownNameError,
)
from calibrant.shifts import SEVERITIES
from made.corruption_check import as_pillow, crops

N_CIFAR = 20
Bytes = NDArray[np.uint8]


def crop(i: int, height: int = 32, width: int = 32) -> Image.Image:
    return as_pillow(crops(i + 1, height, width)[i])


def save(image: Image.Image, path: Path, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """PNG and JPEG, grey and in colour, of several sizes, in sub-folders."""
    source = tmp_path / "images"
    save(crop(0), source / "top.png")
    save(crop(1), source / "a" / "one.png")
    save(crop(2), source / "a" / "b c" / "two.jpeg", quality=95)
    save(crop(3, 33, 17), source / "a" / "b c" / "Three.JPG", quality=90)
    save(crop(4).convert("L"), source / "grey" / "[red]ä.png")
    save(crop(5, 20, 40).convert("L"), source / "grey" / "five.jpg", quality=95)
    veiled = crop(6)
    veiled.putalpha(Image.linear_gradient("L").resize(veiled.size))
    save(veiled, source / "veiled.png")
    return source


@pytest.fixture
def two(tmp_path: Path) -> Path:
    source = tmp_path / "two"
    save(crop(0), source / "a" / "x.png")
    save(crop(1), source / "y.png")
    return source


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image if image.mode in ("L", "RGB") else image.convert("RGB")


def assert_pixels(path: Path, wanted: Image.Image) -> None:
    with Image.open(path) as image:
        assert image.mode == wanted.mode, path
        assert np.array_equal(np.array(image), np.array(wanted)), path


def assert_corrupted(
    source: Path, target: Path, name: str, severity: int, suffix: str = ".png", **options: Any
) -> None:
    """Every image below the source, with its relative path as key, under its own name below the target."""
    written = {str(Path(file).with_suffix("")): file for file in files_below(target) if file != "corruption.json"}
    given = files_below(source)
    assert sorted(written) == sorted(str(Path(file).with_suffix("")) for file in given)
    for file in given:
        wanted = cb.corrupt(opened(source / file), name, severity, keys=[file], **options)
        place = target / written[str(Path(file).with_suffix(""))]
        assert place.suffix == suffix
        assert_pixels(place, wanted)


def moments(folder: Path) -> dict[str, int]:
    return {file: (folder / file).stat().st_mtime_ns for file in files_below(folder)}


def make_old(folder: Path) -> dict[str, int]:
    """Files that were written an hour ago, so that a file written again is seen."""
    for file in files_below(folder):
        before = (folder / file).stat().st_mtime_ns - 3_600 * 10**9
        os.utime(folder / file, ns=(before, before))
    return moments(folder)


# A folder of images


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("gaussian_noise", 1, {}),
    ("spatter", 4, {"seed": 7}),
    ("motion_blur", 4, {"seed": 2**40, "parameters": "tiny_imagenet"}),
    ("glass_blur", 4, {"save_quality": 30}),
    ("frost", 3, {"frost_dir": "ice"}),
]


@pytest.mark.parametrize(("name", "severity", "options"), CASES, ids=str)
def test_a_folder_keeps_its_tree(
    images: Path, tmp_path: Path, name: str, severity: int, options: dict[str, Any]
) -> None:
    if "frost_dir" in options:
        options = {"frost_dir": tmp_path / "ice"}
        for file in PHOTOGRAPHS:
            save(Image.new("RGB", (400, 300), (200, 100, 50)), tmp_path / "ice" / file)
    before = {file: (images / file).read_bytes() for file in files_below(images)}
    target = tmp_path / "out" / "deeper"
    found = corrupt_folder(images, target, name, severity, **options)
    assert (found.written, found.kept, found.skipped) == (7, 0, {})
    assert_corrupted(images, target, name, severity, ".JPEG" if "save_quality" in options else ".png", **options)
    assert {file: (images / file).read_bytes() for file in files_below(images)} == before
    if "save_quality" in options:
        wanted = io.BytesIO()
        Image.new("RGB", (8, 8)).save(wanted, "JPEG", quality=options["save_quality"])
        with Image.open(target / "top.JPEG") as image:
            assert (image.format, image.quantization) == ("JPEG", Image.open(wanted).quantization)  # type: ignore[attr-defined]
    record = json.loads((target / "corruption.json").read_text())
    assert record["seed"] == options.get("seed", 0)
    assert record["parameters"] == options.get("parameters")


def test_jobs_and_spellings_of_the_source_change_nothing(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images / "a")
    for jobs, source in ((1, ".."), (2, images), (5, str(images))):
        corrupt_folder(source, tmp_path / f"{jobs}", "fog", 2, jobs=jobs)
        assert_corrupted(images, tmp_path / f"{jobs}", "fog", 2)
    corrupt_folder(images / "a" / "one.png", tmp_path / "one", "speckle_noise", 2)  # its name is its path
    assert files_below(tmp_path / "one") == ["corruption.json", "one.png"]
    assert_pixels(tmp_path / "one" / "one.png", cb.corrupt(crop(1), "speckle_noise", 2, keys=["one.png"]))


def test_names_that_differ_in_the_suffix_alone_both_stay(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    for i, name in enumerate(("x.png", "x.jpg", "x.bmp", "y" * 240 + ".png")):
        save(crop(i), source / name)
    corrupt_folder(source, target, "gaussian_noise", 3)
    wanted = [cb.corrupt(opened(source / file), "gaussian_noise", 3, keys=[file]) for file in files_below(source)]
    found = [opened(path).tobytes() for path in target.rglob("*.png")]
    assert sorted(found) == sorted(image.tobytes() for image in wanted)
    assert corrupt_folder(source, target, "gaussian_noise", 3).kept == 4


def test_missing_files_are_written_and_others_kept(images: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    corrupt_folder(images, target, "gaussian_noise", 2, save_quality=85)
    contents = {file: (target / file).read_bytes() for file in files_below(target)}
    before = make_old(target)
    missing = [file for file in contents if file != "corruption.json"][::3]
    for file in missing:
        (target / file).unlink()
    save(crop(9), images / "new" / "one.png")
    found = corrupt_folder(images, target, "gaussian_noise", 2, save_quality=85)
    assert (len(missing), found.written, found.kept) == (3, 4, 4)
    assert set(files_below(target)) - set(contents) == {"new/one.JPEG"}
    assert {file: (target / file).read_bytes() for file in contents} == contents
    after = moments(target)
    assert {file for file in before if after[file] != before[file]} == set(missing)


@pytest.mark.slow
def test_all_corruptions_at_all_severities(two: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    (two / "notes.txt").write_text("no image")
    found = corrupt_folder(two, target, seed=3)
    assert (found.written, list(found.skipped)) == (19 * 5 * 2, ["notes.txt"])  # which is named once
    places = [target / name / str(severity) for name in cb.CORRUPTIONS for severity in SEVERITIES]
    wanted = sorted((place / file).relative_to(target).as_posix() for place in places for file in ("a/x.png", "y.png"))
    assert [file for file in files_below(target) if file.endswith(".png")] == wanted
    for place in places:
        for i, file in enumerate(("a/x.png", "y.png")):
            name, severity = place.parent.name, int(place.name)
            assert_pixels(place / file, cb.corrupt(crop(i), name, severity, seed=3, keys=[file]))
    with pytest.raises(InvalidInputError, match="seed"):
        corrupt_folder(two, target)


def test_files_that_are_no_images_are_named_and_skipped(two: Path, tmp_path: Path) -> None:
    (two / "a" / "[bold]y.txt").write_text("not an image")
    (two / "y.txt").write_text("a note beside an image does not change its name")
    (two / "cut.png").write_bytes((two / "y.png").read_bytes()[:1000])
    save(crop(0, 7, 20), two / "small.png")
    found = corrupt_folder(two, tmp_path / "out", "fog", 3)
    assert set(found.skipped) == {"a/[bold]y.txt", "cut.png", "small.png", "y.txt"}
    assert found.skipped["y.txt"].startswith("not AVIF, BMP")
    assert "7" in found.skipped["small.png"]
    assert files_below(tmp_path / "out") == ["a/x.png", "corruption.json", "y.png"]


def test_an_interrupt_leaves_whole_files(two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = folders._write_group

    def interrupted(place: Path, *arguments: Any) -> int:
        if place.name == "2":
            raise KeyboardInterrupt
        return write(place, *arguments)

    monkeypatch.setattr(folders, "_write_group", interrupted)
    with pytest.raises(KeyboardInterrupt):
        corrupt_folder(two, tmp_path / "out")
    assert len(files_below(tmp_path / "out")) == 1 + 2  # the record, and severity 1 of the first corruption


# The layout of CIFAR-C


@cache
def cifar_rows() -> tuple[Bytes, Bytes]:
    """Images (n, 32, 32, 3) and labels."""
    images = np.stack([np.array(crop(i % 8)) for i in range(N_CIFAR)])
    images[8:] = 255 - images[8:]
    return images, (np.arange(N_CIFAR) * 7 % 10).astype(np.uint8)


def write_cifar(folder: Path) -> Path:
    images, labels = cifar_rows()
    folder.mkdir(parents=True)
    rows = np.concatenate([labels[:, None], images.transpose(0, 3, 1, 2).reshape(N_CIFAR, 3072)], 1)
    rows.tofile(folder / "test_batch.bin")
    return folder


def arrays(path: Path, **given: NDArray[Any]) -> Path:
    np.savez(path, **given)
    return path


def assert_cifar_c(target: Path, name: str, images: Bytes, **options: Any) -> None:
    """Five severities below one another, image i of each with key i."""
    batch = torch.from_numpy(images).permute(0, 3, 1, 2)
    parts = [cb.corrupt(batch, name, severity, **options) for severity in SEVERITIES]
    found = np.load(target / f"{name}.npy")
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    assert np.array_equal(found, torch.cat(parts).permute(0, 2, 3, 1).numpy())


def assert_labels(target: Path, labels: NDArray[Any]) -> None:
    found = np.load(target / "labels.npy")
    assert found.dtype == labels.dtype
    assert found.tolist() == 5 * labels.tolist()


def test_cifar_c_from_files_of_any_shape_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "IMAGES_PER_BLOCK", 8)  # so that there are three blocks
    images, labels = cifar_rows()
    batch = write_cifar(tmp_path / "cifar-10-batches-bin")
    for target, source in ((tmp_path / "inside", batch), (tmp_path / "outside", tmp_path)):
        write_cifar_c(source, target, "gaussian_noise", seed=5)
        assert_cifar_c(target, "gaussian_noise", images, seed=5)
        assert_labels(target, labels)
    np.save(tmp_path / "images.npy", images)
    write_cifar_c(tmp_path / "images.npy", tmp_path / "a", "snow")
    assert_cifar_c(tmp_path / "a", "snow", images)
    assert not (tmp_path / "a" / "labels.npy").exists()
    wide = np.stack([np.array(crop(i, 24, 40)) for i in range(3)])
    many = labels[:3].astype(np.int64) + 256  # which need more than a byte
    for name, given, kept in (("b", labels[:3].astype(np.int64), labels[:3]), ("c", many, many)):
        write_cifar_c(arrays(tmp_path / f"{name}.npz", images=wide, labels=given), tmp_path / name, "contrast")
        assert_cifar_c(tmp_path / name, "contrast", wide)
        assert_labels(tmp_path / name, kept)


def test_cifar_c_of_all_corruptions(tmp_path: Path) -> None:
    images, labels = (part[:3] for part in cifar_rows())
    source, target = arrays(tmp_path / "few.npz", images=images, labels=labels), tmp_path / "out"
    assert write_cifar_c(source, target).written == 19
    before = make_old(target)
    (target / "fog.npy").unlink()
    found = write_cifar_c(source, target)
    assert (found.written, found.kept) == (1, 18)
    assert {file for file, moment in moments(target).items() if moment != before[file]} == {"fog.npy"}
    assert sorted(path.stem for path in target.glob("*.npy")) == sorted([*cb.CORRUPTIONS, "labels"])
    for name in cb.CORRUPTIONS:
        assert_cifar_c(target, name, images)
    assert_labels(target, labels)


def test_a_folder_takes_no_other_data_and_no_other_settings(tmp_path: Path) -> None:
    images, labels = cifar_rows()
    one = arrays(tmp_path / "one.npz", images=images, labels=labels)
    two = arrays(tmp_path / "two.npz", images=images, labels=(labels + 1) % 10)
    write_cifar_c(one, tmp_path / "out", "contrast")
    write_cifar_c(one, tmp_path / "out", "pixelate")
    for source, seed, message in ((two, 0, "data"), (one, 1, "seed")):
        with pytest.raises(InvalidInputError, match=f"was made with {message}"):
            write_cifar_c(source, tmp_path / "out", "fog", seed=seed)
    assert sorted(path.name for path in tmp_path.glob("out/*.npy")) == ["contrast.npy", "labels.npy", "pixelate.npy"]


# The contact sheet


@pytest.mark.slow
def test_a_sheet_has_a_row_for_each_corruption(tmp_path: Path) -> None:
    for given in (crop(1).convert("L"), crop(2, 64, 128), crop(3, 130, 300)):
        sheet = contact_sheet(given)
        side = max(96, min(given.size))
        assert 6 * side < sheet.width < 8 * side + 100
        assert 19 * side < sheet.height < 21 * side + 100
        assert len(np.unique(np.array(sheet))) > 20
    save(crop(0), tmp_path / "x.png")
    first, again, other = (save_sheet(tmp_path / "x.png", tmp_path / "y.png", seed=seed) for seed in (0, 0, 1))
    assert_pixels(tmp_path / "y.png", other)
    assert first.tobytes() == again.tobytes() != other.tobytes()


# Refusals


def bytes_of(array: NDArray[Any], kept: int | None = None) -> bytes:
    np.save(file := io.BytesIO(), array, allow_pickle=True)
    return file.getvalue()[:kept]


def zipped(**given: NDArray[Any]) -> bytes:
    np.savez(file := io.BytesIO(), **given)
    return file.getvalue()


BAD_ARRAYS: dict[str, tuple[Callable[[Bytes, Bytes], bytes], type[CalibrantError], str]] = {
    "floats.npy": (lambda images, _: bytes_of(images / 255), InvalidInputError, "float64"),
    "flat.npy": (lambda images, _: bytes_of(images.reshape(N_CIFAR, -1)), InvalidInputError, r"\(20, 3072\)"),
    "planes.npy": (lambda images, _: bytes_of(images.transpose(0, 3, 1, 2)), InvalidInputError, "channels"),
    "none.npy": (lambda images, _: bytes_of(images[:0]), InvalidInputError, "empty"),
    "cut.npy": (lambda images, _: bytes_of(images, kept=-100), CorruptFileError, r"cut\.npy"),
    "text.npy": (lambda *_: b"no array", CorruptFileError, r"text\.npy"),
    "objects.npy": (lambda *_: bytes_of(np.array([{"a": 1}], dtype=object)), CorruptFileError, r"objects\.npy"),
    "nothing.npz": (lambda images, labels: zipped(pixels=images, labels=labels), InvalidInputError, "images"),
    "short.npz": (lambda images, labels: zipped(images=images, labels=labels[1:]), InvalidInputError, r"\(19,\)"),
    "below.npz": (lambda images, _: zipped(images=images, labels=np.arange(N_CIFAR) - 1), InvalidInputError, "-1"),
    "text.npz": (lambda *_: b"no archive", CorruptFileError, r"text\.npz"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_bad_arrays_are_refused(tmp_path: Path, name: str) -> None:
    make, error, message = BAD_ARRAYS[name]
    (tmp_path / name).write_bytes(make(*cifar_rows()))
    with pytest.raises(error, match=message):
        write_cifar_c(tmp_path / name, tmp_path / "out", "fog")
    assert not (tmp_path / "out").exists()


WRONG, MISSING, DAMAGED, REFUSES = InvalidInputError, NoDataError, CorruptFileError, ResourceError
Refused = tuple[Callable[[Path], object], type[CalibrantError], str]
REFUSED: list[Refused] = [
    (lambda p: corrupt_folder(p / "two", p / "out", "fogg", 3), UnknownNameError, "did you mean 'fog'"),
    (lambda p: corrupt_folder(p / "two", p / "out", "fog"), WRONG, "severity from 1 to 5"),
    (lambda p: corrupt_folder(p / "two", p / "out", severity=3), WRONG, "got None and 3"),
    (lambda p: corrupt_folder(p / "two", p / "out", "fog", 3, jobs=0), WRONG, "jobs .* got 0"),
    (lambda p: corrupt_folder(p / "two", p / "out", "fog", 3, jobs=2000), WRONG, "jobs .* got 2000"),
    (lambda p: corrupt_folder(p / "two", p / "out", "frost", 3, frost_dir="none"), MISSING, "none"),
    (lambda p: corrupt_folder(p / "none", p / "out", "fog", 3), MISSING, "none is neither"),
    (lambda p: corrupt_folder(p / "empty", p / "out", "fog", 3), MISSING, "empty has no files"),
    (lambda p: corrupt_folder(p / "two", p / "file", "fog", 3), REFUSES, "file cannot be made"),
    (lambda p: corrupt_folder(p / "two", p / "two", "fog", 3), WRONG, "must not lie in"),
    (lambda p: corrupt_folder(p / "two", p / "two/a", "fog", 3), WRONG, "must not lie in"),
    (lambda p: corrupt_folder(p / "same", p / "out", "fog", 1), WRONG, "rename one of them"),
    (lambda p: write_cifar_c(p / "two", p / "out", "fog"), MISSING, r"cifar-10-batches-bin/test_batch"),
    (lambda p: write_cifar_c(p / "cut", p / "out", "fog"), DAMAGED, r"test_batch\.bin .* 100 "),
    (lambda p: write_cifar_c(p / "two", p / "out", "fogg"), UnknownNameError, "did you mean 'fog'"),
    (lambda p: save_sheet(p / "file", p / "sheet.png"), DAMAGED, "file cannot be drawn: not AVIF"),
    (lambda p: save_sheet(p / "none.png", p / "sheet.png"), MISSING, r"none\.png cannot be drawn"),
    (lambda p: save_sheet(p / "small.png", p / "sheet.png"), DAMAGED, "6 x 6"),
    (lambda p: save_sheet(p / "two/y.png", p / "no/sheet.png"), REFUSES, "sheet.png cannot be written"),
]


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused_leaves_nothing(
    tmp_path: Path, call: Callable[[Path], object], error: type[CalibrantError], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("kept")
    save(crop(0, 6, 6), tmp_path / "small.png")
    for name in ("a.bmp", "a.gif", "a.bmp.gif"):
        save(crop(0), tmp_path / "same" / name)
    (write_cifar(tmp_path / "cut") / "test_batch.bin").write_bytes(b"x" * 100)
    before = moments(tmp_path)
    with pytest.raises(error, match=message) as refused:
        call(tmp_path)
    assert "\n" not in str(refused.value)
    assert moments(tmp_path) == before


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"severity": 4}, "severity 3, not 4"),
    ({"name": "snow"}, "corruption 'fog', not 'snow'"),
    ({"seed": 1}, "seed 0, not 1"),
    ({"save_quality": 85}, "save_quality None, not 85"),
    ({"name": None, "severity": None}, "'fog', not 'all'"),
    ({"source": "other"}, "source"),
]


def test_a_folder_remembers_its_settings(two: Path, tmp_path: Path) -> None:
    target, given = tmp_path / "out", {"name": "fog", "severity": 3}
    shutil.copytree(two, tmp_path / "other")
    corrupt_folder(two, target, **given)  # type: ignore[arg-type]
    before = make_old(target)
    for changed, message in OTHERS:
        options = given | changed
        source = tmp_path / str(options.pop("source", "two"))
        with pytest.raises(InvalidInputError, match=message):
            corrupt_folder(source, target, **options)  # type: ignore[arg-type]
    assert moments(target) == before
    for text in ("{", "[1]", "", "{}", "\x00"):
        (target / "corruption.json").write_text(text)
        with pytest.raises((CorruptFileError, InvalidInputError), match=str(target)):
            corrupt_folder(two, target, **given)  # type: ignore[arg-type]
        assert (target / "corruption.json").read_text() == text
