"""The layout of CIFAR-10-C: a .npy file for each corruption, severities 1 to 5 one after the other."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from calibrant._checks import check_images
from calibrant._files import first_line, replacing
from calibrant.corruptions.corrupting import corrupt
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError

BLOCK = 500  # images that a thread takes at once
N_SEVERITIES = 5

Report = Callable[[float], None]


def write_layout(
    images: Tensor,
    labels: Tensor | None,
    target: Path,
    names: list[str],
    *,
    n_threads: int,
    report: Report,
    **options: Any,
) -> list[Path]:
    """The files that were not there: a corruption each, uint8 (5 n, h, w, c), and the labels, uint8 (5 n,).

    report is told of every corrupted image; options are those of `corrupt`.
    """
    written = []
    for name in names:
        path = target / f"{name}.npy"
        if path.exists():
            report(N_SEVERITIES * len(images))
            continue
        with replacing(path) as file:
            for part in file_parts(images, name, n_threads=n_threads, report=report, **options):
                file.write(part)
        written.append(path)
    if labels is not None and not (target / "labels.npy").exists():
        with replacing(target / "labels.npy") as file:
            np.save(file, tiled(labels))
    return written


def file_parts(images: Tensor, name: str, *, n_threads: int, report: Report, **options: Any) -> Iterator[bytes]:
    """The bytes of a corruption's file, in order."""
    n, channels, height, width = images.shape
    yield header((N_SEVERITIES * n, height, width, channels))
    with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for severity in range(1, N_SEVERITIES + 1):

            def block(start: int, severity: int = severity) -> np.ndarray:
                rows = range(start, min(start + BLOCK, n))
                corrupted = corrupt(images[start : rows.stop], name, severity, keys=rows, **options)
                return corrupted.permute(0, 2, 3, 1).contiguous().numpy()

            for pixels in pool.map(block, range(0, n, BLOCK)):
                report(len(pixels))
                yield pixels.tobytes()


def fingerprint(images: Tensor, labels: Tensor | None) -> str:
    """What tells this data set from others of the same shape."""
    digest = blake2b(images.contiguous().numpy().data, digest_size=8)
    digest.update(b"" if labels is None else tiled(labels).tobytes())
    return digest.hexdigest()


def tiled(labels: Tensor) -> np.ndarray:
    """The labels of the five severities; as bytes, like the published ones, where they fit."""
    return np.tile(labels.numpy().astype(np.uint8 if int(labels.max()) < 256 else np.int64), N_SEVERITIES)


def header(shape: tuple[int, ...]) -> bytes:
    """The head of a .npy file of bytes."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


def read_arrays(path: Path) -> tuple[Tensor, Tensor | None]:
    """Images, uint8 (n, c, h, w), and labels where known, of a .npy or .npz file: images (n, h, w, c), and labels."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"images": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror or first_line(error)}") from None
    except (ValueError, EOFError, KeyError, BadZipFile, TokenError, MemoryError) as error:
        raise CorruptFileError(f"{path} is no file of arrays: {first_line(error)}") from None
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
