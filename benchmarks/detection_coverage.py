"""Coverage of the 95 % intervals of AUROC, average precision and FPR at 95 % TPR, on simulated scores.

Run: python benchmarks/detection_coverage.py [--repeats 1000]; 80 seconds on one thread.
"sources": inside scores are N(0, 1), outside scores as named. With "rare", 3 % of the inside scores are above nearly
all outside scores; with "ties", all are rounded to halves. "too high" is the share of intervals above the truth.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import norm

from calibrant.ood.separation import (
    ScoreCounts,
    auroc,
    auroc_limits,
    average_precision,
    average_precision_limits,
    fpr_at_95_tpr,
    fpr_limits,
)

FIGURES = {
    "AUROC": (auroc, auroc_limits),
    "AUPR": (average_precision, average_precision_limits),
    "FPR": (fpr_at_95_tpr, fpr_limits),
}
SIZES = ((20, 20), (50, 200), (300, 100), (1000, 2000))  # inside, outside
EXPECTED_ROWS = 2e9  # of the sample that is the population
FINE = 1e-3


@dataclass(frozen=True)
class Source:
    """Scores of N(0, 1) inside and N(shift, scale²) outside; some of the inside ones are of N(shift + 3, 1)."""

    shift: float
    scale: float
    rare: float = 0.0
    step: float = FINE  # to which scores are rounded

    def draw(self, n: int, m: int, random: np.random.Generator) -> ScoreCounts:
        inside = np.where(random.random(n) < self.rare, random.normal(self.shift + 3, 1, n), random.normal(size=n))
        outside = random.normal(self.shift, self.scale, m)
        return ScoreCounts.of(*(torch.from_numpy((part / self.step).round()) for part in (inside, outside)))

    def population(self, n: int, m: int) -> ScoreCounts:
        """Two thousand million rows, in this proportion, as many of each score as are expected."""
        scores = np.arange(-10, 25, self.step)
        ends = np.append(scores - self.step / 2, np.inf)
        inside = (1 - self.rare) * np.diff(norm.cdf(ends)) + self.rare * np.diff(norm.cdf(ends, self.shift + 3))
        outside = np.diff(norm.cdf(ends, self.shift, self.scale))
        rows = [(EXPECTED_ROWS / (n + m) * x).round().astype(np.int64) for x in (n * inside, m * outside)]
        occurs = rows[0] + rows[1] > 0
        return ScoreCounts(scores[occurs], rows[0][occurs], rows[1][occurs])


SOURCES = {
    "N(0.5, 1)": Source(0.5, 1.0),
    "N(1.5, 1.5²)": Source(1.5, 1.5),
    "N(2.5, 0.8²)": Source(2.5, 0.8),
    "N(4, 1)": Source(4.0, 1.0),
    "N(1.5, 1), ties": Source(1.5, 1.0, step=0.5),
    "N(2.5, 0.8²), rare": Source(2.5, 0.8, rare=0.03),
}


def cells(source: Source, n: int, m: int, repeats: int) -> list[str]:
    """Of each figure: its true value, the coverage, the share of intervals that are too high, and the mean width."""
    random, population = np.random.default_rng([n, m]), source.population(n, m)
    draws = [source.draw(n, m, random) for _ in range(repeats)]
    found = []
    for value, limits in FIGURES.values():
        truth = value(population)
        low, high = np.array([limits(counts, 0.95) for counts in draws]).T
        covered = np.mean((low <= truth) & (truth <= high))
        found.append(f"{truth:.3f}: {covered:.3f} ({np.mean(low > truth):.3f}), {np.mean(high - low):.3f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000)
    arguments = parser.parse_args()
    table = Table("source", "inside", "outside", *(f"{name}: coverage (too high), width" for name in FIGURES))
    jobs = [(name, *sizes) for name in SOURCES for sizes in SIZES]
    for name, n, m in track(jobs, transient=True):
        table.add_row(name, str(n), str(m), *cells(SOURCES[name], n, m, arguments.repeats))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
