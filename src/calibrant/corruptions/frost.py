"""Windows of frost: crops of grown ice, or of the photographs of the original benchmark."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from calibrant.corruptions.ice import DRAWN, grown
from calibrant.errors import NoDataError

PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


class Frost(NamedTuple):
    """Images of frost, each as likely as the others."""

    pixels: Tensor  # uint8, the images one after the other, each (3, height, width)
    sizes: Tensor  # int64 (n, 2): height and width of each


@lru_cache(maxsize=4)
def images(folder: str | None = None) -> Frost:
    """The original photographs, from the folder where they lie, read once in a process; else ice that is grown.

    Raises:
        NoDataError: the folder has no readable image of one of the five names.
    """
    found = [grown(number) for number in DRAWN] if folder is None else [_read(folder, name) for name in PHOTOGRAPHS]
    planes = [torch.from_numpy(image.transpose(2, 0, 1).copy()).flatten() for image in found]
    return Frost(torch.cat(planes), torch.tensor([image.shape[:2] for image in found], device="cpu"))


def _read(folder: str, name: str) -> np.ndarray:
    try:
        with Image.open(Path(folder) / name) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):  # Pillow reports some broken files as bad syntax
        wanted = ", ".join(PHOTOGRAPHS)
        raise NoDataError(f"no readable image {name} in the folder {folder}; it must hold {wanted}") from None


def places(
    frosted: Frost, numbers: Tensor, uniforms: Tensor, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """For each image the scale of image numbers[i], and the top and left of a window in the image so scaled.

    uniforms (n, 2) in (0, 1) say where. An image that would leave the window no play is enlarged until it has one
    pixel of it. As in the original, the last row and the last column of windows are never drawn.
    """
    sizes = frosted.sizes.to(numbers.device)
    window = torch.tensor([height, width], device=numbers.device)
    scales = ((window + 1) / sizes.double()).amax(1).clamp_(min=scale)
    room = (sizes * scales[:, None]).round_().sub_(window).clamp_(min=1)[numbers]
    tops, lefts = (uniforms * room).floor_().minimum(room - 1).long().unbind(1)
    return scales[numbers], tops, lefts


def windows(
    frosted: Frost, numbers: Tensor, scales: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int
) -> Tensor:
    """Windows, uint8 (n, 3, height, width), of scaled images: linear between pixel centres, not smoothed before.

    So OpenCV resizes, and so the photographs of the published sets were shrunk. Only what a window shows is scaled.
    """
    pixels, sizes = (values.to(numbers.device) for values in frosted)
    areas = sizes.prod(1)
    planes = torch.arange(3, device=numbers.device)
    starts = (3 * (areas.cumsum(0) - areas))[numbers, None] + planes * areas[numbers, None]
    above, below, down = _between(tops, scales, sizes[numbers, 0], height)
    left, right, across = _between(lefts, scales, sizes[numbers, 1], width)
    row_length = sizes[numbers, 1, None]
    upper, lower = ((starts[..., None] + (rows * row_length)[:, None]).int()[..., None] for rows in (above, below))

    def between_rows(columns: Tensor) -> Tensor:
        columns = columns.int()[:, None, None]
        near, far = (pixels.index_select(0, (rows + columns).flatten()).float() for rows in (upper, lower))
        near, far = near.view(-1, 3, height, width), far.view(-1, 3, height, width)
        return near.mul_((1 - down)[:, None, :, None]).add_(far.mul_(down[:, None, :, None]))

    values = between_rows(left).mul_((1 - across)[:, None, None])
    return values.add_(between_rows(right).mul_(across[:, None, None])).add_(0.5).to(torch.uint8)


def _between(starts: Tensor, scales: Tensor, sizes: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """For count lines from each start the image's lines at either side, and how far beyond the first they are."""
    lines = starts[:, None] + torch.arange(count, device=starts.device, dtype=torch.float64)
    last = sizes[:, None] - 1
    centres = ((lines + 0.5) / scales[:, None] - 0.5).clamp_(min=0).minimum(last)
    before = centres.long()
    return before, (before + 1).minimum(last), (centres - before).float()
