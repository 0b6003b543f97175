"""`corrupt`, the transform `Corrupt` and `CorruptedDataset`: tensors or Pillow images in, the same kind out."""

import os
from collections.abc import Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from functools import cache
from hashlib import blake2b
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor
from torch.utils.data import Dataset

from calibrant._arrays import blocks
from calibrant._checks import check_integer, check_tensor
from calibrant._names import check_choice
from calibrant._paths import check_path
from calibrant.corruptions.checks import check_images, check_keys
from calibrant.corruptions.digital import jpeg_compression
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.frost import read_frost
from calibrant.corruptions.table import CORRUPTIONS
from calibrant.errors import InvalidInputError
from calibrant.shifts import SEVERITIES

if TYPE_CHECKING:
    from PIL import Image

ImageInput = TypeVar("ImageInput", Tensor, "Image.Image")

CHUNK_VALUES = 2**19  # values corrupted at once; they fit in the cache
KEPT_BLOCK = 31 * 2**20


class CorruptOptions(TypedDict, total=False):
    """The options of a corruption; see `corrupt`."""

    seed: int
    parameters: str | None
    frost_dir: str | os.PathLike[str] | None
    save_quality: int | None


@dataclass(frozen=True)
class Corrupt:
    """A transform that corrupts images, for images that come without an index.

    The key of an image is a hash of its pixels, unless keys are given: the same image always has the same noise.

    Args:
        name: A name in `CORRUPTIONS`.
        severity: From 1 to 5.
        seed: Another seed gives other noise.
        parameters: See `corrupt`.
        frost_dir: See `corrupt`.
        save_quality: See `corrupt`.

    Raises:
        UnknownNameError: the corruption, or its set of parameters, is unknown.
        InvalidInputError: another option breaks its rule.
        NoDataError: frost_dir lacks one of the five photographs.

    >>> Corrupt("pixelate", severity=2)(torch.full((3, 8, 8), 100, dtype=torch.uint8)).unique()
    tensor([100], dtype=torch.uint8)
    """

    name: str
    severity: int
    _: KW_ONLY
    seed: int = 0
    parameters: str | None = None
    frost_dir: str | os.PathLike[str] | None = None
    save_quality: int | None = None

    def __post_init__(self) -> None:
        options = {
            "name": str(check_choice("corruption", self.name, CORRUPTIONS)),
            "severity": check_integer("severity", self.severity, SEVERITIES[0], SEVERITIES[-1]),
            "seed": check_integer("seed", self.seed, 0),
        }
        if self.parameters is not None:
            options["parameters"] = check_choice("parameters", self.parameters, CORRUPTIONS[self.name].severities)
        if self.save_quality is not None:
            options["save_quality"] = check_integer("save_quality", self.save_quality, 1, 95)
        if self.frost_dir is not None:
            options["frost_dir"] = check_path("frost_dir", self.frost_dir)
        for option, value in options.items():
            object.__setattr__(self, option, value)
        if self.name == "frost" and self.frost_dir is not None:
            read_frost(os.fspath(self.frost_dir))  # raises now where a photograph is missing

    def __call__(self, images: ImageInput, keys: Sequence[int | str] | Tensor | None = None) -> ImageInput:
        """Corrupt images; see `corrupt`.

        Args:
            images: A batch, an image, or a Pillow image.
            keys: A key for each image; by default a hash of its pixels.

        Returns:
            Images of the same kind.
        """
        batch = check_images(images)
        if batch.device.type == "mps":  # no float64 there
            batch = batch.cpu()
        keys = [_content_key(image) for image in batch] if keys is None else check_keys(keys, len(batch))
        corrupted = self._corrupt(batch, Draws.of(keys, self.seed, self.name, self.severity, device=batch.device))
        if self.save_quality is not None:
            corrupted = jpeg_compression(corrupted, self.save_quality)
        if not isinstance(images, Tensor):
            return to_pillow(corrupted[0])
        corrupted = corrupted.view(images.shape).to(images.device)
        return corrupted if images.dtype == torch.uint8 else corrupted.to(images.dtype).div_(255)

    def _corrupt(self, batch: Tensor, draws: Draws) -> Tensor:
        """Corrupt a batch, uint8 (n, c, h, w), in chunks; apart from the result, memory does not grow with it."""
        _keep_memory()
        corruption = CORRUPTIONS[self.name]
        parameters = corruption.parameters(self.severity, min(batch.shape[2:]), self.parameters)
        if self.name == "frost":
            parameters = (*parameters, self.frost_dir)
        corrupted = torch.empty_like(batch)
        for rows in blocks(len(batch), batch[0].numel(), size=CHUNK_VALUES):
            corrupted[rows] = corruption.apply(batch[rows], draws[rows], *parameters)
        return corrupted


def corrupt(
    images: ImageInput,
    name: str,
    severity: int,
    *,
    keys: Sequence[int | str] | Tensor | None = None,
    **options: Unpack[CorruptOptions],
) -> ImageInput:
    """Corrupt images by a corruption of `CORRUPTIONS`.

    The result depends only on the pixels of an image, the seed, its key, the corruption, the severity and the
    parameters: the bytes are the same alone, in a batch of any size and in any process.

    Args:
        images: A tensor (n, c, h, w) or (c, h, w) with 1 or 3 channels and sides of at least 8 pixels, uint8 or
            floating point in [0, 1], on any device; or a Pillow image in grey or RGB. Floating-point images are rounded
            to 256 levels.
        name: A name in `CORRUPTIONS`.
        severity: From 1 to 5.
        keys: A 64-bit integer or a word for each image, which its noise belongs to; 0, 1, … by default.
        options: seed, an integer (0 by default); parameters, the severities of "cifar", "tiny_imagenet" or "imagenet"
            as published, by default those of the set whose image size (32, 64, 224) is nearest to the smaller side,
            with lengths in proportion to it; frost_dir, a folder with the photographs frost1.png to frost5.jpg of the
            published sets; save_quality, to encode the result as a JPEG of this quality and decode it (85 for
            Tiny-ImageNet-C and ImageNet-C).

    Returns:
        Images of the kind, shape, type and device of the given ones; floating-point values are a level / 255.

    Raises:
        UnknownNameError: the corruption, or its set of parameters, is unknown.
        InvalidInputError: the images, a key or another option break their rule.
        NoDataError: frost_dir lacks one of the five photographs.

    >>> corrupt(torch.full((1, 3, 8, 8), 100, dtype=torch.uint8), "brightness", severity=1).unique()
    tensor([112], dtype=torch.uint8)
    """
    n_images = len(images) if isinstance(images, Tensor) and images.ndim == 4 else 1
    return Corrupt(name, severity, **options)(images, range(n_images) if keys is None else keys)


class Indexed(Protocol):
    """A map-style data set."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __len__(self) -> int: ...


class CorruptedDataset(Dataset[Any]):
    """A data set whose images are corrupted as they are read.

    The key of an image is its index: its bytes do not depend on batches and workers.

    Args:
        dataset: A map-style data set. Its items are images (tensors or Pillow images), or tuples that begin with one.
        name: A name in `CORRUPTIONS`.
        severity: From 1 to 5.
        options: Those of `corrupt`.

    Raises:
        UnknownNameError: the corruption, or its set of parameters, is unknown.
        InvalidInputError: another option breaks its rule.

    >>> images, labels = torch.full((4, 3, 8, 8), 100, dtype=torch.uint8), torch.arange(4)
    >>> shifted = CorruptedDataset(torch.utils.data.TensorDataset(images, labels), "fog", severity=3)
    >>> image, label = shifted[2]
    >>> image.shape, label
    (torch.Size([3, 8, 8]), tensor(2))
    """

    def __init__(self, dataset: Indexed, name: str, severity: int, **options: Unpack[CorruptOptions]) -> None:
        if isinstance(dataset, str | bytes) or hasattr(type(dataset), "keys") or not hasattr(dataset, "__getitem__"):
            raise InvalidInputError(f"dataset must be indexed by integers, got {type(dataset).__name__}")
        if isinstance(dataset, Tensor):
            check_tensor("dataset", dataset)
        self.dataset = dataset
        self.corrupt = Corrupt(name, severity, **options)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The items of a batch, as data loaders request them; images of one size are corrupted together."""
        try:
            keys = [self._key(as_index(index)) for index in indices]
        except TypeError as error:
            raise InvalidInputError(f"index must be an integer: {error}") from None
        items = [self.dataset[key] for key in keys]
        images = [item[0] if isinstance(item, tuple | list) else item for item in items]
        if all(isinstance(image, Tensor) for image in images) and len({image.shape for image in images}) == 1:
            corrupted = list(self.corrupt(torch.stack(images), keys))
        else:
            corrupted = [self.corrupt(image, [key]) for image, key in zip(images, keys, strict=True)]
        return [
            (image, *item[1:]) if isinstance(item, tuple | list) else image
            for image, item in zip(corrupted, items, strict=True)
        ]

    def _key(self, index: int) -> int:
        if isinstance(self.dataset, Sized) and not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} images")
        return index + len(self) if index < 0 else index


def _content_key(image: Tensor) -> int:
    return int.from_bytes(blake2b(image.cpu().numpy().tobytes(), digest_size=8).digest(), "little")


@cache
def _keep_memory() -> None:
    """Free a large block once: glibc then keeps freed memory of that size.

    Otherwise it returns the memory of each chunk to the system and requests it again, which takes two to four times as
    long.
    """
    torch.empty(KEPT_BLOCK, dtype=torch.uint8, device="cpu")


def to_pillow(image: Tensor) -> "Image.Image":
    """An image, uint8 (c, h, w), as a Pillow image."""
    from PIL import Image

    pixels = image.permute(1, 2, 0).cpu().contiguous().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
