"""Images in files: any size and mode becomes bytes of one size; what cannot be read is named in one line."""

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from calibrant import _images
from calibrant.corruptions.folders import decode_image
from calibrant.corruptions.frost import PHOTOGRAPHS, read_frost
from calibrant.data import read_image
from calibrant.errors import CalibrantError, CorruptFileError, NoDataError
from made.hostile_images import IMAGES, PLACES, write_image

RAMP = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)


def test_pixels_are_those_of_the_file_in_either_mode(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for kind, pixels in {"colour": values, "grey": RAMP, "deep": RAMP.astype(np.uint16) * 257}.items():
        Image.fromarray(pixels).save(tmp_path / f"{kind}.png")
    assert np.array_equal(read_image(tmp_path / "colour.png", 8).permute(1, 2, 0).numpy(), values)
    assert np.array_equal(read_image(tmp_path / "grey.png", 8).numpy(), np.stack([RAMP] * 3))
    for kind in ("grey", "deep"):  # 16 bits are scaled and not cut off
        assert np.array_equal(read_image(tmp_path / f"{kind}.png", 8, channels=1)[0].numpy(), RAMP)


def test_other_sizes_are_squeezed_whole(tmp_path: Path) -> None:
    wide = np.zeros((10, 40), dtype=np.uint8)
    wide[:, 20:] = 255
    Image.fromarray(wide).save(tmp_path / "a.png")
    found = read_image(tmp_path / "a.png", 8, channels=1)[0]
    assert found.shape == (8, 8)
    assert found[:, :3].max() < 10
    assert found[:, 5:].min() > 245


@pytest.mark.parametrize("kind", ["text", "cut", "float", "missing", "huge"])
def test_what_cannot_be_read_is_named(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tiff"
    if kind == "float":
        Image.fromarray(RAMP.astype(np.float32)).save(path)
    elif kind != "missing":
        Image.fromarray(RAMP).resize((64, 64)).save(path)
    if kind == "text":
        path.write_text("no image")
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:2000])
    if kind == "huge":
        monkeypatch.setattr(_images, "MAX_PIXELS", 1000)
    expected = NoDataError if kind == "missing" else CorruptFileError
    with pytest.raises(expected, match=r"(no file .*a\.tiff$|a\.tiff cannot be read as an image)") as caught:
        read_image(path, 8)
    assert "\n" not in str(caught.value)


def test_the_limit_of_pixels_is_for_those_that_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "MAX_PIXELS", 1000)
    for name, options in {"a.jpg": {}, "whole.jpg": {"progressive": True}, "a.png": {}}.items():
        Image.fromarray(RAMP).resize((64, 64)).save(tmp_path / name, **options)
    assert read_image(tmp_path / "a.jpg", 8).shape == (3, 8, 8)
    for name, size in (("a.jpg", 64), ("whole.jpg", 8), ("a.png", 8)):
        with pytest.raises(CorruptFileError, match="64 x 64 pixels are more than 1,000"):
            read_image(tmp_path / name, size)
    monkeypatch.setattr(_images, "MAX_REDUCED_PIXELS", 2000)
    with pytest.raises(CorruptFileError, match="64 x 64 pixels are more than 2,000"):
        read_image(tmp_path / "a.jpg", 8)


READ_SAFELY = {  # the first frame, or as far as the size goes
    "PNG of more pixels than its size",
    "PNG of many frames",
    "PNG that says it has 2^31 frames",
    "JPEG with a wrong EXIF",
    "WebP of many frames",
    "TIFF of many pages",
    "TIFF whose directory is its own next",
    "GIF named PNG",
}


@pytest.mark.filterwarnings("ignore")  # Pillow's, of what it ignores
def test_hostile_images_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    for name in (*IMAGES, *PLACES):
        path = tmp_path / f"{name}.png"
        write_image(path, name)
        if name in READ_SAFELY:
            assert read_image(path, 8).shape == (3, 8, 8), name
        else:
            with pytest.raises(CalibrantError, match=rf"^[^\n]*{re.escape(name)}[^\n]*$"):
                read_image(path, 8)
        assert isinstance(decode_image(path), str) == (name not in READ_SAFELY), name


def test_a_flipped_bit_of_a_png_file_is_not_a_pixel(tmp_path: Path) -> None:
    path, random = tmp_path / "x.png", np.random.default_rng(0)
    Image.new("RGB", (64, 64), (7, 7, 7)).save(path)
    content, pixels = path.read_bytes(), read_image(path, 64)
    for place in random.integers(0, 8 * len(content), 300):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(CorruptFileError):
            assert torch.equal(read_image(path, 64), pixels), place


def test_no_image_starts_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Ghostscript is started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", start)
    for name in PHOTOGRAPHS:
        write_image(tmp_path / name, "EPS named PNG")
    with pytest.raises(CorruptFileError, match="cannot be read as an image: not AVIF"):
        read_image(tmp_path / PHOTOGRAPHS[0], 8)
    with pytest.raises(NoDataError, match="no readable image frost1"):
        read_frost(str(tmp_path))
