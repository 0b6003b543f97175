"""`python -m faults` in the folder tests: try faults, print a table of what held, exit 1 unless all did."""

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from faults.running import Part, Result, batteries, run

TRIALS, SLOW_TRIALS = 1000, 100  # of a module that states no TRIALS: with trials in its process, and in others


def table_of(results: Sequence[Result]) -> str:
    """Kind, tried and held, and a line with its command for every trial that did not hold."""
    tried = Counter(result.kind for result in results)
    held = Counter(result.kind for result in results if result.failure is None)
    tried["all"], held["all"] = len(results), held.total()
    width = max(map(len, tried))
    lines = [f"{'kind':{width}}  {'tried':>6}  {'held':>6}"]
    lines += [f"{kind:{width}}  {count:>6,}  {held[kind]:>6,}" for kind, count in tried.items()]
    for result in results:
        if result.failure is not None:
            lines.append(f"not held: {result.kind}: {result.name}: {result.failure}\n    {result.command}")
            lines.append(f"    its files: {shlex.quote(str(result.folder))}")
    return "\n".join(lines)


def main() -> int:
    modules = batteries()
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(modules), default=list(modules), help="by default all")
    parser.add_argument("--trials", type=int, help="of each kind; by default what fits half an hour on two cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, help="the number of the one trial to try")
    options = parser.parse_args()
    parts = []
    for name in options.kinds:
        usual = getattr(modules[name], "TRIALS", SLOW_TRIALS if getattr(modules[name], "SLOW", False) else TRIALS)
        n = usual if options.trials is None else options.trials
        part = Part(name, n, options.seed, options.only or 0, options.jobs if options.only is None else n)
        parts += [part] if options.only is not None else [part._replace(first=k) for k in range(options.jobs)]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # of a batch system: the table so far, as after Ctrl-C
    root = Path(tempfile.mkdtemp(prefix="calibrant-faults-"))
    scratch = root / "scratch"  # what modules make for all of their trials
    scratch.mkdir()
    os.environ["TMPDIR"] = str(scratch)
    results: list[Result] = []
    began, stopped = time.monotonic(), False
    try:
        for result in run(parts, options.jobs, root):
            results.append(result)
            if sys.stderr.isatty():
                print(f"\r{len(results):,} tried, {result.kind}\x1b[K", end="\r", file=sys.stderr)
    except KeyboardInterrupt:
        stopped = True
    print(table_of(results))
    print(f"{time.monotonic() - began:.0f} s, seed {options.seed}, {options.jobs} at a time")
    shutil.rmtree(scratch, ignore_errors=True)
    if not any(root.iterdir()):
        root.rmdir()
    held = bool(results) and all(result.failure is None for result in results)
    return 130 if stopped else 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
