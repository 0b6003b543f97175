"""`calibrant corrupt`: what its options reach, what it prints, and how it ends."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import calibrant as cb
from made.cli import Run


def noise(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (32, 32, 3), dtype=np.uint8)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    (tmp_path / "two" / "a").mkdir(parents=True)
    Image.fromarray(noise(0)).save(tmp_path / "two" / "a" / "x.png")
    Image.fromarray(noise(1)).save(tmp_path / "two" / "y.png")
    return tmp_path / "two"


def test_options_reach_the_images(two: Path, tmp_path: Path, calibrant: Run) -> None:
    target = tmp_path / "out"
    options = ("--seed", 7, "--parameters", "imagenet", "--save-quality", 50, "--jobs", 2)
    for printed in ("2 files written, 0 kept", "0 files written, 2 kept"):
        assert calibrant("corrupt", two, "motion_blur", 4, "-o", target, *options).done() == f"{target}: {printed}\n"
    wanted = cb.corrupt(
        Image.fromarray(noise(1)), "motion_blur", 4, keys=["y.png"], seed=7, parameters="imagenet", save_quality=50
    )
    with Image.open(target / "y.JPEG") as found:
        assert np.array_equal(np.array(found), np.array(wanted))
    calibrant("corrupt", two, "motion_blur", 4, "-o", target).refused("seed")


def test_all_and_the_layout_of_cifar_c(tmp_path: Path, calibrant: Run) -> None:
    np.savez(tmp_path / "few.npz", images=np.stack([noise(0), noise(1)]), labels=np.array([3, 1]))
    command = ("corrupt", tmp_path / "few.npz", "--layout", "cifar-c", "-o", tmp_path / "out")
    assert calibrant(*command, "contrast").done().endswith("1 files written, 0 kept\n")
    assert calibrant(*command, "--all").done().endswith("18 files written, 1 kept\n")
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == [3, 1] * 5


def test_a_sheet_needs_no_place(tmp_path: Path, calibrant: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(noise(0)).save(tmp_path / "x.png")
    monkeypatch.chdir(tmp_path)
    printed = calibrant("corrupt", "--sheet", "x.png").done()
    with Image.open(tmp_path / "x-corruptions.png") as sheet:
        assert printed == f"x-corruptions.png: {sheet.width} x {sheet.height} pixels\n"
    assert "sheet.png: " in calibrant("corrupt", "--sheet", "x.png", "-o", "sheet.png").done()


REFUSALS: list[tuple[tuple[object, ...], str]] = [
    (("fogg", 3), "'fogg'; did you mean 'fog'"),
    (("fog", "2.5"), "'2.5' is not a whole number"),
    ((), "--all"),
    (("fog", 3, "--all"), "--all"),
    (("fog", 3, "--layout", "cifar-c"), "severit"),
    (("fog", 3, "--parameters", "imagnet"), "imagnet"),
    (("fog", 3, "--sheet", "x.png"), "--sheet draws one image"),
]


def test_bad_arguments_are_refused_and_leave_nothing(two: Path, tmp_path: Path, calibrant: Run) -> None:
    for arguments, message in REFUSALS:
        calibrant("corrupt", two, *arguments, "-o", tmp_path / "out").refused(message)
        assert not (tmp_path / "out").exists(), arguments
    calibrant("corrupt", two, "fog", 3).refused("-o")


def test_files_that_are_left_out_are_named(two: Path, tmp_path: Path, calibrant: Run) -> None:
    (two / "[bold]notes.txt").write_text("not an image")
    found = calibrant("corrupt", two, "gaussian_noise", 3, "-o", tmp_path / "out")
    assert found.code == 2
    assert found.err.splitlines() == [
        "skipped [bold]notes.txt: not AVIF, BMP, GIF, JPEG, JPEG2000, PNG, PPM, TIFF or WEBP",
        "calibrant: 1 files skipped; the rest is written",
    ]
    assert (tmp_path / "out" / "y.png").is_file()
