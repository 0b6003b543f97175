"""A transform and a data set that corrupt images as they are read."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from hashlib import blake2b
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from calibrant._checks import check_choice, check_images, check_whole
from calibrant.corruptions.corrupting import Images, corrupt
from calibrant.corruptions.table import CORRUPTIONS


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
    frost_dir: str | None = None
    save_quality: int | None = None

    def __post_init__(self) -> None:
        check_choice("corruption", self.name, CORRUPTIONS)
        check_whole("severity", self.severity, 1, 5)

    def __call__(self, images: Images, keys: Sequence[int | str] | None = None) -> Images:
        keys = [_content_key(image) for image in check_images(images)] if keys is None else keys
        return corrupt(images, keys=keys, **vars(self))


def _content_key(image: Tensor) -> int:
    return int.from_bytes(blake2b(image.cpu().numpy().tobytes(), digest_size=8).digest(), "little")


class Indexed(Protocol):
    """A map-style data set."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __len__(self) -> int: ...


class CorruptedDataset(Dataset[Any]):
    """A data set under a corruption; its items are images, tensors or Pillow's, or tuples that begin with one.

    The key of an image is its index: one by one, in batches and by any number of workers it has the same bytes.

    >>> images, labels = torch.full((4, 3, 8, 8), 100, dtype=torch.uint8), torch.arange(4)
    >>> shifted = CorruptedDataset(torch.utils.data.TensorDataset(images, labels), "fog", severity=3)
    >>> image, label = shifted[2]
    >>> image.shape, label
    (torch.Size([3, 8, 8]), tensor(2))
    """

    def __init__(
        self,
        dataset: Indexed,
        name: str,
        severity: int,
        *,
        seed: int = 0,
        parameters: str | None = None,
        frost_dir: str | None = None,
        save_quality: int | None = None,
    ) -> None:
        self.dataset = dataset
        self.corrupt = Corrupt(
            name, severity, seed=seed, parameters=parameters, frost_dir=frost_dir, save_quality=save_quality
        )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The items of a batch, which data loaders ask for at once; images of one size are corrupted together."""
        items = [self.dataset[index] for index in indices]
        keys = [index % len(self) for index in indices]
        images = [item[0] if isinstance(item, tuple | list) else item for item in items]
        if all(isinstance(image, Tensor) for image in images) and len({image.shape for image in images}) == 1:
            corrupted = list(self.corrupt(torch.stack(images), keys))
        else:
            corrupted = [self.corrupt(image, [key]) for image, key in zip(images, keys, strict=True)]
        return [
            (image, *item[1:]) if isinstance(item, tuple | list) else image
            for image, item in zip(corrupted, items, strict=True)
        ]
