"""Which rows make up each step, and their images: the same for any number of processes and workers."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from calibrant._arrays import to_device
from calibrant._paths import first_line
from calibrant._signals import STOP_SIGNALS, blocked_signals
from calibrant.data import ImageFiles
from calibrant.errors import CalibrantError, ResourceError

MAX_WORKERS = 8


def derive_seed(seed: int, number: int) -> int:
    """The seed of epoch or step ``number`` of a run."""
    return seed * 1_000_003 + number


@dataclass(frozen=True)
class Epoch:
    """The order of all training rows in an epoch, how each image is shifted and flipped, and what it is mixed with."""

    order: Tensor  # int64 (n,)
    offsets: Tensor  # int64 (n, 2): where the crop starts in the padded image, vertically and horizontally
    flipped: Tensor  # bool (n,)
    partners: Tensor  # int64 (n,): a permutation of the rows, not of a batch, which processes would divide

    @classmethod
    def draw(cls, n_rows: int, *, seed: int, epoch: int, padding: int, flip: bool) -> "Epoch":
        """Draw the epoch from its number alone: a run can resume at any step."""
        generator = torch.Generator().manual_seed(derive_seed(seed, epoch))
        order = torch.randperm(n_rows, generator=generator)
        offsets = torch.randint(2 * padding + 1, (n_rows, 2), generator=generator)
        flipped = torch.rand(n_rows, generator=generator) < (0.5 if flip else 0.0)
        return cls(order, offsets, flipped, partners=torch.randperm(n_rows, generator=generator))

    def micro_batches(self, batch_size: int, accumulate: int, rank: int, world: int) -> list[Tensor]:
        """The rows of each micro-batch of this process; an incomplete last batch is dropped.

        The rows of a step are dealt out in turn: all processes and micro-batches together see what one process sees.
        """
        n_steps = len(self.order) // batch_size
        dealt = self.order[: n_steps * batch_size].view(n_steps, -1, accumulate, world)
        return list(dealt[..., rank].transpose(1, 2).reshape(n_steps * accumulate, -1))

    def augment(self, images: Tensor, rows: Tensor, padding: int) -> Tensor:
        """Crop zero-padded images, uint8 (n, c, h, w), and flip them."""
        if padding == 0 and not self.flipped.any():
            return images
        return crop_and_flip(images, self.offsets[rows], self.flipped[rows], padding)


def crop_and_flip(images: Tensor, offsets: Tensor, flipped: Tensor, padding: int) -> Tensor:
    """Images, uint8 (n, c, h, w), cropped at ``offsets`` (n, 2) of the zero-padded ones, and mirrored where flipped."""
    n, channels, height, width = images.shape
    device = images.device
    offsets, flipped = to_device(offsets, device), to_device(flipped, device)
    across = torch.arange(width, device=device).expand(n, width)
    across = offsets[:, 1:] + torch.where(flipped[:, None], width - 1 - across, across)
    down = offsets[:, :1] + torch.arange(height, device=device)
    # the index of each pixel among all padded images: selecting whole pixels is faster than selecting bytes
    padded = images.new_zeros(n, height + 2 * padding, width + 2 * padding, channels)
    padded[:, padding : padding + height, padding : padding + width] = images.permute(0, 2, 3, 1)
    lines = torch.arange(n, device=device)[:, None] * padded.shape[1] + down
    positions = (lines[:, :, None] * padded.shape[2] + across[:, None]).flatten()
    picked = padded.view(-1, channels).index_select(0, positions)
    return picked.view(n, height, width, channels).permute(0, 3, 1, 2)


def normalise(images: Tensor, mean: float, std: float) -> Tensor:
    """uint8 images as float32, normalised, channels last."""
    return images.contiguous(memory_format=torch.channels_last).float().mul_(1 / (255 * std)).sub_(mean / std)


def default_workers(processes: int = 1) -> int:
    return min(MAX_WORKERS, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 0


def read_batches(images: Tensor | ImageFiles, rows: Sequence[Tensor], workers: int) -> Iterator[Tensor]:
    """The images of each batch of rows; image files are decoded ahead by worker processes."""
    if isinstance(images, Tensor):
        yield from (images[to_device(batch, images.device)] for batch in rows)
        return
    # without its own generator the loader draws from torch's, and dropout depends on the number of workers
    generator = torch.Generator()
    dataset = _DecodingDataset(images)
    loader = DataLoader(
        dataset,
        sampler=rows,
        batch_size=None,
        num_workers=workers,
        generator=generator,
        worker_init_fn=_end_with_parent,
    )
    try:
        with blocked_signals():
            batches = iter(loader)
        for batch in batches:
            if isinstance(batch, CalibrantError):
                raise batch
            yield batch
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ResourceError(f"a worker that decodes images died ({first_line(error)}): try fewer workers") from None


def _end_with_parent(worker: int) -> None:
    """End this worker when its parent dies or asks it to, and not by signals that others send to all processes."""
    parent = os.getppid()

    def wait_for_end() -> None:
        while os.getppid() == parent:
            received = signal.sigtimedwait(STOP_SIGNALS, 1.0)
            if received and received.si_pid == parent:
                break
        os._exit(0)

    if hasattr(signal, "sigtimedwait"):  # Linux
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        threading.Thread(target=wait_for_end, daemon=True).start()


class _DecodingDataset(Dataset[Tensor | CalibrantError]):
    """Batches of images by their rows; errors are returned, since the loader would wrap one in a traceback."""

    def __init__(self, images: ImageFiles) -> None:
        self.images = images

    def __getitem__(self, rows: Tensor) -> Tensor | CalibrantError:
        try:
            return self.images[rows]
        except CalibrantError as error:
            return error
