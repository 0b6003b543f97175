"""How often a table marks a difference as significant (†) between losses of equal expectation.

Run: python benchmarks/table_marks.py [--tables 400] [--seeds 3] [--rows 500]
The runs of two made-up losses have the same distribution over images and seeds. They are evaluated as in an experiment,
on the same test images under a shift of four strengths. The losses differ in which images they get right ("images by
loss"), and so do the runs of a loss ("images by run"), which may also differ in sharpness ("sharpness by run"). Prints
the share of marked cells among the four metrics of Table 1, and of tables with any mark: by a paired t-test over seeds,
by a t-test of the summed variances with Satterthwaite's degrees of freedom, and by the test of the reports.
"""

import argparse
from itertools import count
from statistics import variance

import numpy as np
import pyarrow as pa
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import stdtrit

from calibrant.predictions import Predictions
from calibrant.report.paper import TABLES, table_scores
from calibrant.report.scores import Score, significantly_better
from calibrant.run_tables import ROWS
from calibrant.runs import RAW, RunKey
from calibrant.training.results import score_rows

N_CLASSES, STRENGTHS = 5, (0.3, 0.6, 0.9, 1.2)
LOSSES = ("cross_entropy", "focal")
NULLS = {  # standard deviations
    "images by loss": {"by_loss": 0.7, "by_run": 0.3, "sharpness": 0.0},
    "images by run, identical losses": {"by_loss": 0.0, "by_run": 0.7, "sharpness": 0.0},
    "sharpness by run": {"by_loss": 0.0, "by_run": 0.4, "sharpness": 0.1},
    "all": {"by_loss": 0.5, "by_run": 0.4, "sharpness": 0.05},
}
METRICS = TABLES["1"][1]


def made_rows(random: np.random.Generator, n: int, n_seeds: int, by_loss: float, by_run: float, sharpness: float):
    """The rows of an experiment on shifted tests of the same images."""

    def noise(scale: float = 1.0) -> np.ndarray:
        return scale * random.normal(size=(n, N_CLASSES))

    labels = random.integers(N_CLASSES, size=n)
    images, shifts = noise(), {f"fog-{at}": noise(strength) for at, strength in enumerate(STRENGTHS, 1)}
    images[np.arange(n), labels] += 3
    rows = []
    for loss in LOSSES:
        of_loss = images + noise(by_loss)
        for seed in range(n_seeds):
            of_run, scale = of_loss + noise(by_run), np.exp(0.2 + sharpness * random.normal())
            key = RunKey("made", "made", loss, seed=seed).columns() | {"calibrator": RAW, "shifted": True, "n_rows": n}
            for split, shift in shifts.items():
                logits = torch.from_numpy((scale * (of_run + shift)).astype(np.float32))
                test = Predictions.from_logits(logits, torch.from_numpy(labels))
                rows += [key | {"split": split} | found for found in score_rows(test, METRICS)]
    return pa.Table.from_pylist(rows, ROWS)


def noise_of(a: Score, b: Score) -> tuple[float, float, float, int]:
    """The mean difference, its variance over seeds, its jackknife variance over images, and the number of seeds."""
    differences = [a.per_seed[seed] - b.per_seed[seed] for seed in a.per_seed]
    without = np.mean([np.subtract(a.jackknife[seed], b.jackknife[seed]) for seed in a.per_seed], axis=0)
    n = len(differences)
    return float(np.mean(differences)), variance(differences) / n, float((len(without) - 1) * without.var()), n


def by_seeds(a: Score, b: Score) -> bool:
    difference, of_seeds, _, n = noise_of(a, b)
    return bool(abs(difference) > stdtrit(n - 1, 0.975) * of_seeds**0.5)


def by_satterthwaite(a: Score, b: Score) -> bool:
    difference, of_seeds, of_rows, n = noise_of(a, b)
    total = of_seeds + of_rows
    freedom = total**2 / (of_seeds**2 / (n - 1) + of_rows**2 / 19)
    return bool(abs(difference) > stdtrit(freedom, 0.975) * total**0.5)


TESTS = {
    "over seeds": by_seeds,
    "Satterthwaite": by_satterthwaite,
    "of the reports": lambda a, b: significantly_better(a, b) or significantly_better(b, a),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("tables", 400), ("seeds", 3), ("rows", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    console, seeds = Console(width=110), count()
    shown = Table(title=f"marked cells / tables with a mark, %: two losses, {options.seeds} seeds, {options.rows} rows")
    shown.add_column("what differs")
    for name in TESTS:
        shown.add_column(name, justify="right")
    for null, deviations in NULLS.items():
        marks = np.zeros((options.tables, len(TESTS), len(METRICS)), dtype=bool)
        for at in track(range(options.tables), null, console=console, transient=True):
            rows = made_rows(np.random.default_rng(next(seeds)), options.rows, options.seeds, **deviations)
            scored = {(key.loss, key.metric): score for key, score in table_scores(rows).items()}
            pairs = [[scored[loss, metric] for loss in LOSSES] for metric in METRICS]
            marks[at] = [[test(*pair) for pair in pairs] for test in TESTS.values()]
        cells, tables = 100 * marks.mean((0, 2)), 100 * marks.any(2).mean(0)
        shown.add_row(null, *(f"{cell:.1f} / {table:.1f}" for cell, table in zip(cells, tables, strict=True)))
    console.print(shown)


if __name__ == "__main__":
    main()
