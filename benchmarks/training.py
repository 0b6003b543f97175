"""The training loop compared with a plain PyTorch loop; MaxEnt Loss with cross-entropy; time spent waiting for data.

Run: python benchmarks/training.py [--rounds 7] [--steps 10] [--batch 128] [--model small_resnet]
The plain loop has the same model, images in memory, crops and flips, loss, optimizer and precision, but no checkpoint,
log, accuracy or seed. CPU time of interleaved epochs, one thread; images of 32 x 32 pixels.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from recording import Ratio, record
from rich.console import Console
from rich.table import Table
from timing import ratios
from torch import Tensor, nn

from calibrant._signals import StopRequest
from calibrant.data import ArrayData, DataSet, open_dataset
from calibrant.models import build_model
from calibrant.runs import RunFolder
from calibrant.training.callback import TrainingCallback
from calibrant.training.checkpoint import TrainingState
from calibrant.training.engine import new_fabric
from calibrant.training.loop import TrainingLoop
from calibrant.training.settings import Settings

PADDING = 4
GOALS = {"our loop": 1.05, "maxent_mean": 1.02}  # at most
WAITING = 0.03


def random_data(n_train: int) -> ArrayData:
    """Random images of the size of CIFAR's."""

    def read(_root: Path, part: str) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        n = n_train + 100 if part == "train" else 100
        images = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return images, torch.arange(n) % 10

    names = tuple("abcdefghij")
    return ArrayData("random", class_names=names, native_size=32, channels=3, read=read, n_validation=100)


def our_epoch(
    data: DataSet, folder: Path, device: str = "cpu", **given: object
) -> tuple[TrainingLoop, Callable[[], object]]:
    """A training loop, and a function that trains its first epoch again."""
    settings = Settings.model_validate({"data": "cifar10", "device": device, "epochs": 1000, **given})
    fit = TrainingLoop(
        settings, data, RunFolder(folder), new_fabric(device), callback=TrainingCallback(), request=StopRequest()
    )

    def epoch() -> None:
        fit.state = TrainingState(fit.train.digest)
        fit._train_epoch()

    return fit, epoch


def bare_epoch(data: ArrayData, batch: int, model_name: str) -> Callable[[], object]:
    """An epoch of a plain PyTorch loop."""
    split = data.split("train")
    images, labels = split.images, split.labels
    assert isinstance(images, Tensor)
    model = build_model(model_name, 10, image_size=32)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    def epoch() -> None:
        model.train()
        order = torch.randperm(len(images))
        for rows in order[: len(order) // batch * batch].split(batch):
            step(model, optimizer, moved(images[rows]), labels[rows])

    return epoch


def moved(images: Tensor) -> Tensor:
    """Crops of the padded images, half of them flipped, normalised."""
    padded = F.pad(images, (PADDING,) * 4)
    offsets = torch.randint(2 * PADDING + 1, (len(images), 2)).tolist()
    flips = (torch.rand(len(images)) < 0.5).tolist()
    crops = [image[:, y : y + 32, x : x + 32] for image, (y, x) in zip(padded, offsets, strict=True)]
    batch = torch.stack([crop.flip(2) if flip else crop for crop, flip in zip(crops, flips, strict=True)])
    return batch.contiguous(memory_format=torch.channels_last).float().div_(127.5).sub_(1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()


def images(folder: Path, n_images: int) -> DataSet:
    """Random JPEG files of 96 pixels, resized to 64."""
    generator = torch.Generator().manual_seed(0)
    for number in range(n_images):
        path = folder / "train" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = torch.randint(0, 256, (12, 12, 3), dtype=torch.uint8, generator=generator)
        Image.fromarray(small.numpy()).resize((96, 96)).save(path)
    return open_dataset("image_folder", folder, image_size=64)


def waiting(what: str, fit: TrainingLoop) -> Ratio:
    share = fit.state.waiting / fit.state.seconds
    return Ratio.of(f"waiting for {what}", "wall-clock time of an epoch", [share], at_most=WAITING)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="per epoch")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--model", default="small_resnet")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = {"batch_size": options.batch, "model": options.model}
        data = random_data(options.steps * options.batch)
        fit, ours = our_epoch(data, folder, **given)
        _, maxent = our_epoch(data, folder, loss="maxent_mean", **given)
        bare = bare_epoch(data, options.batch, options.model)
        pairs = ({"plain loop": bare, "our loop": ours}, {"cross_entropy": ours, "maxent_mean": maxent})
        found = [ratios(pair, options.rounds) for pair in pairs]
        streamed, stream = our_epoch(images(folder, 120 * 64), folder, batch_size=64, model=options.model, workers=1)
        stream()
    recorded = []
    for floor, what in map(list, found):
        ratio, low, high = found[len(recorded)][what]
        recorded.append(Ratio(what=what, relative_to=floor, ratio=ratio, low=low, high=high, at_most=GOALS[what]))
    recorded += [waiting("images in memory", fit), waiting("JPEG files, with the start of a worker", streamed)]
    table = Table("", "relative to", "median", "min", "max", "at most")
    for each in recorded:
        figures = (f"{value:.3f}" for value in (each.ratio, each.low, each.high, each.at_most))
        table.add_row(each.what, each.relative_to, *figures)
    console = Console()
    console.print(table)
    console.print(f"images per second: {fit.state.n_seen / fit.state.seconds:,.0f}")
    record("training", recorded)


if __name__ == "__main__":
    main()
