"""A data set whose images are corrupted as they are read."""

from collections.abc import Sequence, Sized
from operator import index as as_index
from typing import Any, Protocol, Unpack

import torch
from torch import Tensor
from torch.utils.data import Dataset

from calibrant.corruptions.corrupting import Corrupt, CorruptOptions


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
        self.dataset = dataset
        self.corrupt = Corrupt(name, severity, **options)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The items of a batch, as data loaders request them; images of one size are corrupted together."""
        keys = [self._key(as_index(index)) for index in indices]
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
