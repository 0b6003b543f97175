"""Spatter: drops of water, or of mud, on the lens."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.corruptions.blur import smoothed
from calibrant.corruptions.colour import like
from calibrant.corruptions.edges import FARTHEST, STRAIGHT, box_sum, distances, edges, embossed, equalised
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
    """Images behind drops, which lie where mean + std * normals, smoothed by ``sigma``, is above the threshold.

    Water brightens with weights up to ``strength``; an image that no drop hits stays as it is. Mud hides, and
    ``strength`` is the sigma of its rims.
    """
    layer = smoothed(normals.double().mul(std).add_(mean), sigma)
    if mud:
        values = _behind_mud(images, layer > threshold, strength)
    else:
        # x > the number before the threshold: at the threshold there is water
        layer = F.threshold(layer, math.nextafter(threshold, -math.inf), 0.0, inplace=True)
        values = _behind_water(images, layer, strength)
    return like(images, to_bytes(values.mul_(255)))


def _behind_mud(images: Tensor, drops: Tensor, sigma: float) -> Tensor:
    """Intensities where mud takes the place of the image, in float64 as its colour is in the published code."""
    cover = smoothed(drops.double(), sigma).float()[:, None]
    cover.masked_fill_(cover < MIN_COVER, 0)
    seen = _intensities(images).mul_(1 - cover)
    return (cover * _colour(MUD, torch.float64, images.device)).add_(seen)


def _behind_water(images: Tensor, layer: Tensor, strength: float) -> Tensor:
    """Intensities with the colour of water added, by its level and relief; float32 as in the published code."""
    # 8 bits: a level above 255 starts again at 0, in the published code as well
    levels = layer.mul_(255).short().byte()
    weight = _relief(levels).mul_(levels)
    weight.div_(weight.amax((1, 2), keepdim=True).clamp_(min=1)).mul_(strength)
    return (weight[:, None] * _colour(WATER, torch.float32, images.device)).add_(_intensities(images))


def _relief(levels: Tensor) -> Tensor:
    """Brightness 0..255 of the water's surface (n, h, w), lit from one side, in float32.

    The distance to the nearest edge, averaged and floored, is equalised, embossed and averaged again.
    """
    depths = distances(edges(levels.permute(1, 2, 0).contiguous(), low=50, high=150))
    # a sum is whole and below 2**24: half a unit more is far from any rounding error of float32
    whole = box_sum(depths, torch.int32).float().add_(0.5).mul_(1 / (9 * STRAIGHT)).int()
    total = box_sum(embossed(equalised(whole, FARTHEST + 1)), torch.int16).permute(2, 0, 1).contiguous()
    # a ninth of a whole number is never near a half: float32 rounds it to the nearest
    return total.float().mul_(1 / 9).round_()


def _intensities(images: Tensor) -> Tensor:
    return images.float().div_(255)


def _colour(levels: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor([level / 255 for level in levels], dtype=dtype, device=device).view(3, 1, 1)
