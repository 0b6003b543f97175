"""Every entry of CORRUPTIONS against the shared battery; the table; the sets of parameters; the random streams."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

import calibrant as cb
from calibrant.corruptions.blur import gaussian_blur, motion_blur
from made.corruption_check import (
    ASPECTS,
    NOISES,
    SETS,
    SEVERITIES,
    WITH_TABLES,
    assert_same,
    check_corruption,
    crops,
    digest_of_frost,
    digests_elsewhere,
    through_jpeg,
)

NAMES = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    *("speckle_noise", "gaussian_blur", "spatter", "saturate"),
]


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("name", cb.CORRUPTIONS)
def test_contract(name: str, aspect: str) -> None:
    check_corruption(name, aspect)


def test_another_process_and_default_device_change_nothing() -> None:
    assert digests_elsewhere()["devices"] == ["cpu"] * 2 * len(WITH_TABLES)
    assert digests_elsewhere()["grown frost"] == digest_of_frost()


def test_the_table_is_whole() -> None:
    assert list(cb.CORRUPTIONS) == NAMES
    assert cb.corruptions.CORRUPTIONS is cb.CORRUPTIONS
    assert cb.corruptions.corrupt is cb.corrupt
    for corruption in cb.CORRUPTIONS.values():
        assert isinstance(corruption, cb.corruptions.Corruption)
        assert set(corruption.severities) == set(SETS)
        assert all(len(parameters) == 5 for parameters in corruption.severities.values())


# The sets of parameters


@pytest.mark.parametrize(
    ("side", "parameters"),
    [(8, "cifar"), (45, "cifar"), (46, "tiny_imagenet"), (119, "tiny_imagenet"), (120, "imagenet"), (400, "imagenet")],
)
def test_the_nearest_set_on_a_log_scale_is_taken(side: int, parameters: str) -> None:
    """The middle of 32 and 64 is 45.3, that of 64 and 224 is 119.7; contrast has no lengths to scale."""
    image = crops(1, side)
    for severity in SEVERITIES:
        found = cb.corrupt(image, "contrast", severity)
        assert_same(found, cb.corrupt(image, "contrast", severity, parameters=parameters))
        others = [cb.corrupt(image, "contrast", severity, parameters=other) for other in SETS]
        assert sum(torch.equal(found, other) for other in others) == (1 if parameters == "cifar" else 2)


@pytest.mark.parametrize(("side", "published"), [(28, 32), (48, 64), (96, 64), (128, 224), (320, 224)])
def test_lengths_grow_with_the_image_but_for_a_named_set(side: int, published: int) -> None:
    sigmas = {32: (0.4, 0.6, 0.7, 0.8, 1.0), 64: (0.5, 0.75, 1.0, 1.25, 1.5), 224: (1.0, 2.0, 3.0, 4.0, 6.0)}
    image = crops(1, side)
    for severity, (sigma, named) in enumerate(zip(sigmas[published], sigmas[32], strict=True), start=1):
        assert_same(cb.corrupt(image, "gaussian_blur", severity), gaussian_blur(image, sigma * side / published))
        assert_same(cb.corrupt(image, "gaussian_blur", severity, parameters="cifar"), gaussian_blur(image, named))


def test_jpeg_is_that_of_pillow() -> None:
    qualities = {"cifar": (80, 65, 58, 50, 40), "tiny_imagenet": (65, 58, 50, 40, 25), "imagenet": (25, 18, 15, 10, 7)}
    for images in (crops(3, 37, 50), crops(3, 37, 50)[:, :1]):
        for parameters in SETS:
            for severity, quality in enumerate(qualities[parameters], start=1):
                found = cb.corrupt(images, "jpeg_compression", severity, parameters=parameters)
                assert_same(found, torch.stack([through_jpeg(image, quality) for image in images]))


# The random streams


def flat(n: int, level: int = 128, side: int = 32) -> Tensor:
    return torch.full((n, 3, side, side), level, dtype=torch.uint8)


def residuals(name: str, severity: int, n: int = 8, seed: int = 0, keys: list[int | str] | None = None) -> Tensor:
    """What is added to flat grey images, (n, 3, 32, 32)."""
    given = flat(n)
    return (cb.corrupt(given, name, severity, seed=seed, keys=keys, parameters="cifar").int() - 128).double()


def assert_uncorrelated(rows: Tensor) -> None:
    """No two of the rows correlate by more than 5.5 standard errors."""
    found = torch.corrcoef(rows).fill_diagonal_(0).abs().max().item()
    assert found < 5.5 / math.sqrt(rows.shape[1]), found


@pytest.mark.parametrize("name", sorted(NOISES))
def test_images_and_values_have_noise_of_their_own(name: str) -> None:
    keys: list[int | str] = [*range(30), 2**32, 2**33, -1, -2, "0", "1", "a", "b"]
    assert_uncorrelated(residuals(name, 5, len(keys), keys=keys).flatten(1))
    seeds = [residuals(name, 5, seed=seed).flatten() for seed in (*range(10), 2**32, 2**63, 2**64)]
    assert_uncorrelated(torch.stack(seeds))
    swapped = residuals(name, 5, 1, seed=3, keys=[4]), residuals(name, 5, 1, seed=4, keys=[3])
    assert_uncorrelated(torch.stack(swapped).flatten(1))
    noise = residuals(name, 5, 64)
    assert_uncorrelated(noise.transpose(0, 1).flatten(1))
    for step in (1, 2, 16):
        assert_uncorrelated(torch.stack((noise[..., step:].flatten(), noise[..., :-step].flatten())))
        assert_uncorrelated(torch.stack((noise[:, :, step:].flatten(), noise[:, :, :-step].flatten())))


def test_corruptions_and_severities_have_noise_of_their_own() -> None:
    rows = [residuals(name, severity).flatten() for name in sorted(NOISES) for severity in SEVERITIES]
    assert_uncorrelated(torch.stack(rows))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_noise_has_its_moments(severity: int) -> None:
    """The floor costs half a level, and adds the variance 1 / 12 of its error."""
    scale = 255 * (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    noise = residuals("gaussian_noise", severity, 64).flatten()
    standard = (noise + 0.5) / math.sqrt(scale**2 + 1 / 12)
    n = len(noise)
    assert abs(standard.mean()) < 5 / math.sqrt(n)
    assert standard.std() == pytest.approx(1, abs=5 / math.sqrt(2 * n))
    assert standard.pow(3).mean() == pytest.approx(0, abs=5 * math.sqrt(6 / n))
    assert standard.pow(4).mean() == pytest.approx(3, abs=5 * math.sqrt(24 / n) + 0.01)
    assert 4 < standard.abs().max() < 6.5


@pytest.mark.parametrize("level", [40, 128])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_speckle_and_shot_noise_depend_on_the_level(severity: int, level: int) -> None:
    """Speckle noise in proportion; shot noise is a Poisson count of mean photons x / 255, times 255 / photons."""
    scale, photons = level * (0.06, 0.10, 0.12, 0.16, 0.20)[severity - 1], (500, 250, 100, 75, 50)[severity - 1]
    speckle, shot = (
        cb.corrupt(flat(64, level), name, severity).double().flatten() - level
        for name in ("speckle_noise", "shot_noise")
    )
    n = len(shot)
    assert abs(speckle.mean() + 0.5) < 5 * scale / math.sqrt(n)
    assert speckle.std() == pytest.approx(math.sqrt(scale**2 + 1 / 12), rel=5 / math.sqrt(2 * n) + 0.002)
    counts = torch.arange(photons + 1, dtype=torch.float64)
    shares = torch.from_numpy(stats.poisson.pmf(counts.numpy(), photons * level / 255))
    values = (counts * 255 / photons + 1e-9).floor() - level
    mean = (shares * values).sum().item()
    std = math.sqrt((shares * (values - mean).square()).sum().item())
    assert shot.mean() == pytest.approx(mean, abs=5 * std / math.sqrt(n) + 0.01)
    assert shot.std() == pytest.approx(std, rel=6 / math.sqrt(2 * n) + 0.002)


@pytest.mark.parametrize("parameters", SETS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulses_have_their_share(severity: int, parameters: str) -> None:
    """Half of them black, half white, each value for itself."""
    amounts = {
        "cifar": (0.01, 0.02, 0.03, 0.05, 0.07),
        "tiny_imagenet": (0.01, 0.02, 0.05, 0.08, 0.14),
        "imagenet": (0.03, 0.06, 0.09, 0.17, 0.27),
    }
    amount = amounts[parameters][severity - 1]
    found = cb.corrupt(flat(64), "impulse_noise", severity, parameters=parameters)
    assert found.unique().tolist() == [0, 128, 255]
    error = 5 * math.sqrt(amount / 2 / found.numel())
    for level in (0, 255):
        assert (found == level).double().mean() == pytest.approx(amount / 2, abs=error)
        all_channels = (found == level).all(1).double().mean().item()
        assert all_channels < (amount / 2) ** 3 + 5 * math.sqrt((amount / 2) ** 3 / (64 * 1024)) + 1e-4


def test_angles_of_motion_are_uniform() -> None:
    """A bright point becomes a trail to one side, between 45 degrees up and 45 degrees down."""
    n, middle = 80, 48
    point = torch.zeros(1, 1, 97, 97, dtype=torch.uint8)
    point[..., middle, middle] = 255
    trails = cb.corrupt(point.expand(n, -1, -1, -1), "motion_blur", 5, parameters="imagenet")[:, 0].double()
    down, right = torch.meshgrid(2 * [torch.arange(97.0, dtype=torch.float64) - middle], indexing="ij")
    downs, rights = (trails * down).sum((1, 2)), (trails * right).sum((1, 2))
    assert (rights > 0).all() or (rights < 0).all()
    angles = torch.atan2(downs, rights.abs()).rad2deg()
    assert angles.abs().max() < 46
    assert len(angles.unique()) > 0.9 * n
    assert stats.kstest(angles.numpy(), stats.uniform(-45, 90).cdf).pvalue > 0.001


def test_motion_is_that_of_one_angle_for_each_image() -> None:
    images = crops(4, 32)
    found = cb.corrupt(images, "motion_blur", 2)
    angles = torch.arange(-45, 45, 0.25, dtype=torch.float64)
    for image, wanted in zip(images, found, strict=True):
        tried = motion_blur(image.expand(len(angles), -1, -1, -1).contiguous(), 6, 1.5, angles)
        nearest = (tried.int() - wanted.int()).abs().double().mean((1, 2, 3)).min()
        assert nearest < 0.5
