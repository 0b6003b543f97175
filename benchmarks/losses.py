"""Losses, forward and backward from float32 logits: time relative to F.cross_entropy, and peak memory.

Run: python benchmarks/losses.py [--rounds 15]. One thread, CPU time, interleaved rounds; median (min-max).
"backward floor" is logits.sum().backward(): the cost of the autograd engine without a loss.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from recording import Ratio, record
from rich.console import Console
from rich.table import Table
from timing import ratios
from torch import Tensor

from calibrant.losses import LOSSES

SHAPES = [(128, 10), (512, 10), (512, 100), (512, 1000), (64, 21841), (4096, 10)]
GOALS = {
    "maxent_mean": (3.5, 1.6, 2.6, 1.4, 1.4, 0.6),
    "maxent_variance": (3.5, 1.6, 2.6, 1.4, 1.4, 0.6),
    "maxent_mean_variance": (4.5, 2.0, 3.5, 1.9, 1.7, 0.8),
    "focal": (2.5, 1.2, 2.2, 1.2, 1.1, 0.45),
    "inverse_focal": (2.5, 1.2, 2.2, 1.2, 1.1, 0.45),
    "poly": (2.5, 1.2, 2.2, 1.2, 1.1, 0.45),
    "avuc": (25, 8, 8, 4, 3, 3),
    "soft_avuc": (25, 8, 8, 4, 3, 3),
}


def step(criterion: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Callable[[], None]:
    def run() -> None:
        logits.grad = None
        criterion(logits, labels).backward()

    return run


def build(name: str, n_classes: int) -> Callable[[Tensor, Tensor], Tensor]:
    prior = torch.full((n_classes,), 1 / n_classes, dtype=torch.float64)
    return LOSSES[name](prior) if name.startswith("maxent") else LOSSES[name]()


def peak_copies(run: Callable[[], None], logits: Tensor) -> float:
    """Peak memory of one step, in copies of the logits, gradient included."""
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held, peak = 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / (logits.numel() * logits.element_size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    n_rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    columns: dict[tuple[int, int], dict[str, tuple[float, float, float]]] = {}
    for n, k in SHAPES:
        logits, labels = (3 * torch.randn(n, k)).requires_grad_(), torch.randint(k, (n,))
        functions = {"F.cross_entropy": step(F.cross_entropy, logits, labels)}
        functions["backward floor"] = step(lambda z, _: z.sum(), logits, labels)
        functions |= {name: step(build(name, k), logits, labels) for name in GOALS}
        columns[n, k] = ratios(functions, n_rounds)
    capability = torch.backends.cpu.get_cpu_capability()
    table = Table(title=f"time / F.cross_entropy, one thread, {capability}; goal in brackets", padding=(0, 1))
    table.add_column("loss")
    for shape in SHAPES:
        table.add_column(str(shape), justify="right")
    for name in columns[SHAPES[0]]:
        cells = []
        for column, shape in enumerate(SHAPES):
            median, least, most = columns[shape][name]
            goal = f"\n\\[{GOALS[name][column]}]" if name in GOALS else ""
            cells.append(f"{median:.2f} ({least:.2f}-{most:.2f}){goal}")
        table.add_row(name, *cells)
    console = Console(width=140)
    console.print(table)
    record(
        "losses",
        [
            Ratio(
                what=f"{name} {shape}",
                relative_to="F.cross_entropy",
                ratio=columns[shape][name][0],
                low=columns[shape][name][1],
                high=columns[shape][name][2],
                at_most=goal,
            )
            for name, goals in GOALS.items()
            for shape, goal in zip(SHAPES, goals, strict=True)
        ],
    )
    logits, labels = torch.randn(512, 1000, requires_grad=True), torch.randint(1000, (512,))
    for name in ("F.cross_entropy", *GOALS):
        criterion = F.cross_entropy if name == "F.cross_entropy" else build(name, 1000)
        copies = peak_copies(step(criterion, logits, labels), logits)
        console.print(f"{name:22} peak {copies:.2f} copies of the logits at (512, 1000)")


if __name__ == "__main__":
    main()
