"""The table `CORRUPTIONS`: what each corruption does to images, given its parameters and the images' draws."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from calibrant.corruptions import blur, colour, digital, elastic, frost, glass, noise, weather
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.severities import SEVERITIES, SIZES, Px, Severities
from calibrant.corruptions.spatter import spatter


@dataclass(frozen=True)
class Corruption:
    """A corruption and its severities.

    apply(images, draws, *parameters) returns the corrupted images; both are uint8 (n, c, h, w) with one or three
    channels. severities has five tuples of parameters for each of the sets it knows: "cifar" (images of 32 pixels),
    "tiny_imagenet" (64), "imagenet" (224); lengths in pixels are marked as `Px`.
    """

    apply: Callable[..., Tensor]
    severities: Severities

    def parameters(self, severity: int, side: int, name: str | None = None) -> tuple[Any, ...]:
        """Those of the named set as published, or of the set nearest to the side, its lengths scaled."""
        if name is not None:
            return self.severities[name][severity - 1]
        nearest = min(self.severities, key=lambda known: abs(math.log(side / SIZES[known])))
        ratio = side / SIZES[nearest]
        return tuple(p * ratio if isinstance(p, Px) else p for p in self.severities[nearest][severity - 1])


def _gaussian_noise(images: Tensor, draws: Draws, scale: float) -> Tensor:
    return noise.gaussian_noise(images, scale, draws.normals("values", *images.shape[1:]))


def _speckle_noise(images: Tensor, draws: Draws, scale: float) -> Tensor:
    return noise.speckle_noise(images, scale, draws.normals("values", *images.shape[1:]))


def _shot_noise(images: Tensor, draws: Draws, photons: float) -> Tensor:
    return noise.shot_noise(images, photons, draws.words("values", *images.shape[1:]))


def _impulse_noise(images: Tensor, draws: Draws, amount: float) -> Tensor:
    return noise.impulse_noise(images, amount, draws.words("values", *images.shape[1:]))


def _glass_blur(images: Tensor, draws: Draws, sigma: float, reach: float, sweeps: int) -> Tensor:
    whole_reach = max(1, round(reach))
    inner = (size - 2 * whole_reach for size in images.shape[2:])
    offsets = draws.integers("offsets", -whole_reach, whole_reach, sweeps, 2, *inner)
    return glass.glass_blur(images, sigma, whole_reach, sweeps, offsets)


def _motion_blur(images: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    return blur.motion_blur(images, radius, sigma, draws.uniforms("angle").mul_(90).sub_(45))


def _snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    mix: float,
) -> Tensor:
    flakes, angles = draws.normals("flakes", *images.shape[2:]), draws.uniforms("angle").mul_(90).sub_(135)
    return weather.snow(images, mean, std, zoom, threshold, radius, sigma, mix, flakes, angles)


def _fog(images: Tensor, draws: Draws, density: float, decay: float) -> Tensor:
    side = 2 ** math.ceil(math.log2(max(images.shape[2:])))
    return weather.fog(images, density, decay, draws.uniforms("map", side, side).mul_(2).sub_(1))


def _frost(
    images: Tensor, draws: Draws, weight: float, share: float, scale: float, folder: str | None = None
) -> Tensor:
    height, width = images.shape[2:]
    frosted = frost.pictures(folder)
    numbers = draws.integers("window", 0, len(frosted.sizes))
    places = frost.places(frosted, numbers, draws.uniforms("place", 2), scale, height, width)
    return weather.frost(images, weight, share, frost.windows(frosted, numbers, *places, height, width))


def _elastic_transform(images: Tensor, draws: Draws, alpha: float, sigma: float, jitter: float) -> Tensor:
    side = min(images.shape[2:])
    corners = draws.uniforms("corners", 3, 2).mul_(2).sub_(1).mul_(jitter * side)
    fields = draws.uniforms("fields", 2, *images.shape[2:]).mul_(2).sub_(1)
    return elastic.elastic_transform(images, alpha * side, sigma * side, corners, fields)


def _spatter(
    images: Tensor,
    draws: Draws,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> Tensor:
    layer = draws.normals("layer", *images.shape[2:])
    return spatter(images, mean, std, sigma, threshold, strength, mud, layer)


def _fixed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A corruption that draws nothing."""
    return lambda images, _draws, *parameters: function(images, *parameters)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "defocus_blur": _fixed(blur.defocus_blur),
    "glass_blur": _glass_blur,
    "motion_blur": _motion_blur,
    "zoom_blur": _fixed(blur.zoom_blur),
    "snow": _snow,
    "frost": _frost,
    "fog": _fog,
    "brightness": _fixed(colour.brightness),
    "contrast": _fixed(colour.contrast),
    "elastic_transform": _elastic_transform,
    "pixelate": _fixed(digital.pixelate),
    "jpeg_compression": _fixed(digital.jpeg_compression),
    "speckle_noise": _speckle_noise,
    "gaussian_blur": _fixed(blur.gaussian_blur),
    "spatter": _spatter,
    "saturate": _fixed(colour.saturate),
}

CORRUPTIONS = {name: Corruption(apply, SEVERITIES[name]) for name, apply in _FUNCTIONS.items()}
