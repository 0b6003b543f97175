"""Images in folders of their class: which there are, in which order, and their labels."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NoReturn

import pyarrow as pa
import torch
from torch import Tensor

from calibrant.data.image_files import ImageFiles
from calibrant.errors import InvalidInputError, NoDataError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")


def images_by_class(
    root: Path, folders: Sequence[Path], size: int, *, remedy: str, every_class: bool = True
) -> tuple[ImageFiles, Tensor]:
    """The images below one folder for each class, class after class, and their labels; names are paths below root.

    every_class: whether a class without an image is refused, or only that none has one. remedy: what to do then.
    """
    listed = [images_below(folder) for folder in folders]
    lacking = [folder for folder, images in zip(folders, listed, strict=True) if not images]
    if lacking and (every_class or len(lacking) == len(folders)):
        raise NoDataError(f"no image in {lacking[0] if every_class else lacking[0].parent}: {remedy}")
    names = [path.relative_to(root).as_posix() for images in listed for path in images]
    counts = torch.tensor([len(images) for images in listed])
    labels = torch.arange(len(folders)).repeat_interleave(counts)
    return ImageFiles(root, _as_text(root, names), size), labels


def images_below(folder: Path) -> list[PurePath]:
    """The images in a folder and in those below it, sorted as text, if it is there; hidden ones are left out.

    A folder below that is a symbolic link is not entered, lest it lead round in a circle; images may be links.
    """
    found: list[PurePath] = []
    if not folder.is_dir():
        return found
    for place, folders, files in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")]
        found += [PurePath(place, name) for name in images]
    return sorted(found, key=PurePath.as_posix)


def visible_folders(folder: Path) -> list[str]:
    """The names of the folders in this one, sorted; none where it is not there."""
    if not folder.is_dir():
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        _unreadable(error)


def _as_text(root: Path, names: Sequence[str]) -> pa.StringArray:
    try:
        return pa.array(names, pa.string())
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"names of images in {root} must be UTF-8, got {error.object!r}") from None


def _unreadable(error: OSError) -> NoReturn:
    raise NoDataError(f"{error.filename} cannot be read: {error.strerror}") from None
