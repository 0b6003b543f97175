"""`calibrant corrupt`: folders of pictures, the files of CIFAR-C, contact sheets, comparison with the originals."""

import io
import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

import calibrant as cb
from made.cli import Run, in_this_process, run_process

OPTIONS = (
    "--all",
    "--layout",
    "--seed",
    "--parameters",
    "--frost-dir",
    "--save-quality",
    "--jobs",
    "--sheet",
    "--verify",
    "--root",
)
N_CIFAR = 20

Bytes = NDArray[np.uint8]


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    return in_this_process(monkeypatch, capsys)


# Pictures


@cache
def photographs() -> list[Bytes]:
    return list(load_sample_images().images)


def crop(i: int, height: int = 32, width: int = 32) -> Image.Image:
    top, left = 200 + 17 * i, 210 + 23 * i
    return Image.fromarray(photographs()[i % 2][top : top + height, left : left + width])


def save(image: Image.Image, path: Path, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """PNG and JPEG, grey and in colour, of several sizes, in sub-folders."""
    source = tmp_path / "pictures"
    save(crop(0), source / "top.png")
    save(crop(1), source / "a" / "one.png")
    save(crop(2), source / "a" / "b c" / "two.jpeg", quality=95)
    save(crop(3, 33, 17), source / "a" / "b c" / "Three.JPG", quality=90)
    save(crop(4).convert("L"), source / "grey" / "[red]ä.png")
    save(crop(5, 20, 40).convert("L"), source / "grey" / "five.jpg", quality=95)
    veiled = crop(6)
    veiled.putalpha(Image.linear_gradient("L").resize(veiled.size))
    assert veiled.mode == "RGBA"
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
    """Every picture below the source, with its relative path as key, under its own name below the target."""
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


# A folder of pictures


@pytest.mark.parametrize(("name", "severity"), [("gaussian_noise", 1), ("snow", 5), ("contrast", 3), ("spatter", 4)])
def test_a_folder_keeps_its_tree(pictures: Path, tmp_path: Path, calibrant: Run, name: str, severity: int) -> None:
    before = {file: (pictures / file).read_bytes() for file in files_below(pictures)}
    target = tmp_path / "out" / "deeper"
    printed = calibrant("corrupt", pictures, name, severity, "-o", target).done()
    assert "7" in printed
    assert_corrupted(pictures, target, name, severity)
    assert {file: (pictures / file).read_bytes() for file in files_below(pictures)} == before


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("--seed", 7), {"seed": 7}),
        (("--parameters", "imagenet"), {"parameters": "imagenet"}),
        (("--seed", 2**40, "--parameters", "tiny_imagenet"), {"seed": 2**40, "parameters": "tiny_imagenet"}),
    ],
    ids=str,
)
def test_options_reach_the_pictures(
    pictures: Path, tmp_path: Path, calibrant: Run, arguments: tuple[object, ...], options: dict[str, Any]
) -> None:
    calibrant("corrupt", pictures, "motion_blur", 4, "-o", tmp_path / "out", *arguments).done()
    assert_corrupted(pictures, tmp_path / "out", "motion_blur", 4, **options)
    record = json.loads((tmp_path / "out" / "corruption.json").read_text())
    assert record["seed"] == options.get("seed", 0)
    assert record["parameters"] == options.get("parameters")


def test_numbers_of_jobs_write_the_same_files(pictures: Path, tmp_path: Path, calibrant: Run) -> None:
    for jobs in (1, 2, 5):
        calibrant("corrupt", pictures, "fog", 2, "-o", tmp_path / f"{jobs}", "--jobs", jobs).done()
        assert_corrupted(pictures, tmp_path / f"{jobs}", "fog", 2)


def test_frost_of_a_folder(two: Path, tmp_path: Path, calibrant: Run) -> None:
    ice = tmp_path / "ice"
    for name in ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"):
        save(Image.new("RGB", (400, 300), (200, 100, 50)), ice / name)
    calibrant("corrupt", two, "frost", 3, "-o", tmp_path / "out", "--frost-dir", ice).done()
    assert_corrupted(two, tmp_path / "out", "frost", 3, frost_dir=ice)


def test_one_picture(pictures: Path, tmp_path: Path, calibrant: Run) -> None:
    """Its name is its relative path."""
    calibrant("corrupt", pictures / "a" / "one.png", "speckle_noise", 2, "-o", tmp_path / "out").done()
    assert files_below(tmp_path / "out") == ["corruption.json", "one.png"]
    assert_pixels(tmp_path / "out" / "one.png", cb.corrupt(crop(1), "speckle_noise", 2, keys=["one.png"]))


def test_a_relative_source_has_the_same_keys(
    pictures: Path, tmp_path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pictures / "a")
    calibrant("corrupt", "..", "gaussian_noise", 2, "-o", "../../out").done()
    assert_corrupted(pictures, tmp_path / "out", "gaussian_noise", 2)
    monkeypatch.chdir(pictures)
    calibrant("corrupt", ".", "gaussian_noise", 2, "-o", "../again").done()
    assert_corrupted(pictures, tmp_path / "again", "gaussian_noise", 2)


@pytest.mark.parametrize("quality", [85, 30])
def test_pictures_saved_as_jpeg(pictures: Path, tmp_path: Path, calibrant: Run, quality: int) -> None:
    calibrant("corrupt", pictures, "glass_blur", 4, "-o", tmp_path / "out", "--save-quality", quality).done()
    assert_corrupted(pictures, tmp_path / "out", "glass_blur", 4, ".JPEG", save_quality=quality)
    with Image.open(tmp_path / "out" / "top.JPEG") as image:
        assert image.format == "JPEG"
        wanted = io.BytesIO()
        Image.new("RGB", (8, 8)).save(wanted, "JPEG", quality=quality)
        assert image.quantization == Image.open(wanted).quantization


def test_names_that_differ_in_the_suffix_alone_both_stay(tmp_path: Path, calibrant: Run) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    save(crop(0), source / "x.png")
    save(crop(1), source / "x.jpg", quality=95)
    save(crop(2), source / "x.bmp")
    calibrant("corrupt", source, "gaussian_noise", 3, "-o", target).done()
    wanted = [cb.corrupt(opened(source / file), "gaussian_noise", 3, keys=[file]) for file in files_below(source)]
    found = [path for path in target.rglob("*.png") if path.is_file()]
    assert len(found) == 3
    assert {opened(path).tobytes() for path in found} == {image.tobytes() for image in wanted}
    before = make_old(target)
    calibrant("corrupt", source, "gaussian_noise", 3, "-o", target).done()
    assert moments(target) == before


# A second run


def test_a_second_run_changes_nothing(pictures: Path, tmp_path: Path, calibrant: Run) -> None:
    target = tmp_path / "out"
    command = ("corrupt", pictures, "elastic_transform", 2, "-o", target)
    calibrant(*command).done()
    before = make_old(target)
    calibrant(*command).done()
    assert moments(target) == before


@pytest.mark.parametrize("quality", [(), ("--save-quality", 85)], ids=str)
def test_a_run_goes_on_where_files_are_missing(
    pictures: Path, tmp_path: Path, calibrant: Run, quality: tuple[object, ...]
) -> None:
    target = tmp_path / "out"
    command = ("corrupt", pictures, "gaussian_noise", 2, "-o", target, *quality)
    calibrant(*command).done()
    contents = {file: (target / file).read_bytes() for file in files_below(target)}
    before = make_old(target)
    missing = [file for file in contents if file != "corruption.json"][::3]
    assert len(missing) == 3
    for file in missing:
        (target / file).unlink()
    save(crop(9), pictures / "new" / "one.png")
    calibrant(*command).done()
    assert set(files_below(target)) - set(contents) == {"new/one.JPEG" if quality else "new/one.png"}
    assert {file: (target / file).read_bytes() for file in contents} == contents
    after = moments(target)
    assert {file for file in before if after[file] != before[file]} == set(missing)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fog", 4), "severity"),
        (("snow", 3), "snow"),
        (("fog", 3, "--seed", 1), "seed"),
        (("fog", 3, "--parameters", "cifar"), "parameters"),
        (("fog", 3, "--save-quality", 85), "quality"),
        (("--all",), ""),
    ],
    ids=str,
)
def test_other_settings_into_the_same_folder_are_refused(
    two: Path, tmp_path: Path, calibrant: Run, arguments: tuple[object, ...], message: str
) -> None:
    target = tmp_path / "out"
    calibrant("corrupt", two, "fog", 3, "-o", target).done()
    before = make_old(target)
    calibrant("corrupt", two, *arguments, "-o", target).refused(message)
    assert moments(target) == before
    calibrant("corrupt", two, "fog", 3, "-o", target).done()


@pytest.mark.parametrize("text", ["{", "[1]", "", "{}", "\x00"])
def test_a_damaged_record_is_refused(two: Path, tmp_path: Path, calibrant: Run, text: str) -> None:
    target = tmp_path / "out"
    calibrant("corrupt", two, "fog", 3, "-o", target).done()
    (target / "corruption.json").write_text(text)
    calibrant("corrupt", two, "fog", 3, "-o", target).refused(str(target))
    assert (target / "corruption.json").read_text() == text


# Files that are no pictures


@pytest.fixture
def spoiled(pictures: Path) -> Path:
    """Among the pictures a text and a PNG that ends too early."""
    (pictures / "a" / "[bold]notes.txt").write_text("not a picture")
    whole = (pictures / "top.png").read_bytes()
    (pictures / "cut.png").write_bytes(whole[: len(whole) // 2])
    return pictures


def test_files_that_are_no_pictures_are_named_and_left_out(spoiled: Path, tmp_path: Path, calibrant: Run) -> None:
    target = tmp_path / "out"
    for run in range(2):
        found = calibrant("corrupt", spoiled, "fog", 3, "-o", target)
        assert found.code == 2
        assert "Traceback" not in found.err
        lines = found.err.strip().splitlines()
        assert len(lines) == 3, found.err
        assert sum("a/[bold]notes.txt" in line for line in lines) == 1
        assert sum("cut.png" in line for line in lines) == 1
        assert "2" in lines[-1]
        assert len(files_below(target)) == 8
        if run == 0:
            before = make_old(target)
    assert moments(target) == before
    (spoiled / "a" / "[bold]notes.txt").unlink()
    (spoiled / "cut.png").unlink()
    assert_corrupted(spoiled, target, "fog", 3)
    calibrant("corrupt", spoiled, "fog", 3, "-o", target).done()


def test_pictures_that_are_too_small_are_named_and_left_out(two: Path, tmp_path: Path, calibrant: Run) -> None:
    save(crop(0, 7, 20), two / "small.png")
    found = calibrant("corrupt", two, "fog", 3, "-o", tmp_path / "out")
    assert found.code == 2
    assert "small.png" in found.err
    assert "7" in found.err
    assert files_below(tmp_path / "out") == ["a/x.png", "corruption.json", "y.png"]


def test_one_bad_picture_in_all_corruptions_is_named_once(two: Path, tmp_path: Path, calibrant: Run) -> None:
    (two / "notes.txt").write_text("not a picture")
    (two / "y.png").unlink()
    found = calibrant("corrupt", two, "--all", "-o", tmp_path / "out")
    assert found.code == 2
    assert found.err.count("notes.txt") == 1
    assert len(list((tmp_path / "out").rglob("x.png"))) == 95


def test_an_empty_folder_is_refused(tmp_path: Path, calibrant: Run) -> None:
    (tmp_path / "empty").mkdir()
    calibrant("corrupt", tmp_path / "empty", "fog", 3, "-o", tmp_path / "out").refused("empty")


# All corruptions


def test_all_corruptions_at_all_severities(two: Path, tmp_path: Path, calibrant: Run) -> None:
    target = tmp_path / "out"
    command = ("corrupt", two, "--all", "-o", target, "--seed", 3)
    calibrant(*command).done()
    pictures = [file for file in files_below(target) if file.endswith(".png")]
    assert pictures == sorted(
        f"{name}/{severity}/{file}"
        for name in cb.CORRUPTIONS
        for severity in range(1, 6)
        for file in ("a/x.png", "y.png")
    )
    assert len(pictures) == 19 * 5 * 2
    for name in cb.CORRUPTIONS:
        for severity in range(1, 6):
            for i, file in enumerate(("a/x.png", "y.png")):
                wanted = cb.corrupt(crop(i), name, severity, seed=3, keys=[file])
                assert_pixels(target / name / str(severity) / file, wanted)
    before = make_old(target)
    missing = ["fog/3/y.png", "saturate/5/a/x.png"]
    contents = [(target / file).read_bytes() for file in missing]
    for file in missing:
        (target / file).unlink()
    calibrant(*command).done()
    assert [(target / file).read_bytes() for file in missing] == contents
    after = moments(target)
    assert {file for file in before if after[file] != before[file]} == set(missing)
    calibrant("corrupt", two, "--all", "-o", target).refused("seed")


# The layout of CIFAR-C


@cache
def cifar_rows() -> tuple[Bytes, Bytes]:
    """Images (n, 32, 32, 3) and labels."""
    images = np.stack([np.array(crop(i % 8)) for i in range(N_CIFAR)])
    images[8:] = 255 - images[8:]
    return images, (np.arange(N_CIFAR) * 7 % 10).astype(np.uint8)


def write_cifar(folder: Path) -> None:
    images, labels = cifar_rows()
    folder.mkdir(parents=True)
    rows = np.concatenate([labels[:, None], images.transpose(0, 3, 1, 2).reshape(N_CIFAR, 3072)], 1)
    rows.tofile(folder / "test_batch.bin")


def corrupted_rows(images: Bytes, name: str, **options: Any) -> Bytes:
    """Five severities below one another, image i of each with key i."""
    batch = torch.from_numpy(images).permute(0, 3, 1, 2)
    parts = [cb.corrupt(batch, name, severity, **options) for severity in range(1, 6)]
    return torch.cat(parts).permute(0, 2, 3, 1).numpy()


def assert_cifar_c(target: Path, name: str, images: Bytes, **options: Any) -> None:
    found = np.load(target / f"{name}.npy")
    assert found.dtype == np.uint8
    assert found.shape == (5 * len(images), *images.shape[1:])
    assert found.flags.c_contiguous
    assert np.array_equal(found, corrupted_rows(images, name, **options))


def assert_labels(target: Path, labels: Bytes) -> None:
    found = np.load(target / "labels.npy")
    assert found.dtype == np.uint8
    assert found.tolist() == 5 * labels.tolist()


@pytest.mark.parametrize("inside", [True, False])
def test_cifar_c_from_the_binary_test_batch(tmp_path: Path, calibrant: Run, inside: bool) -> None:
    images, labels = cifar_rows()
    write_cifar(tmp_path / "cifar-10-batches-bin")
    source = tmp_path / "cifar-10-batches-bin" if inside else tmp_path
    command = ("corrupt", source, "gaussian_noise", "--layout", "cifar-c", "-o", tmp_path / "out", "--seed", 5)
    calibrant(*command).done()
    assert_cifar_c(tmp_path / "out", "gaussian_noise", images, seed=5)
    assert_labels(tmp_path / "out", labels)


def test_cifar_c_from_the_binary_test_batch_of_100_classes(tmp_path: Path, calibrant: Run) -> None:
    """A row has the coarse label before the fine one."""
    images, labels = cifar_rows()
    folder = tmp_path / "data" / "cifar-100-binary"
    folder.mkdir(parents=True)
    fine = (labels * 9 + 3)[:, None]
    pixels = images.transpose(0, 3, 1, 2).reshape(N_CIFAR, 3072)
    np.concatenate([labels[:, None], fine, pixels], 1).tofile(folder / "test.bin")
    calibrant("corrupt", tmp_path / "data", "fog", "--layout", "cifar-c", "-o", tmp_path / "out").done()
    assert_cifar_c(tmp_path / "out", "fog", images)
    assert_labels(tmp_path / "out", fine[:, 0])


def test_cifar_c_from_arrays(tmp_path: Path, calibrant: Run) -> None:
    images, labels = cifar_rows()
    wide = np.stack([np.array(crop(i, 24, 40)) for i in range(3)])
    np.save(tmp_path / "images.npy", images)
    np.savez(tmp_path / "wide.npz", images=wide, labels=labels[:3].astype(np.int64))
    calibrant("corrupt", tmp_path / "images.npy", "snow", "--layout", "cifar-c", "-o", tmp_path / "a").done()
    assert_cifar_c(tmp_path / "a", "snow", images)
    calibrant("corrupt", tmp_path / "wide.npz", "snow", "--layout", "cifar-c", "-o", tmp_path / "b").done()
    assert_cifar_c(tmp_path / "b", "snow", wide)
    assert_labels(tmp_path / "b", labels[:3])


def test_cifar_c_of_all_corruptions(tmp_path: Path, calibrant: Run) -> None:
    images, labels = (part[:3] for part in cifar_rows())
    np.savez(tmp_path / "few.npz", images=images, labels=labels)
    target = tmp_path / "out"
    command = ("corrupt", tmp_path / "few.npz", "--all", "--layout", "cifar-c", "-o", target)
    calibrant(*command).done()
    assert sorted(path.stem for path in target.glob("*.npy")) == sorted([*cb.CORRUPTIONS, "labels"])
    for name in cb.CORRUPTIONS:
        assert_cifar_c(target, name, images)
    assert_labels(target, labels)
    before = make_old(target)
    (target / "fog.npy").unlink()
    calibrant(*command).done()
    assert_cifar_c(target, "fog", images)
    after = moments(target)
    assert {file for file in before if after[file] != before[file]} == {"fog.npy"}


def test_files_of_cifar_c_join_those_that_are_there(tmp_path: Path, calibrant: Run) -> None:
    images, labels = cifar_rows()
    write_cifar(tmp_path / "cifar-10-batches-bin")
    target = tmp_path / "out"
    for name in ("contrast", "saturate", "contrast"):
        before = make_old(target)
        calibrant("corrupt", tmp_path, name, "--layout", "cifar-c", "-o", target).done()
        after = moments(target)
        assert all(after[file] == before[file] for file in before if file.endswith(".npy"))
    for name in ("contrast", "saturate"):
        assert_cifar_c(target, name, images)
    assert_labels(target, labels)
    calibrant("corrupt", tmp_path, "fog", "--layout", "cifar-c", "-o", target, "--seed", 1).refused("seed")
    np.save(tmp_path / "other.npy", images[:5])
    calibrant("corrupt", tmp_path / "other.npy", "fog", "--layout", "cifar-c", "-o", target).refused("")
    assert not (target / "fog.npy").exists()


@pytest.mark.parametrize("kept", [20 * 3073 - 5, 100, 0])
def test_a_test_batch_of_another_length_is_refused(tmp_path: Path, calibrant: Run, kept: int) -> None:
    write_cifar(tmp_path / "cifar-10-batches-bin")
    batch = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    batch.write_bytes(batch.read_bytes()[:kept])
    found = calibrant("corrupt", tmp_path, "fog", "--layout", "cifar-c", "-o", tmp_path / "out")
    found.refused("test_batch.bin")
    found.refused(f"{kept}")
    assert not (tmp_path / "out").exists()


def array_file(array: NDArray[Any], kept: int | None = None) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()[:kept]


def archive(**arrays: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("floats.npy", "float64"),
        ("flat.npy", "(20, 3072)"),
        ("planes.npy", ""),
        ("none.npy", "empty"),
        ("cut.npy", "cut.npy"),
        ("text.npy", "text.npy"),
        ("objects.npy", "objects.npy"),
        ("nothing.npz", "images"),
        ("short.npz", "19"),
        ("below.npz", "-1"),
        ("text.npz", "text.npz"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, calibrant: Run, name: str, message: str) -> None:
    images, labels = cifar_rows()
    contents = {
        "floats.npy": array_file(images / 255),
        "flat.npy": array_file(images.reshape(N_CIFAR, -1)),
        "planes.npy": array_file(images.transpose(0, 3, 1, 2)),
        "none.npy": array_file(images[:0]),
        "cut.npy": array_file(images, kept=-100),
        "text.npy": b"no array",
        "objects.npy": array_file(np.array([{"a": 1}], dtype=object)),
        "nothing.npz": archive(pictures=images, labels=labels),
        "short.npz": archive(images=images, labels=labels[:-1]),
        "below.npz": archive(images=images, labels=np.arange(N_CIFAR) - 1),
        "text.npz": b"no archive",
    }
    (tmp_path / name).write_bytes(contents[name])
    calibrant("corrupt", tmp_path / name, "fog", "--layout", "cifar-c", "-o", tmp_path / "out").refused(message)
    assert not list(tmp_path.glob("out/*.npy"))


def test_labels_that_need_more_than_a_byte_get_more(tmp_path: Path, calibrant: Run) -> None:
    images, labels = cifar_rows()
    (tmp_path / "many.npz").write_bytes(archive(images=images, labels=labels.astype(np.int64) + 256))
    calibrant("corrupt", tmp_path / "many.npz", "contrast", "--layout", "cifar-c", "-o", tmp_path / "out")
    written = np.load(tmp_path / "out" / "labels.npy")
    assert written.dtype == np.int64
    assert np.array_equal(written, np.tile(labels.astype(np.int64) + 256, 5))


def test_a_folder_without_cifar_says_what_to_put_there(two: Path, tmp_path: Path, calibrant: Run) -> None:
    found = calibrant("corrupt", two, "fog", "--layout", "cifar-c", "-o", tmp_path / "out")
    found.refused("cifar-10-batches-bin/test_batch.bin")
    found.refused(str(two))
    assert not (tmp_path / "out").exists()


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fogg", 3), "'fogg'; did you mean 'fog'"),
        (("fog", 0), "got 0"),
        (("fog", 6), "got 6"),
        (("fog", "three"), "three"),
        (("fog", "2.5"), "2.5"),
        (("fog",), "severity"),
        ((), "--all"),
        (("fog", 3, "--all"), "--all"),
        (("fog", 3, "--layout", "cifar-c"), "severit"),
        (("fog", 3, "--layout", "imagenet-c"), "imagenet-c"),
        (("fog", 3, "--seed", -1), "-1"),
        (("fog", 3, "--seed", "1.5"), "1.5"),
        (("fog", 3, "--seed", "one"), "one"),
        (("fog", 3, "--parameters", "imagnet"), "imagnet"),
        (("fog", 3, "--save-quality", 0), "0"),
        (("fog", 3, "--save-quality", 96), "96"),
        (("fog", 3, "--jobs", 0), "0"),
        (("fog", 3, "--jobs", -1), "-1"),
        (("frost", 3, "--frost-dir", "nowhere"), "nowhere"),
        (("fog", 3, "--savequality", 85), "--savequality"),
        (("fog", 3, 4), "4"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_and_leave_nothing(
    two: Path, tmp_path: Path, calibrant: Run, arguments: tuple[object, ...], message: str
) -> None:
    """Not even a folder that would refuse the right arguments."""
    target = tmp_path / "out"
    calibrant("corrupt", two, *arguments, "-o", target).refused(message)
    calibrant("corrupt", two, "fog", 3, "-o", target).done()
    assert_corrupted(two, target, "fog", 3)


def test_bad_places_are_refused(two: Path, tmp_path: Path, calibrant: Run) -> None:
    calibrant("corrupt", tmp_path / "none", "fog", 3, "-o", tmp_path / "out").refused("none")
    assert not (tmp_path / "out").exists()
    calibrant("corrupt", two, "fog", 3).refused("-o")
    calibrant("corrupt").refused("")
    (tmp_path / "file").write_text("kept")
    calibrant("corrupt", two, "fog", 3, "-o", tmp_path / "file").refused("file")
    assert (tmp_path / "file").read_text() == "kept"
    before = moments(two)
    for target in (two, two / "out", two / "a"):
        calibrant("corrupt", two, "fog", 3, "-o", target).refused(str(target))
    assert moments(two) == before


# The contact sheet


def test_a_sheet_has_a_row_for_each_corruption(tmp_path: Path, calibrant: Run) -> None:
    sizes = []
    for i, given in enumerate((crop(0), crop(1).convert("L"), crop(2, 64, 128), crop(3, 130, 100))):
        source, target = tmp_path / f"{i}.png", tmp_path / f"sheet {i}.png"
        save(given, source)
        printed = calibrant("corrupt", "--sheet", source, "-o", target).done()
        assert f"sheet {i}.png" in printed
        with Image.open(target) as sheet:
            assert sheet.format == "PNG"
            sheet.load()
            sizes.append(sheet.size)
            assert len(np.unique(np.array(sheet))) > 20
    for width, height in sizes:
        assert 5 * 32 < width < 4000
        assert 19 * 32 < height < 8000
        assert height > width / 2


def test_a_sheet_depends_on_the_seed_alone(tmp_path: Path, calibrant: Run) -> None:
    save(crop(0), tmp_path / "x.png")
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        calibrant("corrupt", "--sheet", tmp_path / "x.png", "-o", tmp_path / f"{name}.png", "--seed", seed).done()
    first, again, other = (opened(tmp_path / f"{name}.png").tobytes() for name in "abc")
    assert first == again
    assert first != other


def test_a_sheet_needs_no_place(tmp_path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    save(crop(0), tmp_path / "x.png")
    monkeypatch.chdir(tmp_path)
    calibrant("corrupt", "--sheet", "x.png").done()
    [sheet] = [path for path in tmp_path.iterdir() if path.name != "x.png"]
    assert sheet.suffix == ".png"
    assert opened(sheet).size[0] > 160
    assert_pixels(tmp_path / "x.png", crop(0))


def test_bad_sheets_are_refused(tmp_path: Path, calibrant: Run) -> None:
    (tmp_path / "x.txt").write_text("not a picture")
    save(crop(0, 6, 6), tmp_path / "small.png")
    output = ("-o", tmp_path / "sheet.png")
    calibrant("corrupt", "--sheet", tmp_path / "none.png", *output).refused("none.png")
    calibrant("corrupt", "--sheet", tmp_path / "x.txt", *output).refused("x.txt")
    calibrant("corrupt", "--sheet", tmp_path / "small.png", *output).refused("6 x 6")
    save(crop(0), tmp_path / "x.png")
    calibrant("corrupt", "--sheet", tmp_path / "x.png", "-o", tmp_path / "no" / "sheet.png").refused("sheet.png")
    assert not (tmp_path / "sheet.png").exists()


# The originals


def test_verification_without_the_data_says_what_to_put_where(
    tmp_path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "cifar-10-batches-bin/test_batch.bin"
    calibrant("corrupt", "--verify", "cifar10").refused(file)
    calibrant("corrupt", "--verify", "cifar10", "--root", tmp_path).refused(file)
    calibrant("corrupt", "--verify", "cifar10", "--root", tmp_path).refused(str(tmp_path))
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path / "data"))
    calibrant("corrupt", "--verify", "cifar10").refused(str(tmp_path / "data"))
    calibrant("corrupt", "--verify", "cifar10").refused(file)
    calibrant("corrupt", "--verify", "cifar11").refused("cifar11")


@pytest.mark.parametrize("place", ["--root", "CALIBRANT_DATA"])
def test_verification_of_other_images_fails(
    tmp_path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Six files must match to the byte; of twenty other images none does."""
    write_cifar(tmp_path / "cifar-10-batches-bin")
    if place == "CALIBRANT_DATA":
        monkeypatch.setenv(place, str(tmp_path))
    found = calibrant("corrupt", "--verify", "cifar10", *(("--root", tmp_path) if place == "--root" else ()))
    assert found.code == 1
    assert "Traceback" not in found.err
    for name in ("brightness", "contrast", "defocus_blur", "pixelate", "saturate", "zoom_blur"):
        [line] = [line for line in found.out.splitlines() if line.split()[:1] == [f"{name}.npy"]]
        assert "DIFFERS" in line
    assert files_below(tmp_path) == ["cifar-10-batches-bin/test_batch.bin"]


# As a process


def test_help_lists_the_options(calibrant: Run) -> None:
    out = calibrant("corrupt", "--help").done()
    for option in OPTIONS:
        assert option in out
    assert "gaussian_noise" in out
    assert "corrupt" in calibrant("--help").done()


def test_a_process_writes_the_same_bytes(spoiled: Path, tmp_path: Path) -> None:
    """With hashes of words of its own, and nothing else on standard error than the files it left out."""
    found = run_process("corrupt", spoiled, "gaussian_noise", 3, "-o", tmp_path / "out", PYTHONHASHSEED="77")
    assert found.code == 2
    assert len(found.err.strip().splitlines()) == 3
    (spoiled / "a" / "[bold]notes.txt").unlink()
    (spoiled / "cut.png").unlink()
    assert_corrupted(spoiled, tmp_path / "out", "gaussian_noise", 3)


# What a review found


def test_another_source_into_the_same_folder_is_refused(two: Path, tmp_path: Path, calibrant: Run) -> None:
    other = tmp_path / "other"
    shutil.copytree(two, other)
    calibrant("corrupt", two, "brightness", 3, "-o", tmp_path / "out")
    calibrant("corrupt", other, "brightness", 3, "-o", tmp_path / "out").refused("source")


def test_other_data_of_the_same_shape_is_refused(tmp_path: Path, calibrant: Run) -> None:
    images, labels = cifar_rows()
    (tmp_path / "one.npz").write_bytes(archive(images=images, labels=labels))
    (tmp_path / "two.npz").write_bytes(archive(images=images, labels=(labels + 1) % 10))
    calibrant("corrupt", tmp_path / "one.npz", "contrast", "--layout", "cifar-c", "-o", tmp_path / "out")
    found = calibrant("corrupt", tmp_path / "two.npz", "pixelate", "--layout", "cifar-c", "-o", tmp_path / "out")
    found.refused("data")


def test_notes_beside_pictures_do_not_change_their_names(tmp_path: Path, calibrant: Run) -> None:
    (tmp_path / "in").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "a.txt").write_text("a cat")
    assert calibrant("corrupt", tmp_path / "in", "fog", 1, "-o", tmp_path / "out").code == 2
    assert files_below(tmp_path / "out") == ["a.png", "corruption.json"]


def test_two_pictures_that_cannot_be_told_apart_are_refused(tmp_path: Path, calibrant: Run) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.bmp", "a.gif", "a.bmp.gif"):
        Image.new("RGB", (16, 16)).save(tmp_path / "in" / name)
    calibrant("corrupt", tmp_path / "in", "fog", 1, "-o", tmp_path / "out").refused("rename one of them")


def test_long_names_and_folders_in_the_way(tmp_path: Path, calibrant: Run) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    Image.new("RGB", (16, 16)).save(tmp_path / "in" / ("x" * 240 + ".png"))
    assert calibrant("corrupt", tmp_path / "in", "fog", 1, "-o", tmp_path / "out").code == 0
    Image.new("RGB", (16, 16)).save(tmp_path / "in" / "sub" / "a.png")
    (tmp_path / "out" / "sub").write_text("a file where a folder should be")
    calibrant("corrupt", tmp_path / "in", "fog", 1, "-o", tmp_path / "out").refused("cannot be made")


@pytest.mark.parametrize(
    "arguments",
    [("--sheet", ".", "--verify", "cifar10"), ("--verify", "cifar10", "-o", "x"), ("--sheet", "."), ("--root", "x")],
)
def test_verbs_that_stand_alone(arguments: tuple[str, ...], calibrant: Run) -> None:
    assert calibrant("corrupt", *arguments).code == 2


def test_an_interrupt_leaves_whole_files_and_no_traceback(
    two: Path, tmp_path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.corruptions import folders

    write = folders._write_group

    def interrupted(place: Path, *arguments: Any) -> int:
        if place.name == "2":
            raise KeyboardInterrupt
        return write(place, *arguments)

    monkeypatch.setattr(folders, "_write_group", interrupted)
    stopped = calibrant("corrupt", two, "--all", "-o", tmp_path / "out")
    assert (stopped.code, stopped.err) == (130, "")
    monkeypatch.undo()
    written = files_below(tmp_path / "out")
    assert len(written) == 1 + 2  # the record, and severity 1 of the first corruption
