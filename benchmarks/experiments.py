"""What a sweep costs beside its runs, and what a second process brings.

Run: python benchmarks/experiments.py [--runs 4] [--epochs 4] [--rounds 3]
The same training runs on the embedded data, each with its evaluation, are done bare (one call after the other), as a
sweep in this process, and as sweeps in one and in two processes of one thread, these with the start of the processes.
Wall-clock time; on a machine where other work is done the ratios of processes say little.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch are loaded, which read it once

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from calibrant.experiments.config import read_experiment
from calibrant.experiments.plan import make_plan
from calibrant.experiments.processes import Processes
from calibrant.experiments.run import carry_out
from calibrant.experiments.work import Backend, in_this_process, work

FILE = """
[settings]
data = "fashion_mnist_mini"
root = "{root}"
model = "small_convnet"
epochs = {epochs}
test_sample = 500
[[grid]]
loss = "maxent_mean"
seed = {seeds}
"""


def bare(file: Path, folder: Path) -> None:
    """The runs and nothing else."""
    for task in make_plan(read_experiment(file), folder).tasks():
        assert work(task).failure is None


def sweep(backend: Backend) -> Callable[[Path, Path], None]:
    def run(file: Path, folder: Path) -> None:
        result = carry_out(make_plan(read_experiment(file), folder), file, backend=backend)
        assert not result.missing

    return run


WAYS = {
    "bare runs": bare,
    "a sweep in this process": sweep(in_this_process),
    "a sweep in one process": sweep(Processes(1, 1)),
    "a sweep in two processes": sweep(Processes(2, 1)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        top, rounds = Path(name), []
        file = top / "bench.toml"
        file.write_text(FILE.format(root=top / "data", epochs=options.epochs, seeds=list(range(options.runs))))
        bare(file, top / "warm")  # the corrupted images are made once
        for number in range(options.rounds):
            seconds = {}
            for way, act in WAYS.items():
                began = time.perf_counter()
                act(file, top / f"{way}-{number}")
                seconds[way] = time.perf_counter() - began
            rounds.append(seconds)
    show(rounds, options.runs)


def show(rounds: list[dict[str, float]], n_runs: int) -> None:
    table = Table(title=f"{n_runs} runs, median of {len(rounds)} rounds")
    for heading in ("", "seconds", "ratio", "least", "greatest", "goal"):
        table.add_column(heading)
    floors = {
        "a sweep in this process": ("bare runs", "at most 1.03 of the bare runs"),
        "a sweep in two processes": ("a sweep in one process", "at most 0.59 (1.7 times faster)"),
    }
    for way in WAYS:
        cells = [way, f"{median(times[way] for times in rounds):.1f}"]
        if way in floors:
            floor, goal = floors[way]
            found = [times[way] / times[floor] for times in rounds]
            cells += [*(f"{value:.3f}" for value in (median(found), min(found), max(found))), goal]
        table.add_row(*cells)
    Console().print(table)


if __name__ == "__main__":
    main()
