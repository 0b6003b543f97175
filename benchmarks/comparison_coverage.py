"""Type-I error and coverage of `compare` in simulations: two models whose true difference is known.

Run: python benchmarks/comparison_coverage.py [--repetitions 1000] [--tables null differences clusters errors sites]
One thread. A label is drawn first; each model sees it through Gaussian noise, half of which both share, and predicts
the exact posterior: it is calibrated. Logits times 2 make it overconfident. With 1,000 repetitions a rate of 0.05 has a
standard error of 0.007.
"""

import argparse
from collections.abc import Iterator, Sequence

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import calibrant as cb

METRICS = [name for name, metric in cb.METRICS.items() if metric.comparable]
SITE_METRICS = ["accuracy", "ece", "l2ce", "cece", "nll", "nll_on_errors", "brier_on_errors", "aurc"]
CLUSTER_METRICS = ["ece", "rmsce", "adaece", "l2ce", "kse", "smece", "cece", "nll", "brier", "aurc"]
SEPARATION = {2: 1.0, 10: 1.6, 100: 2.2}  # of the classes
POPULATION = 400_000  # rows from which true differences are computed


def models(
    generator: torch.Generator,
    sizes: Sequence[int],
    n_classes: int,
    scales: tuple[float, float],
    *,
    spread: float = 0.0,
    separation: float | None = None,
) -> list[cb.Predictions]:
    """Two models on clusters of these sizes. spread: standard deviation between clusters of a logarithmic scale."""
    cluster = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    n, draw = len(cluster), {"generator": generator, "dtype": torch.float64}
    labels = torch.randint(n_classes, (n,), generator=generator)
    signal = (separation or SEPARATION[n_classes]) * (0.3 + 1.4 * torch.rand(n, 1, **draw))
    truth, shared = torch.nn.functional.one_hot(labels, n_classes), torch.randn(n, n_classes, **draw)
    pair = []
    for scale in scales:
        seen = signal * truth + (shared + torch.randn(n, n_classes, **draw)) / 2**0.5
        factor = scale * (spread * torch.randn(len(sizes), 1, **draw)).exp()[cluster]
        pair.append(cb.Predictions.from_logits(factor * signal * seen, labels, columns={"cluster": cluster}))
    return pair


def cluster_sizes(generator: torch.Generator, n_clusters: int, rows: int, *, equal: bool) -> list[int]:
    """Equal, or log-normal with a standard deviation of 1 of the logarithm: the largest of 12 has a third of all."""
    weight = torch.ones(n_clusters) if equal else torch.randn(n_clusters, generator=generator).exp()
    return (weight / weight.mean() * rows).round().long().clamp_min(5).tolist()


def rates(runs: Iterator[list[cb.metrics.Difference]], repetitions: int, true: dict[str, float]) -> dict[str, str]:
    """For each metric: the share of repetitions that reject, and whose interval covers the true difference."""
    rejected, covered, count = (dict.fromkeys(cb.METRICS, 0) for _ in range(3))
    for rows in track(runs, total=repetitions, transient=True):
        for row in rows:
            low, high = row.interval
            count[row.metric] += 1
            rejected[row.metric] += row.p_value < 0.05
            covered[row.metric] += low <= true.get(row.metric, 0.0) <= high
    shown = {name: n for name, n in count.items() if n}
    if not true:
        return {name: f"{rejected[name] / n:.3f}" for name, n in shown.items()}
    return {name: f"{covered[name] / n:.3f} ({rejected[name] / n:.2f})" for name, n in shown.items()}


def true_differences(
    generator: torch.Generator, n_classes: int, scales: tuple[float, float], spread: float, names: Sequence[str]
) -> dict[str, float]:
    population = models(generator, [20] * (POPULATION // 20), n_classes, scales, spread=spread)
    a, b = (cb.score(model, metrics=names).values() for model in population)
    return {name: a[name] - b[name] for name in names}


def show(console: Console, title: str, columns: dict[str, dict[str, str]]) -> None:
    table = Table("", title=title)
    for heading in columns:
        table.add_column(heading, justify="right")
    for name in cb.METRICS:
        if any(name in column for column in columns.values()):
            table.add_row(name, *(column.get(name, "") for column in columns.values()))
    console.print(table)


def null(console: Console, repetitions: int) -> None:
    """Exchangeable models: every rejection is an error of type I."""
    for scale, source in ((1.0, "calibrated"), (2.0, "overconfident")):
        columns = {}
        for n in (300, 1000, 10_000):
            for n_classes in (2, 10, 100):
                generator = torch.Generator().manual_seed(n + n_classes)
                runs = (
                    cb.compare(*models(generator, [1] * n, n_classes, (scale, scale)), metrics=METRICS, seed=seed)
                    for seed in range(repetitions)
                )
                columns[f"{n:,}, K = {n_classes}"] = rates(runs, repetitions, {})
        show(console, f"type-I error at 5 %, two {source} models", columns)


def differences(console: Console, repetitions: int) -> None:
    """An over- or underconfident model and a calibrated one."""
    columns = {}
    for n, n_classes, scale in ((300, 10, 2.0), (1000, 2, 0.5), (1000, 10, 1.3), (10_000, 10, 1.3)):
        generator = torch.Generator().manual_seed(n)
        true = true_differences(generator, n_classes, (scale, 1.0), 0.0, METRICS)
        runs = (
            cb.compare(*models(generator, [1] * n, n_classes, (scale, 1.0)), metrics=METRICS, seed=seed)
            for seed in range(repetitions)
        )
        columns[f"{n:,}, K = {n_classes}, × {scale}"] = rates(runs, repetitions, true)
    show(console, "coverage of 95 % intervals (and power) where one model's logits are multiplied", columns)


def clusters(console: Console, repetitions: int) -> None:
    for spread, title in ((0.0, "independent rows"), (0.4, "correlated rows")):
        for scale in (1.0, 2.0):
            columns = {}
            for n_clusters in (4, 12, 100):
                for equal in (True, False):
                    generator = torch.Generator().manual_seed(n_clusters)
                    scales = (scale, 1.0)
                    true = true_differences(generator, 10, scales, spread, CLUSTER_METRICS) if scale != 1 else {}
                    runs = (
                        cb.compare(
                            *models(
                                generator,
                                cluster_sizes(generator, n_clusters, 100, equal=equal),
                                10,
                                scales,
                                spread=spread,
                            ),
                            metrics=CLUSTER_METRICS,
                            cluster="cluster",
                            seed=seed,
                        )
                        for seed in range(repetitions)
                    )
                    heading = f"{n_clusters} {'equal' if equal else 'unequal'}"
                    columns[heading] = rates(runs, repetitions, true)
            measured = "type-I error at 5 %" if scale == 1 else "coverage of 95 % intervals (and power)"
            show(console, f"{measured}: clusters of 100 rows on average, {title}", columns)


def errors(console: Console, repetitions: int) -> None:
    """Few errors: classes so far apart that a model makes so many on average."""
    columns = {}
    for separation, heading in ((8.0, "300 rows, about 4 errors"), (6.0, "300 rows, about 12 errors")):
        generator = torch.Generator().manual_seed(1)
        runs = (
            cb.compare(*models(generator, [1] * 300, 10, (1.0, 1.0), separation=separation), metrics=METRICS, seed=seed)
            for seed in range(repetitions)
        )
        columns[heading] = rates(runs, repetitions, {})
    show(console, "type-I error at 5 %, two calibrated models with few errors", columns)


def sites(console: Console, repetitions: int) -> None:
    """Ten sites of 300 rows: the share of repetitions with a corrected p-value below 5 %."""
    columns = {}
    for separation, heading in ((1.6, "many errors"), (8.0, "about 4 errors per site")):
        generator = torch.Generator().manual_seed(2)
        found = dict.fromkeys(SITE_METRICS, 0)
        for seed in track(range(repetitions), transient=True):
            pair = models(generator, [300] * 10, 10, (1.0, 1.0), separation=separation)
            rows = cb.compare(*pair, metrics=SITE_METRICS, by="cluster", seed=seed)
            for name in {row.metric for row in rows if row.p_holm < 0.05 and not row.overall}:
                found[name] += 1
        columns[heading] = {name: f"{count / repetitions:.3f}" for name, count in found.items()}
    show(console, "family-wise error at 5 % over ten sites, after Holm's correction", columns)


TABLES = {"null": null, "differences": differences, "clusters": clusters, "errors": errors, "sites": sites}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.tables:
        TABLES[name](Console(width=140), arguments.repetitions)


if __name__ == "__main__":
    main()
