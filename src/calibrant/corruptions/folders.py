"""Folders of images: the same tree, corrupted."""

import os
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Unpack

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from calibrant._arrays import blocks
from calibrant._files import atomic_write, first_line, make_folder
from calibrant._progress import Advance, ProgressBar, no_bar
from calibrant.corruptions.checks import check_images
from calibrant.corruptions.corrupting import Corrupt, CorruptOptions, to_pillow
from calibrant.corruptions.table import CORRUPTIONS
from calibrant.corruptions.targets import claim_folder, thread_count
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.shifts import SEVERITIES

FILES_PER_BATCH = 64  # files read at once; those of one size are corrupted together
MAX_SHARED_VALUES = 2**22  # values of an image that is worked on alone: the work takes a hundred times its memory
MAX_SIDE = 2**14  # pixels; fog needs the square of it, and JPEG has a limit of its own
Image.init()
IMAGE_FORMATS = {"AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP"} & set(Image.OPEN)
AS_GREY, AS_COLOUR = {"1", "L", "LA"}, {"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"}


@dataclass
class CorruptedFiles:
    """How many files were written, how many were there already, and why others were left out."""

    written: int = 0
    kept: int = 0
    left_out: dict[str, str] = field(default_factory=dict)


def corrupt_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    name: str | None = None,
    severity: int | None = None,
    *,
    jobs: int | None = None,
    bar: ProgressBar = no_bar,
    **options: Unpack[CorruptOptions],
) -> CorruptedFiles:
    """Write the images of a folder under a corruption, as the same tree; interrupted work resumes.

    A file appears whole or not at all, and one that is there is kept. What cannot be read as an image is left out, and
    the rest is written. The key of an image is its path below the source.

    Args:
        source: A folder of images, or one image.
        target: The folder to write; it remembers its settings, and others are refused.
        name: The corruption; None for all nineteen at all severities, each in target/name/severity.
        severity: From 1 to 5; None where name is.
        jobs: Threads; by default one for each processor.
        bar: Opens a progress bar over the files.
        options: Those of `corrupt`; with save_quality the files are JPEG, else PNG.

    Raises:
        NoDataError: there is no image in the source.
        InvalidInputError: an option breaks its rule, or the target lies in the source or was made otherwise.
    """
    source, target = Path(source), Path(target)
    folders = _places(target, name, severity, options)
    n_threads, images = thread_count(jobs), find_images(source)
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidInputError(f"{target} must not lie in {source}: the next run would corrupt it again")
    quality = next(iter(folders.values())).save_quality
    names = target_names(list(images), ".png" if quality is None else ".JPEG")
    made_of = {"corruption": name or "all", "severity": severity, "source": str(source.resolve())}
    claim_folder(target, made_of, next(iter(folders.values())))
    with bar("corrupting", len(images) * len(folders)) as advance:
        return _write_all(images, names, folders, n_threads, advance)


def _places(target: Path, name: str | None, severity: int | None, options: CorruptOptions) -> dict[Path, Corrupt]:
    """The folder of each corruption that is to be done."""
    if name is not None and severity is not None:
        return {target: Corrupt(name, severity, **options)}
    if name is not None or severity is not None:
        raise InvalidInputError(f"a corruption needs a severity from 1 to 5, got {name} and {severity}")
    return {target / n / str(s): Corrupt(n, s, **options) for n in CORRUPTIONS for s in SEVERITIES}


def find_images(source: Path) -> dict[str, Path]:
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
    """Where each image goes: its own path, the suffix replaced, or appended where two images would meet."""
    suffixes = {known for known, format in Image.registered_extensions().items() if format in IMAGE_FORMATS}
    paths = {key: PurePosixPath(key) for key in keys}
    known = {key: path.suffix.lower() in suffixes for key, path in paths.items()}
    replaced = {key: str(path.with_suffix(suffix)) if known[key] else key + suffix for key, path in paths.items()}
    taken = Counter(replaced.values())
    names = {key: name if taken[name] == 1 else key + suffix for key, name in replaced.items()}
    if len(set(names.values())) < len(names):
        name = Counter(names.values()).most_common(1)[0][0]
        first, second = [key for key in keys if names[key] == name][:2]
        raise InvalidInputError(f"{first} and {second} would both be written to {name}; rename one of them")
    return names


def _write_all(
    paths: dict[str, Path], names: dict[str, str], places: dict[Path, Corrupt], n_threads: int, advance: Advance
) -> CorruptedFiles:
    outcome = CorruptedFiles()
    with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for batch in _batches(paths):
            missing = {key: [place for place in places if not (place / names[key]).is_file()] for key in batch}
            there = sum(len(places) - len(wanted) for wanted in missing.values())
            outcome.kept += there
            advance(there)
            images = _read_all({key: paths[key] for key in missing if missing[key]}, outcome, pool)
            advance(sum(len(missing[key]) for key in missing if key not in images and missing[key]))
            for place, corruption in places.items():
                wanted = {key: image for key, image in images.items() if place in missing[key]}
                spread = map if any(image.numel() > MAX_SHARED_VALUES for image in wanted.values()) else pool.map
                for n_files in spread(partial(_write_group, place, corruption, names), _by_size(wanted)):
                    outcome.written += n_files
                    advance(n_files)
    return outcome


def _batches(paths: dict[str, Path]) -> Iterator[list[str]]:
    """The keys, as many at a time as there is memory for: 64, or fewer large ones."""
    batch: list[str] = []
    n_bytes = 0
    for key, path in paths.items():
        batch.append(key)
        n_bytes += path.stat().st_size if path.exists() else 0
        if len(batch) == FILES_PER_BATCH or n_bytes > MAX_SHARED_VALUES:
            yield batch
            batch, n_bytes = [], 0
    if batch:
        yield batch


def _read_all(paths: dict[str, Path], outcome: CorruptedFiles, pool: ThreadPoolExecutor) -> dict[str, Tensor]:
    images = {}
    for key, image in zip(paths, pool.map(read_image, paths.values()), strict=True):
        if isinstance(image, str):
            outcome.left_out[key] = image
        else:
            images[key] = image
    return images


def read_image(path: Path) -> Tensor | str:
    """An image, uint8 (c, h, w), or why there is none."""
    try:
        with Image.open(path, formats=sorted(IMAGE_FORMATS)) as image:
            if image.mode not in AS_GREY | AS_COLOUR:
                return f"images of mode {image.mode} do not have 8 bits a channel"
            if max(image.size) > MAX_SIDE:
                return f"more than {MAX_SIDE:,} pixels a side"
            return check_images(image.convert("L" if image.mode in AS_GREY else "RGB"))[0]
    except UnidentifiedImageError:
        return "not an image"
    except (OSError, SyntaxError, ValueError, RuntimeError, EOFError, struct.error) as error:  # Pillow's, if damaged
        return first_line(error).replace(str(path), path.name)
    except Image.DecompressionBombError as error:
        return first_line(error)


def _by_size(images: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Images of one shape, in groups that leave work for every thread."""
    shapes = {tuple(image.shape) for image in images.values()}
    for shape in sorted(shapes):
        group = [key for key, image in images.items() if tuple(image.shape) == shape]
        for part in blocks(len(group), 1, size=FILES_PER_BATCH // 4):
            yield {key: images[key] for key in group[part]}


def _write_group(place: Path, corruption: Corrupt, names: dict[str, str], images: dict[str, Tensor]) -> int:
    """Corrupt images of one shape and write each; with a quality, as the JPEG that `corrupt` would decode."""
    quality = corruption.save_quality
    plain = replace(corruption, save_quality=None)
    for key, image in zip(images, plain(torch.stack(list(images.values())), list(images)), strict=True):
        path = place / names[key]
        make_folder(path.parent)
        with atomic_write(path) as file:
            if quality is None:
                to_pillow(image).save(file, "PNG")
            else:
                to_pillow(image).save(file, "JPEG", quality=quality, optimize=True)
    return len(images)
