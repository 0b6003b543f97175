"""Pixelation and JPEG compression, byte for byte those of Pillow."""

import io
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from calibrant._arrays import to_device
from calibrant.corruptions.blur import UNIT_WEIGHT

MIN_VALUES_PER_THREAD = 2**14  # of an image; for smaller ones Pillow holds the interpreter lock most of the time


def pixelate(images: Tensor, share: float) -> Tensor:
    """Shrunk to a share of each side by box means, then enlarged; across first, as Pillow does."""
    height, width = images.shape[2:]
    for new_width, new_height in ((int(width * share), int(height * share)), (width, height)):
        images = _box_resize(
            _box_resize(images.transpose(2, 3).contiguous(), new_width).transpose(2, 3).contiguous(), new_height
        )
    return images


def _box_resize(images: Tensor, size: int) -> Tensor:
    """Resize the rows of (n, c, h, w): each is the mean of those whose centres lie in its box, rounded half up."""
    rows, present, weights = _boxes(images.shape[2], size, images.device)
    total = images.index_select(2, rows[0])
    if len(rows) == 1:
        return total
    total = total.int()
    for further, is_present in zip(rows[1:], present[1:], strict=True):
        total.add_(images.index_select(2, further).mul_(is_present))
    return total.mul_(weights).add_(UNIT_WEIGHT // 2).bitwise_right_shift_(22).to(torch.uint8)


@lru_cache(maxsize=256)
def _boxes(size: int, new_size: int, device: torch.device) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """For each new row: the rows in its box, whether there are that many, and the integer weight of each."""
    scale = size / new_size
    reach = max(scale, 1.0)  # an enlargement takes the one row that covers the new row's centre
    centres = (np.arange(new_size) + 0.5) * scale
    first = np.maximum((centres - reach / 2 + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach / 2 + 0.5).astype(np.int64), size)
    candidates = first[:, None] + np.arange((last - first).max())
    position = (candidates - centres[:, None] + 0.5) * (1 / reach)
    inside = (position > -0.5) & (position <= 0.5) & (candidates < last[:, None])
    first += inside.argmax(1)
    counts = inside.sum(1)
    rows = [torch.from_numpy(np.minimum(first + i, size - 1)).to(device) for i in range(counts.max())]
    present = [torch.from_numpy((counts > i).astype(np.uint8)).to(device)[:, None] for i in range(counts.max())]
    return rows, present, torch.from_numpy((UNIT_WEIGHT / counts + 0.5).astype(np.int32)).to(device)[:, None]


def jpeg_compression(images: Tensor, quality: int) -> Tensor:
    """Encoded and decoded by Pillow; large images are divided among as many threads as torch uses."""
    pixels = torch.stack(images.cpu().unbind(1), dim=3).numpy()
    decoded = torch.empty(images.shape, dtype=torch.uint8, device="cpu")
    through = partial(_through_jpeg, quality=quality)
    if torch.get_num_threads() == 1 or pixels[0].size < MIN_VALUES_PER_THREAD:
        list(map(through, pixels, decoded.numpy()))
    else:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(through, pixels, decoded.numpy()))
    return to_device(decoded, images.device)


def _through_jpeg(pixels: np.ndarray, planes: np.ndarray, quality: int) -> None:
    """Encode and decode pixels (h, w, c) into planes (c, h, w)."""
    height, width, channels = pixels.shape
    mode = "RGB" if channels == 3 else "L"
    image, file = Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1), io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    planes.transpose(1, 2, 0)[:] = np.asarray(Image.open(file)).reshape(pixels.shape)
