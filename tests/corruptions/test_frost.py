"""Frost: the statistics of the photographs it stands in for, windows, the user's own images, refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.corruptions import frost
from calibrant.errors import NoDataError
from made.corruption_check import digest_of_frost

# Measured on the photographs and on windows of 32, 64 and 224 pixels after rescaling by 0.2, 0.3 and 1: mean and
# deviation of red, green and blue; red's correlation with green and blue; percentiles 1, 10, 50, 90 and 99 of the luma;
# deviation within windows; slope of the power.
TARGETS: dict[int, tuple[tuple[float, ...], ...]] = {
    0: ((77, 148, 165), (27, 16, 15), (0.79, 0.53), (96, 107, 127, 153, 178), (14.5, 14.4, 15.6), (-1.3, -1.6, -1.6)),
    1: ((198, 203, 212), (20, 20, 21), (0.995, 0.99), (143, 176, 206, 225, 236), (18, 18, 20), (-0.9, -1.3, -1.9)),
    3: ((145, 160, 173), (27, 27, 29), (0.997, 0.99), (79, 124, 158, 189, 234), (26, 23, 26), (-0.4, -0.9, -1.5)),
    4: ((101, 112, 124), (38, 37, 36), (1.0, 0.998), (43, 65, 107, 161, 210), (34, 32, 36), (-1.1, -1.6, -1.9)),
}
SCALES = {32: 0.2, 64: 0.3, 224: 1.0}
SIZES = ((600, 900), (315, 560), (315, 560), (350, 527), (495, 660))
LUMA = torch.tensor((0.299, 0.587, 0.114), dtype=torch.float64)


def textures(scale: float, folder: str | None = None) -> list[torch.Tensor]:
    """The five images, scaled whole."""
    images = frost.read_frost(folder)
    corner = torch.zeros(1, dtype=torch.int64)
    at = (torch.tensor([scale], dtype=torch.float64), corner, corner)
    return [
        frost.crop_windows(images, corner + number, at, height=round(h * scale), width=round(w * scale))[0]
        for number, (h, w) in enumerate(images[1].tolist())
    ]


def windows_of(
    numbers: torch.Tensor, uniforms: torch.Tensor, scale: float, height: int, width: int
) -> tuple[torch.Tensor, ...]:
    """The windows, and their scales, tops and lefts."""
    images = frost.read_frost()
    positions = frost.window_positions(images[1], numbers, uniforms, scale=scale, height=height, width=width)
    return frost.crop_windows(images, numbers, positions, height=height, width=width), *positions


def luma_windows(number: int, side: int) -> torch.Tensor:
    count = 40 if side == 224 else 300
    numbers = torch.full((count,), number)
    uniforms = torch.rand(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(side))
    return torch.einsum("nchw,c->nhw", windows_of(numbers, uniforms, SCALES[side], side, side)[0].double(), LUMA)


def spectral_slope(windows: torch.Tensor) -> float:
    """Slope of log power, averaged over circles, against log frequency up to the Nyquist frequency."""
    side = windows.shape[-1]
    power = torch.fft.fft2(windows - windows.mean((1, 2), keepdim=True)).abs().square().mean(0).flatten().numpy()
    wave = np.fft.fftfreq(side, 1 / side)
    circle = np.hypot(wave[:, None], wave).round().astype(int).ravel()
    mean = np.bincount(circle, power) / np.bincount(circle)
    radii = np.arange(1, side // 2 + 1)
    return float(np.polyfit(np.log(radii), np.log(mean[radii]), 1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", TARGETS)
def test_an_image_has_the_statistics_of_its_photograph(number: int) -> None:
    mean, std, correlation, percentiles, within, slopes = TARGETS[number]
    pixels = textures(1.0)[number].double().flatten(1)
    np.testing.assert_allclose(pixels.mean(1), mean, atol=1)
    np.testing.assert_allclose(pixels.std(1), std, rtol=0.06)
    np.testing.assert_allclose(torch.corrcoef(pixels)[0, 1:], correlation, atol=0.01)
    np.testing.assert_allclose(np.percentile(LUMA @ pixels, (1, 10, 50, 90, 99)), percentiles, atol=6)
    for at, side in enumerate(SCALES):
        windows = luma_windows(number, side)
        assert windows.std((1, 2)).mean().item() == pytest.approx(within[at], rel=0.15)
        assert spectral_slope(windows) == pytest.approx(slopes[at], abs=0.25)
        brightness = windows.mean((1, 2)).std().item()
        assert side == 64 or (7 if side == 32 else 5) < brightness < (14 if side == 32 else 12)


def test_ice_has_a_direction() -> None:
    """Ferns point one way: in the first image, waves across them are several times stronger than along them."""
    luma = torch.einsum("chw,c->hw", textures(1.0)[0].double(), LUMA)
    power = torch.fft.fft2(luma - luma.mean()).abs().square().numpy()
    down, across = np.fft.fftfreq(600)[:, None], np.fft.fftfreq(900)
    band = (np.hypot(down, across) > 0.1) & (np.hypot(down, across) < 0.4)
    sector = (np.arctan2(down, across) % np.pi / np.pi * 12).astype(int)
    strength = np.array([power[band & (sector == k)].mean() for k in range(12)])
    assert strength.max() > 2 * strength.min()


def test_five_images_of_the_original_sizes() -> None:
    pixels, sizes = frost.read_frost()
    assert [tuple(size) for size in sizes.tolist()] == list(SIZES)
    found = textures(1.0)
    assert torch.equal(torch.cat([texture.flatten() for texture in found]), pixels)
    assert torch.equal(found[1], found[2])
    assert frost.read_frost()[0] is pixels
    # Corrupted images are compared across machines and releases: a new digest means a new corruption.
    assert digest_of_frost() == "18ebff4baf87d94231ffa34bf92b28ca8e04d9951c1c59775febca0c5ed52825"


@pytest.mark.parametrize("scale", [0.2, 0.3, 1.7])
def test_rescaling_interpolates_between_pixel_centres(scale: float) -> None:
    texture = textures(scale)[3]
    assert texture.shape == (3, round(350 * scale), round(527 * scale))
    source = textures(1.0)[3].double()
    for row, column in ((0, 0), (1, 5), (17, 31), (texture.shape[1] - 1, texture.shape[2] - 1)):
        y = min(max((row + 0.5) / scale - 0.5, 0), 349)
        x = min(max((column + 0.5) / scale - 0.5, 0), 526)
        top, left = int(y), int(x)
        corners = source[:, top : top + 2, left : left + 2]
        upright = torch.tensor((1 - (y - top), y - top))[: corners.shape[1]].double()
        level = torch.tensor((1 - (x - left), x - left))[: corners.shape[2]].double()
        expected = torch.einsum("chw,h,w->c", corners, upright, level)
        assert (texture[:, row, column] - expected).abs().max() <= 0.5 + 1e-4
    assert torch.equal(textures(0.2)[4], textures(1.0)[4][:, 2::5, 2::5])


@pytest.mark.parametrize(("height", "width"), [(320, 100), (40, 1000), (9, 9)])
def test_every_image_leaves_room_to_play(height: int, width: int) -> None:
    _, scales, tops, lefts = windows_of(torch.arange(5), torch.full((5, 2), 0.999), 0.2, height, width)
    for (h, w), scale, top, left in zip(SIZES, scales.tolist(), tops.tolist(), lefts.tolist(), strict=True):
        assert scale == pytest.approx(max(0.2, (height + 1) / h, (width + 1) / w))
        assert top + height < round(h * scale)
        assert left + width < round(w * scale)


@pytest.mark.parametrize("scale", [0.2, 0.45])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (40, 17), (1, 60)])
def test_windows_are_slices_of_the_scaled_images(height: int, width: int, scale: float) -> None:
    whole, generator = textures(scale), torch.Generator().manual_seed(0)
    numbers = torch.randint(5, (60,), generator=generator)
    uniforms = torch.rand(60, 2, dtype=torch.float64, generator=generator)
    windows, _, tops, lefts = windows_of(numbers, uniforms, scale, height, width)
    assert windows.shape == (60, 3, height, width)
    assert windows.dtype == torch.uint8
    for window, number, top, left in zip(windows, numbers, tops, lefts, strict=True):
        assert torch.equal(window, whole[number][:, top : top + height, left : left + width])


@pytest.mark.slow
def test_places_cover_what_the_original_covers() -> None:
    steps = torch.arange(4096, dtype=torch.float64) / 4096
    uniforms = torch.stack((steps, steps.flip(0)), dim=1)
    for number, size in enumerate(SIZES):
        _, _, tops, lefts = windows_of(torch.full((4096,), number), uniforms, 0.2, 32, 30)
        height, width = (round(0.2 * side) for side in size)
        assert tops.unique().tolist() == list(range(height - 32))
        assert lefts.unique().tolist() == list(range(width - 30))
    just_below_one = torch.ones(1, 2)  # what 1 - 2**-53 becomes in float32
    _, _, tops, lefts = windows_of(torch.tensor([1]), just_below_one, 0.2, 62, 40)
    assert (tops.item(), lefts.item()) == (0, 71)


def test_photographs_of_a_folder_replace_the_generated_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (40, 60, 3), dtype=np.uint8) for name in frost.PHOTOGRAPHS}
    for name, image in images.items():
        Image.fromarray(image).save(tmp_path / name)
    Image.fromarray(images["frost2.png"]).convert("RGBA").save(tmp_path / "frost2.png")
    for texture, name in zip(textures(1.0, str(tmp_path))[:3], frost.PHOTOGRAPHS, strict=False):
        assert torch.equal(texture, torch.from_numpy(images[name]).permute(2, 0, 1))
    frost.read_frost.cache_clear()
    for name in frost.PHOTOGRAPHS:
        whole = (tmp_path / name).read_bytes()
        for kept in (0, 20, len(whole) // 2, None):
            (tmp_path / name).unlink() if kept is None else (tmp_path / name).write_bytes(whole[:kept])
            with pytest.raises(
                NoDataError, match=f"no readable image {name} in the folder .*{tmp_path.name}"
            ) as caught:
                frost.read_frost(str(tmp_path))
            assert "\n" not in str(caught.value)
        (tmp_path / name).write_bytes(whole)
