"""Brightness, saturation and contrast, to the last bit of the published sets; grey images."""

from collections.abc import Callable

import torch
from torch import Tensor

from calibrant.corruptions.noise import to_bytes

TINY = 2.0**-1022
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, ITU-R BT.601
LUMA_16_BITS = tuple(round(2**16 * share) for share in LUMA)  # as Pillow has them


def brightness(images: Tensor, shift: float) -> Tensor:
    """The V of HSV raised by shift."""
    return _change_hsv(images, lambda saturation, value: (saturation, value.add(shift).clamp_(0, 1)))


def saturate(images: Tensor, gain: float, shift: float) -> Tensor:
    """The S of HSV as gain · S + shift; grey pixels, whose hue is 0, turn red where shift is positive."""
    return _change_hsv(images, lambda saturation, value: (saturation.mul(gain).add_(shift).clamp_(0, 1), value))


def contrast(images: Tensor, gain: float) -> Tensor:
    """Each channel scaled around its mean over the image."""
    values = images.double().div_(255).flatten(2)
    # summed pixel by pixel, as for the published sets: where the mean is a whole level, its last bit decides
    means = values.cumsum(2)[:, :, -1:].div_(values.shape[2])
    return to_bytes(values.sub_(means).mul_(gain).add_(means).clamp_(0, 1).mul_(255)).view_as(images)


def as_colour(images: Tensor) -> Tensor:
    """Grey images with three equal channels; images in colour as they are."""
    return images.expand(-1, 3, -1, -1)


def as_grey(images: Tensor) -> Tensor:
    """The luma of images in colour, rounded as Pillow rounds it."""
    red, green, blue = (plane * share for plane, share in zip(images.int().unbind(1), LUMA_16_BITS, strict=True))
    luma = red.add_(green).add_(blue).add_(2**15)
    return luma.bitwise_right_shift_(16).to(torch.uint8)[:, None]


def match_channels(images: Tensor, corrupted: Tensor) -> Tensor:
    """Corrupted RGB images, converted to grey where the original images are grey."""
    return corrupted if images.shape[1] == 3 else as_grey(corrupted)


def _change_hsv(images: Tensor, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """RGB to HSV, a change of saturation and value, and back; float64, operations in the order of the published sets.

    Bytes are floored, and many results are whole levels up to rounding: shorter formulas would differ by a level in up
    to 1 % of the values.
    """
    red, green, blue = as_colour(images).unbind(1)
    largest, smallest = red.maximum(green).maximum(blue), red.minimum(green).minimum(blue)
    chroma = (largest != smallest).view(torch.uint8)
    blue_leads = (blue == largest).view(torch.uint8).mul_(chroma)  # of equal channels the last one leads
    green_leads = (green == largest).view(torch.uint8).mul_(chroma).mul_(1 - blue_leads)
    red_leads = 1 - green_leads - blue_leads
    # hue · 6 = 0 + (G - B) / Δ where red leads, 2 + (B - R) / Δ where green does, 4 + (R - G) / Δ where blue does
    ahead = green * red_leads + blue * green_leads + red * blue_leads
    behind = blue * red_leads + red * green_leads + green * blue_leads
    value = largest.double().div_(255)
    delta = value - smallest.double().div_(255)
    hue = ahead.double().div_(255).sub_(behind.double().div_(255)).div_(delta + (1 - chroma))
    hue.add_(green_leads.mul_(2).add_(blue_leads.mul_(4))).div_(6)
    hue.sub_(hue.floor()).mul_(6)
    sextant = hue.floor()
    rest = hue.sub_(sextant)
    sextant = sextant.to(torch.int32).to(torch.uint8)
    saturation, value = change(delta.div_(value.clamp(min=TINY)), value)
    # the channel in the middle is V (1 - f S) in odd sextants, V (1 - (1 - f) S) in even ones
    even = 1 - sextant.bitwise_and(1)
    fall = rest.mul_(1 - 2 * even.double()).add_(even)
    middle = fall.mul_(saturation).neg_().add_(1).mul_(value)
    lowest = saturation.neg().add_(1).mul_(value)
    bytes_ = (to_bytes(plane.mul_(255)) for plane in (value, middle, lowest))
    return match_channels(images, _by_sextant(sextant, *bytes_))


def _by_sextant(sextant: Tensor, highest: Tensor, middle: Tensor, lowest: Tensor) -> Tensor:
    """Channels in the order of the sextant of the hue: in 0 red is highest and green in the middle, and so on."""
    is_0, is_1, is_2, is_3, is_4, is_5 = ((sextant == number).view(torch.uint8) for number in range(6))
    up, across = highest - lowest, middle - lowest
    red = lowest + up * (is_0 + is_5) + across * (is_1 + is_4)
    green = lowest + up * (is_1 + is_2) + across * (is_0 + is_3)
    blue = lowest + up * (is_3 + is_4) + across * (is_2 + is_5)
    return torch.stack((red, green, blue), dim=1)
