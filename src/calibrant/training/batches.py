"""Which rows make up each step, and their images: the same whatever the number of processes and workers."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from calibrant._files import first_line
from calibrant.data import ImageFiles
from calibrant.errors import CalibrantError, NoDataError

MAX_WORKERS = 8


def derive_seed(seed: int, number: int) -> int:
    """The seed of an epoch or a step of a run, by its number."""
    return seed * 1_000_003 + number


@dataclass(frozen=True)
class Epoch:
    """The order of all training rows in an epoch, and how each image is moved and flipped in it."""

    order: Tensor  # int64 (n,)
    offsets: Tensor  # int64 (n, 2): where the crop begins in the padded image, down and across
    flipped: Tensor  # bool (n,)

    @classmethod
    def draw(cls, n_rows: int, *, seed: int, epoch: int, padding: int, flip: bool) -> "Epoch":
        """All that is random in an epoch, from its number alone, so that any step of it can be taken up again."""
        generator = torch.Generator().manual_seed(derive_seed(seed, epoch))
        order = torch.randperm(n_rows, generator=generator)
        offsets = torch.randint(2 * padding + 1, (n_rows, 2), generator=generator)
        flipped = torch.rand(n_rows, generator=generator) < (0.5 if flip else 0.0)
        return cls(order, offsets, flipped)

    def micro_batches(self, batch_size: int, accumulate: int, rank: int, world: int) -> list[Tensor]:
        """The rows of each part of each step that this process works on; what fills no step is left out.

        A step's rows are dealt out in turn, so that together the processes and parts see the same ones as one.
        """
        n_steps = len(self.order) // batch_size
        dealt = self.order[: n_steps * batch_size].view(n_steps, -1, accumulate, world)
        return list(dealt[..., rank].transpose(1, 2).reshape(n_steps * accumulate, -1))

    def augment(self, images: Tensor, rows: Tensor, padding: int) -> Tensor:
        """Images, uint8 (n, c, h, w), of these rows, moved within a black border and flipped."""
        if padding == 0 and not self.flipped.any():
            return images
        n, channels, height, width = images.shape
        device = images.device
        offsets, flipped = self.offsets[rows].to(device), self.flipped[rows].to(device)
        across = torch.arange(width, device=device).expand(n, width)
        across = offsets[:, 1:] + torch.where(flipped[:, None], width - 1 - across, across)
        down = offsets[:, :1] + torch.arange(height, device=device)
        # each pixel's place among those of all padded images: picking whole pixels is quicker than picking bytes
        padded = images.new_zeros(n, height + 2 * padding, width + 2 * padding, channels)
        padded[:, padding : padding + height, padding : padding + width] = images.permute(0, 2, 3, 1)
        lines = torch.arange(n, device=device)[:, None] * padded.shape[1] + down
        places = (lines[:, :, None] * padded.shape[2] + across[:, None]).flatten()
        picked = padded.view(-1, channels).index_select(0, places)
        return picked.view(n, height, width, channels).permute(0, 3, 1, 2)


def normalise(images: Tensor, mean: float, std: float) -> Tensor:
    """Images of bytes as numbers around 0, channels last."""
    return images.contiguous(memory_format=torch.channels_last).float().mul_(1 / (255 * std)).sub_(mean / std)


def default_workers(processes: int = 1) -> int:
    return min(MAX_WORKERS, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 0


def read_batches(images: Tensor | ImageFiles, rows: Sequence[Tensor], workers: int) -> Iterator[Tensor]:
    """The images of each batch of rows; those in files are decoded ahead, by worker processes where there are any."""
    if isinstance(images, Tensor):
        yield from (images[batch.to(images.device)] for batch in rows)
        return
    # a generator of its own: from torch's it would draw a number, and dropout after it others than without workers
    own = torch.Generator()
    loader = DataLoader(_DecodingDataset(images), sampler=rows, batch_size=None, num_workers=workers, generator=own)
    try:
        for batch in loader:
            if isinstance(batch, CalibrantError):
                raise batch
            yield batch
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise NoDataError(f"a process that decodes images has ended ({first_line(error)}): try fewer workers") from None


class _DecodingDataset(Dataset[Tensor | CalibrantError]):
    """Batches of images by their rows; an error travels as a value, so that its one line arrives as it is."""

    def __init__(self, images: ImageFiles) -> None:
        self.images = images

    def __getitem__(self, rows: Tensor) -> Tensor | CalibrantError:
        try:
            return self.images[rows]
        except CalibrantError as error:
            return error
