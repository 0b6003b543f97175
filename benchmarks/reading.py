"""Speed and memory of `convert` and `audit` on a CSV file: CPU and wall-clock time divided by those of pyarrow alone.

    python benchmarks/reading.py [--rows 1e7] [--rounds 5]

The file has the probabilities of three classes, a label and an id; pyarrow parses it in a stream. Each of the three
works in a process of its own, which imports what it needs before its time is taken; rounds of them are interleaved.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from recording import Ratio, record

NAMES = ["cat", "dog", "fish"]
CHUNK_ROWS = 10**6
BLOCK_BYTES = 2**23  # that pyarrow parses at a time, here as in calibrant


def write_rows(path: Path, n: int) -> None:
    random, writer = np.random.default_rng(0), None
    with path.open("wb") as file:
        for start in range(0, n, CHUNK_ROWS):
            rows = min(CHUNK_ROWS, n - start)
            probs = random.dirichlet(np.ones(3), rows)
            labels = pa.array(NAMES).take(pa.array(random.integers(0, 3, rows)))
            columns = {f"p_{name}": probs[:, k] for k, name in enumerate(NAMES)}
            table = pa.table({**columns, "y": labels, "id": np.arange(start, start + rows)})
            writer = writer or pa_csv.CSVWriter(file, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def measure(task: str, path: str) -> None:
    """Print the CPU and wall-clock seconds of a task, and its peak memory in bytes beyond that after the imports."""
    if task != "parse":
        from calibrant import reading
        from calibrant.audits import audit
        from calibrant.predictions import Predictions
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()
    if task == "parse":
        options = pa_csv.ReadOptions(block_size=BLOCK_BYTES)
        sum(batch.num_rows for batch in pa_csv.open_csv(path, read_options=options))
    elif task == "convert":
        reading.convert(path, f"{path}.parquet")
    else:
        audit(Predictions.scan(path))
    seconds = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps([*seconds, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)]))


def run(task: str, path: Path) -> list[float]:
    command = [sys.executable, __file__, "--task", task, "--path", str(path)]
    found: list[float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        measure(given.task, given.path)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.csv"
        write_rows(path, int(given.rows))
        found: dict[str, list[list[float]]] = {task: [] for task in ("parse", "convert", "audit")}
        for _ in range(given.rounds):
            for task, rounds in found.items():
                rounds.append(run(task, path))
        size = path.stat().st_size / 1e6
        recorded = []
        for kind, name in enumerate(("CPU", "wall-clock")):
            alone = median(each[kind] for each in found["parse"])
            print(f"{name}: pyarrow {alone:.2f} s, {size / alone:.0f} MB/s")
            for task in ("convert", "audit"):
                ratios = [b[kind] / a[kind] for a, b in zip(found["parse"], found[task], strict=True)]
                middle, low, high = median(ratios), min(ratios), max(ratios)
                print(f"  {task} / pyarrow {middle:.2f} ({low:.2f} to {high:.2f})")
                what = f"calibrant {task} of {given.rows:,.0f} rows, 3 classes, {name} time"
                floor = "pyarrow parsing the same CSV file"
                recorded.append(Ratio(what=what, relative_to=floor, ratio=middle, low=low, high=high, at_most=2))
        record("reading", recorded)
        peaks = ", ".join(f"{task} {max(each[2] for each in rounds) / 1e6:.0f} MB" for task, rounds in found.items())
        print(f"peak memory beyond the imports, for a file of {size:.0f} MB: {peaks}")


if __name__ == "__main__":
    main()
