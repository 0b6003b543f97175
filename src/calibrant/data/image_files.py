"""Images in files, decoded as they are asked for, so that a data set need not fit in memory."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from calibrant.corruptions import Corrupt
from calibrant.errors import CorruptFileError, NoDataError

MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class ImageFiles:
    """Images of one size from files; ``images[rows]`` decodes these, uint8 (n, channels, size, size).

    An image of another size is squeezed into the square, whole. Under a corruption, the key of each is its row, also
    where only some of them are taken.
    """

    folder: Path
    names: pa.StringArray  # below the folder; Arrow's, so that worker processes share the memory
    size: int
    channels: int = 3
    corruption: Corrupt | None = None
    taken: Tensor | None = None  # the rows that are there; None for all

    @classmethod
    def of(cls, folder: Path, names: Sequence[str], size: int, channels: int = 3) -> "ImageFiles":
        return cls(folder, pa.array(names, pa.string()), size, channels)

    def __len__(self) -> int:
        return len(self.names if self.taken is None else self.taken)

    def where(self, rows: Tensor) -> "ImageFiles":
        """Those that a mask, bool (n,), holds; the key of each is its new row."""
        return replace(self, names=self.names.filter(pa.array(rows.numpy())))

    def __getitem__(self, rows: Tensor) -> Tensor:
        numbers = (rows if self.taken is None else self.taken[rows]).tolist()
        images = torch.stack(
            [read_image(self.folder / self.names[i].as_py(), self.size, self.channels) for i in numbers]
        )
        return images if self.corruption is None else self.corruption(images, numbers)


def read_image(path: str | os.PathLike[str], size: int, channels: int = 3) -> Tensor:
    """The image in a file, uint8 (channels, size, size)."""
    try:
        with Image.open(path) as image:
            image.draft(MODES[channels], (size, size))  # a large JPEG is decoded at a half, a quarter or an eighth
            pixels = _in_bytes(image).convert(MODES[channels])
    except FileNotFoundError:
        raise NoDataError(f"{path} is not there") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as an image: {error}") from None
    if pixels.size != (size, size):
        pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.array(pixels))
    return values[None] if channels == 1 else values.permute(2, 0, 1).contiguous()


def _in_bytes(image: Image.Image) -> Image.Image:
    """An image of 16 bits a pixel in 8, from black to white, where Pillow would cut them off; palettes spelled out."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image, dtype=np.float64) / 257).round().astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode}, of which white is not known")
    return image
