"""False alarms of a monitor, and how soon it finds a drop of accuracy, beside ADWIN and Page-Hinkley of river.

Run: python benchmarks/alarms.py [--streams 400] [--rows 5000] [--change 2000] [--reference 10000] [--alpha 0.05]
With --files N instead: CPU time and memory of `calibrant monitor` on N files of 10,000 rows, and then on one more.
The peers need river (pip install river); without it their rows are missing.
Rows have a confidence, Beta(8, 1.2), and are correct that often, until the accuracy drops by 5, 10 or 20 percentage
points for all confidences alike. The questions of the monitor are at their thirds of alpha, as `calibrant monitor` has
them. ADWIN and Page-Hinkley read the errors, with their default settings. A false alarm is any in a stream without a
drop. A delay is the number of rows from the drop to the first alarm after it; it has its median, and how many of 100
streams had no alarm within --rows after the drop. Alarms before the drop are left out.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from calibrant import Predictions
from calibrant.monitors.questions import Evidence

DROPS = (0.05, 0.1, 0.2)
Stream = tuple[np.ndarray, np.ndarray]  # confidence, correct
Detector = Callable[[Stream], int | None]  # the number of rows at the first alarm


def draw(random: np.random.Generator, n: int, change: int = 0, drop: float = 0.0) -> Stream:
    confidence = random.beta(8, 1.2, n)
    lower = np.where(np.arange(n) < change, 0.0, drop)
    return confidence, (random.random(n) < confidence - lower).astype(float)


def question(name: str, reference: int, alpha: float) -> Detector:
    """A question of the monitor, after a reference of so many rows."""

    def detect(stream: Stream) -> int | None:
        confidence, correct = draw(np.random.default_rng(int(1e9 * stream[0][0])), reference)
        evidence = Evidence.from_reference(confidence, correct, {"entropy": confidence}, alpha)
        evidence.add_labelled(*stream)
        alarm = evidence.processes[name].alarm
        return None if alarm is None else alarm.n_rows

    return detect


def peer(make: Callable[[], object]) -> Detector:
    """A drift detector of river on the errors."""

    def detect(stream: Stream) -> int | None:
        detector = make()
        for row, correct in enumerate(stream[1].tolist()):
            detector.update(1 - correct)  # type: ignore[attr-defined]
            if detector.drift_detected:  # type: ignore[attr-defined]
                return row + 1
        return None

    return detect


def detectors(reference: int, alpha: float) -> Iterator[tuple[str, Detector]]:
    for name in ("miscalibrated", "changed"):
        yield f"monitor: {name}", question(name, reference, alpha)
    try:
        from river.drift import ADWIN, PageHinkley
    except ImportError:
        print("river is missing: pip install river")
    else:
        yield "river: ADWIN", peer(ADWIN)
        yield "river: Page-Hinkley", peer(PageHinkley)


def write_rows(path: Path, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(10_000, 10, generator=random)
    labels = logits.softmax(1).multinomial(1, generator=random)[:, 0]
    when = np.full(len(logits), np.datetime64("2020-01-01", "us") + np.timedelta64(seed, "D"))
    Predictions.from_logits(logits, labels, columns={"when": when}).save(path)


def measure(n_files: int) -> None:
    """Runs of the command on files, in processes of their own."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        stream, reference, state = folder / "stream", folder / "reference.parquet", folder / "monitor.json"
        stream.mkdir()
        write_rows(reference, 0)
        options = f"--reference {reference} --time when --every 1d --state {state}".split()
        command = [sys.executable, "-m", "calibrant", "monitor", str(stream), *options, "--fail-if", "alarms > 0"]
        for first, last in ((1, n_files), (n_files + 1, n_files + 1)):
            for number in track(range(first, last + 1), "writing"):
                write_rows(stream / f"{number:06}.parquet", number)
            pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, 1)])
            _, status, used = os.wait4(pid, 0)
            rows = f"{10_000 * (last - first + 1):,} rows in {last - first + 1:,} files"
            cost = f"{used.ru_utime + used.ru_stime:.1f} s of CPU time, {used.ru_maxrss / 1024:,.0f} MB"
            print(f"{rows}: {cost}, a state of {state.stat().st_size / 1e6:.1f} MB, exit code {status >> 8}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("streams", 400), ("rows", 5000), ("change", 2000), ("reference", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--files", type=int)
    given = parser.parse_args()
    if given.files is not None:
        measure(given.files)
        return
    table = Table("detector", f"false alarms in {given.rows:,} rows", *(f"delay, drop of {100 * d:g}" for d in DROPS))
    for name, detect in detectors(given.reference, given.alpha):
        random = np.random.default_rng(0)
        false = sum(detect(draw(random, given.rows)) is not None for _ in track(range(given.streams), name))
        cells = [f"{false / given.streams:.3f}"]
        for drop in DROPS:
            streams = (draw(random, given.change + given.rows, given.change, drop) for _ in range(100))
            found = [detect(stream) for stream in track(streams, f"{name}, {drop}", total=100)]
            late = [given.rows + 1 if row is None else row - given.change for row in found]
            after = np.array([delay for delay in late if delay > 0])
            missed = f", {100 * np.mean(after > given.rows):.0f} of 100 missed" if (after > given.rows).any() else ""
            cells.append(f"{np.median(after):,.0f}{missed}")
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
