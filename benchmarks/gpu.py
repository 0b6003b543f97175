"""What a GPU is to show, once, on a machine that has one: ratios of time, and how often the host waits for the device.

Run: python benchmarks/gpu.py [--rounds 9]    (--device cpu: the same code without a GPU; --quick: small, to see it run)
Wall-clock time until the device has finished, interleaved rounds, median (min-max). The goals are expectations: no GPU
has been measured yet. "operations" are those that torch starts in a forward and a backward pass; on a GPU each is a
kernel, and their number decides the time of small batches.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from recording import Ratio, record
from rich.console import Console
from rich.table import Table
from timing import ratios
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import calibrant as cb
from calibrant.losses import LOSSES
from calibrant.models import build_model
from training import our_epoch, random_data

NO_KERNEL = {"detach", "empty_like", "scalar_tensor", "_unsafe_view"}  # scalar_tensor makes a number on the host
READ_BY_DESIGN = {"shot_noise", "glass_blur", "spatter", "jpeg_compression"}  # docs/gpu.md
Step = Callable[[], object]


class Operations(TorchDispatchMode):
    """Counts what torch starts, but for views and what makes no kernel."""

    n = 0

    def __torch_dispatch__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        self.n += not (function.is_view or function.overloadpacket.__name__ in NO_KERNEL)
        return function(*args, **(kwargs or {}))


def n_operations(step: Step) -> int:
    with Operations() as operations:
        step()
    return operations.n


def n_waits(step: Step) -> int:
    """How often CUDA says that the host waits; 0 on the CPU."""
    if not torch.cuda.is_available():
        return 0
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in found)


class Report:
    """Prints and collects ratios, measured on a device."""

    def __init__(self, device: str, rounds: int) -> None:
        self.device, self.rounds = device, rounds
        self.found: list[Ratio] = []
        self.table = Table("", "relative to", "ratio", "expected", "operations", "waits", title_justify="left")

    def seconds(self, step: Step, repeats: int) -> float:
        self._finish()
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        self._finish()
        return (time.perf_counter() - start) / repeats

    def _finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def add(self, what: str, step: Step, floor: str, floor_step: Step, at_most: float, *, counted: bool = True) -> None:
        measured = ratios({floor: floor_step, what: step}, self.rounds, seconds=self.seconds)
        middle, low, high = measured[what]
        self.found.append(Ratio(what=what, relative_to=floor, ratio=middle, low=low, high=high, at_most=at_most))
        counts = (f"{n_operations(step)} / {n_operations(floor_step)}", str(n_waits(step))) if counted else ("", "")
        self.table.add_row(what, floor, f"{middle:.2f} ({low:.2f}-{high:.2f})", f"at most {at_most:g}", *counts)


def backward(criterion: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> None:
    logits.grad = None
    criterion(logits, labels).backward()


def losses(report: Report, shapes: list[tuple[int, int]]) -> None:
    for n, k in shapes:
        logits = torch.randn(n, k, device=report.device, requires_grad=True)
        labels = torch.randint(k, (n,), device=report.device)
        for name, build in LOSSES.items():
            prior = [torch.full((k,), 1 / k, dtype=torch.float64)] if name.startswith("maxent") else []
            criterion = build(*prior, validate=False).to(report.device)  # as is the default on a GPU
            step, floor = (partial(backward, loss, logits, labels) for loss in (criterion, F.cross_entropy))
            # small batches take as long as there are operations, large ones as long as there are passes over the logits
            expected = 4.0 if n * k > 10**6 else round(1.2 * n_operations(step) / n_operations(floor), 1)
            report.add(f"{name} ({n}, {k})", step, "F.cross_entropy", floor, expected)


def corruptions(report: Report, n_images: int) -> None:
    images = torch.randint(0, 256, (n_images, 3, 32, 32), dtype=torch.uint8)
    moved = images.to(report.device)
    for name in cb.CORRUPTIONS:
        step, floor = (partial(cb.corrupt, given, name, 3) for given in (moved, images))
        step()  # makes the tables of this device
        report.add(name, step, "on the CPU", floor, 1.2 if name in READ_BY_DESIGN else 0.5)


def scorecard(report: Report, n: int) -> None:
    logits, labels = torch.randn(n, 100), torch.randint(100, (n,))
    moved = logits.to(report.device), labels.to(report.device)

    def scored(logits: Tensor, labels: Tensor) -> object:
        return cb.score(cb.Predictions.from_logits(logits, labels))

    report.add(f"score ({n}, 100)", partial(scored, *moved), "on the CPU", partial(scored, logits, labels), 1.3)


def training(report: Report, steps: int, batch: int, model_name: str, folder: Path) -> None:
    """Epochs of the loop with images in the memory of the device, without crops and flips, over a plain loop."""
    given = {"batch_size": batch, "model": model_name, "crop_padding": 0, "flip": False}
    data = random_data(steps * batch)
    _, ours = our_epoch(data, folder, report.device, **given)
    _, maxent = our_epoch(data, folder, report.device, loss="maxent_mean", **given)
    model = build_model(model_name, 10, image_size=32).to(report.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    images = torch.randn(batch, 3, 32, 32, device=report.device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device=report.device)

    def plain() -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

    # an epoch ends with a log, the one moment that waits
    report.add(f"{steps} steps", ours, "plain loop", plain, 1.1)
    report.add(f"{steps} steps, maxent_mean", maxent, "cross_entropy", ours, 1.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU that torch can use here; --device cpu runs the same code without one")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # what a core of the host does is the measure of what the device adds
    report = Report(options.device, options.rounds)
    losses(report, [(64, 10)] if options.quick else [(512, 10), (512, 1000), (4096, 1000)])
    corruptions(report, 8 if options.quick else 512)
    scorecard(report, 100 if options.quick else 100_000)
    with tempfile.TemporaryDirectory() as folder:
        size = (2, 16, "mlp") if options.quick else (25, 512, "resnet18")
        training(report, *size, Path(folder))
    Console(width=120).print(report.table)
    if options.device == "cuda" and not options.quick:
        record("gpu", report.found, notes=[torch.cuda.get_device_name()])


if __name__ == "__main__":
    main()
