"""Metrics compared with peers, as ratios; accuracy and memory on long streams; many groups.

Run: python benchmarks/metrics.py [--rounds 9] [--rows 1e6 1e7 1e8] [--drift 3e6 2e7] [--groups 20000]
One thread, CPU time, interleaved rounds; median (min-max). The streams write Parquet files of 43 bytes per row into a
temporary folder. Peak memory (Linux) is measured in a separate process, minus the memory after its imports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from recording import Ratio, record
from rich.console import Console
from rich.progress import track
from rich.table import Table
from timing import ratios
from torchmetrics.classification import MulticlassCalibrationError
from torchmetrics.functional.classification import multiclass_calibration_error

import calibrant as cb
from calibrant.metrics import expected_calibration_error, top_label

SHAPES = [(100_000, 10), (10_000, 1000)]
FILE_ROWS = 1_000_000
READ = """
import json, sys, time
from pathlib import Path
import pyarrow.parquet as pq

start = time.process_time()
n_rows = sum(b.num_rows for path in sorted(Path(sys.argv[1]).iterdir()) for b in pq.ParquetFile(path).iter_batches())
print(json.dumps({"seconds": time.process_time() - start}))
"""
AUDIT = """
import json, sys, time, torch
from resource import RUSAGE_CHILDREN, getrusage
from pathlib import Path
import calibrant as cb
from calibrant.audits.statistics import collect_statistics

def mib(field):
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) / 1024

torch.set_num_threads(1)
cb.score(cb.Predictions.from_logits(torch.zeros(2, 10), [0, 1])).values()  # warm-up: imports on first use
Path("/proc/self/clear_refs").write_text("5")  # reset the peak after the imports
before, start, wall = mib("VmRSS"), time.process_time(), time.perf_counter()
values = collect_statistics(cb.Predictions.scan(sys.argv[1]), jobs=int(sys.argv[2])).card.values()
wall, seconds = time.perf_counter() - wall, time.process_time() - start
children = getrusage(RUSAGE_CHILDREN)
print(json.dumps({
    "seconds": seconds, "wall": wall, "of_workers": children.ru_utime + children.ru_stime,
    "mib": mib("VmHWM") - before, "ece": values["ece"],
}))
"""


def speed(n_rounds: int, console: Console) -> None:
    table = Table(title="CPU time / time of torchmetrics' ECE, one thread; goal in brackets")
    table.add_column("")
    columns = []
    for n, k in SHAPES:
        table.add_column(f"({n:,}, {k:,})", justify="right")
        logits, labels = 3 * torch.randn(n, k), torch.randint(k, (n,))
        probs = logits.softmax(1)
        functions = {
            "torchmetrics, ECE alone, from probabilities": lambda p=probs, y=labels, k=k: multiclass_calibration_error(
                p, y, num_classes=k, n_bins=15
            ),
            "torchmetrics, ECE alone, from logits": lambda z=logits, y=labels, k=k: multiclass_calibration_error(
                z, y, num_classes=k, n_bins=15
            ),
            "netcal, ECE alone, from probabilities": netcal_ece(probs, labels),
            "calibrant, ECE alone, from probabilities": lambda p=probs, y=labels: expected_calibration_error(
                *top_label(p, y)
            ),
            "calibrant, whole scorecard, from logits": lambda z=logits, y=labels: cb.score(
                cb.Predictions.from_logits(z, y)
            ).values(),
        }
        columns.append(ratios(functions, n_rounds))
    goals = {
        "calibrant, ECE alone, from probabilities": ("0.5", "0.1"),
        "calibrant, whole scorecard, from logits": ("4", "3"),
    }
    for name in columns[0]:
        cells = [f"{m:.2f} ({low:.2f}-{high:.2f})" for m, low, high in (column[name] for column in columns)]
        goal = goals.get(name, ("", ""))
        table.add_row(name, *(cell + (f" \\[{g}]" if g else "") for cell, g in zip(cells, goal, strict=True)))
    console.print(table)
    for (n, k), column in zip(SHAPES, columns, strict=True):
        times = (
            column["netcal, ECE alone, from probabilities"][0] / column["calibrant, ECE alone, from probabilities"][0]
        )
        console.print(f"ECE alone at ({n:,}, {k:,}): {times:.1f} times as fast as netcal (goal 4)")


def many_groups(n_groups: int, n_rounds: int, console: Console) -> list[Ratio]:
    """The score of 10^6 rows of ten classes in so many groups, over that without groups."""
    logits, labels = batch_of(10**6, 0)
    group = torch.randint(n_groups, (len(logits),), generator=torch.Generator().manual_seed(0))
    rows = cb.Predictions.from_logits(logits, labels, columns={"group": group.numpy()})
    batches = [rows[i : i + 100_000] for i in range(0, len(rows), 100_000)]
    recorded = []
    for what, source in (("in memory", rows), ("in batches of 100,000 rows", batches)):
        floor = f"score of 10^6 rows {what}"
        functions = {floor: lambda s=source: cb.score(s), "groups": lambda s=source: cb.score(s, by="group")}
        ratio, low, high = ratios(functions, n_rounds, 1)["groups"]
        console.print(f"{floor}, in {n_groups:,} groups: {ratio:.2f} ({low:.2f}-{high:.2f}) [goal 4]", markup=False)
        recorded.append(
            Ratio(
                what=f"the same in {n_groups:,} groups", relative_to=floor, ratio=ratio, low=low, high=high, at_most=4
            )
        )
    return recorded


def netcal_ece(probs: torch.Tensor, labels: torch.Tensor):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from netcal.metrics import ECE
    p, y, ece = probs.numpy(), labels.numpy(), ECE(15)
    return lambda: ece.measure(p, y)


def batch_of(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Overconfident predictions of ten classes, with most confidences near 1."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, 10, generator=generator)
    logits[torch.arange(rows), torch.randint(10, (rows,), generator=generator)] += 9
    uniform = torch.rand(rows, 1, generator=generator)
    return logits, ((0.7 * logits).softmax(1).cumsum(1) < uniform).sum(1).clamp_(max=9)


def drift(sizes: list[int], console: Console) -> None:
    """The ECE of a stream in batches of 100,000 rows, and from float64 sums over all rows."""
    for size in sizes:
        peer, cards, outcomes = MulticlassCalibrationError(10, n_bins=15, validate_args=False), None, []
        for seed in track(range(size // 100_000), f"{size:,} rows", transient=True, console=console):
            logits, labels = batch_of(100_000, seed)
            probs = logits.softmax(1)
            peer.update(probs, labels)
            card = cb.score([cb.Predictions.from_logits(logits, labels)], metrics=["ece"])
            cards = card if cards is None else cards + card
            outcomes.append(top_label(probs.double(), labels))
        confidence, correct = (torch.cat(column) for column in zip(*outcomes, strict=True))
        exact = expected_calibration_error(confidence, correct).item()
        theirs, ours = peer.compute().item() - exact, cards.ece - exact
        console.print(
            f"{size:>12,} rows: ECE {exact:.6f}; error of torchmetrics {theirs:+.6f}, of calibrant {ours:+.1e}"
        )


def streams(sizes: list[int], console: Console) -> list[Ratio]:
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        written = 0
        table = Table(title="audit of Parquet files, ten classes, one thread")
        for heading in ("rows", "GB", "seconds", "rows / second", "MiB above the interpreter", "ece"):
            table.add_column(heading, justify="right")
        for size in sorted(sizes):
            start = time.time()
            for number in track(
                range(written, size // FILE_ROWS), f"writing {size:,} rows", transient=True, console=console
            ):
                cb.Predictions.from_logits(*batch_of(FILE_ROWS, number)).save(Path(folder) / f"{number:04}.parquet")
            written = size // FILE_ROWS
            console.print(f"wrote {size:,} rows in {time.time() - start:.0f} s", style="dim")
            alone, found, two = (
                json.loads(subprocess.run([sys.executable, "-c", *command], stdout=subprocess.PIPE, check=True).stdout)
                for command in ((READ, folder), (AUDIT, folder, "1"), (AUDIT, folder, "2"))
            )
            console.print(
                f"{size:,} rows, CPU seconds: pyarrow {alone['seconds']:.1f}, audit {found['seconds']:.1f}; with two "
                f"processes {two['seconds']:.1f} in this one and {two['of_workers']:.1f} in the others; wall-clock "
                f"{found['wall']:.1f} with one, {two['wall']:.1f} with two"
            )
            ratio, speed_up = found["seconds"] / alone["seconds"], found["wall"] / two["wall"]
            reading, one = "pyarrow reading the same files, CPU time", "one process, wall-clock time"
            recorded += [
                Ratio(
                    what=f"audit of {size:,} rows", relative_to=reading, ratio=ratio, low=ratio, high=ratio, at_most=3
                ),
                Ratio(
                    what=f"speed of an audit of {size:,} rows with two processes",
                    relative_to=one,
                    ratio=speed_up,
                    low=speed_up,
                    high=speed_up,
                    at_least=1.8,
                ),
            ]
            gigabytes = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e9
            per_second = f"{size / found['seconds']:,.0f}"
            table.add_row(
                f"{size:,}",
                f"{gigabytes:.2f}",
                f"{found['seconds']:.1f}",
                per_second,
                f"{found['mib']:.0f}",
                f"{found['ece']:.6f}",
            )
        console.print(table)
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--rows", type=float, nargs="*", default=[1e6, 1e7], help="rows of the streams; 1e8 takes 10 minutes"
    )
    parser.add_argument(
        "--drift", type=float, nargs="*", default=[3e6], help="rows of the comparison with torchmetrics"
    )
    parser.add_argument("--groups", type=int, default=20_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    console = Console(width=140)
    if arguments.rounds:
        speed(arguments.rounds, console)
        record("groups", many_groups(arguments.groups, arguments.rounds, console))
    drift([int(size) for size in arguments.drift], console)
    if arguments.rows:
        record("streams", streams([int(size) for size in arguments.rows], console))


if __name__ == "__main__":
    main()
