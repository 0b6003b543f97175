"""Paired comparison of two models on the same rows: differences with intervals and p-values.

Every metric is approximately a mean over rows of influences, so the variance of a difference is that of a mean of
paired terms; rows of one cluster (a patient, a camera, a seed) are summed first. Norms of gaps are not differentiable
at 0: for them the gaps of both models are drawn from their joint normal distribution. Noise adds more to the norm of
one model than to that of the other; the interval covers the difference with and without that.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from scipy.special import ndtr, ndtri, stdtr, stdtrit
from torch import Tensor

from calibrant._arrays import UNKNOWN, blocks
from calibrant._checks import check_all_labelled, check_integer, check_level
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError
from calibrant.metrics.bin_sums import Float64Array
from calibrant.metrics.checks import check_nonzero_weights, check_same_rows
from calibrant.metrics.exact import holm
from calibrant.metrics.influence import BinnedResiduals, ScoredPredictions
from calibrant.metrics.sample_scores import sample_scores
from calibrant.metrics.scorecard import Scorecard, row_weights
from calibrant.metrics.table import METRICS, Metric, check_metrics
from calibrant.predictions import Predictions

COMPARISON_DRAWS = 2000
CLUSTER_BLOCK = 2048


@dataclass(frozen=True)
class Difference:
    """One metric of one group of rows: model a minus model b.

    Args:
        metric: The name of the metric.
        group: The value of the column ``by``; None for all rows.
        overall: Whether these are all rows: the group of rows without a value is None too.
        n_rows: The number of rows.
        a: The metric of model a.
        b: The metric of model b.
        difference: a − b.
        interval: Confidence interval of the difference.
        standard_error: Standard error of the difference.
        p_value: p-value of the hypothesis that the difference is 0.
        p_holm: The same, corrected for the number of groups (Holm).
    """

    metric: str
    group: object
    overall: bool
    n_rows: int
    a: float
    b: float
    difference: float
    interval: tuple[float, float]
    standard_error: float
    p_value: float
    p_holm: float


def compare(
    a: Predictions,
    b: Predictions,
    *,
    metrics: Iterable[str] | None = None,
    by: str | None = None,
    cluster: str | None = None,
    weights: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
) -> list[Difference]:
    """Metric by metric, model a minus model b on the same rows in the same order.

    Args:
        a: The predictions of model a, with the columns named below.
        b: The predictions of model b.
        metrics: Names in `METRICS`; by default all that are finite, except those of P(y = 1).
        by: A column; each of its values is compared too, with p-values corrected for their number (Holm).
        cluster: A column; rows that share its value are not independent.
        weights: A column of row weights.
        n_bins: The number of bins of the binned calibration errors.
        level: The level of the intervals.
        seed: The seed of the draws.

    Returns:
        For each metric the difference on all rows, then those of the groups.

    Raises:
        InvalidInputError: The rows differ or have no label, or a metric of ``metrics`` is infinite.
        UnknownNameError: A metric does not exist.

    >>> a = Predictions.from_positive_probs([0.9, 0.2, 0.8, 0.7], [1, 0, 1, 0])
    >>> b = Predictions.from_positive_probs([0.6, 0.4, 0.6, 0.6], [1, 0, 1, 0])
    >>> [row] = compare(a, b, metrics=["brier"])
    >>> round(row.difference, 4)
    -0.13
    """
    check_same_rows(a.labels, b.labels, a.n_classes, b.n_classes)
    check_integer("n_bins", n_bins, 1)
    check_level(level)
    check_integer("seed", seed, 0)
    check_all_labelled(a.labels == UNKNOWN)
    comparable = [name for name in METRICS if METRICS[name].comparable]
    names = check_metrics(comparable if metrics is None else metrics, a.n_classes)
    for name in names:
        check_choice("metric that can be compared", name, comparable)
    if weights is not None:
        counts = check_nonzero_weights(row_weights(a, weights))
        a, b = a[counts], b[counts]
        b = replace(b, columns=pa.table({weights: a.column(weights)}))
    models = [_score_rows(predictions, weights) for predictions in (a, b)]
    clusters = torch.arange(len(a)) if cluster is None else torch.from_numpy(a.groups(cluster)[0])
    found = []
    for group, index in _groups(a, by):
        pair = [model[index] for model in models]
        cards = [Scorecard.of(model.predictions, metrics=names, n_bins=n_bins, weights=weights) for model in pair]
        for name in names:
            values = [value for card in cards if (value := card.get(name)) is not None]
            if len(values) < 2 or (metrics is None and not all(map(math.isfinite, values))):
                continue
            if not math.isfinite(values[0] - values[1]):
                raise InvalidInputError(f"{name} cannot be compared: it is {values[0]:g} and {values[1]:g}")
            difference = _difference(METRICS[name], pair, cards, clusters[index], level=level, seed=seed)
            found.append(replace(difference, group=group))
    return [row for name in names for row in _holm([row for row in found if row.metric == name])]


def _score_rows(predictions: Predictions, weights: str | None) -> ScoredPredictions:
    scores, _ = sample_scores(predictions.logits, predictions.labels)
    ones = torch.ones(len(predictions), dtype=torch.float64)
    return ScoredPredictions(predictions, scores, ones if weights is None else row_weights(predictions, weights))


def _groups(predictions: Predictions, by: str | None) -> Iterator[tuple[object, Tensor]]:
    """All rows, then those of every value of a column."""
    yield None, torch.arange(len(predictions))
    if by is not None:
        number, distinct = predictions.groups(by)
        for i, value in enumerate(distinct):
            yield value, torch.from_numpy(np.flatnonzero(number == i))


def _difference(
    metric: Metric,
    pair: list[ScoredPredictions],
    cards: list[Scorecard],
    clusters: Tensor,
    *,
    level: float,
    seed: int,
) -> Difference:
    a, b = (card[metric.key] for card in cards)
    error, freedom, noise = _standard_error(metric, pair, cards, clusters, seed)
    limits, p_value = (-math.inf, math.inf), 1.0
    if freedom >= 1:  # the variance between clusters needs two of them
        low, high = sorted((a - b, a - b - noise))
        margin = error * float(ndtri((1 + level) / 2) if math.isinf(freedom) else stdtrit(freedom, (1 + level) / 2))
        limits = low - margin, high + margin
        nearest = max(low, -high, 0.0)  # the smallest absolute difference between low and high
        p_value = float(nearest == 0)
        if error > 0:
            z = -nearest / error
            p_value = 2 * float(ndtr(z) if math.isinf(freedom) else stdtr(freedom, z))
    return Difference(
        metric=metric.key,
        group=None,
        overall=False,
        n_rows=len(clusters),
        a=a,
        b=b,
        difference=a - b,
        interval=limits,
        standard_error=error,
        p_value=p_value,
        p_holm=p_value,
    )


def _holm(rows: list[Difference]) -> list[Difference]:
    """The p-values of the groups corrected; that of all rows stays."""
    corrected = holm([row.p_value for row in rows[1:]])
    groups = [replace(row, p_holm=p_holm) for row, p_holm in zip(rows[1:], corrected, strict=True)]
    return [replace(row, overall=True) for row in rows[:1]] + groups


def _standard_error(
    metric: Metric, pair: list[ScoredPredictions], cards: list[Scorecard], clusters: Tensor, seed: int
) -> tuple[float, float, float]:
    """Standard error of a − b, its degrees of freedom, and the expected part of a − b that is noise."""
    _, cluster = clusters.unique(return_inverse=True)
    n_clusters = int(cluster.max()) + 1
    if n_clusters == 1:
        return math.inf, 0.0, 0.0
    correction = n_clusters / (n_clusters - 1)
    if metric.gaps is not None:
        first, second = (metric.gaps(model, card.n_bins) for model, card in zip(pair, cards, strict=True))
        return _draw_norms(first, second, _joint_covariance(first, second, cluster) * correction, seed)
    assert metric.influence is not None
    weights = pair[0].weights
    of_a, of_b = (weights * metric.influence(model, card) for model, card in zip(pair, cards, strict=True))
    summed = torch.zeros(n_clusters, dtype=torch.float64).index_add_(0, cluster, of_a - of_b)
    error = math.sqrt(float(summed @ summed) * correction) / float(weights.sum())
    noise = 0.0 if metric.noise is None else metric.noise(cards[0]) - metric.noise(cards[1])
    return error, n_clusters - 1.0, noise


def _joint_covariance(first: BinnedResiduals, second: BinnedResiduals, cluster: Tensor) -> Float64Array:
    """Covariance of the summed residuals of both models' bins, where clusters are independent."""
    size = first.n_bins + second.n_bins
    total = torch.zeros(size, size, dtype=torch.float64)
    number, order = cluster.sort(stable=True)
    bins = torch.stack([first.number, second.number + first.n_bins], dim=1)[order]
    residual = torch.stack([first.residual, second.residual], dim=1)[order]
    for block in blocks(int(number[-1]) + 1, 1, size=CLUSTER_BLOCK):
        start, end = torch.searchsorted(number, torch.tensor([block.start, block.stop])).tolist()
        local = number[start:end] - block.start
        sums = torch.zeros(CLUSTER_BLOCK * size, dtype=torch.float64)
        sums.index_add_(0, (local.unsqueeze(1) * size + bins[start:end]).flatten(), residual[start:end].flatten())
        sums = sums.view(-1, size)
        total += sums.T @ sums
    return total.numpy()


def _draw_norms(
    first: BinnedResiduals, second: BinnedResiduals, covariance: Float64Array, seed: int
) -> tuple[float, float, float]:
    """The same for metrics whose gaps are drawn from their joint normal distribution."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    noise = np.random.default_rng(seed).standard_normal((COMPARISON_DRAWS, len(root))) @ root.T / first.total
    a, noise_of_a = first.subtract(noise[:, : first.n_bins])
    b, noise_of_b = second.subtract(noise[:, first.n_bins :])
    return float((a - b).std(ddof=1)), math.inf, noise_of_a - noise_of_b
