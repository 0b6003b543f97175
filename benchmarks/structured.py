"""NLL of fresh rows after structured scaling minus that after temperature scaling, beside vector and matrix scaling.

Run: python benchmarks/structured.py
"""

import argparse
import math
from statistics import mean

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import calibrant as cb

N_TEST = 4000
SIZES = ((300, 3), (300, 10), (1000, 10), (5000, 10), (1000, 100), (5000, 100))
NAMES = ("svs", "vector", "sms", "matrix", "dirichlet")
CHOICE = ("temperature", "svs", "sms")


def draw(kind: str, n: int, k: int, seed: int) -> cb.Predictions:
    """Logits that are twice too large; that need a weight and a bias for each class; or a matrix."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    logits = 2 * normal(n, k)
    true = logits / 2
    if kind == "classes":
        true = logits * (0.5 + torch.rand(k, generator=generator)) + 0.5 * normal(k)
    elif kind == "matrix":
        true = logits @ (torch.eye(k) + 0.3 * normal(k, k) / math.sqrt(k))
    return cb.Predictions.from_logits(logits, true.softmax(1).multinomial(1, generator=generator)[:, 0])


def changes(kind: str, n: int, k: int, seed: int) -> dict[str, float]:
    rows = draw(kind, n + N_TEST, k, seed)
    validation, test = rows[:n], rows[n:]
    nll = {name: cb.score(cb.CALIBRATORS[name].fit(validation)(test)).nll for name in ("temperature", *NAMES)}
    chosen, _ = cb.choose(validation, CHOICE)
    nll["chosen"] = cb.score(chosen(test)).nll
    return {name: value - nll["temperature"] for name, value in nll.items() if name != "temperature"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title="NLL of fresh rows minus that of temperature scaling")
    for column in ("true map", "rows", "classes", *NAMES, f"choose of {', '.join(CHOICE)}"):
        table.add_column(column, justify="right")
    for kind in ("temperature", "classes", "matrix"):
        for n, k in SIZES:
            found = [changes(kind, n, k, seed) for seed in range(arguments.repetitions)]
            cells = [f"{mean(each[name] for each in found):+.4f}" for name in (*NAMES, "chosen")]
            table.add_row(kind, f"{n:,}", str(k), *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
