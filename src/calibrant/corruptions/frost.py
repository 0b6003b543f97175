"""Windows of frost: crops of generated ice, or of the photographs of the original benchmark."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant._images import open_image
from calibrant.corruptions.ice import PATTERN_OF_PHOTOGRAPH, grow_ice
from calibrant.errors import CalibrantError, NoDataError

PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


@lru_cache(maxsize=4)
def read_frost(folder: str | None = None) -> tuple[Tensor, Tensor]:
    """Five images of frost: the original photographs in a folder, read once in a process, or generated ice.

    Returns:
        The pixels, uint8, of the images (3, height, width) one after the other; and the sizes (height, width), int64
        (n, 2).

    Raises:
        NoDataError: the folder has no readable image of one of the five names.
    """
    if folder is None:
        images = [grow_ice(number) for number in PATTERN_OF_PHOTOGRAPH]
    else:
        images = [_read_photograph(folder, name) for name in PHOTOGRAPHS]
    planes = [torch.from_numpy(image.transpose(2, 0, 1).copy()).flatten() for image in images]
    return torch.cat(planes), torch.tensor([image.shape[:2] for image in images], device="cpu")


@lru_cache(maxsize=4)
def frost_on(device: torch.device, folder: str | None = None) -> tuple[Tensor, Tensor]:
    """The same on a device."""
    pixels, sizes = read_frost(folder)
    return pixels.to(device), sizes.to(device)


def _read_photograph(folder: str, name: str) -> np.ndarray:
    try:
        with open_image(Path(folder) / name) as image:
            return np.asarray(image.convert("RGB"))
    except CalibrantError:
        needed = ", ".join(PHOTOGRAPHS)
        raise NoDataError(f"no readable image {name} in the folder {folder}; it must hold {needed}") from None


def window_positions(
    sizes: Tensor, numbers: Tensor, uniforms: Tensor, *, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The scale of frost image numbers[i], and the top and left of a window in the scaled image, for each i.

    uniforms (n, 2) in (0, 1) choose the position. A frost image that is too small for the window and one more pixel is
    enlarged to that size. As in the original, the last row and the last column of windows are never drawn.
    """
    window = torch.tensor([height, width], device="cpu")
    scales = ((window + 1) / sizes.double()).amax(1).clamp_(min=scale)
    room = (sizes * scales[:, None]).round_().sub_(window).clamp_(min=1)[numbers]
    tops, lefts = (uniforms * room).floor_().minimum(room - 1).long().unbind(1)
    return scales[numbers], tops, lefts


def crop_windows(
    frost: tuple[Tensor, Tensor], numbers: Tensor, positions: tuple[Tensor, Tensor, Tensor], *, height: int, width: int
) -> Tensor:
    """Windows, uint8 (n, 3, height, width), of scaled frost images: bilinear between pixel centres, no antialiasing.

    OpenCV resizes this way, as did the published sets. Only the pixels of a window are scaled.
    """
    scales, tops, lefts = positions
    pixels, sizes = frost
    areas = sizes.prod(1)
    planes = torch.arange(3, device=numbers.device)
    starts = (3 * (areas.cumsum(0) - areas))[numbers, None] + planes * areas[numbers, None]
    above, below, down = _neighbours(tops, scales, sizes[numbers, 0], height)
    left, right, across = _neighbours(lefts, scales, sizes[numbers, 1], width)
    row_length = sizes[numbers, 1, None]
    upper, lower = ((starts[..., None] + (rows * row_length)[:, None]).int()[..., None] for rows in (above, below))

    def between_rows(columns: Tensor) -> Tensor:
        columns = columns.int()[:, None, None]
        near, far = (pixels.index_select(0, (rows + columns).flatten()).float() for rows in (upper, lower))
        near, far = near.view(-1, 3, height, width), far.view(-1, 3, height, width)
        return near.mul_((1 - down)[:, None, :, None]).add_(far.mul_(down[:, None, :, None]))

    values = between_rows(left).mul_((1 - across)[:, None, None])
    return values.add_(between_rows(right).mul_(across[:, None, None])).add_(0.5).to(torch.uint8)


def _neighbours(starts: Tensor, scales: Tensor, sizes: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """For ``count`` lines from each start: the source lines at either side, and the weight of the second."""
    lines = starts[:, None] + torch.arange(count, device=starts.device, dtype=torch.float64)
    last = sizes[:, None] - 1
    centres = ((lines + 0.5) / scales[:, None] - 0.5).clamp_(min=0).minimum(last)
    before = centres.long()
    return before, (before + 1).minimum(last), (centres - before).float()
