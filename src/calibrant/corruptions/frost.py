"""Windows of frost: crops of grown ice, or of the photographs of the original benchmark."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calibrant.corruptions.ice import DRAWN, PATTERNS, Picture, grown
from calibrant.errors import NoDataError

PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


@lru_cache(maxsize=4)
def textures(scale: float, folder: str | None = None, least: tuple[int, int] = (0, 0)) -> tuple[Tensor, ...]:
    """Five textures, each uint8 (3, height, width), that a corruption draws with equal probability.

    ``scale`` shrinks or enlarges the pictures as the original scripts do: 0.2 for images of 32 pixels, 0.3 for 64 and
    1 for 224. A texture that would leave an image of ``least`` (height, width) no play is enlarged until it has one
    pixel of it. ``folder`` holds the original photographs, read once per process, in the place of the grown pictures.

    Raises:
        NoDataError: the folder has no readable picture of one of the five names.
    """
    if folder is not None:
        return tuple(_rescaled(_read(folder, name), scale, least) for name in PHOTOGRAPHS)
    pictures = [_rescaled(grown(number), scale, least) for number in range(len(PATTERNS))]
    return tuple(pictures[number] for number in DRAWN)


def positions(
    textures: tuple[Tensor, ...], numbers: Tensor, uniforms: Tensor, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """Top and left of a window in texture ``numbers[i]``, from two numbers of [0, 1) per image (n, 2).

    As in the original, the last row and the last column of windows are never drawn.
    """
    room = torch.tensor([[texture.shape[1] - height, texture.shape[2] - width] for texture in textures])
    room = room.clamp(min=1).to(numbers.device)[numbers]
    places = (uniforms * room).long().minimum(room - 1)
    return places[:, 0], places[:, 1]


def crops(
    textures: tuple[Tensor, ...], numbers: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int
) -> Tensor:
    """Windows of the textures ``numbers`` at (``tops``, ``lefts``): uint8 (n, 3, height, width)."""
    windows = torch.empty(len(numbers), 3, height, width, dtype=torch.uint8, device=numbers.device)
    for number in numbers.unique().tolist():
        texture = textures[number].to(numbers.device)
        chosen = (numbers == number).nonzero()[:, 0]
        rows = torch.arange(3, device=numbers.device)[:, None] * texture.shape[1]
        rows = rows + torch.arange(height, device=numbers.device) + tops[chosen, None, None]
        starts = rows.mul_(texture.shape[2]).add_(lefts[chosen, None, None])
        runs = texture.flatten().unfold(0, width, 1).index_select(0, starts.flatten())
        windows[chosen] = runs.view(-1, 3, height, width)
    return windows


def _read(folder: str, name: str) -> Picture:
    from PIL import Image

    try:
        with Image.open(Path(folder) / name) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow reports some broken files as bad syntax
        raise NoDataError(
            f"no readable picture {name} in the folder {folder}; it must hold {', '.join(PHOTOGRAPHS)}"
        ) from error


def _rescaled(picture: Picture, scale: float, least: tuple[int, int]) -> Tensor:
    """The picture by bilinear interpolation between pixel centres, without antialiasing, as OpenCV resizes."""
    scale = max(scale, *((side + 1) / size for side, size in zip(least, picture.shape, strict=False)))
    values = picture.astype(np.float32)
    for _ in range(2):
        count = len(values)
        centres = ((np.arange(round(count * scale)) + 0.5) / scale - 0.5).clip(0, count - 1)
        before = centres.astype(int)
        share = (centres - before).astype(np.float32)[:, None, None]
        values = values[before] * (1 - share) + values[np.minimum(before + 1, count - 1)] * share
        values = values.swapaxes(0, 1)
    return torch.from_numpy(np.floor(values + 0.5).astype(np.uint8)).permute(2, 0, 1).contiguous()
