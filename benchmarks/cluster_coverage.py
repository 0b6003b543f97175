"""How often intervals cover, and how often verdicts are false, where rows come in clusters.

Each row is correct with a probability that follows from its confidence; a normal effect of its cluster on a latent
variable (a Gaussian copula) makes the outcomes of a cluster depend on each other without changing that probability.

    python benchmarks/cluster_coverage.py --draws 400

prints, for each number of clusters, sizes, correlation and source: the coverage of the 95 % intervals; the share of
draws in which a verdict is miscalibrated, and in which some of ten hospitals is marked, both false for a calibrated
source; the mean noise floor over the mean ECE, 1 for a calibrated source. 400 draws take half an hour of one core;
--independent adds the same without naming the clusters.
"""

import argparse
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

import calibrant as cb
from calibrant.audits.verdict import calibration_p_values
from calibrant.metrics import Scorecard
from calibrant.metrics.exact import combined_p_value, holm

METRICS = ("accuracy", "ece", "nll", "brier", "smece", "kse", "cece", "aurc")
N_ROWS, N_HOSPITALS = 1000, 10
N_TRUTH = 400_000
SIGNIFICANCE = 0.05


def draw_rows(
    n_clusters: int, n_rows: int, *, unequal: bool, correlation: float, overconfident: bool, seed: int
) -> cb.Predictions:
    """Rows of three classes in clusters, each cluster in one hospital."""
    draw = np.random.default_rng(seed)
    shares = draw.pareto(1.5, n_clusters) + 0.2 if unequal else np.ones(n_clusters)
    cluster = np.repeat(np.arange(n_clusters), np.maximum(1, np.rint(shares / shares.sum() * n_rows).astype(int)))
    effect, own = draw.standard_normal(n_clusters)[cluster], draw.standard_normal(len(cluster))
    latent = np.sqrt(correlation) * effect + np.sqrt(1 - correlation) * own
    typical = draw.standard_normal(n_clusters)[cluster] * 0.4  # confidences of a cluster are alike too
    confidence = 0.5 + 0.49 / (1 + np.exp(-(0.8 + typical + 1.2 * draw.standard_normal(len(cluster)))))
    rate = 0.5 + (confidence - 0.5) * 0.75 if overconfident else confidence
    correct = latent < ndtri(rate)
    predicted = draw.integers(0, 3, len(cluster))
    probs = np.repeat((1 - confidence)[:, None] / 2, 3, axis=1)
    probs[np.arange(len(cluster)), predicted] = confidence
    labels = np.where(correct, predicted, (predicted + draw.integers(1, 3, len(cluster))) % 3)
    columns = {"patient": cluster, "hospital": cluster % N_HOSPITALS}
    return cb.Predictions.from_probs(torch.from_numpy(probs), torch.from_numpy(labels), columns=columns)


def true_values(**source: bool) -> dict[str, float]:
    rows = draw_rows(N_TRUTH, N_TRUTH, unequal=False, correlation=0.0, seed=10**6, **source)
    card = cb.score(rows, metrics=METRICS)
    zero = ("ece", "smece", "kse", "cece")
    return {name: 0.0 if name in zero and not source["overconfident"] else card[name] for name in METRICS}


def measure(n_draws: int, truth: dict[str, float], cluster: str | None, **source: Any) -> dict[str, float]:
    """The shares of draws: intervals that cover, verdicts that are not calibrated, some hospital that is marked."""
    covered = dict.fromkeys(METRICS, 0)
    found, marked, floors, errors = 0, 0, 0.0, 0.0
    for seed in range(n_draws):
        rows = draw_rows(n_rows=N_ROWS, seed=seed, **source)
        card = cb.score(rows, metrics=METRICS, cluster=cluster)
        for name in METRICS:
            low, high = card.interval(name)
            covered[name] += low - 1e-9 <= truth[name] <= high + 1e-9
        found += p_value(card) <= SIGNIFICANCE
        floors, errors = floors + card.noise_floor("ece"), errors + card.ece
        if not source["overconfident"] and source["n_clusters"] >= 2 * N_HOSPITALS:
            groups = cb.score(rows, by="hospital", metrics=("ece", "kse"), cluster=cluster)
            marked += min(holm([p_value(group) for group in groups.values()])) <= SIGNIFICANCE
    shares = {name: n / n_draws for name, n in covered.items()}
    return {**shares, "verdict": found / n_draws, "Holm": marked / n_draws, "floor/ECE": floors / errors}


def p_value(card: Scorecard) -> float:
    return combined_p_value(*calibration_p_values(card))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--clusters", type=int, nargs="*", default=[4, 12, 50, 100])
    parser.add_argument("--independent", action="store_true", help="also without naming the clusters")
    options = parser.parse_args()
    torch.set_num_threads(1)
    header = [*METRICS, "verdict", "Holm", "floor/ECE"]
    print(f"{'':44}" + " ".join(f"{name:>9}" for name in header))
    for overconfident in (False, True):
        truth = true_values(overconfident=overconfident)
        for n_clusters in options.clusters:
            for unequal in (False, True):
                for correlation in (0.0, 0.3):
                    for cluster in ("patient", None) if options.independent else ("patient",):
                        source = {"n_clusters": n_clusters, "unequal": unequal, "correlation": correlation}
                        found = measure(options.draws, truth, cluster, overconfident=overconfident, **source)
                        text = (
                            f"{n_clusters:3} {'unequal' if unequal else 'equal':7} ρ {correlation} "
                            f"{'overconfident' if overconfident else 'calibrated':13} {cluster or 'as independent':>14}"
                        )
                        print(f"{text:44}" + " ".join(f"{found[name]:9.3f}" for name in header), flush=True)


if __name__ == "__main__":
    main()
