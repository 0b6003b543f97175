"""Images in files, decoded when they are indexed; images in a folder for each class."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import NoReturn

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor

from calibrant._checks import MAX_IMAGE_SIZE, check_fits_int64, check_integer, check_label_range, check_tensor
from calibrant._files import read_error
from calibrant._images import open_image
from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.corruptions import Corrupt
from calibrant.errors import InvalidInputError, NoDataError

PILLOW_MODES = {1: "L", 3: "RGB"}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")


@checked
@dataclass(frozen=True)
class ImageFiles:
    """Images of one size in files; ``images[rows]`` decodes some, uint8 (n, channels, size, size).

    An image of another size or shape is resized to the square.

    Args:
        folder: The folder of the files.
        names: Paths below the folder, in an Arrow array, whose memory worker processes share.
        size: The side of the images in pixels.
        channels: 1 or 3.
        corruption: Corrupts the images; the key of each is its row in names.
        taken: The rows of names that are included; None for all.
    """

    folder: Path
    names: pa.StringArray
    size: int
    channels: int = 3
    corruption: Corrupt | None = None
    taken: Tensor | None = None

    @classmethod
    @checked
    def of(cls, folder: Path, names: Sequence[str], size: int, channels: int = 3) -> "ImageFiles":
        try:
            found = pa.array(names, pa.string())
        except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
            raise InvalidInputError(f"names must be paths in UTF-8: {first_line(error)}") from None
        return cls(folder, found, size, channels)

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, MAX_IMAGE_SIZE)
        check_integer("channels", self.channels, 1, 3)

    def __len__(self) -> int:
        return len(self.names if self.taken is None else self.taken)

    def where(self, rows: Tensor) -> "ImageFiles":
        """The images that a mask selects; the key of each is its new row.

        Args:
            rows: The mask, bool (n,).

        Returns:
            The selected images.
        """
        check_mask("rows", rows, len(self.names))
        return replace(self, names=self.names.filter(pa.array(rows.numpy())))

    def __getitem__(self, rows: Tensor) -> Tensor:
        check_tensor("rows", rows)
        if rows.ndim != 1 or rows.numel() == 0 or rows.is_floating_point() or rows.dtype == torch.bool:
            got = f"{rows.dtype} of shape {tuple(rows.shape)}"
            raise InvalidInputError(f"rows must be integers (n,) with n > 0, got {got}")
        check_fits_int64("rows", rows)
        check_label_range(rows, len(self), None, argument="rows")
        numbers = (rows if self.taken is None else self.taken[rows]).tolist()
        images = torch.stack(
            [read_image(self.folder / self.names[i].as_py(), self.size, self.channels) for i in numbers]
        )
        return images if self.corruption is None else self.corruption(images, numbers)


def check_mask(argument: str, mask: Tensor, n_rows: int) -> None:
    check_tensor(argument, mask)
    if mask.dtype != torch.bool or tuple(mask.shape) != (n_rows,):
        got = f"{mask.dtype} of shape {tuple(mask.shape)}"
        raise InvalidInputError(f"{argument} must be boolean of shape ({n_rows},), got {got}")


@checked
def read_image(path: str | os.PathLike[str], size: int, channels: int = 3) -> Tensor:
    """Read the image in a file.

    Args:
        path: The file.
        size: The side to which it is resized, in pixels.
        channels: 1 or 3.

    Returns:
        The image, uint8 (channels, size, size).

    Raises:
        NoDataError: the file is not there.
        CorruptFileError: it cannot be read as an image.
        ResourceError: the system refuses to read it.
    """
    check_integer("size", size, 1, MAX_IMAGE_SIZE)
    if check_integer("channels", channels, 1, 3) not in PILLOW_MODES:
        raise InvalidInputError(f"channels must be 1 or 3, got {channels}")
    mode = PILLOW_MODES[channels]
    with open_image(path, draft=(mode, size)) as image:
        pixels = _in_bytes(image).convert(mode)
    if pixels.size != (size, size):
        pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.array(pixels))
    return values[None] if channels == 1 else values.permute(2, 0, 1).contiguous()


def _in_bytes(image: Image.Image) -> Image.Image:
    """An image of 16 bits a pixel scaled to 8, where Pillow would clip; palettes with transparency are expanded."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode} have no known white level")
    return image


def images_by_class(
    root: Path, folders: Sequence[Path], size: int, *, hint: str, every_class: bool = True
) -> tuple[ImageFiles, Tensor]:
    """The images below a folder for each class, in the order of classes, and their labels; names are below root.

    every_class: whether every class must have an image, or only one of them. hint: what to do if not.
    """
    listed = [images_below(folder) for folder in folders]
    lacking = [folder for folder, images in zip(folders, listed, strict=True) if not images]
    if lacking and (every_class or len(lacking) == len(folders)):
        raise NoDataError(f"no image in {lacking[0] if every_class else lacking[0].parent}: {hint}")
    names = [path.relative_to(root).as_posix() for images in listed for path in images]
    counts = torch.tensor([len(images) for images in listed])
    labels = torch.arange(len(folders)).repeat_interleave(counts)
    try:
        return ImageFiles(root, pa.array(names, pa.string()), size), labels
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"names of images in {root} must be UTF-8, got {error.object!r}") from None


def images_below(folder: Path) -> list[PurePath]:
    """The images in a folder and in its subfolders, sorted as text, without hidden ones; none where it is missing.

    Subfolders that are symbolic links are not followed, which avoids cycles; images may be links.
    """
    found: list[PurePath] = []
    if not folder.is_dir():
        return found
    for parent, folders, files in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")]
        found += [PurePath(parent, name) for name in images]
    return sorted(found, key=PurePath.as_posix)


def visible_folders(folder: Path) -> list[str]:
    """The names of the folders in this one, sorted, without hidden ones; none where it is missing."""
    if not folder.is_dir():
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        _unreadable(error)


def _unreadable(error: OSError) -> NoReturn:
    raise read_error(error.filename, error) from None
