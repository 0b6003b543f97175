"""How often the 95 % interval of a ratio of mean scores contains the ratio: crossed noise of seeds, types and images.

Run: python benchmarks/contrast_coverage.py [--experiments 1000] [--seeds 3] [--types 19] [--groups 20]
A score of a loss is exp(type + loss·type + loss·seed + loss·seed·type + loss·images): types of shift differ between
experiments, and so do seeds and images. NOISES has the standard deviations; those of "CIFAR-10" are of ECE between
cross-entropy and focal loss of a fine-tuned ResNet-20 (types and images; those of seeds are assumed). Prints the
coverage and the median width (high/low − 1) of a bootstrap that draws seeds, types and groups of images (percentiles),
of one t-interval of the summed variances with Satterthwaite's degrees of freedom, and of the interval of the reports.
"""

import argparse
import math

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import stdtrit

from calibrant.report.contrasts import contrast
from calibrant.report.scores import Score, mean_and_standard_error

RATIO = 0.6
N_BOOTSTRAP = 500
NOISES = {  # standard deviations of the logarithm
    "CIFAR-10": {"types": 0.56, "by_type": 0.045, "by_seed": 0.05, "rest": 0.03, "images": 0.008},
    "seeds": {"types": 0.6, "by_type": 0.02, "by_seed": 0.2, "rest": 0.02, "images": 0.0},
    "types": {"types": 0.6, "by_type": 0.4, "by_seed": 0.01, "rest": 0.02, "images": 0.0},
    "seeds and types": {"types": 0.6, "by_type": 0.3, "by_seed": 0.1, "rest": 0.1, "images": 0.0},
    "images": {"types": 0.6, "by_type": 0.02, "by_seed": 0.01, "rest": 0.02, "images": 0.1},
    "all": {"types": 0.6, "by_type": 0.3, "by_seed": 0.1, "rest": 0.1, "images": 0.08},
}


def made_values(random: np.random.Generator, sizes: tuple[int, int, int], noise: dict[str, float]) -> np.ndarray:
    """(losses, seeds, types, groups): the part of each group of images in a score, which is the mean over groups."""
    n_seeds, n_types, n_groups = sizes
    of_types = random.normal(scale=noise["types"], size=(1, 1, n_types, 1))
    by_type = random.normal(scale=noise["by_type"], size=(2, 1, n_types, 1))
    by_seed = random.normal(scale=noise["by_seed"], size=(2, n_seeds, 1, 1))
    rest = random.normal(scale=noise["rest"], size=(2, n_seeds, n_types, 1))
    images = random.normal(scale=noise["images"] * math.sqrt(n_groups), size=(2, 1, 1, n_groups))
    return np.exp(np.log([RATIO, 1.0]).reshape(2, 1, 1, 1) + of_types + by_type + by_seed + rest) * (1 + images)


def of_reports(values: np.ndarray) -> tuple[float, float]:
    terms = []
    for own in values:  # seeds, types, groups
        mean, n = own.mean(2), own.shape[2]
        without = (own.sum(2, keepdims=True) - own) / (n - 1)
        terms.append(
            {
                str(kind): Score(
                    *mean_and_standard_error(list(mean[:, kind])),
                    len(own),
                    5,
                    dict(enumerate(mean[:, kind])),
                    {seed: tuple(without[seed, kind]) for seed in range(len(own))},
                )
                for kind in range(own.shape[1])
            }
        )
    found = contrast(terms[:1], terms[1:])
    return found.low, found.high


def by_satterthwaite(values: np.ndarray) -> tuple[float, float]:
    """The jackknife variances of the three factors summed, and t with Satterthwaite's degrees of freedom."""
    variances, freedoms = [], []
    for axis in (1, 2, 3):
        other = tuple({1, 2, 3} - {axis})
        sums = values.mean(other)
        n = sums.shape[1]
        logs = np.log((sums.sum(1, keepdims=True) - sums) / (n - 1))
        variances.append((n - 1) * (logs[0] - logs[1]).var())
        freedoms.append(n - 1)
    total = sum(variances)
    freedom = total**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    center = math.log(values[0].mean() / values[1].mean())
    margin = stdtrit(freedom, 0.975) * math.sqrt(total)
    return math.exp(center - margin), math.exp(center + margin)


def by_bootstrap(values: np.ndarray, random: np.random.Generator) -> tuple[float, float]:
    weights = [random.multinomial(n, np.full(n, 1 / n), size=N_BOOTSTRAP) / n for n in values.shape[1:]]
    means = np.einsum("lstg,bs,bt,bg->lb", values, *weights, optimize=True)
    low, high = np.quantile(means[0] / means[1], [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("experiments", 1000), ("seeds", 3), ("types", 19), ("groups", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    console, random = Console(width=110), np.random.default_rng(0)
    sizes = (options.seeds, options.types, options.groups)
    shown = Table(title="coverage / width, %: {} seeds, {} types, {} groups of images".format(*sizes))
    for name in ("noise", "bootstrap", "Satterthwaite", "of the reports"):
        shown.add_column(name, justify="left" if name == "noise" else "right")
    for name, noise in NOISES.items():
        limits = np.zeros((options.experiments, 3, 2))
        for at in track(range(options.experiments), name, console=console, transient=True):
            values = made_values(random, sizes, noise)
            limits[at] = by_bootstrap(values, random), by_satterthwaite(values), of_reports(values)
        covered = 100 * ((limits[..., 0] <= RATIO) & (limits[..., 1] >= RATIO)).mean(0)
        widths = 100 * np.median(limits[..., 1] / limits[..., 0] - 1, axis=0)
        shown.add_row(name, *(f"{a:.1f} / {b:.0f}" for a, b in zip(covered, widths, strict=True)))
    console.print(shown)


if __name__ == "__main__":
    main()
