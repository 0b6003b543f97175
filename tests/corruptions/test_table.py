"""Every entry of CORRUPTIONS against the shared checks and its definition as a slow loop; the sets of parameters."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import calibrant as cb
from calibrant.corruptions import frost
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.severities import PARAMETERS
from made.corruption_check import (
    ASPECTS,
    SETS,
    SEVERITIES,
    WITH_TABLES,
    check_corruption,
    crops,
    digest_of_frost,
    digests_elsewhere,
)
from made.marks import slow_where
from made.slow_corruptions import SLOW, slow_corruption

NAMES = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    *("speckle_noise", "gaussian_blur", "spatter", "saturate"),
]


@pytest.mark.parametrize("aspect", slow_where(ASPECTS, ("threads", "another_process", "parameters", "batches")))
@pytest.mark.parametrize("name", cb.CORRUPTIONS)
def test_contract(name: str, aspect: str) -> None:
    check_corruption(name, aspect)


def test_another_process_and_default_device_change_nothing() -> None:
    assert digests_elsewhere()["devices"] == ["cpu"] * 2 * len(WITH_TABLES)
    assert digests_elsewhere()["grown frost"] == digest_of_frost()


def test_the_table_is_whole() -> None:
    assert list(cb.CORRUPTIONS) == NAMES
    assert set(SLOW) == set(PARAMETERS) == set(NAMES)
    assert cb.corruptions.CORRUPTIONS is cb.CORRUPTIONS
    assert cb.corruptions.corrupt is cb.corrupt
    for corruption in cb.CORRUPTIONS.values():
        assert isinstance(corruption, cb.corruptions.Corruption)
        assert set(corruption.severities) == set(SETS)
        assert all(len(parameters) == 5 for parameters in corruption.severities.values())


# The sets of parameters


SIGMAS = {32: (0.4, 0.6, 0.7, 0.8, 1.0), 64: (0.5, 0.75, 1.0, 1.25, 1.5), 224: (1.0, 2.0, 3.0, 4.0, 6.0)}
QUALITIES = {32: (80, 65, 58, 50, 40), 64: (65, 58, 50, 40, 25), 224: (25, 18, 15, 10, 7)}
NEAREST = {8: 32, 32: 32, 45: 32, 46: 64, 64: 64, 96: 64, 119: 64, 120: 224, 224: 224, 400: 224}


@pytest.mark.parametrize(("side", "published"), NEAREST.items())
def test_the_nearest_set_on_a_log_scale_is_taken_and_its_lengths_scaled(side: int, published: int) -> None:
    """The middle of 32 and 64 is 45.3, that of 64 and 224 is 119.7; a named set is not scaled."""
    blur, jpeg = cb.CORRUPTIONS["gaussian_blur"], cb.CORRUPTIONS["jpeg_compression"]
    for severity, sigma, quality in zip(SEVERITIES, SIGMAS[published], QUALITIES[published], strict=True):
        assert blur.parameters(severity, side) == pytest.approx((sigma * side / published,))
        assert blur.parameters(severity, side, "cifar") == (SIGMAS[32][severity - 1],)
        assert jpeg.parameters(severity, side) == (quality,)


# The definitions

# A result on a whole level may be floored to it or to the one below. Saturation times 1.5 or 2 is often on one, and
# colorsys takes other steps there than scikit-image, from which the published bytes come.
MAY_DIFFER = {"jpeg_compression": 0.0, "pixelate": 0.0, "impulse_noise": 0.0, "saturate": 0.1}


def with_extremes(photos: Tensor) -> Tensor:
    """The photographs, a black image and one with quarters of black, white, stripes and random colours."""
    black = torch.zeros_like(photos[:1])
    drawn = black.clone()
    middle, centre = photos.shape[2] // 2, photos.shape[3] // 2
    drawn[..., :middle, centre:] = 255
    drawn[..., middle::2, :centre] = 255
    quarter = drawn[..., middle:, centre:]
    quarter.copy_(torch.randint(256, quarter.shape, generator=torch.Generator().manual_seed(5)))
    return torch.cat([photos, drawn, black])


def slow_arguments(name: str, row: tuple[Any, ...], shape: torch.Size, draws: Draws) -> tuple[Any, list[Tensor]]:
    """The parameters of the loop, and its random numbers, one entry for each image (channels, height, width)."""
    _, height, width = shape
    if name == "glass_blur":
        sigma, reach, sweeps = row[0], int(row[1]), row[2]
        offsets = draws.integers("offsets", -reach, reach, sweeps, 2, height - 2 * reach, width - 2 * reach)
        return (sigma, reach, sweeps), [offsets]
    if name == "elastic_transform":
        alpha, sigma, jitter = (value * min(height, width) for value in row)
        corners, fields = draws.uniforms("corners", 3, 2), draws.uniforms("fields", 2, height, width)
        return (alpha, sigma), [(2 * corners - 1) * jitter, 2 * fields - 1]
    if name == "frost":
        images, numbers, size = frost.read_frost(), draws.integers("window", 0, 5), {"height": height, "width": width}
        positions = frost.window_positions(images[1], numbers, draws.uniforms("place", 2), scale=row[2], **size)
        return row[:2], [frost.crop_windows(images, numbers, positions, **size).movedim(1, -1)]
    power = 1 << (max(height, width) - 1).bit_length()
    random: dict[str, Any] = {
        "shot_noise": lambda: [draws.words("values", *shape).movedim(1, -1)],
        "impulse_noise": lambda: [draws.words("values", *shape).movedim(1, -1)],
        "gaussian_noise": lambda: [draws.normals("values", *shape).movedim(1, -1)],
        "speckle_noise": lambda: [draws.normals("values", *shape).movedim(1, -1)],
        "motion_blur": lambda: [draws.uniforms("angle") * 90 - 45],
        "snow": lambda: [draws.normals("flakes", height, width), draws.uniforms("angle") * 90 - 135],
        "fog": lambda: [2 * draws.uniforms("map", power, power) - 1],
        "spatter": lambda: [draws.normals("layer", height, width)],
    }
    return row, random[name]() if name in random else []


def check_definition(name: str, images: Tensor, table: str, severity: int) -> None:
    """The bytes are within one level of the loop's everywhere, and equal nearly everywhere."""
    row = PARAMETERS[name][table][severity - 1]
    draws = Draws.of(range(len(images)), 7, device=images.device)
    found = cb.CORRUPTIONS[name].apply(images, draws, *row)
    assert (found.dtype, found.shape) == (torch.uint8, images.shape)
    parameters, numbers = slow_arguments(name, row, images.shape[1:], draws)
    slow = [
        slow_corruption(name, image, *parameters, *(values[i].numpy() for values in numbers))
        for i, image in enumerate(images.movedim(1, -1).numpy())
    ]
    gaps = np.abs(found.movedim(1, -1).numpy().astype(np.int64) - np.stack(slow))
    assert gaps.max() <= 1
    assert (gaps > 0).mean() <= MAY_DIFFER.get(name, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", SLOW)
def test_the_published_sizes(name: str, severity: int) -> None:
    check_definition(name, with_extremes(crops(3, 32)), "cifar", severity)
    check_definition(name, with_extremes(crops(2, 64)), "tiny_imagenet", severity)
    check_definition(name, crops(1, 224), "imagenet", severity)
    check_definition(name, with_extremes(crops(1, 48))[1:2], "imagenet", severity)


@pytest.mark.parametrize(("table", "severity"), [("cifar", 3), ("tiny_imagenet", 4), ("imagenet", 5)])
@pytest.mark.parametrize("name", SLOW)
def test_any_shape(name: str, table: str, severity: int) -> None:
    """Each axis by itself; also where the reach of a kernel is larger than the image."""
    for height, width in ((40, 56), (61, 33), (8, 8), (23, 8)):
        check_definition(name, crops(2, height, width), table, severity)


@pytest.mark.parametrize("name", SLOW)
def test_grey(name: str) -> None:
    """One channel stays one channel; where the definition needs colour, by way of three equal ones."""
    for table, severity in (("cifar", 3), ("cifar", 4), ("tiny_imagenet", 3), ("tiny_imagenet", 5)):
        check_definition(name, with_extremes(crops(2, 32, 40))[:, 1:2], table, severity)


@pytest.mark.parametrize(
    ("height", "width", "share"), [(38, 13, 0.65), (24, 105, 0.9), (103, 79, 0.7), (112, 19, 0.75)]
)
def test_pixelate_where_boxes_meet_in_the_middle_of_a_pixel(height: int, width: int, share: float) -> None:
    """Such a pixel belongs to one box, not to both; which one is Pillow's rounding."""
    [image] = crops(1, height, width)
    found = cb.CORRUPTIONS["pixelate"].apply(image[None], None, share)[0].movedim(0, -1).numpy()
    assert np.array_equal(found, slow_corruption("pixelate", image.movedim(0, -1).numpy(), share))
