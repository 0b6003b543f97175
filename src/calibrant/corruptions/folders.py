"""Folders of corrupted images: the same tree, and a record of the settings, with which interrupted work resumes."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

import torch
from PIL import Image
from torch import Tensor

from calibrant._arrays import blocks
from calibrant._checks import MAX_JOBS, check_integer
from calibrant._digests import dump_record, parse_record
from calibrant._files import atomic_write, check_folder, make_folder, read_error
from calibrant._images import IMAGE_FORMATS, UNREADABLE, open_image
from calibrant._paths import as_path, check_source
from calibrant._progress import Advance, ProgressBar, no_bar
from calibrant._signatures import checked
from calibrant.corruptions.checks import check_images
from calibrant.corruptions.corrupting import Corrupt, CorruptOptions, to_pillow
from calibrant.corruptions.table import CORRUPTIONS
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError
from calibrant.shifts import SEVERITIES

SETTINGS_FILE = "corruption.json"
FILES_PER_BATCH = 64  # files read at once; those of one size are corrupted together
MAX_SHARED_VALUES = 2**22  # of an image; a larger one is corrupted alone, which takes a hundred times its memory
MAX_SIDE = 2**14  # pixels; fog needs the square of it, and JPEG has a limit as well
GREY_MODES, COLOUR_MODES = {"1", "L", "LA"}, {"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"}


@dataclass
class CorruptedFiles:
    """The number of files that were written and that existed before, and why others were skipped, by path."""

    written: int = 0
    kept: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


@checked
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
    """Write the images of a folder, corrupted, as the same tree; interrupted work resumes.

    Files are written atomically, and existing ones are kept. Files that cannot be read as images are skipped. The key
    of an image is its path below the source.

    Args:
        source: A folder of images, or one image.
        target: The folder to write. It records its settings; other settings are refused.
        name: The corruption; None for all of `CORRUPTIONS` at all severities, each in target/name/severity.
        severity: From 1 to 5; None if name is None.
        jobs: The number of threads; by default one for each processor.
        bar: Opens a progress bar over the files.
        options: Those of `corrupt`; with save_quality the files are JPEG, else PNG.

    Returns:
        The number of files, and those that were skipped.

    Raises:
        NoDataError: there is no image in the source.
        InvalidInputError: an option breaks its rule, or the target lies in the source or has other settings.
        ResourceError: the target cannot be written.
    """
    source, target = as_path("source", source), as_path("target", target)
    if (name is None) != (severity is None):
        raise InvalidInputError(f"a corruption needs a severity from 1 to 5, got {name} and {severity}")
    if name is not None and severity is not None:
        folders = {target: Corrupt(name, severity, **options)}
    else:
        folders = {target / n / str(s): Corrupt(n, s, **options) for n in CORRUPTIONS for s in SEVERITIES}
    n_threads, images = check_jobs(jobs), find_images(source)
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidInputError(f"{target} must not lie in {source}: the next run would corrupt it again")
    first = next(iter(folders.values()))
    names = target_names(list(images), ".png" if first.save_quality is None else ".JPEG")
    origin = {"corruption": name or "all", "severity": severity, "source": str(source.resolve())}
    claim_folder(target, origin, first)
    with bar("corrupting", len(images) * len(folders)) as advance:
        return _write_all(images, names, folders, n_threads, advance)


def check_jobs(jobs: int | None) -> int:
    """The number of threads; by default one for each processor."""
    return os.cpu_count() or 1 if jobs is None else check_integer("jobs", jobs, 1, MAX_JOBS)


def claim_folder(target: Path, origin: dict[str, Any], options: Corrupt) -> None:
    """Make the folder and record the origin of its images and the options; refuse one with other settings or files."""
    settings = origin | {name: getattr(options, name) for name in CorruptOptions.__annotations__}
    if options.frost_dir is not None:
        settings["frost_dir"] = str(Path(options.frost_dir).resolve())
    check_folder(target, "corrupted images")
    make_folder(target)
    path = target / SETTINGS_FILE
    if not path.exists():
        if any(not name.startswith(".") for name in os.listdir(target)):
            raise InvalidInputError(f"{target} has other files, and no {SETTINGS_FILE}: choose another folder")
        with atomic_write(path) as file:
            file.write(dump_record(settings, indent=2))
        return
    try:
        recorded = parse_record(path.read_bytes(), path)
    except OSError as error:
        raise read_error(path, error) from None
    for name, value in settings.items():
        if recorded.get(name) != value:
            was = recorded.get(name)
            raise InvalidInputError(f"{target} was made with {name} {was!r}, not {value!r}: choose another folder")


def find_images(source: Path) -> dict[str, Path]:
    """The files of a folder except hidden ones, or one file, by key: the path below the folder."""
    check_source(source)
    if source.is_file():
        return {source.name: source}
    found = {}
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in sorted(Path(folder, name) for name in names if not name.startswith(".")):
            found[path.relative_to(source).as_posix()] = path
    if not found:
        raise NoDataError(f"{source} has no files")
    return found


def target_names(keys: list[str], suffix: str) -> dict[str, str]:
    """The path of each image in the target: with the suffix replaced, or appended where two would be the same."""
    suffixes = {known for known, format in Image.registered_extensions().items() if format in IMAGE_FORMATS}
    paths = {key: PurePosixPath(key) for key in keys}
    replaced = {
        key: str(path.with_suffix(suffix)) if path.suffix.lower() in suffixes else key + suffix
        for key, path in paths.items()
    }
    counts = Counter(replaced.values())
    names = {key: name if counts[name] == 1 else key + suffix for key, name in replaced.items()}
    [(name, count)] = Counter(names.values()).most_common(1)
    if count > 1:
        first, second = [key for key in keys if names[key] == name][:2]
        raise InvalidInputError(f"{first} and {second} would both be written to {name}; rename one of them")
    return names


def _write_all(
    paths: dict[str, Path], names: dict[str, str], folders: dict[Path, Corrupt], n_threads: int, advance: Advance
) -> CorruptedFiles:
    files = CorruptedFiles()
    with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for batch in _batches(paths):
            missing = {key: [folder for folder in folders if not (folder / names[key]).is_file()] for key in batch}
            n_kept = sum(len(folders) - len(wanted) for wanted in missing.values())
            files.kept += n_kept
            advance(n_kept)
            to_read = [key for key in batch if missing[key]]
            images = {}
            for key, image in zip(to_read, pool.map(decode_image, map(paths.__getitem__, to_read)), strict=True):
                if isinstance(image, str):
                    files.skipped[key] = image
                    advance(len(missing[key]))
                else:
                    images[key] = image
            for folder, corruption in folders.items():
                wanted = {key: image for key, image in images.items() if folder in missing[key]}
                run = map if any(image.numel() > MAX_SHARED_VALUES for image in wanted.values()) else pool.map
                for n_files in run(partial(_write_group, folder, corruption, names), _by_size(wanted)):
                    files.written += n_files
                    advance(n_files)
    return files


def _batches(paths: dict[str, Path]) -> Iterator[list[str]]:
    """The keys in batches of 64 files, or of fewer large ones."""
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


def decode_image(path: Path) -> Tensor | str:
    """The image of a file, uint8 (c, h, w), or the reason why there is none."""
    try:
        with open_image(path) as image:
            if image.mode not in GREY_MODES | COLOUR_MODES:
                return f"images of mode {image.mode} do not have 8 bits a channel"
            if max(image.size) > MAX_SIDE:
                return f"more than {MAX_SIDE:,} pixels a side"
            return check_images(image.convert("L" if image.mode in GREY_MODES else "RGB"))[0]
    except CalibrantError as error:
        return str(error).removeprefix(f"{path} {UNREADABLE}")


def _by_size(images: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Groups of images of one shape, small enough to occupy every thread."""
    shapes = {tuple(image.shape) for image in images.values()}
    for shape in sorted(shapes):
        group = [key for key, image in images.items() if tuple(image.shape) == shape]
        for part in blocks(len(group), 1, size=FILES_PER_BATCH // 4):
            yield {key: images[key] for key in group[part]}


def _write_group(folder: Path, corruption: Corrupt, names: dict[str, str], images: dict[str, Tensor]) -> int:
    """Corrupt images of one shape and write each; with a quality, as the JPEG that `corrupt` would decode."""
    quality = corruption.save_quality
    saving: dict[str, Any] = {"format": "PNG"}
    if quality is not None:
        saving = {"format": "JPEG", "quality": quality, "optimize": True}
    uncompressed = replace(corruption, save_quality=None)
    for key, image in zip(images, uncompressed(torch.stack(list(images.values())), list(images)), strict=True):
        path = folder / names[key]
        make_folder(path.parent)
        with atomic_write(path) as file:
            to_pillow(image).save(file, **saving)
    return len(images)
