"""How often the confidence interval of each metric covers the true value, and how wide it is.

Run: python benchmarks/coverage.py [--repetitions 1000] [--classes 2 10 100] [--rows 100 1000 10000] [--json FILE]
Seven sources whose label probabilities are known: the true value of a metric is that of rows that are weighted by these
probabilities. A width is the median over the repetitions, divided by the width of the interval that holds 95 % of the
values of the metric: what an oracle that knows their distribution would need. Cells outside the goals (coverage 0.93 to
0.98, at most 1.6 times the oracle's width) are printed last.
"""

import argparse
import json
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import calibrant as cb

GOAL_COVERAGE, GOAL_WIDTH, LEVEL = (0.93, 0.98), 1.6, 0.95
TRUTH_ROWS = {2: 2**20, 10: 2**20, 100: 2**18}

Source = Callable[[int, int, torch.Generator], tuple[Tensor, float]]


def _even(scale: float) -> Source:
    """Logits of independent classes; the labels follow softmax(scale · logits)."""
    return lambda n, k, generator: (2 * torch.randn(n, k, generator=generator), scale)


def _accurate(scale: float) -> Source:
    """The same with one class far above the others: about 99 % of the predictions of a calibrated model are correct."""

    def draw(n: int, k: int, generator: torch.Generator) -> tuple[Tensor, float]:
        logits = torch.randn(n, k, generator=generator)
        top = torch.randint(k, (n, 1), generator=generator)
        margin = torch.full((n, 1), 5.5 + math.log(k - 1))
        return logits.scatter_add(1, top, margin) / scale, scale

    return draw


def _long_tailed(scale: float) -> Source:
    """The same with class frequencies that fall as 1/rank."""

    def draw(n: int, k: int, generator: torch.Generator) -> tuple[Tensor, float]:
        return 2 * torch.randn(n, k, generator=generator) - torch.arange(1, k + 1).log(), scale

    return draw


SOURCES: dict[str, Source] = {
    "calibrated": _even(1.0),
    "overconfident": _even(0.6),
    "underconfident": _even(1.5),
    "accurate": _accurate(1.0),
    "accurate, overconfident": _accurate(0.6),
    "long-tailed": _long_tailed(1.0),
    "long-tailed, overconfident": _long_tailed(0.6),
}


@dataclass(frozen=True)
class CoverageCell:
    """The intervals of one metric on one source."""

    source: str
    n_classes: int
    n_rows: int
    metric: str
    truth: float
    coverage: float
    below: float  # share of intervals that lie below the truth
    above: float
    width: float  # relative to the oracle's; NaN where the metric does not vary
    median_width: float
    n_repetitions: int

    @property
    def meets_goals(self) -> bool:
        noise = 2 * math.sqrt(0.95 * 0.05 / self.n_repetitions)
        low, high = GOAL_COVERAGE
        return low - noise <= self.coverage <= high + noise and not self.width > GOAL_WIDTH


def draw_predictions(source: str, n: int, k: int, generator: torch.Generator) -> cb.Predictions:
    """Labelled rows of a source."""
    logits, scale = SOURCES[source](n, k, generator)
    labels = torch.multinomial((scale * logits).softmax(1), 1, generator=generator).squeeze(1)
    return cb.Predictions.from_logits(logits, labels)


@cache
def true_card(source: str, k: int) -> cb.metrics.Scorecard:
    """The scorecard of many rows, each with its predicted class and another, weighted by their probabilities."""
    generator = torch.Generator().manual_seed(12345)
    logits, scale = SOURCES[source](TRUTH_ROWS[k], k, generator)
    probs = (scale * logits).softmax(1)
    top = logits.argmax(1, keepdim=True)
    of_top = probs.gather(1, top)
    other = torch.multinomial(probs.scatter(1, top, 1e-30), 1, generator=generator)
    labels, weights = torch.cat([top, other]).squeeze(1), torch.cat([of_top, 1 - of_top]).squeeze(1)
    expanded = cb.Predictions.from_logits(logits.repeat(2, 1), labels, columns={"w": weights.double().numpy()})
    return cb.score(expanded, weights="w")


def true_value(source: str, k: int, metric: str, card: cb.metrics.Scorecard) -> float:
    """The true value; of the maximum calibration error over the bins that have rows."""
    truth = true_card(source, k)
    if SOURCES[source](1, k, torch.Generator())[1] == 1.0 and cb.METRICS[metric].floor is not None:
        return 0.0
    if not metric.startswith("mce"):
        return truth[metric]
    pair = (truth.positive_class, card.positive_class) if metric.endswith("positive") else (truth, card)
    bins, seen = (one.top_bins for one in pair)
    filled = (seen.total > 0) & (bins.total > 0)
    return float((bins.gap[filled].abs() / bins.mass[filled]).max())


def cover(source: str, k: int, n: int, repetitions: int, metrics: tuple[str, ...] | None = None) -> list[CoverageCell]:
    """The coverage of every metric on one source."""
    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for repetition in range(repetitions):
        generator = torch.Generator().manual_seed(1_000_003 * n + 101 * k + repetition)
        card = cb.score(draw_predictions(source, n, k, generator), metrics=metrics)
        for name, value in card.values().items():
            if value is not None:
                low, high = card.interval(name, level=LEVEL, seed=repetition)
                found.setdefault(name, []).append((value, low, high, true_value(source, k, name, card)))
    return [_cell(source, k, n, name, np.array(rows)) for name, rows in found.items()]


def _cell(source: str, k: int, n: int, metric: str, rows: np.ndarray) -> CoverageCell:
    value, low, high, truth = rows.T
    slack = 1e-9 + 1e-6 * abs(truth)
    below, above = high < truth - slack, low > truth + slack
    width, oracle = float(np.median(high - low)), float(np.subtract(*np.quantile(value, [0.975, 0.025])))
    return CoverageCell(
        source=source,
        n_classes=k,
        n_rows=n,
        metric=metric,
        truth=float(truth.mean()),
        coverage=float(1 - (below | above).mean()),
        below=float(below.mean()),
        above=float(above.mean()),
        width=width / oracle if oracle > 0 else math.nan,
        median_width=width,
        n_repetitions=len(rows),
    )


def print_tables(cells: list[CoverageCell], console: Console) -> None:
    """A line for each metric: the lowest and the highest coverage and the largest width; then the cells that miss."""
    sizes = sorted({(cell.n_classes, cell.n_rows) for cell in cells})
    table = Table(title="Coverage of 95 % intervals over the sources, lowest to highest; largest width / oracle's")
    table.add_column("metric")
    for k, n in sizes:
        table.add_column(f"K = {k}, n = {n:,}", justify="right")
    for metric in dict.fromkeys(cell.metric for cell in cells):
        texts = []
        for size in sizes:
            some = [cell for cell in cells if (cell.n_classes, cell.n_rows) == size and cell.metric == metric]
            coverages = [cell.coverage for cell in some]
            widths = [cell.width for cell in some if not math.isnan(cell.width)]
            texts.append(f"{min(coverages):.3f}-{max(coverages):.3f}; {max(widths):.2f}" if widths else "")
        table.add_row(metric, *texts)
    console.print(table)
    missed = [cell for cell in cells if not cell.meets_goals]
    table = Table(title=f"{len(missed)} of {len(cells)} cells miss a goal by more than the noise of the simulation")
    for column in ("metric", "source", "K", "n", "truth", "coverage", "too low", "too high", "width"):
        table.add_column(column)
    for cell in missed:
        numbers = f"{cell.truth:.4g} {cell.coverage:.3f} {cell.below:.3f} {cell.above:.3f} {cell.width:.2f}".split()
        table.add_row(cell.metric, cell.source, str(cell.n_classes), str(cell.n_rows), *numbers)
    console.print(table)


def markdown(cells: list[CoverageCell]) -> str:
    """The table of docs/truth.md: for each metric and number of classes the range over sources and numbers of rows."""
    classes = sorted({cell.n_classes for cell in cells})
    lines = ["| metric | " + " | ".join(f"K = {k}" for k in classes) + " |", "|---" * (len(classes) + 1) + "|"]
    for metric in dict.fromkeys(cell.metric for cell in cells):
        texts = []
        for k in classes:
            some = [cell for cell in cells if cell.n_classes == k and cell.metric == metric]
            widths = [cell.width for cell in some if math.isfinite(cell.width)]
            coverages = [cell.coverage for cell in some]
            texts.append(f"{min(coverages):.2f}-{max(coverages):.2f}, {max(widths):.1f}" if some else "")
        lines.append(f"| `{metric}` | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 10, 100])
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--metrics", nargs="+")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the cells to this file")
    parser.add_argument("--markdown", type=Path, nargs="+", help="print the table of cells in these files instead")
    options = parser.parse_args()
    if options.markdown:
        print(markdown([CoverageCell(**cell) for file in options.markdown for cell in json.loads(file.read_text())]))
        return
    tasks = [(source, k, n) for k in options.classes for source in options.sources for n in options.rows]
    metrics = tuple(options.metrics) if options.metrics else None
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(cover, *task, options.repetitions, metrics) for task in tasks]
        cells = [cell for future in track(futures, "simulating") for cell in future.result()]
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cell) for cell in cells]))
    print_tables(cells, Console(width=200))


if __name__ == "__main__":
    main()
