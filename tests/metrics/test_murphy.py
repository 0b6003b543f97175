"""The terms of the Brier score, against loops over classes and bins, exact identities and simulated coverage."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

import calibrant as cb
from calibrant import Predictions
from calibrant.errors import InvalidInputError
from calibrant.metrics import brier_decomposition


def rows_of(n: int, factor: float, seed: int = 0, k: int = 3) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = true.softmax(1).multinomial(1, generator=generator)[:, 0]
    columns = {"w": torch.arange(n) % 3, "patient": torch.arange(n) // 4}
    return Predictions.from_logits(factor * true, labels, columns=columns)


def slow_terms(predictions: Predictions, n_bins: int) -> dict[str, float]:
    """Class by class and bin by bin, with the terms within bins of Stephenson et al."""
    probs, labels = predictions.logits.double().softmax(1).numpy(), predictions.labels.numpy()
    n, k = probs.shape
    found = dict.fromkeys(("score", "reliability", "resolution", "uncertainty", "within_bins"), 0.0)
    for c in range(k):
        hit = (labels == c).astype(float)
        base = hit.mean()
        found["score"] += ((probs[:, c] - hit) ** 2).mean()
        found["uncertainty"] += base * (1 - base) * n / (n - 1)
        found["resolution"] += base * (1 - base) / (n - 1)
        number = np.clip(np.ceil(probs[:, c] * n_bins) - 1, 0, None)
        for b in range(n_bins):
            p, o = probs[number == b, c], hit[number == b]
            if len(p) == 0:
                continue
            noise = np.var(o) / (len(p) - 1) if len(p) > 1 else 0.0
            found["reliability"] += len(p) / n * ((p.mean() - o.mean()) ** 2 - noise)
            found["resolution"] += len(p) / n * ((o.mean() - base) ** 2 - noise)
            within = ((p - p.mean()) ** 2 - 2 * (o - o.mean()) * (p - p.mean())).mean()
            found["within_bins"] += len(p) / n * within
    return found


@pytest.mark.parametrize("n_bins", [1, 5, 15])
@pytest.mark.parametrize(("n", "k"), [(2, 2), (40, 3), (500, 5), (300, 40)])
def test_terms_are_those_of_loops_and_sum_to_the_score(n: int, k: int, n_bins: int) -> None:
    rows = rows_of(n, 1.7, seed=n, k=k)
    card = cb.score(rows, n_bins=n_bins)
    found = card.brier_decomposition()
    for name, wanted in slow_terms(rows, n_bins).items():
        assert getattr(found, name) == pytest.approx(wanted, abs=1e-9), name
    assert found.score == card.brier
    total = found.reliability - found.resolution + found.uncertainty + found.within_bins
    assert total == pytest.approx(found.score, abs=1e-12)


def test_weights_and_merged_scorecards() -> None:
    """A row of weight 2 is two rows but for the bias, which knows that they are one."""
    rows = rows_of(300, 1.5)
    repeated = rows[torch.repeat_interleave(torch.arange(300), torch.arange(300) % 3)]
    weighted, twice = (
        cb.score(rows, weights="w").brier_decomposition(),
        cb.score(repeated).brier_decomposition(),
    )
    for term, bias in (("reliability", "reliability_bias"), ("resolution", "resolution_bias")):
        plain = [getattr(each, term) + getattr(each, bias) for each in (weighted, twice)]
        assert plain[0] == pytest.approx(plain[1], abs=1e-12)
    assert weighted.reliability_bias > twice.reliability_bias
    merged = (cb.score(rows[:100]) + cb.score(rows[100:])).brier_decomposition()
    wanted = cb.score(rows).brier_decomposition()
    assert [v for k, v in asdict(merged).items() if k != "intervals"] == pytest.approx(
        [v for k, v in asdict(wanted).items() if k != "intervals"], abs=1e-12
    )


def test_the_bias_of_the_reliability_is_removed() -> None:
    """A calibrated model: on average 0, where the plain reliability is its bias."""
    found = [cb.score(rows_of(200, 1.0, seed=seed)).brier_decomposition() for seed in range(200)]
    corrected = np.array([each.reliability for each in found])
    bias = np.mean([each.reliability_bias for each in found])
    assert abs(corrected.mean()) < 4 * corrected.std() / math.sqrt(200)
    assert bias > 20 * corrected.std() / math.sqrt(200)
    assert corrected.min() < 0


def jackknife_loop(rows: Predictions, groups: np.ndarray[Any, Any], term: str) -> float:
    """The standard error from the values without each group."""
    kept = [getattr(cb.score(rows[groups != j]).brier_decomposition(), term) for j in np.unique(groups)]
    n = len(kept)
    return math.sqrt((n - 1) / n * sum((x - sum(kept) / n) ** 2 for x in kept))


@pytest.mark.parametrize("cluster", [None, "patient"])
def test_intervals_are_those_of_the_jackknife(cluster: str | None) -> None:
    from calibrant.metrics.jackknife import jackknife_groups

    rows = rows_of(240, 2.0)
    found = brier_decomposition(rows, cluster=cluster)
    groups = jackknife_groups(rows, cluster)
    for term, (low, high) in found.intervals.items():
        half = 2.093024 * jackknife_loop(rows, groups, term)  # Student's 0.975 quantile, 19 degrees of freedom
        assert (low, high) == pytest.approx((getattr(found, term) - half, getattr(found, term) + half), abs=1e-6)
    assert set(found.intervals) == {"reliability", "resolution", "uncertainty", "within_bins"}


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "n"), [(2.0, 300), (1.0, 300)])
def test_intervals_cover_the_terms_of_many_rows(factor: float, n: int) -> None:
    truth = cb.score(rows_of(400_000, factor, seed=9999)).brier_decomposition()
    found = [brier_decomposition(rows_of(n, factor, seed=seed)) for seed in range(100)]
    for term in ("reliability", "resolution", "uncertainty"):
        covered = sum(low <= getattr(truth, term) <= high for low, high in (each.intervals[term] for each in found))
        assert covered >= 88, term  # of 95 ± 2.2 standard errors


def test_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one row"):
        brier_decomposition(rows_of(5, 1.0)[:0])
    with pytest.raises(InvalidInputError, match="at least 2 rows, got 1"):
        brier_decomposition(rows_of(1, 1.0))
    with pytest.raises(InvalidInputError, match="at least 2 clusters, got 1"):
        brier_decomposition(rows_of(4, 1.0), cluster="patient")
    with pytest.raises(InvalidInputError, match=r"level.*2"):
        brier_decomposition(rows_of(5, 1.0), level=2)
    with pytest.raises(InvalidInputError, match=r"no classes|no cece"):
        cb.score(rows_of(5, 1.0), metrics=["brier"]).brier_decomposition()
    with pytest.raises(InvalidInputError, match="no brier"):
        cb.score(rows_of(5, 1.0), metrics=["cece"]).brier_decomposition()
