"""The table `CORRUPTIONS`: what each corruption does to images, given its parameters and the images' draws."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from calibrant.corruptions import blur, colour, digital, elastic, frost, glass, noise, weather
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.severities import PARAMETERS, SIZES, Px, Severities
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


def _fixed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A corruption that draws nothing."""
    return lambda images, _draws, *parameters: function(images, *parameters)


def _random(
    function: Callable[..., Tensor], draw: Callable[[Tensor, Draws], tuple[Tensor, ...]]
) -> Callable[..., Tensor]:
    """A corruption that takes its draws after its parameters."""
    return lambda images, draws, *parameters: function(images, *parameters, *draw(images, draws))


def _values(images: Tensor, draws: Draws) -> tuple[Tensor]:
    return (draws.normals("values", *images.shape[1:]),)


def _words(images: Tensor, draws: Draws) -> tuple[Tensor]:
    return (draws.words("values", *images.shape[1:]),)


def _angle(_images: Tensor, draws: Draws) -> tuple[Tensor]:
    return (draws.uniforms("angle").mul_(90).sub_(45),)


def _flakes(images: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    return draws.normals("flakes", *images.shape[2:]), draws.uniforms("angle").mul_(90).sub_(135)


def _map(images: Tensor, draws: Draws) -> tuple[Tensor]:
    side = 2 ** math.ceil(math.log2(max(images.shape[2:])))
    return (draws.uniforms("map", side, side).mul_(2).sub_(1),)


def _layer(images: Tensor, draws: Draws) -> tuple[Tensor]:
    return (draws.normals("layer", *images.shape[2:]),)


def _glass_blur(images: Tensor, draws: Draws, sigma: float, reach: float, sweeps: int) -> Tensor:
    whole_reach = max(1, round(reach))
    inner = (size - 2 * whole_reach for size in images.shape[2:])
    offsets = draws.integers("offsets", -whole_reach, whole_reach, sweeps, 2, *inner)
    return glass.glass_blur(images, sigma, whole_reach, sweeps, offsets)


def _frost(
    images: Tensor, draws: Draws, weight: float, share: float, scale: float, folder: str | None = None
) -> Tensor:
    height, width = images.shape[2:]
    frosted = frost.images(folder)
    numbers = draws.integers("window", 0, len(frosted.sizes))
    places = frost.places(frosted, numbers, draws.uniforms("place", 2), scale, height, width)
    return weather.frost(images, weight, share, frost.windows(frosted, numbers, *places, height, width))


def _elastic_transform(images: Tensor, draws: Draws, alpha: float, sigma: float, jitter: float) -> Tensor:
    side = min(images.shape[2:])
    corners = draws.uniforms("corners", 3, 2).mul_(2).sub_(1).mul_(jitter * side)
    fields = draws.uniforms("fields", 2, *images.shape[2:]).mul_(2).sub_(1)
    return elastic.elastic_transform(images, alpha * side, sigma * side, corners, fields)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": _random(noise.gaussian_noise, _values),
    "shot_noise": _random(noise.shot_noise, _words),
    "impulse_noise": _random(noise.impulse_noise, _words),
    "defocus_blur": _fixed(blur.defocus_blur),
    "glass_blur": _glass_blur,
    "motion_blur": _random(blur.motion_blur, _angle),
    "zoom_blur": _fixed(blur.zoom_blur),
    "snow": _random(weather.snow, _flakes),
    "frost": _frost,
    "fog": _random(weather.fog, _map),
    "brightness": _fixed(colour.brightness),
    "contrast": _fixed(colour.contrast),
    "elastic_transform": _elastic_transform,
    "pixelate": _fixed(digital.pixelate),
    "jpeg_compression": _fixed(digital.jpeg_compression),
    "speckle_noise": _random(noise.speckle_noise, _values),
    "gaussian_blur": _fixed(blur.gaussian_blur),
    "spatter": _random(spatter, _layer),
    "saturate": _fixed(colour.saturate),
}

CORRUPTIONS = {name: Corruption(apply, PARAMETERS[name]) for name, apply in _FUNCTIONS.items()}
