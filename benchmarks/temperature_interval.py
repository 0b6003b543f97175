"""Coverage of the 95 % interval of a temperature, against T ± 1.96 standard errors, on simulated rows.

Run: python benchmarks/temperature_interval.py [--repeats 2000]; 5 minutes on one thread.
The true temperature is known, or is the optimum of two million rows where no temperature is true. Data sets without an
optimum (all predictions correct) are left out and counted. "below" and "above" are the shares of intervals that lie
entirely below or above the truth.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import calibrant as cb
from calibrant.errors import NotConvergedError

N_TRUTH = 2_000_000


@dataclass(frozen=True)
class Population:
    """Rows: logits of a random generator, labels drawn from softmax(logits / T), some replaced at random."""

    logits: Callable[[np.random.Generator, int], np.ndarray]
    temperature: float
    noise: float = 0.0
    weights: Callable[[np.random.Generator, int], np.ndarray] | None = None

    def draw(self, n: int, seed: int) -> cb.Predictions:
        random = np.random.default_rng(seed)
        logits = torch.from_numpy(self.logits(random, n))
        probs = (logits / self.temperature).softmax(1)
        labels: Tensor = (
            (probs.cumsum(1) < torch.from_numpy(random.random((n, 1)))).sum(1).clamp(max=probs.shape[1] - 1)
        )
        replaced = torch.from_numpy(random.random(n) < self.noise)
        labels = torch.where(replaced, torch.from_numpy(random.integers(probs.shape[1], size=n)), labels)
        columns = None if self.weights is None else {"weight": self.weights(random, n)}
        return cb.Predictions.from_logits(logits, labels, columns=columns)

    def fit(self, rows: cb.Predictions) -> cb.TemperatureScaling:
        return cb.TemperatureScaling.fit(rows, weights=None if self.weights is None else "weight")

    def truth(self) -> float:
        return self.fit(self.draw(N_TRUTH, 0)).temperature if self.noise else self.temperature


def normal(spread: float, n_classes: int = 10) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda random, n: spread * random.normal(size=(n, n_classes))


def student(freedom: float, spread: float = 4.0) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda random, n: spread * random.standard_t(freedom, size=(n, 10))


def student_rows(random: np.random.Generator, n: int) -> np.ndarray:
    """Normal logits times the absolute value of a Student t of two degrees of freedom for each row."""
    return 3 * np.abs(random.standard_t(2, size=(n, 1))) * random.normal(size=(n, 10))


def confident(least: float, spread: float, n_classes: int = 10) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Class 0 leads by ``least`` and an exponential margin."""

    def logits(random: np.random.Generator, n: int) -> np.ndarray:
        found = random.normal(size=(n, n_classes))
        found[:, 0] += least + spread * random.exponential(size=n)
        return found

    return logits


def exponential(random: np.random.Generator, n: int) -> np.ndarray:
    return random.exponential(size=n)


POPULATIONS: dict[str, tuple[Population, tuple[int, ...]]] = {
    "overconfident": (Population(normal(4), 2), (100, 300, 1000)),
    "overconfident, 20 % label noise": (Population(normal(4), 2, 0.2), (300, 1000)),
    "underconfident": (Population(normal(1.5), 0.5), (300,)),
    "two classes": (Population(normal(3, 2), 2), (300, 1000)),
    "weighted, 10 % label noise": (Population(normal(4), 2, 0.1, exponential), (300, 1000)),
    "2 % errors": (Population(confident(9, 6), 2), (200, 500, 1000)),
    "1 % errors, two classes": (Population(confident(7, 6, 2), 2), (200, 500, 1000)),
    "confident, 1.5 % label noise": (Population(confident(4, 8), 1, 0.015), (200, 500, 1000)),
    "Student t, 3 d.f.": (Population(student(3), 2), (300, 1000)),
    "Student t, 3 d.f., 5 % label noise": (Population(student(3), 2, 0.05), (300, 1000)),
    "Student t, 2 d.f., 5 % label noise": (Population(student(2), 2, 0.05), (300, 1000)),
    "rows of Student t, 2 d.f., 2 % noise": (Population(student_rows, 1, 0.02), (300, 1000)),
    "Student t × 15, 2 d.f., 0.2 % noise": (Population(student(2, 30), 2, 0.002), (300, 1000, 5000)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    repeats: int = parser.parse_args().repeats
    torch.set_num_threads(1)
    table = Table(title=f"Coverage of the true temperature, {repeats:,} data sets each")
    for column in (
        "rows",
        "n",
        "errors",
        "no optimum",
        "T ± 1.96 SE",
        "interval",
        "below",
        "above",
        "width",
        "influential",
    ):
        table.add_column(column, justify="left" if column == "rows" else "right", no_wrap=True)
    for name, (population, sizes) in track(POPULATIONS.items(), console=Console(stderr=True)):
        truth = population.truth()
        for n in sizes:
            table.add_row(name, f"{n:,}", *coverage(population, truth, n, repeats))
    Console(width=140).print(table)


def coverage(population: Population, truth: float, n: int, repeats: int) -> list[str]:
    """The columns of the table from the third on; the width is the median ratio of the interval's two limits."""
    errors, missing, wald, below, above, ratios, influential = [], 0, 0, 0, 0, [], []
    for seed in range(1, repeats + 1):
        rows = population.draw(n, seed)
        errors.append(float((rows.logits.argmax(1) != rows.labels).double().mean()))
        try:
            found = population.fit(rows)
        except NotConvergedError:
            missing += 1
            continue
        assert found.interval is not None
        assert found.standard_error is not None
        assert found.influential_rows is not None
        low, high = found.interval
        wald += abs(found.temperature - truth) <= 1.96 * found.standard_error
        below, above = below + (high < truth), above + (low > truth)
        ratios.append(high / low)
        influential.append(found.influential_rows)
    n_fits = len(ratios)
    return [
        f"{np.mean(errors):.1%}",
        f"{missing / repeats:.1%}",
        f"{wald / n_fits:.3f}",
        f"{1 - (below + above) / n_fits:.3f}",
        f"{below / n_fits:.3f}",
        f"{above / n_fits:.3f}",
        f"{median(ratios):.2f}",
        f"{median(influential):.0f}",
    ]


if __name__ == "__main__":
    main()
