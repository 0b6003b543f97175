"""Folders of pictures: the same tree, corrupted."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from calibrant._checks import check_images
from calibrant._files import first_line, replacing
from calibrant.corruptions.corrupting import Corrupt, to_picture
from calibrant.errors import InvalidInputError, NoDataError

BATCH = 64  # files read at once; those of one size are corrupted together
AS_GREY, AS_COLOUR = {"1", "L", "LA"}, {"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"}


@dataclass
class Outcome:
    """Files written, files that were there already, and why others were left out."""

    written: int = 0
    kept: int = 0
    left_out: dict[str, str] = field(default_factory=dict)


def find_pictures(source: Path) -> dict[str, Path]:
    """The files of a folder, hidden ones aside, or one file; the path within the folder is the image's key."""
    if source.is_file():
        return {source.name: source}
    if not source.is_dir():
        raise NoDataError(f"{source} is neither a folder nor a file")
    found = {}
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in sorted(Path(folder, name) for name in names if not name.startswith(".")):
            found[path.relative_to(source).as_posix()] = path
    if not found:
        raise NoDataError(f"{source} has no files")
    return found


def target_names(keys: list[str], suffix: str) -> dict[str, str]:
    """Where each picture goes: its own path with the new suffix, after the old one where two would meet."""
    bare = {key: str(PurePosixPath(key).with_suffix(suffix)) for key in keys}
    taken = Counter(bare.values())
    return {key: name if taken[name] == 1 else key + suffix for key, name in bare.items()}


def corrupt_folder(
    pictures: dict[str, Path], places: dict[Path, Corrupt], *, n_threads: int, report: Callable[[float], None]
) -> Outcome:
    """Every picture under every corruption, in the folder of that corruption, unless it is there already.

    A file appears whole or not at all. What cannot be read as a picture is left out, and the rest is written.
    """
    quality = next(iter(places.values())).save_quality
    names = target_names(list(pictures), ".png" if quality is None else ".JPEG")
    outcome = Outcome()
    keys = list(pictures)
    torch.set_num_threads(1)
    with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for start in range(0, len(keys), BATCH):
            missing = {
                key: [place for place in places if not (place / names[key]).exists()]
                for key in keys[start : start + BATCH]
            }
            there = sum(len(places) - len(wanted) for wanted in missing.values())
            outcome.kept += there
            report(there)
            images = _read_all({key: pictures[key] for key in missing if missing[key]}, outcome, pool)
            report(sum(len(missing[key]) for key in missing if key not in images and missing[key]))
            for place, corruption in places.items():
                wanted = {key: image for key, image in images.items() if place in missing[key]}
                made = pool.map(partial(_write_group, place, corruption, names), _by_size(wanted))
                for n_files in made:
                    outcome.written += n_files
                    report(n_files)
    return outcome


def _read_all(paths: dict[str, Path], outcome: Outcome, pool: ThreadPoolExecutor) -> dict[str, Tensor]:
    images = {}
    for key, image in zip(paths, pool.map(_read, paths.values()), strict=True):
        if isinstance(image, str):
            outcome.left_out[key] = image
        else:
            images[key] = image
    return images


def _read(path: Path) -> Tensor | str:
    """An image, uint8 (c, h, w), or why there is none."""
    try:
        with Image.open(path) as picture:
            if picture.mode not in AS_GREY | AS_COLOUR:
                return f"pictures of mode {picture.mode} do not have 8 bits a channel"
            return check_images(picture.convert("L" if picture.mode in AS_GREY else "RGB"))[0]
    except InvalidInputError as error:
        return str(error)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else first_line(error)
        return reason.replace(str(path), path.name)


def _by_size(images: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Images of one shape, in groups that leave work for every thread."""
    shapes = {tuple(image.shape) for image in images.values()}
    for shape in sorted(shapes):
        group = [key for key, image in images.items() if tuple(image.shape) == shape]
        for start in range(0, len(group), BATCH // 4):
            yield {key: images[key] for key in group[start : start + BATCH // 4]}


def _write_group(place: Path, corruption: Corrupt, names: dict[str, str], images: dict[str, Tensor]) -> int:
    """Corrupt images of one shape and write each; with a quality, as the JPEG that `corrupt` would decode."""
    quality = corruption.save_quality
    plain = replace(corruption, save_quality=None)
    for key, image in zip(images, plain(torch.stack(list(images.values())), list(images)), strict=True):
        path = place / names[key]
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            if quality is None:
                to_picture(image).save(file, "PNG")
            else:
                to_picture(image).save(file, "JPEG", quality=quality, optimize=True)
    return len(images)
