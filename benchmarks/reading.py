"""Speed of `calibrant convert` on a CSV file, as CPU and wall-clock time divided by those of pyarrow parsing it.

    python benchmarks/reading.py [--rows 1000000] [--rounds 5]

The file has three classes, a label and an id; the rounds of the two are interleaved.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from calibrant import reading


def write_rows(path: Path, n: int) -> None:
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), n)
    names = ["cat", "dog", "fish"]
    labels = pa.array(names).take(pa.array(random.integers(0, 3, n)))
    columns = {f"p_{name}": probs[:, k] for k, name in enumerate(names)}
    pa_csv.write_csv(pa.table({**columns, "y": labels, "id": np.arange(n)}), path)


def parse(path: Path) -> int:
    """All batches by pyarrow alone, in blocks of the size that calibrant takes."""
    options = pa_csv.ReadOptions(block_size=reading.tables.BLOCK_BYTES)
    return sum(batch.num_rows for batch in pa_csv.open_csv(path, read_options=options))


def seconds(function: Callable[[], int]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder) / "p.csv", Path(folder) / "p.parquet"
        write_rows(path, int(given.rows))
        size = path.stat().st_size
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        parsed, converted = [], []
        for _ in range(given.rounds):
            parsed.append(seconds(lambda: parse(path)))
            converted.append(seconds(lambda: reading.convert(path, output)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for kind, name in enumerate(("CPU", "wall-clock")):
            ratios = [b[kind] / a[kind] for a, b in zip(parsed, converted, strict=True)]
            text = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            alone = median(each[kind] for each in parsed)
            print(f"{name}: convert / pyarrow {text}; pyarrow {alone:.2f} s, {size / 1e6 / alone:.0f} MB/s")
        print(f"peak memory: {(peak - base) / 1e3:.0f} MB more than after writing the file of {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
