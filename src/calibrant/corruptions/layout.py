"""The layout of CIFAR-10-C: a .npy file for each corruption, severities 1 to 5 one after the other."""

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from tokenize import TokenError
from typing import Any, Unpack
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from calibrant._arrays import blocks
from calibrant._digests import with_seal
from calibrant._files import atomic_write, read_error
from calibrant._paths import as_path, first_line
from calibrant._progress import Advance, ProgressBar, no_bar
from calibrant._signatures import checked
from calibrant.corruptions.checks import check_images
from calibrant.corruptions.corrupting import Corrupt, CorruptOptions, corrupt
from calibrant.corruptions.folders import CorruptedFiles, check_jobs, claim_folder
from calibrant.corruptions.table import CORRUPTIONS
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.shifts import SEVERITIES

IMAGES_PER_BLOCK = 500  # that a thread corrupts at once


@checked
def write_cifar_c(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    name: str | None = None,
    *,
    jobs: int | None = None,
    bar: ProgressBar = no_bar,
    **options: Unpack[CorruptOptions],
) -> CorruptedFiles:
    """Write the files of CIFAR-10-C: for each corruption uint8 (5 n, h, w, c), and the labels if there are any.

    Files are written atomically, and existing ones are kept. Each has its digest after the array, which numpy ignores.

    Args:
        source: A folder with CIFAR's binary test batch, a .npy file of images, uint8 (n, h, w, c), or a .npz file of
            images and labels.
        target: The folder to write. It records its settings; other settings are refused.
        name: The corruption; None for all of `CORRUPTIONS`.
        jobs: The number of threads; by default one for each processor.
        bar: Opens a progress bar over the corrupted images.
        options: Those of `corrupt`.

    Returns:
        The number of files.

    Raises:
        NoDataError: there are no images in the source.
        CorruptFileError: the source cannot be read as images.
        InvalidInputError: an option or the images break their rule, or the target has other settings.
        ResourceError: the target cannot be written.
    """
    target, n_threads = as_path("target", target), check_jobs(jobs)
    names = list(CORRUPTIONS) if name is None else [name]
    checked = [Corrupt(one, SEVERITIES[0], **options) for one in names]  # raises before anything is written
    images, labels = read_arrays(as_path("source", source))
    digest = blake2b(images.contiguous().numpy().data, digest_size=8)
    digest.update(b"" if labels is None else tile_labels(labels).tobytes())
    claim_folder(target, {"layout": "cifar-c", "data": digest.hexdigest()}, checked[0])
    files = CorruptedFiles()
    with bar("corrupting", len(names) * len(SEVERITIES) * len(images)) as advance:
        for path in (target / f"{one}.npy" for one in names):
            if path.exists():
                files.kept += 1
                advance(len(SEVERITIES) * len(images))
                continue
            with atomic_write(path) as file:
                parts = file_parts(images, path.stem, n_threads=n_threads, advance=advance, **options)
                file.writelines(with_seal(parts))
            files.written += 1
    if labels is not None and not (target / "labels.npy").exists():
        with atomic_write(target / "labels.npy") as file:
            np.save(file, tile_labels(labels))
    return files


def file_parts(
    images: Tensor,
    name: str,
    *,
    n_threads: int = 1,
    advance: Advance = lambda _done: None,
    **options: Unpack[CorruptOptions],
) -> Iterator[bytes]:
    """The bytes of the .npy file of a corruption, in order."""
    n, channels, height, width = images.shape
    header, shape = io.BytesIO(), (len(SEVERITIES) * n, height, width, channels)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    yield header.getvalue()
    with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for severity in SEVERITIES:

            def block(rows: slice, severity: int = severity) -> np.ndarray:
                corrupted = corrupt(images[rows], name, severity, keys=range(rows.start, rows.stop), **options)
                return corrupted.permute(0, 2, 3, 1).contiguous().numpy()

            for pixels in pool.map(block, blocks(n, 1, size=IMAGES_PER_BLOCK)):
                advance(len(pixels))
                yield pixels.tobytes()


def tile_labels(labels: Tensor) -> np.ndarray:
    """The labels of the five severities; as bytes, like the published ones, where they fit."""
    return np.tile(labels.numpy().astype(np.uint8 if int(labels.max()) < 256 else np.int64), len(SEVERITIES))


def read_arrays(path: Path) -> tuple[Tensor, Tensor | None]:
    """Images, uint8 (n, c, h, w), and labels if there are any, from a .npy file, a .npz file or CIFAR's test batch."""
    from calibrant.data.cifar import read_cifar  # the data sets import this package

    if not path.is_file():
        return read_cifar(path, "test")
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"images": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except OSError as error:
        raise read_error(path, error) from None
    except (ValueError, EOFError, KeyError, BadZipFile, TokenError, MemoryError) as error:
        raise CorruptFileError(f"{path} is not a file of arrays: {first_line(error)}") from None
    images = arrays.get("images")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4:
        found = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else "none"
        raise InvalidInputError(f"{path} must hold images, uint8 (n, h, w, c), got {found}")
    batch = check_images(torch.from_numpy(images).permute(0, 3, 1, 2))
    return batch, _as_labels(arrays["labels"], len(batch), path) if "labels" in arrays else None


def _as_labels(labels: Any, n_images: int, path: Path) -> Tensor:
    if not isinstance(labels, np.ndarray) or labels.shape != (n_images,) or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape}" if isinstance(labels, np.ndarray) else "none"
        raise InvalidInputError(f"{path} must hold an integer label for each of {n_images} images, got {found}")
    if not 0 <= labels.min() <= labels.max() < 2**31:
        raise InvalidInputError(f"{path} must hold labels from 0 on, got {labels.min()} to {labels.max()}")
    return torch.from_numpy(labels.astype(np.int64))
