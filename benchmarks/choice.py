"""What `choose` chooses: the best cross-validated NLL against the simplest calibrator within one standard error of it.

Run: python benchmarks/choice.py [--repeats 100]; 7 minutes on one thread.
Each data set is scored by five-fold cross-validation of all default candidates. "right" is the share of data sets for
which the calibrator of the truth is taken: identity for a calibrated model, temperature for one that needs T = 1.2 or
2, vector for one that needs a weight and a bias of each class. "loss" is how much larger the NLL on 10,000 new rows is
than with that calibrator, on average. With clusters, 30 patients have 20 nearly equal rows each.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
from collections.abc import Callable
from statistics import mean

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import calibrant as cb

N_NEW = 10_000
PATIENTS, ROWS_OF_A_PATIENT = 30, 20


def scaled(temperature: float) -> Callable[[Tensor], Tensor]:
    return lambda true: temperature * true


def skewed(true: Tensor) -> Tensor:
    """Each class has a weight and a bias of its own."""
    k = true.shape[1]
    return true * torch.linspace(0.6, 1.8, k) + torch.linspace(-0.5, 0.5, k)


CASES: list[tuple[str, str, Callable[[Tensor], Tensor], int, int]] = [  # what, truth, logits, rows, classes
    ("calibrated", "identity", scaled(1), 300, 2),
    ("calibrated", "identity", scaled(1), 300, 10),
    ("calibrated", "identity", scaled(1), 1000, 10),
    ("calibrated", "identity", scaled(1), 5000, 10),
    ("T = 1.2", "temperature", scaled(1.2), 300, 10),
    ("T = 1.2", "temperature", scaled(1.2), 1000, 10),
    ("T = 2", "temperature", scaled(2), 300, 10),
    ("classes differ", "vector", skewed, 1000, 10),
]


def draw(seen: Callable[[Tensor], Tensor], n: int, n_classes: int, generator: torch.Generator) -> cb.Predictions:
    true = 2 * torch.randn(n, n_classes, generator=generator)
    return cb.Predictions.from_logits(seen(true), true.softmax(1).multinomial(1, generator=generator)[:, 0])


def patients(generator: torch.Generator) -> cb.Predictions:
    rows = draw(scaled(1), PATIENTS, 3, generator)
    logits = rows.logits.repeat_interleave(ROWS_OF_A_PATIENT, 0)
    logits += 0.01 * torch.randn(logits.shape, generator=generator)
    patient = torch.arange(PATIENTS).repeat_interleave(ROWS_OF_A_PATIENT)
    labels = rows.labels.repeat_interleave(ROWS_OF_A_PATIENT)
    return cb.Predictions.from_logits(logits, labels, columns={"patient": patient})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    repeats: int = parser.parse_args().repeats
    torch.set_num_threads(1)
    table = Table(title=f"{repeats} data sets each; a quarter of them with 5,000 rows")
    for column in ("model", "rows", "classes", "best score: right", "loss", "chosen: right", "loss"):
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    for what, truth, seen, n, n_classes in track(CASES, console=Console(stderr=True)):
        generator = torch.Generator().manual_seed(n + n_classes)
        new = draw(seen, N_NEW, n_classes, generator)
        sets = [draw(seen, n, n_classes, generator) for _ in range(repeats if n < 5000 else repeats // 4)]
        table.add_row(what, f"{n:,}", str(n_classes), *shares(sets, truth, new))
    for cluster in (None, "patient"):
        generator = torch.Generator().manual_seed(0)
        new = draw(scaled(1), N_NEW, 3, generator)
        sets = [patients(generator) for _ in range(repeats)]
        what = "calibrated, 30 patients" + (", cluster=" if cluster else "")
        table.add_row(what, "600", "3", *shares(sets, "identity", new, cluster))
    Console(width=120).print(table)


def shares(sets: list[cb.Predictions], truth: str, new: cb.Predictions, cluster: str | None = None) -> list[str]:
    """How often the truth has the best score and is chosen, each with the mean loss."""
    right: list[tuple[bool, bool]] = []
    losses: list[tuple[float, float]] = []
    for rows in sets:
        chosen, candidates = cb.choose(rows, cluster=cluster)
        best = candidates[0].calibrator
        right.append((best == truth, chosen.name == truth))
        fits = {name: cb.CALIBRATORS[name].fit(rows) for name in {best, truth}} | {chosen.name: chosen}
        nll = {name: cb.score(fit(new), metrics=["nll"]).nll for name, fit in fits.items()}
        losses.append((nll[best] - nll[truth], nll[chosen.name] - nll[truth]))
    columns = zip(zip(*right, strict=True), zip(*losses, strict=True), strict=True)
    return [text for shares, loss in columns for text in (f"{mean(shares):.0%}", f"{mean(loss):+.4f}")]


if __name__ == "__main__":
    main()
