"""Calibrators compared with peers: time, accuracy and memory of temperature scaling; matrices, isotonic, spline.

Run: python benchmarks/calibrators.py [--rounds 5] [--no-large] [--no-recipe] [--no-matrices] [--no-growth]
One thread, CPU time, interleaved rounds; median (min-max). The whole takes 8 minutes, 2 of them for L-BFGS on 1,000
classes, which is called once. Every fit receives new predictions, and its time includes their hashes. Peak memory
(Linux) is measured in a separate process, minus the memory before the fit.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
import io
import json
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import brentq
from sklearn.calibration import _TemperatureScaling
from timing import ROUND_SECONDS, cpu_seconds
from torch import Tensor, nn

import calibrant as cb
from calibrant.calibrators import (
    Calibrator,
    DirichletCalibration,
    IsotonicCalibration,
    MatrixScaling,
    MulticlassIsotonic,
    SplineCalibration,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
)
from calibrant.calibrators.likelihood import BOUNDS, Likelihood, solve_temperature

SMALL, LARGE = (5_000, 10), (50_000, 1000)
OURS, SOLVER = "calibrant, TemperatureScaling.fit", "calibrant, the solver alone"
SINGLE, DOUBLE = "scikit-learn, float32", "scikit-learn, float64"
RECIPE, NETCAL = "L-BFGS, lr 0.01, 50 steps", "netcal, float64 probabilities"
GOALS = {(SMALL, SINGLE): 5, (SMALL, DOUBLE): 5, (SMALL, RECIPE): 30, (LARGE, SINGLE): 8, (LARGE, DOUBLE): 8}
EXCESS_GOAL = 1e-12
ONCE_SECONDS = 30.0  # a function that takes longer is called once
FEW_ROUNDS = 3  # where a call takes seconds
OFF = 1e-3  # temperatures with a larger relative error are marked
MEMORY = """
import os
os.environ["OMP_NUM_THREADS"] = "1"
import json, sys, torch
from pathlib import Path
from sklearn.calibration import _TemperatureScaling
import calibrant as cb
from calibrant.calibrators import TemperatureScaling

def mib(field):
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) / 1024

def ours(z, y):
    TemperatureScaling.fit(cb.Predictions.from_logits(z, y))

def scikit_learn(z, y):
    _TemperatureScaling().fit(z.numpy(), y.numpy())

torch.set_num_threads(1)
torch.manual_seed(0)
fit, rows, classes = {"ours": ours, "scikit-learn": scikit_learn}[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
fit(torch.eye(3).repeat(2, 1), torch.tensor([0, 1, 2, 0, 1, 1]))  # warm-up: imports on first use
z = 3 * torch.randn(rows, classes)
y = (z / 2 - torch.empty_like(z).exponential_().log_()).argmax(1)
Path("/proc/self/clear_refs").write_text("5")  # reset the peak after drawing
before = mib("VmRSS")
fit(z, y)
print(json.dumps((mib("VmHWM") - before) * 2**20 / (z.numel() * z.element_size())))
"""


@dataclass(frozen=True)
class Timing:
    """Time of a function relative to the first function, and its result."""

    seconds: float
    middle: float
    least: float
    most: float
    result: float

    def __str__(self) -> str:
        spread = "(once)" if self.least == self.most else f"({self.least:.1f}-{self.most:.1f})"
        return f"{self.middle:.2f}" if self.middle == self.least == self.most == 1 else f"{self.middle:.1f} {spread}"


def timings(functions: dict[str, Callable[[], float]], n_rounds: int) -> dict[str, Timing]:
    """Like `timing.ratios`, but functions that take longer than 30 s are called once."""
    results, first, repeats = {}, {}, {}
    for name, function in functions.items():
        start = time.process_time()
        results[name] = function()
        first[name] = time.process_time() - start
        if first[name] < ONCE_SECONDS:
            one = first[name] if first[name] > 1 else cpu_seconds(function, 3)  # the first call includes the warm-up
            repeats[name] = max(1, round(ROUND_SECONDS / max(one, 1e-7)))
    rounds = [{name: cpu_seconds(functions[name], r) for name, r in repeats.items()} for _ in range(n_rounds)]
    unit = next(iter(functions))
    found = {}
    for name in functions:
        seconds = [times[name] for times in rounds] if name in repeats else [first[name]]
        units = [times[unit] for times in rounds] if name in repeats else [median(times[unit] for times in rounds)]
        values = [a / b for a, b in zip(seconds, units, strict=True)]
        found[name] = Timing(median(seconds), median(values), min(values), max(values), results[name])
    return found


def draw(
    n: int, k: int, temperature: float, *, scale: float = 3.0, n_labels: int | None = None
) -> tuple[Tensor, Tensor]:
    """Float32 logits, and labels drawn from their softmax at a temperature, among the first `n_labels` classes."""
    logits = scale * torch.randn(n, k)
    allowed = logits[:, :n_labels]
    return logits, (allowed / temperature - torch.empty_like(allowed).exponential_().log_()).argmax(1)


def fresh(predictions: cb.Predictions) -> cb.Predictions:
    """The same predictions with no cached values."""
    return replace(predictions)


def mean_nll(logits: Tensor, labels: Tensor, beta: float) -> tuple[float, float]:
    """NLL of logits · β in float64, and its slope in β."""
    value, slope = 0.0, 0.0
    for z, y in zip(logits.split(1000), labels.split(1000), strict=True):
        z, y = z.double(), y.unsqueeze(1)
        z = z - z.gather(1, y)
        log_probs = (beta * z).log_softmax(1)
        value -= float(log_probs.gather(1, y).sum())
        slope += float((log_probs.exp() * z).sum())
    return value / len(logits), slope / len(logits)


def exact_temperature(logits: Tensor, labels: Tensor) -> float:
    """The root of the slope of the likelihood, by Brent's method."""
    log_beta = brentq(lambda b: mean_nll(logits, labels, math.exp(b))[1], -9.0, 9.0, xtol=1e-13, rtol=1e-15)
    return math.exp(-log_beta)


def scikit_learn(logits: Tensor, labels: Tensor) -> float:
    """The fit of CalibratedClassifierCV(method="temperature"), by its private class."""
    return 1 / float(_TemperatureScaling().fit(logits.numpy(), labels.numpy()).beta_)


def recipe(logits: Tensor, labels: Tensor) -> float:
    """The published code of Guo et al. 2017."""
    temperature = nn.Parameter(torch.ones(1) * 1.5)
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = criterion(logits / temperature, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return temperature.item()


def netcal(probs: Tensor, labels: Tensor) -> float:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):  # it prints some of its warnings
        warnings.simplefilter("ignore")
        from netcal.scaling import TemperatureScaling as Peer

        return 1 / float(Peer().fit(probs.numpy(), labels.numpy()).temperature.item())


def temperature_functions(
    shape: tuple[int, int], z: Tensor, y: Tensor, with_recipe: bool
) -> dict[str, Callable[[], float]]:
    predictions = cb.Predictions.from_logits(z, y)
    doubles = z.double()
    functions = {
        OURS: lambda: TemperatureScaling.fit(fresh(predictions)).temperature,
        SOLVER: lambda: solve_temperature(Likelihood(z, y), BOUNDS).temperature,
        SINGLE: lambda: scikit_learn(z, y),
        DOUBLE: lambda: scikit_learn(doubles, y),
    }
    if shape == SMALL:
        probs = doubles.softmax(1)
        functions[NETCAL] = lambda: netcal(probs, y)
    if with_recipe:
        functions[RECIPE] = lambda: recipe(z, y)
    return functions


def speed(shape: tuple[int, int], n_rounds: int, with_recipe: bool, console: Console) -> None:
    """Time of fitting a temperature, and its NLL above the minimum."""
    (n, k), (z, y) = shape, draw(*shape, 2.0)
    found = timings(temperature_functions(shape, z, y, with_recipe), n_rounds)
    exact = exact_temperature(z, y)
    least, _ = mean_nll(z, y, 1 / exact)
    ours = f"{1e3 * found[OURS].seconds:.1f} ms"
    table = Table(title=f"Temperature of ({n:,}, {k:,}); CPU time / ours ({ours}); goal in brackets")
    table.add_column("")
    for heading in ("time", "T", "relative excess NLL"):
        table.add_column(heading, justify="right")
    for name, timing in found.items():
        excess = mean_nll(z, y, 1 / timing.result)[0] / least - 1
        goal = f" \\[{GOALS[shape, name]}]" if (shape, name) in GOALS else ""
        bound = f" \\[{EXCESS_GOAL:.0e}]" if name in (OURS, SOLVER) else ""
        shown = "< 1e-15" if abs(excess) < 1e-15 else f"{excess:.0e}"
        table.add_row(name, f"{timing}{goal}", f"{timing.result:.9f}", shown + bound)
    table.add_row("exact, the root of the slope", "", f"{exact:.9f}", "")
    console.print(table)


def attempt(fit: Callable[[], float], exact: float) -> str:
    """The temperature, marked where it is inexact, or the error."""
    try:
        temperature = fit()
    except Exception as error:
        return f"{type(error).__name__} *"
    if not math.isfinite(temperature):
        return "no fit *"
    return f"{temperature:.6g}" + (" *" if abs(temperature / exact - 1) > OFF else "")


def hard_cases(console: Console) -> None:
    """Logits whose best temperature is far from 1, missing classes, two classes."""
    n, k = SMALL
    cases = {}
    for best in (0.02, 0.1, 2.0, 29.0, 200.0):
        z, y = draw(n, k, best, scale=2 * best)
        cases[f"T* = {best:g}, float64"], cases[f"T* = {best:g}, float32"] = (z.double(), y), (z, y)
    z, y = draw(n, k, 2.0, n_labels=7)
    cases["no labels of the last 3 of 10 classes, float64"] = z.double(), y
    cases["the same, float32"] = z, y
    z, y = draw(n, 2, 2.0)
    cases["two classes, float64"] = z.double(), y
    cases["two classes, float32"] = z, y
    table = Table(title=f"Temperature fitted to {n:,} rows; * where the relative error exceeds {OFF:g}")
    for heading in ("", "exact", "calibrant", "scikit-learn", "L-BFGS", "netcal"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, (z, y) in cases.items():
        exact = exact_temperature(z, y)
        probs = z.softmax(1) if z.shape[1] > 2 else z.softmax(1)[:, 1]
        fits = (
            lambda z=z, y=y: TemperatureScaling.fit(cb.Predictions.from_logits(z, y)).temperature,
            lambda z=z, y=y: scikit_learn(z, y),
            lambda z=z, y=y: recipe(z, y),
            lambda p=probs, y=y: netcal(p, y),
        )
        table.add_row(name, f"{exact:.6g}", *(attempt(fit, exact) for fit in fits))
    console.print(table)


def memory(console: Console) -> None:
    """Peak memory in several processes, since the allocator differs between them."""
    n, k = LARGE
    for name, goal in (("ours", " (goal: less than 1)"), ("scikit-learn", "")):
        command = [sys.executable, "-c", MEMORY, name, str(n), str(k)]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(FEW_ROUNDS)]
        copies = ", ".join(f"{json.loads(run.stdout):.2f}" for run in runs)
        console.print(f"Peak memory of a fit at ({n:,}, {k:,}), {name}: {copies} copies of the logits{goal}")


def matrices(n_rounds: int, console: Console) -> None:
    n, k = 50_000, 100
    predictions = cb.Predictions.from_logits(*draw(n, k, 2.0))
    methods: list[type[Calibrator]] = [
        MatrixScaling,
        DirichletCalibration,
        StructuredVectorScaling,
        StructuredMatrixScaling,
    ]
    found: dict[type[Calibrator], list[float]] = {method: [] for method in methods}
    for _ in track(range(min(n_rounds, FEW_ROUNDS)), "matrices", transient=True, console=console):
        for method in methods:
            found[method].append(cpu_seconds(lambda method=method: method.fit(fresh(predictions)), 1))
    for method, seconds in found.items():
        spread = f"({min(seconds):.1f}-{max(seconds):.1f})"
        console.print(f"{method.__name__} at ({n:,}, {k}): {median(seconds):.1f} s {spread} (goal 60)")


def growth(n_rounds: int, console: Console) -> None:
    """Time divided by N log2 N, relative to the smallest N."""
    sizes = (10_000, 100_000, 1_000_000)
    rows = {n: cb.Predictions.from_logits(*draw(n, 10, 2.0)) for n in sizes}
    methods: list[type[Calibrator]] = [IsotonicCalibration, MulticlassIsotonic, SplineCalibration]
    repeats = {n: max(1, 100_000 // n) for n in sizes}
    for method in methods:
        method.fit(fresh(rows[sizes[0]]))  # warm-up
    rounds: list[dict[tuple[type[Calibrator], int], float]] = []
    for _ in track(range(min(n_rounds, FEW_ROUNDS)), "isotonic and spline", transient=True, console=console):
        cells = [(method, n) for method in methods for n in sizes]
        rounds.append({(m, n): cpu_seconds(lambda m=m, n=n: m.fit(fresh(rows[n])), repeats[n]) for m, n in cells})
    table = Table(title="CPU time / (N log2 N), relative to N = 10,000, ten classes; goal: about 1")
    table.add_column("")
    for n in sizes:
        table.add_column(f"N = {n:,}", justify="right")
    table.add_column("µs per row", justify="right")
    for method in methods:
        work = [{n: times[method, n] / (n * math.log2(n)) for n in sizes} for times in rounds]
        columns = [[each[n] / each[sizes[0]] for each in work] for n in sizes]
        cells = [f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})" for values in columns[1:]]
        micros = [f"{1e6 * median(times[method, n] for times in rounds) / n:.1f}" for n in sizes]
        table.add_row(method.__name__, "1", *cells, ", ".join(micros))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help=f"at most {FEW_ROUNDS} where a call takes seconds")
    parser.add_argument("--no-large", action="store_true", help="skip temperature scaling of 1,000 classes")
    parser.add_argument("--no-recipe", action="store_true", help="skip L-BFGS on 1,000 classes")
    parser.add_argument("--no-matrices", action="store_true", help="skip matrix scaling and Dirichlet calibration")
    parser.add_argument("--no-growth", action="store_true", help="skip isotonic regression and spline")
    arguments = parser.parse_args()
    n_rounds = max(1, arguments.rounds)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    console = Console(width=140)
    hard_cases(console)
    speed(SMALL, 4 * n_rounds + 1, True, console)
    if not arguments.no_large:
        speed(LARGE, n_rounds, not arguments.no_recipe, console)
        memory(console)
    if not arguments.no_matrices:
        matrices(n_rounds, console)
    if not arguments.no_growth:
        growth(n_rounds, console)


if __name__ == "__main__":
    main()
