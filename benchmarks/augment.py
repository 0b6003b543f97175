"""One AugMix view, mixup and cutmix of a batch, compared with a training step on it.

Run: python benchmarks/augment.py [--rounds 7] [--batch 128] [--model small_resnet]
CPU time of interleaved rounds, one thread; images of 32 x 32 pixels; random numbers included. The step is that of a
plain PyTorch loop, without crops and flips.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse

import torch
import torch.nn.functional as F
from recording import Ratio, record
from rich.console import Console
from rich.table import Table
from timing import ratios

from calibrant.corruptions import Draws
from calibrant.models import build_model
from calibrant.training.augment import MIXES, augmix_view
from calibrant.training.batches import normalise

GOALS = {"one AugMix view": 0.30}  # at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--model", default="small_resnet")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    coarse = 255 * torch.rand(2 * options.batch, 3, 8, 8)
    both = F.interpolate(coarse, (32, 32), mode="bilinear").to(torch.uint8)  # of images and their partners
    images, labels = both[: options.batch], torch.arange(2 * options.batch) % 10
    model = build_model(options.model, 10, image_size=32)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(normalise(images, 0.5, 0.5)), labels[: options.batch]).backward()
        optimizer.step()

    def draws(n_images: int) -> Draws:
        return Draws.of(list(range(n_images)), 0, 0, "benchmark", device=torch.device("cpu"))

    def mixed(name: str) -> object:
        return MIXES[name](both, F.one_hot(labels, 10), draws(2 * options.batch))

    functions = {
        "training step": step,
        "one AugMix view": lambda: augmix_view(images, draws(options.batch), "first"),
        "mixup": lambda: mixed("mixup"),
        "cutmix": lambda: mixed("cutmix"),
    }
    table = Table("", "CPU time, median", "min", "max", "goal")
    recorded = []
    for label, (ratio, low, high) in ratios(functions, options.rounds).items():
        goal = GOALS.get(label)
        table.add_row(label, f"{ratio:.3f}", f"{low:.3f}", f"{high:.3f}", f"at most {goal}" if goal else "")
        recorded.append(Ratio(what=label, relative_to="training step", ratio=ratio, low=low, high=high, at_most=goal))
    Console().print(table)
    record("augment", recorded[1:])


if __name__ == "__main__":
    main()
