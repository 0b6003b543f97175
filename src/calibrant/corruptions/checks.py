"""Checks of images and of their keys."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from calibrant._checks import check_tensor, first_true, is_a
from calibrant.errors import InvalidInputError

MIN_SIDE = 8  # pixels of an image


def check_images(images: object) -> Tensor:
    """Images as a batch, uint8 (n, c, h, w), from a tensor or a Pillow image."""
    batch = images if isinstance(images, Tensor) else _check_pillow(images)
    check_tensor("images", batch)
    if batch.ndim not in (3, 4):
        raise InvalidInputError(f"images must be (n, c, h, w) or (c, h, w), got shape {tuple(batch.shape)}")
    batch = batch.detach() if batch.ndim == 4 else batch.detach()[None]
    n, channels, height, width = batch.shape
    if n == 0:
        raise InvalidInputError("images must not be an empty batch")
    if channels not in (1, 3):
        raise InvalidInputError(f"images must have 1 or 3 channels, (n, c, h, w), got {channels}")
    if min(height, width) < MIN_SIDE:
        raise InvalidInputError(f"images must have sides of at least {MIN_SIDE} pixels, got {height} x {width}")
    if batch.dtype == torch.uint8:
        return batch.contiguous()
    if batch.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise InvalidInputError(f"images must be uint8 or floating point in [0, 1], got {batch.dtype}")
    return _check_levels(batch)


def _check_levels(batch: Tensor) -> Tensor:
    """Images in [0, 1], rounded to the nearest of 256 levels."""
    wrong = ~((batch >= 0) & (batch <= 1))
    if wrong.any():
        row, channel, y, x = first_true(wrong)
        value = float(batch[row, channel, y, x])
        where = f"at image {row}, channel {channel}, row {y}, column {x}"
        raise InvalidInputError(f"images must lie in [0, 1], got {value:g} {where}; images of 0 to 255 must be uint8")
    wide = batch if batch.dtype == torch.float64 else batch.float()
    return wide.mul(255).round_().to(torch.uint8)


def _check_pillow(image: object) -> Tensor:
    from PIL import Image

    if not isinstance(image, Image.Image):
        raise InvalidInputError(f"images must be a tensor or a Pillow image, got {type(image).__name__}")
    if image.mode not in ("L", "RGB"):
        raise InvalidInputError(f"images must be in grey (L) or RGB, got mode {image.mode}; use image.convert('RGB')")
    return torch.from_numpy(np.array(image)).view(*image.size[::-1], -1).permute(2, 0, 1)


def check_keys(keys: Sequence[int | str] | Tensor | None, n_images: int) -> Sequence[int | str]:
    """A key for each image; 0, 1, … by default."""
    if keys is None:
        return range(n_images)
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | Tensor | np.ndarray):
        raise InvalidInputError(f"keys must be a sequence of integers or words, got {type(keys).__name__}")
    if isinstance(keys, Tensor):
        check_tensor("keys", keys)
        if keys.is_floating_point():
            raise InvalidInputError(f"keys must be integers or words, got {keys.dtype}")
    array = keys.cpu().numpy() if isinstance(keys, Tensor) else keys
    known = np.atleast_1d(array).tolist() if isinstance(array, np.ndarray) else list(array)
    if len(known) != n_images:
        raise InvalidInputError(f"keys must be one for each of {n_images} images, got {len(known)}")
    for row, key in enumerate(known):
        if not isinstance(key, str) and not is_a(Integral, key):
            raise InvalidInputError(f"keys must be integers or words, got {key!r} at row {row}")
    return known
