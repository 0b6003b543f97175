"""Spatter: drops of water, or of mud, on the lens."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._arrays import to_device
from calibrant.corruptions.blur import gaussian_smooth
from calibrant.corruptions.colour import match_channels
from calibrant.corruptions.edges import MAX_DISTANCE, STRAIGHT, box_sum, distances, edges, emboss, equalise
from calibrant.corruptions.noise import to_bytes

WATER = (175, 238, 238)
MUD = (63, 42, 20)
MIN_COVER = 0.8  # mud that covers less is left out


def spatter(
    images: Tensor,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
    normals: Tensor,
) -> Tensor:
    """Drops where mean + std * normals, smoothed by ``sigma``, exceeds the threshold.

    Water brightens with weights up to ``strength``; an image that no drop hits stays as it is. Mud covers, and
    ``strength`` is the sigma of its rims.
    """
    layer = gaussian_smooth(normals.double().mul(std).add_(mean), sigma)
    if mud:
        values = _cover_with_mud(images, layer > threshold, strength)
    else:
        # x > the number before the threshold: at the threshold there is water
        layer = F.threshold(layer, math.nextafter(threshold, -math.inf), 0.0, inplace=True)
        values = _add_water(images, layer, strength)
    return match_channels(images, to_bytes(values.mul_(255)))


def _cover_with_mud(images: Tensor, drops: Tensor, sigma: float) -> Tensor:
    """Intensities with the colour of mud, which is float64 in the published code."""
    cover = gaussian_smooth(drops.double(), sigma).float()[:, None]
    cover.masked_fill_(cover < MIN_COVER, 0)
    seen = images.float().div_(255).mul_(1 - cover)
    return (cover * _colour(MUD, torch.float64, images.device)).add_(seen)


def _add_water(images: Tensor, layer: Tensor, strength: float) -> Tensor:
    """Intensities plus the colour of water, weighted by its level and relief; float32 as in the published code."""
    # a level above 255 wraps around to 0, as in the published code
    levels = layer.mul_(255).short().byte()
    weight = _relief(levels).mul_(levels)
    weight.div_(weight.amax((1, 2), keepdim=True).clamp_(min=1)).mul_(strength)
    return (weight[:, None] * _colour(WATER, torch.float32, images.device)).add_(images.float().div_(255))


def _relief(levels: Tensor) -> Tensor:
    """Brightness 0..255 of the water's surface (n, h, w), lit from one side, float32.

    The distance to the nearest edge, averaged and floored, is equalised, embossed and averaged again.
    """
    depths = distances(edges(levels.permute(1, 2, 0).contiguous(), low=50, high=150))
    # a sum is an integer below 2**24: half a unit more is far from any rounding error of float32
    means = box_sum(depths, torch.int32).float().add_(0.5).mul_(1 / (9 * STRAIGHT)).int()
    total = box_sum(emboss(equalise(means, MAX_DISTANCE + 1)), torch.int16).permute(2, 0, 1).contiguous()
    # a ninth of an integer is never near a half: float32 rounds it to the nearest
    return total.float().mul_(1 / 9).round_()


def _colour(levels: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    return to_device(torch.tensor([level / 255 for level in levels], dtype=dtype, device="cpu"), device).view(3, 1, 1)
