"""The table `CORRUPTIONS`: each corruption as a function of images, random draws and parameters."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from calibrant._arrays import to_device
from calibrant.corruptions import blur, colour, digital, elastic, frost, noise, weather
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.severities import PARAMETERS, SIZES, Px, Severities
from calibrant.corruptions.spatter import spatter


@dataclass(frozen=True)
class Corruption:
    """A corruption and its severities.

    Args:
        apply: apply(images, draws, *parameters) returns the corrupted images; both are uint8 (n, c, h, w) with one or
            three channels. draws are the `Draws` of the images.
        severities: Five tuples of parameters for one or more of the sets "cifar" (images of 32 pixels),
            "tiny_imagenet" (64) and "imagenet" (224); lengths in pixels are marked as `Px`.
    """

    apply: Callable[..., Tensor]
    severities: Severities

    def parameters(self, severity: int, side: int, name: str | None = None) -> tuple[Any, ...]:
        """The parameters at a severity.

        Args:
            severity: From 1 to 5.
            side: The smaller side of the images in pixels.
            name: A set of parameters, used as published; None for the set nearest to the side, its lengths scaled.

        Returns:
            The arguments of ``apply`` behind the draws.
        """
        if name is not None:
            return self.severities[name][severity - 1]
        nearest = min(self.severities, key=lambda one: abs(math.log(side / SIZES[one])))
        ratio = side / SIZES[nearest]
        return tuple(p * ratio if isinstance(p, Px) else p for p in self.severities[nearest][severity - 1])


def _fixed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A corruption without random numbers."""
    return lambda images, _draws, *parameters: function(images, *parameters)


def _random(function: Callable[..., Tensor], draw: Callable[[Draws, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A corruption whose last argument is random."""
    return lambda images, draws, *parameters: function(images, *parameters, draw(draws, images))


def _normals(draws: Draws, images: Tensor) -> Tensor:
    return draws.normals("values", *images.shape[1:])


def _words(draws: Draws, images: Tensor) -> Tensor:
    return draws.words("values", *images.shape[1:])


def _angles(draws: Draws, _images: Tensor) -> Tensor:
    return draws.on_cpu().uniforms("angle").mul_(90).sub_(45)


def _fog_noise(draws: Draws, images: Tensor) -> Tensor:
    side = 2 ** math.ceil(math.log2(max(images.shape[2:])))
    return draws.uniforms("map", side, side).mul_(2).sub_(1)


def _drops(draws: Draws, images: Tensor) -> Tensor:
    return draws.normals("layer", *images.shape[2:])


def _snow(images: Tensor, draws: Draws, *parameters: Any) -> Tensor:
    flakes, angles = draws.normals("flakes", *images.shape[2:]), draws.on_cpu().uniforms("angle").mul_(90).sub_(135)
    return weather.snow(images, *(*parameters, flakes, angles))


def _glass_blur(images: Tensor, draws: Draws, sigma: float, reach: float, sweeps: int) -> Tensor:
    reach = max(1, round(reach))
    inner = (size - 2 * reach for size in images.shape[2:])
    offsets = draws.integers("offsets", -reach, reach, sweeps, 2, *inner)
    return blur.glass_blur(images, sigma, reach, sweeps, offsets)


def _frost(
    images: Tensor, draws: Draws, weight: float, share: float, scale: float, folder: str | None = None
) -> Tensor:
    height, width = images.shape[2:]
    frozen = frost.frost_on(images.device, folder)
    sizes, on_cpu = frost.read_frost(folder)[1], draws.on_cpu()
    numbers, uniforms = on_cpu.integers("window", 0, len(sizes)), on_cpu.uniforms("place", 2)
    positions = frost.window_positions(sizes, numbers, uniforms, scale=scale, height=height, width=width)
    numbers, scales, tops, lefts = (to_device(values, images.device) for values in (numbers, *positions))
    crops = frost.crop_windows(frozen, numbers, (scales, tops, lefts), height=height, width=width)
    return weather.frost(images, weight, share, crops)


def _elastic_transform(images: Tensor, draws: Draws, alpha: float, sigma: float, jitter: float) -> Tensor:
    side = min(images.shape[2:])
    corners = draws.on_cpu().uniforms("corners", 3, 2).mul_(2).sub_(1).mul_(jitter * side)
    fields = draws.uniforms("fields", 2, *images.shape[2:]).mul_(2).sub_(1)
    return elastic.elastic_transform(images, alpha * side, sigma * side, corners, fields)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": _random(noise.gaussian_noise, _normals),
    "shot_noise": _random(noise.shot_noise, _words),
    "impulse_noise": _random(noise.impulse_noise, _words),
    "defocus_blur": _fixed(blur.defocus_blur),
    "glass_blur": _glass_blur,
    "motion_blur": _random(blur.motion_blur, _angles),
    "zoom_blur": _fixed(blur.zoom_blur),
    "snow": _snow,
    "frost": _frost,
    "fog": _random(weather.fog, _fog_noise),
    "brightness": _fixed(colour.brightness),
    "contrast": _fixed(colour.contrast),
    "elastic_transform": _elastic_transform,
    "pixelate": _fixed(digital.pixelate),
    "jpeg_compression": _fixed(digital.jpeg_compression),
    "speckle_noise": _random(noise.speckle_noise, _normals),
    "gaussian_blur": _fixed(blur.gaussian_blur),
    "spatter": _random(spatter, _drops),
    "saturate": _fixed(colour.saturate),
}

CORRUPTIONS = {name: Corruption(apply, PARAMETERS[name]) for name, apply in _FUNCTIONS.items()}
