"""The overhead of a sweep, and the speed-up of a second process.

Run: python benchmarks/experiments.py [--runs 6] [--epochs 4] [--rounds 1]
Sweeps the same training runs on the embedded data, each with its evaluation, in this process, in one process and in
two, with one thread each. The time includes the start of the processes. The overhead is the time of the sweep divided
by the sum over its runs. Wall-clock time: measure on an idle machine.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
import tempfile
import time
from pathlib import Path

import torch
from recording import Ratio, record
from rich.console import Console
from rich.table import Table

from calibrant.experiments.processes import ProcessBackend
from calibrant.experiments.run import plan_experiment, run_plan
from calibrant.experiments.tasks import Backend, in_this_process, run_task

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


def swept(file: Path, folder: Path, backend: Backend) -> tuple[float, float]:
    """Seconds of a sweep, and the sum over its runs."""
    seconds: list[float] = []
    began = time.perf_counter()
    result = run_plan(
        plan_experiment(file, output=folder),
        file,
        backend=backend,
        on_run_end=lambda outcome: seconds.append(outcome.seconds),
    )
    assert not result.missing
    return time.perf_counter() - began, sum(seconds)


WAYS: dict[str, Backend] = {
    "in this process": in_this_process,
    "in one process": ProcessBackend(1, 1),
    "in two processes": ProcessBackend(2, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        top, rounds = Path(name), []
        file = top / "bench.toml"
        file.write_text(FILE.format(root=top / "data", epochs=options.epochs, seeds=list(range(options.runs))))
        run_task(plan_experiment(file, output=top / "warm").tasks()[0])  # warm-up: makes the corrupted images
        for number in range(options.rounds):
            rounds.append({way: swept(file, top / f"{way}-{number}", backend) for way, backend in WAYS.items()})
    show(rounds, options.runs)


def show(rounds: list[dict[str, tuple[float, float]]], n_runs: int) -> None:
    alone = [total / runs for total, runs in (found["in this process"] for found in rounds)]
    halved = [found["in two processes"][0] / found["in one process"][0] for found in rounds]
    recorded = [
        Ratio.of(f"a sweep of {n_runs} runs, in this process", "its runs", alone, at_most=1.03),
        Ratio.of(f"a sweep of {n_runs} runs, two processes", "one process", halved, at_most=0.59),
    ]
    table = Table("", "relative to", "ratio", "min", "max", "at most", title=f"median of {len(rounds)} rounds")
    for each in recorded:
        figures = (f"{value:.3f}" for value in (each.ratio, each.low, each.high, each.at_most))
        table.add_row(each.what, each.relative_to, *figures)
    Console().print(table)
    record("experiments", recorded)


if __name__ == "__main__":
    main()
