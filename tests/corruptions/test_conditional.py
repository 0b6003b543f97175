"""Given the same random draws, every corruption gives the bytes of its definition written as a slow loop."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from calibrant.corruptions import blur, colour, digital, elastic, noise, spatter, weather
from calibrant.corruptions.severities import PARAMETERS
from calibrant.shifts import SEVERITIES
from made.corruption_check import crops
from made.slow_corruptions import SLOW, slow_corruption

Arrays = list[NDArray[np.generic]]

MODULES = (noise, blur, weather, colour, elastic, digital, spatter)
CORES = {name: getattr(module, name) for name in SLOW for module in MODULES if hasattr(module, name)}

# A result on a whole level may be floored to it or to the one below. Saturation times 1.5 or 2 is often on one, and
# colorsys takes other steps there than scikit-image, from which the published bytes come.
MAY_DIFFER = dict.fromkeys(SLOW, 0.02) | {
    "jpeg_compression": 0.0,
    "pixelate": 0.0,
    "impulse_noise": 0.0,
    "saturate": 0.1,
}


def test_every_corruption_has_a_loop() -> None:
    assert set(CORES) == set(SLOW) == set(PARAMETERS)


# Images: (n, height, width, channels)


def photo_crops(n: int, height: int, width: int) -> NDArray[np.uint8]:
    return crops(n, height, width).permute(0, 2, 3, 1).numpy()


def drawn_image(height: int, width: int) -> NDArray[np.uint8]:
    """A black and a white quarter, one of sharp stripes, one of random colours."""
    image = np.zeros((height, width, 3), np.uint8)
    middle, centre = height // 2, width // 2
    image[:middle, centre:] = 255
    image[middle::2, :centre] = 255
    image[middle:, centre:] = np.random.default_rng(5).integers(0, 256, (height - middle, width - centre, 3))
    return image


def with_extremes(photos: NDArray[np.uint8]) -> NDArray[np.uint8]:
    _, height, width, _ = photos.shape
    return np.concatenate([photos, drawn_image(height, width)[None], np.zeros((1, height, width, 3), np.uint8)])


# Draws, one entry per image, laid out as the definitions read them


def arguments(
    name: str, row: tuple[Any, ...], shape: tuple[int, ...], side: int, rng: np.random.Generator
) -> tuple[tuple[object, ...], Arrays]:
    """The parameters and the random draws for a batch of that shape (n, height, width, channels)."""
    n, height, width, _ = shape
    plane = (n, height, width)
    if name == "glass_blur":
        sigma, reach, sweeps = row[0], int(row[1]), row[2]
        offsets = rng.integers(-reach, reach, (n, sweeps, 2, height - 2 * reach, width - 2 * reach))
        return (sigma, reach, sweeps), [offsets]
    if name == "elastic_transform":
        alpha, sigma, jitter = (value * side for value in row)
        corners, fields = rng.uniform(-jitter, jitter, (n, 3, 2)), rng.uniform(-1, 1, (n, 2, height, width))
        return (alpha, sigma), [corners.astype(np.float32), fields.astype(np.float32)]
    if name == "frost":
        return row[:2], [rng.integers(0, 256, (*plane, 3), np.uint8)]
    power = 1 << (max(height, width) - 1).bit_length()
    draws: dict[str, Any] = {
        "shot_noise": lambda: [rng.integers(-(2**31), 2**31, shape, np.int32)],
        "impulse_noise": lambda: [rng.integers(-(2**31), 2**31, shape, np.int32)],
        "gaussian_noise": lambda: [rng.standard_normal(shape, np.float32)],
        "speckle_noise": lambda: [rng.standard_normal(shape, np.float32)],
        "motion_blur": lambda: [rng.uniform(-45, 45, n)],
        "snow": lambda: [rng.standard_normal(plane, np.float32), rng.uniform(-135, -45, n)],
        "fog": lambda: [rng.uniform(-1, 1, (n, power, power))],
        "spatter": lambda: [rng.standard_normal(plane, np.float32)],
    }
    return row, draws[name]() if name in draws else []


def channels_first(batch: NDArray[np.generic]) -> torch.Tensor:
    return torch.tensor(np.ascontiguousarray(np.moveaxis(batch, -1, 1)))


def check(name: str, images: NDArray[np.uint8], row: tuple[Any, ...], side: int) -> None:
    """The library's bytes are within one level of the loop's everywhere, and equal nearly everywhere."""
    parameters, draws = arguments(name, row, images.shape, side, np.random.default_rng(7))
    per_value = name in ("gaussian_noise", "speckle_noise", "shot_noise", "impulse_noise", "frost")
    tensors = [channels_first(draw) if per_value else torch.tensor(draw) for draw in draws]
    result = CORES[name](channels_first(images), *parameters, *tensors)
    assert result.dtype == torch.uint8
    assert result.shape == channels_first(images).shape
    slow = [slow_corruption(name, image, *parameters, *(draw[i] for draw in draws)) for i, image in enumerate(images)]
    gaps = np.abs(np.moveaxis(result.numpy(), 1, -1).astype(np.int64) - np.stack(slow))
    assert gaps.max() <= 1
    assert (gaps > 0).mean() <= MAY_DIFFER[name]


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", SLOW)
def test_the_published_sizes(name: str, severity: int) -> None:
    cifar, tiny, imagenet = (PARAMETERS[name][table][severity - 1] for table in ("cifar", "tiny_imagenet", "imagenet"))
    check(name, with_extremes(photo_crops(3, 32, 32)), cifar, 32)
    check(name, with_extremes(photo_crops(2, 64, 64)), tiny, 64)
    check(name, photo_crops(1, 224, 224), imagenet, 224)
    check(name, drawn_image(48, 48)[None], imagenet, 48)


@pytest.mark.parametrize("shape", [(40, 56), (61, 33), (8, 8), (23, 8)])
@pytest.mark.parametrize(("table", "severity"), [("cifar", 3), ("tiny_imagenet", 4), ("imagenet", 5)])
@pytest.mark.parametrize("name", SLOW)
def test_any_shape(name: str, table: str, severity: int, shape: tuple[int, int]) -> None:
    """Each axis by itself; also where the reach of a kernel is larger than the image."""
    check(name, photo_crops(2, *shape), PARAMETERS[name][table][severity - 1], min(shape))


@pytest.mark.parametrize(("table", "severity"), [("cifar", 3), ("tiny_imagenet", 5)])
@pytest.mark.parametrize("name", SLOW)
def test_grey(name: str, table: str, severity: int) -> None:
    """One channel stays one channel; where the definition needs colour, by way of three equal ones."""
    images = with_extremes(photo_crops(2, 32, 40))[:, :, :, 1:2]
    check(name, images, PARAMETERS[name][table][severity - 1], 32)


@pytest.mark.parametrize(
    ("height", "width", "share"), [(38, 13, 0.65), (24, 105, 0.9), (103, 79, 0.7), (112, 19, 0.75)]
)
def test_pixelate_where_boxes_meet_in_the_middle_of_a_pixel(height: int, width: int, share: float) -> None:
    """Such a pixel belongs to one box, not to both; which one is Pillow's rounding."""
    check("pixelate", photo_crops(1, height, width), (share,), min(height, width))
