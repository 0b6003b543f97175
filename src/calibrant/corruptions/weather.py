"""Snow, fog and frost."""

import torch
from torch import Tensor

from calibrant.corruptions.blur import enlarge, from_pixels, motion_blur, to_pixels
from calibrant.corruptions.colour import LUMA, as_colour, match_channels
from calibrant.corruptions.noise import to_bytes

WIBBLE = 100.0  # the first displacement of the map of fog is uniform up to its square


def snow(
    images: Tensor,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    mix: float,
    normals: Tensor,
    angles: Tensor,
) -> Tensor:
    """A whitened image plus flakes that fall along each image's angle, and the same flakes turned by 180°."""
    flakes = to_pixels(normals[:, None]).double().mul(std).add_(mean)
    flakes = enlarge(flakes, max(1.0, zoom), [torch.empty_like(flakes) for _ in range(3)]).float()
    flakes.mul_(flakes >= threshold).clamp_(0, 1).mul_(255)
    layer = motion_blur(from_pixels(to_bytes(flakes), normals[:, None]), radius, sigma, angles)
    colour = as_colour(images)
    red, green, blue = (plane * share for plane, share in zip(colour.float().div_(255).unbind(1), LUMA, strict=True))
    grey = red.add_(green).add_(blue)
    grey.mul_(1.5).add_(0.5).mul_(255)
    white = colour.float().maximum(grey[:, None]).mul_(1 - mix).add_(colour.float().mul_(mix))
    return match_channels(images, to_bytes(white.add_(layer).add_(layer.rot90(2, (2, 3)))))


def fog(images: Tensor, density: float, decay: float, noise: Tensor) -> Tensor:
    """(x + density · F) · M / (M + density), with F a plasma map in [0, 1] and M the largest value of the image."""
    height, width = images.shape[2:]
    maps = plasma(noise, decay)[:, None, :height, :width]
    peak = images.amax((1, 2, 3), keepdim=True).double().div_(255)
    hazy = images.double().div_(255) + maps.mul_(density)
    return to_bytes(hazy.mul_(peak).div_(peak + density).clamp_(0, 1).mul_(255))


def plasma(noise: Tensor, decay: float) -> Tensor:
    """Diamond-square maps (n, side, side) on a torus, scaled to [0, 1], float64.

    Every node is the mean of its four neighbours at the next coarser level, displaced by its noise in (-1, 1) times
    the square of an amplitude that falls by decay from level to level.
    """
    maps = torch.zeros_like(noise, dtype=torch.float64)
    step, wibble = noise.shape[-1], WIBBLE
    while step >= 2:
        half = step // 2
        nodes = maps[:, ::step, ::step]
        pairs = nodes + nodes.roll(-1, 1)
        maps[:, half::step, half::step] = _displace(pairs + pairs.roll(-1, 2), noise[:, half::step, half::step], wibble)
        centres = maps[:, half::step, half::step]
        across = (centres + centres.roll(1, 1)) + (nodes + nodes.roll(-1, 2))
        maps[:, ::step, half::step] = _displace(across, noise[:, ::step, half::step], wibble)
        down = (centres + centres.roll(1, 2)) + (nodes + nodes.roll(-1, 1))
        maps[:, half::step, ::step] = _displace(down, noise[:, half::step, ::step], wibble)
        step, wibble = half, wibble / decay
    maps.sub_(maps.amin((1, 2), keepdim=True))
    return maps.div_(maps.amax((1, 2), keepdim=True))


def _displace(sums: Tensor, noise: Tensor, wibble: float) -> Tensor:
    return (sums / 4).add_(noise * (wibble * wibble))


def frost(images: Tensor, weight: float, share: float, crops: Tensor) -> Tensor:
    """Weight · x + share · frost, of crops of frosted windows, uint8 (n, 3, h, w)."""
    return match_channels(images, to_bytes(crops.double().mul_(share).add_(as_colour(images).double().mul_(weight))))
