"""Images in files: any size and mode becomes bytes of one size; what cannot be read is named in one line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.data import read_image
from calibrant.errors import CorruptFileError, NoDataError

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
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    expected = NoDataError if kind == "missing" else CorruptFileError
    with pytest.raises(expected, match=r"a\.tiff (is not there|cannot be read as an image)") as caught:
        read_image(path, 8)
    assert "\n" not in str(caught.value)
