"""`corrupt`, and `Corrupt` with its options bound: images of any kind in, the same kind out."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor

from calibrant._arrays import blocks
from calibrant._checks import check_integer, check_path
from calibrant._names import check_choice
from calibrant.corruptions.checks import check_images, check_keys
from calibrant.corruptions.digital import jpeg_compression
from calibrant.corruptions.draws import Draws
from calibrant.corruptions.frost import images
from calibrant.corruptions.table import CORRUPTIONS
from calibrant.shifts import SEVERITIES

if TYPE_CHECKING:
    from PIL import Image

Images = TypeVar("Images", Tensor, "Image.Image")

CHUNK = 2**19  # values at once: what is worked on stays in the cache
KEPT_BLOCK = 31 * 2**20


class Options(TypedDict, total=False):
    """What a corruption takes beside its name and severity; see `corrupt`."""

    seed: int
    parameters: str | None
    frost_dir: str | os.PathLike[str] | None
    save_quality: int | None


@dataclass(frozen=True)
class Corrupt:
    """A transform: `corrupt` with its options bound, for images that come without an index.

    The key of an image is a hash of its pixels, unless keys are given; so the same image always has the same noise.

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
        checked = {
            "name": str(check_choice("corruption", self.name, CORRUPTIONS)),
            "severity": check_integer("severity", self.severity, SEVERITIES[0], SEVERITIES[-1]),
            "seed": check_integer("seed", self.seed, 0),
        }
        if self.parameters is not None:
            checked["parameters"] = check_choice("parameters", self.parameters, CORRUPTIONS[self.name].severities)
        if self.save_quality is not None:
            checked["save_quality"] = check_integer("save_quality", self.save_quality, 1, 95)
        if self.frost_dir is not None:
            checked["frost_dir"] = check_path("frost_dir", self.frost_dir)
        for option, value in checked.items():
            object.__setattr__(self, option, value)
        if self.name == "frost" and self.frost_dir is not None:
            images(self._photographs)  # says now what is wrong with the folder

    @property
    def _photographs(self) -> str | None:
        return None if self.frost_dir is None else os.fspath(self.frost_dir)

    def __call__(self, images: Images, keys: Sequence[int | str] | Tensor | None = None) -> Images:
        batch = check_images(images)
        if batch.device.type == "mps":  # no float64 there
            batch = batch.cpu()
        known = [_content_key(image) for image in batch] if keys is None else check_keys(keys, len(batch))
        corrupted = self._corrupted(batch, Draws.of(known, self.seed, self.name, self.severity, device=batch.device))
        if self.save_quality is not None:
            corrupted = jpeg_compression(corrupted, self.save_quality, optimize=True)
        return _like(images, corrupted)

    def _corrupted(self, batch: Tensor, draws: Draws) -> Tensor:
        """A batch, uint8 (n, c, h, w), in chunks: beside the result, memory does not grow with it."""
        _keep_memory()
        corruption = CORRUPTIONS[self.name]
        parameters = corruption.parameters(self.severity, min(batch.shape[2:]), self.parameters)
        if self.name == "frost":
            parameters = (*parameters, self._photographs)
        corrupted = torch.empty_like(batch)
        for rows in blocks(len(batch), batch[0].numel(), size=CHUNK):
            corrupted[rows] = corruption.apply(batch[rows], draws[rows], *parameters)
        return corrupted


def corrupt(
    images: Images,
    name: str,
    severity: int,
    *,
    keys: Sequence[int | str] | Tensor | None = None,
    **options: Unpack[Options],
) -> Images:
    """The images under a corruption of `CORRUPTIONS` at a severity from 1 to 5.

    What becomes of an image depends on its pixels, the seed, its key, the corruption and the severity, and on nothing
    else: alone, in a batch of any size, in any process, its bytes are the same.

    images: a tensor (n, c, h, w) or (c, h, w) with 1 or 3 channels and sides of at least 8 pixels, uint8 or floating
    point in [0, 1], on any device; or a Pillow image in grey or RGB. Floating-point images are read as images of 256
    levels, and given back as a level / 255.
    keys: an integer of 64 bits or a word for each image; 0, 1, … where none are given. Images of one key have the same
    noise.
    parameters: "cifar", "tiny_imagenet" or "imagenet", as published. Where none is named, the set whose image size (32,
    64, 224) is nearest to the smaller side of the images, with its lengths in proportion to it. The lengths of
    elastic_transform are shares of that side in any case.
    frost_dir: a folder with the photographs of the published sets, frost1.png to frost5.jpg, for the frost; in their
    place frost is grown.
    save_quality: encode the result as a JPEG of this quality and decode it, as Tiny-ImageNet-C and ImageNet-C were
    saved (85).

    >>> corrupt(torch.full((1, 3, 8, 8), 100, dtype=torch.uint8), "brightness", severity=1).unique()
    tensor([112], dtype=torch.uint8)
    """
    n_images = len(images) if isinstance(images, Tensor) and images.ndim == 4 else 1
    return Corrupt(name, severity, **options)(images, range(n_images) if keys is None else keys)


def _content_key(image: Tensor) -> int:
    return int.from_bytes(blake2b(image.cpu().numpy().tobytes(), digest_size=8).digest(), "little")


@cache
def _keep_memory() -> None:
    """Have the C library keep the memory that it is given back.

    Until it has seen a large block freed, glibc's allocator returns such blocks to the system, and gets and clears them
    anew: chunks take two to four times as long.
    """
    torch.empty(KEPT_BLOCK, dtype=torch.uint8, device="cpu")


def _like(images: Images, corrupted: Tensor) -> Images:
    """Corrupted images, uint8, in the kind, shape and type of the original ones."""
    if not isinstance(images, Tensor):
        return to_pillow(corrupted[0])
    corrupted = corrupted.view(images.shape).to(images.device)
    return corrupted if images.dtype == torch.uint8 else corrupted.to(images.dtype).div_(255)


def to_pillow(image: Tensor) -> "Image.Image":
    """An image, uint8 (c, h, w), as one of Pillow's."""
    from PIL import Image

    pixels = image.permute(1, 2, 0).cpu().contiguous().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
