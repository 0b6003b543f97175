"""The solver compared with one scipy root-find per class; the largest problem; the constructor of the loss.

Run: python benchmarks/solver.py [--rounds 3]
One thread, CPU time. Each large problem runs in a separate process, which prints its peak memory, torch included.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from statistics import median

import numpy as np
import torch
from recording import Ratio, record
from rich.console import Console
from rich.table import Table
from scipy.optimize import root
from timing import cpu_seconds

import calibrant as cb
from calibrant.maxent import constraints

FORMS = ("mean", "variance", "mean_variance")
LARGE = 21_841


def uniform(n_classes: int) -> torch.Tensor:
    return torch.full((n_classes,), 1 / n_classes, dtype=torch.float64)


def scipy_loop(n_classes: int, form: str, rows: list[int]) -> float:
    """CPU seconds per class of scipy.optimize.root (hybr, exact Jacobian) on features scaled to [0, 1]."""
    needed = constraints(uniform(n_classes), form)
    start = time.process_time()
    for row in rows:
        features = needed.base.numpy()
        if needed.centers is not None:
            features = np.stack([features[:, 0], (features[:, 0] - needed.centers[row].item()) ** 2], axis=1)
        scale = np.abs(features).max(0)
        features, target = features / scale, needed.targets[row].numpy() / scale

        def equations(multipliers: np.ndarray, features=features, target=target) -> tuple[np.ndarray, np.ndarray]:
            weights = np.exp(np.minimum(-1 - features @ multipliers, 500))
            return weights @ features - target, -(features * weights[:, None]).T @ features

        root(equations, np.zeros(features.shape[1]), jac=True, tol=1e-13)
    return (time.process_time() - start) / len(rows)


def large(form: str) -> None:
    """Solve one large problem; print the seconds, and the peak memory of the process in MiB."""
    start = time.process_time()
    cb.solve(uniform(LARGE), form)
    seconds = time.process_time() - start
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", choices=FORMS)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.large:
        large(arguments.large)
        return
    console = Console(width=120)
    table = Table(title="all classes of one form: a scipy root-find per class / calibrant (goal at 1,000: 10)")
    for heading in ("form", "K = 10", "K = 100", "K = 1,000"):
        table.add_column(heading, justify="right")
    recorded = []
    for form in FORMS:
        for k in (10, 100, 1000):
            rows = list(range(0, k, max(1, k // 50)))
            cb.solve(uniform(k), form)
            rounds = [
                k * scipy_loop(k, form, rows) / cpu_seconds(lambda form=form, k=k: cb.solve(uniform(k), form), 3)
                for _ in range(arguments.rounds)
            ]
            goal = 10 if k == 1000 else None
            what = f"a scipy root-find per class, {form}, K = {k:,}"
            recorded.append(Ratio.of(what, "cb.solve of all classes", rounds, at_least=goal))
        table.add_row(form, *(f"{ratio.ratio:.0f} ({ratio.low:.0f}-{ratio.high:.0f})" for ratio in recorded[-3:]))
    console.print(table)
    for form in FORMS:
        command = [sys.executable, __file__, "--large", form]
        seconds, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        console.print(f"K = 21,841, {form}: {seconds:.1f} s, {peak:.0f} MiB")
        goals = (None, None) if form == "mean_variance" else (15, 1024)
        recorded.append(Ratio.of(f"cb.solve, {form}, K = {LARGE:,}", "1 s", [seconds], at_most=goals[0]))
        what = f"its peak memory, torch included, {form}, K = {LARGE:,}"
        recorded.append(Ratio.of(what, "1 MiB", [peak], at_most=goals[1]))
    for form in (*FORMS, "prior"):
        times = [cpu_seconds(lambda form=form: cb.MaxEntLoss(uniform(10), form), 5) for _ in range(11)]
        console.print(f"MaxEntLoss constructor, K = 10, {form}: {1e3 * median(times):.1f} ms (goal 5)")
        what = f"MaxEntLoss constructor, {form}, K = 10"
        recorded.append(Ratio.of(what, "1 ms", [1e3 * seconds for seconds in times], at_most=5))
    record("solver", recorded)


if __name__ == "__main__":
    main()
