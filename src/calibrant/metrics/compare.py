"""Paired comparison of two models on the same rows: differences with intervals and p-values.

Every metric is approximately a mean over rows of influences, so the variance of a difference is that of a mean of
paired terms; rows of one cluster (a patient, a camera, a seed) are summed first. It is the jackknife's over clusters,
with Student's distribution of as many degrees of freedom as there are effective clusters, minus 1.

Norms of gaps are not differentiable at 0: for them the gaps of both models are drawn from their joint normal
distribution. Noise adds more to the norm of one model than to that of the other; the interval covers the difference
with and without that. The debiased error has a root that is cut at 0: what is tested is the difference of the squares.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from scipy.special import stdtr, stdtrit
from torch import Tensor

from calibrant._arrays import UNKNOWN, sum_of
from calibrant._checks import (
    check_integer,
    check_level,
    check_n_bins,
    check_same_class_names,
    check_same_kind,
)
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.metrics.bin_sums import Float64Array
from calibrant.metrics.checks import check_nonzero_weights, check_same_rows, check_same_soft_labels
from calibrant.metrics.exact import holm
from calibrant.metrics.influence import BinnedResiduals, ScoredPredictions
from calibrant.metrics.sample_scores import score_rows
from calibrant.metrics.scorecard import Scorecard, needed_parts, row_weights
from calibrant.metrics.scoring import no_labels
from calibrant.metrics.soft_labels import expand_soft_labels
from calibrant.metrics.table import METRICS, Metric, check_metrics
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

COMPARISON_DRAWS = 2000
EXPECTED_ON_ERRORS = ("nll", "brier")  # metrics that the model itself expects a value of, where it errs
NO_FREEDOM = 1e-9  # degrees of freedom of one cluster, up to rounding


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
        difference: a − b; NaN where both are infinite.
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


@checked
@one_thread()
def compare(
    a: Predictions,
    b: Predictions,
    *,
    metrics: str | Iterable[str] | None = None,
    by: str | None = None,
    cluster: str | None = None,
    weights: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
) -> list[Difference]:
    """Metric by metric, model a minus model b on the same rows in the same order; those without a label are left out.

    Args:
        a: The predictions of model a, with the columns named below.
        b: The predictions of model b.
        metrics: Names in `METRICS`; by default all except those of P(y = 1).
        by: A column; each of its values is compared too, with p-values corrected for their number (Holm).
        cluster: A column; rows that share its value are not independent.
        weights: A column of row weights.
        n_bins: The number of bins of the binned calibration errors.
        level: The level of the intervals.
        seed: The seed of the draws.

    Returns:
        For each metric the difference on all rows, then those of the groups. Where the NLL is infinite, the interval is
        unbounded and the p-value 1.

    Raises:
        InvalidInputError: The rows differ, or none has a label.
        UnknownNameError: A metric does not exist.

    >>> a = Predictions.from_positive_probs([0.9, 0.2, 0.8, 0.7], [1, 0, 1, 0])
    >>> b = Predictions.from_positive_probs([0.6, 0.4, 0.6, 0.6], [1, 0, 1, 0])
    >>> [row] = compare(a, b, metrics=["brier"])
    >>> round(row.difference, 4)
    -0.13
    """
    check_same_kind("a", a, "b", b)
    check_same_class_names("a", a.class_names, "b", b.class_names)
    if a.has_soft_labels and b.has_soft_labels:
        check_same_soft_labels(a.soft_labels(), b.soft_labels())
    a, weights, cluster = expand_soft_labels(a, weights, cluster)
    b, *_ = expand_soft_labels(b, None, None)
    known = a.labels != UNKNOWN
    # Of the confidence alone, labels say whether a model's prediction is correct, which may differ.
    first, second = (each.labels.clamp(max=0) if each.top_label else each.labels for each in (a, b))
    check_same_rows(first, second, a.n_classes, b.n_classes)
    check_n_bins(n_bins)
    check_level(level)
    check_integer("seed", seed, 0)
    if not known.any():
        raise no_labels(a)
    a, b = (a, b) if known.all() else (a[known], b[known])
    comparable = [name for name in METRICS if METRICS[name].comparable]
    default = [name for name in comparable if not (a.top_label and METRICS[name].all_classes)]
    names = check_metrics(default if metrics is None else metrics, a.n_classes, top_label=a.top_label)
    for name in names:
        check_choice("metric that can be compared", name, comparable)
    if weights is not None:
        counts = check_nonzero_weights(row_weights(a, weights))
        a, b = a[counts], b[counts]
        b = replace(b, columns=pa.table({weights: a.column(weights)}))
    ones = torch.ones(len(a), dtype=torch.float64)
    w = None if weights is None else row_weights(a, weights)
    class_bins = n_bins if "classes" in needed_parts(names, clustered=False) else None
    scored = [score_rows(predictions, n_bins=class_bins, weights=w) for predictions in (a, b)]
    models = [ScoredPredictions(p, found[0], ones if w is None else w) for p, found in zip((a, b), scored, strict=True)]
    clusters = torch.arange(len(a)) if cluster is None else torch.from_numpy(a.groups(cluster)[0])
    found = []
    for overall, group, index in _groups(a, by):
        pair = models if overall else [model[index] for model in models]
        cluster_numbers = clusters[index].unique(return_inverse=True)[1]
        cards = [
            Scorecard.of(model.predictions, metrics=names, n_bins=n_bins, weights=weights, scored=known_scores)
            for model, known_scores in zip(pair, scored if overall else (None, None), strict=True)
        ]
        for name in names:
            if any(card.get(name) is None for card in cards):
                continue  # undefined in this group
            difference = _difference(METRICS[name], pair, cards, cluster_numbers, level=level, seed=seed)
            found.append(replace(difference, overall=overall, group=group))
    return [row for name in names for row in _holm([row for row in found if row.metric == name])]


def _groups(predictions: Predictions, by: str | None) -> Iterator[tuple[bool, object, Tensor]]:
    """All rows, then those of every value of a column: whether they are all rows, the value, and the rows."""
    yield True, None, torch.arange(len(predictions))
    if by is not None:
        number, distinct = predictions.groups(by)
        for i, value in enumerate(distinct):
            yield False, value, torch.from_numpy(np.flatnonzero(number == i))


def _holm(rows: list[Difference]) -> list[Difference]:
    """The p-values of the groups corrected; that of all rows stays."""
    groups = [row for row in rows if not row.overall]
    corrected = holm([row.p_value for row in groups])
    return [row for row in rows if row.overall] + [
        replace(row, p_holm=p_holm) for row, p_holm in zip(groups, corrected, strict=True)
    ]


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
    tested = a**2 - b**2 if metric.debiased else a - b
    error, freedom, noise = math.inf, 0.0, 0.0
    if math.isfinite(tested):
        error, freedom, noise = _standard_error(metric, pair, cards, clusters, seed)
    limits, p_value = (-math.inf, math.inf), 1.0
    if freedom > 0:
        low, high = sorted((tested, tested - noise))
        margin = error * float(stdtrit(freedom, (1 + level) / 2))
        limits = low - margin, high + margin
        nearest = max(low, -high, 0.0)  # the smallest absolute difference between low and high
        p_value = 2 * float(stdtr(freedom, -nearest / error)) if error > 0 else float(nearest == 0)
    if metric.debiased:
        low, high, error = (_difference_of_roots(value, a + b) for value in (*limits, error))
        limits = low, high
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


def _difference_of_roots(difference: float, total: float) -> float:
    """The difference of two roots with a sum of about ``total``, from that of their squares; at most its root."""
    size = abs(difference)
    return math.copysign(min(math.sqrt(size), size / total if total > 0 else math.inf), difference)


def _standard_error(
    metric: Metric, pair: list[ScoredPredictions], cards: list[Scorecard], clusters: Tensor, seed: int
) -> tuple[float, float, float]:
    """Standard error of a − b, or of a² − b² if debiased; degrees of freedom; the expected part that is noise."""
    shares = [_cluster_shares(model, clusters, errors=metric.on_errors) for model in pair]
    freedom = min(1 / sum_of(share.square()) for share in shares) - 1  # the effective number of clusters − 1
    if freedom < NO_FREEDOM:
        return math.inf, 0.0, 0.0
    if metric.gaps is not None:
        first, second = (metric.gaps(model, card.n_bins) for model, card in zip(pair, cards, strict=True))
        row_share = sum_of(pair[0].weights.square()) / sum_of(pair[0].weights) ** 2
        covariance = _joint_covariance(first, second, clusters, shares[0])
        covariance += _unseen_outcome(first, second, row_share)
        if metric.debiased:
            return _error_of_squares(first, second, covariance), freedom, 0.0
        error, noise = _draw_norms(first, second, covariance, seed)
        return error, freedom, noise
    assert metric.influence is not None
    weights = pair[0].weights / sum_of(pair[0].weights)
    of_a, of_b = (
        torch.bincount(clusters, weights * metric.influence(model, card)) * _leave_out(share)
        for model, card, share in zip(pair, cards, shares, strict=True)
    )
    noise = 0.0 if metric.noise is None else metric.noise(cards[0]) - metric.noise(cards[1])
    row_share = sum_of(weights.square())
    unseen = spread = _unseen_error(metric, cards, row_share)
    if metric.parts == ("classes",) and not torch.equal(of_a, of_b):
        spread = 2 / cards[0].n_classes * row_share  # an error moves the gaps of two classes
    return math.hypot(math.sqrt(sum_of((of_a - of_b).square())), spread), freedom, noise - unseen


def _unseen_error(metric: Metric, cards: list[Scorecard], share: float) -> float:
    """What one error more than was seen would add to the difference of two NLLs or Brier scores.

    Without errors, the rows vary little, and their variance says nothing of how rare errors are.
    """
    if metric.key not in EXPECTED_ON_ERRORS:
        return 0.0
    first, second = (card.means.expected_error(metric.key) for card in cards)
    return (first - second) * share if math.isfinite(first - second) else 0.0


def _cluster_shares(model: ScoredPredictions, clusters: Tensor, *, errors: bool) -> Tensor:
    """The share of each cluster in the weight of all rows, or of the errors."""
    counted = model.weights * ~model.scores.correct if errors else model.weights
    return torch.bincount(clusters, counted) / sum_of(counted)


def _leave_out(share: Tensor) -> Tensor:
    """What the deviations of clusters are multiplied by, so that their squares sum to the jackknife's variance.

    Without a cluster, a mean moves by the deviation divided by the share of the others.
    """
    n_clusters = share.count_nonzero()
    return ((n_clusters - 1) / n_clusters).sqrt() / (1 - share)


def _joint_covariance(first: BinnedResiduals, second: BinnedResiduals, clusters: Tensor, share: Tensor) -> Float64Array:
    """Covariance of the gaps of both models' bins, by the jackknife over clusters.

    A gap is a mean over all rows: the deviation of a cluster is the sum of its residuals minus its share of the gap.
    """
    factor = _leave_out(share)
    scaled, of_rows = share * factor, factor[clusters]
    a, b = (model.residual * of_rows for model in (first, second))
    if len(share) == len(clusters):  # every row is a cluster
        squares = _pair_sums(first, second, a, b)
        total = np.concatenate(
            [
                torch.bincount(model.number, values * scaled[clusters], model.n_bins).numpy()
                for model, values in ((first, a), (second, b))
            ]
        )
    else:
        from scipy.sparse import csr_array

        bins = torch.cat([first.number, second.number + first.n_bins]).numpy()
        shape = (len(share), first.n_bins + second.n_bins)
        sums = csr_array((torch.cat([a, b]).numpy(), (clusters.repeat(2).numpy(), bins)), shape=shape)
        squares, total = (sums.T @ sums).toarray(), sums.T @ scaled.numpy()
    gap = np.concatenate([first.gap, second.gap])
    both, square = np.outer(total, gap), scaled.numpy() @ scaled.numpy()
    return np.asarray(squares - both - both.T + square * np.outer(gap, gap))


def _pair_sums(first: BinnedResiduals, second: BinnedResiduals, a: Tensor, b: Tensor) -> Float64Array:
    """For each two bins of both models, the sum of the products of a number that each row has in each model."""
    n, m = first.n_bins, second.n_bins
    between = torch.bincount(first.number * m + second.number, a * b, n * m).view(n, m).numpy()
    of_first, of_second = torch.bincount(first.number, a * a, n), torch.bincount(second.number, b * b, m)
    return np.block([[np.diag(of_first.numpy()), between], [between.T, np.diag(of_second.numpy())]])


def _unseen_outcome(first: BinnedResiduals, second: BinnedResiduals, share: float) -> Float64Array:
    """The covariance of one outcome more than was seen: of a random row, in the bin that it has in each model."""
    ones = torch.ones(len(first.number), dtype=torch.float64)
    return np.asarray(_pair_sums(first, second, ones, ones) * (share**2 / len(ones)))


def _error_of_squares(first: BinnedResiduals, second: BinnedResiduals, covariance: Float64Array) -> float:
    r"""Standard error of the difference of the squared norms of gaps g + ε, ε with covariance V.

    With W = 1 for a and −1 for b, the variance of (g + ε)ᵀW(g + ε) is 4 gᵀWVWg + 2 tr(WVWV). The observed gaps contain
    ε: the first term is too large by 4 tr(WVWV) on average.
    """
    n = first.n_bins
    mapped = np.concatenate([first.linear(covariance[:, :n]), second.linear(covariance[:, n:])], 1).T
    mapped = np.concatenate([first.linear(mapped[:, :n]), second.linear(mapped[:, n:])], 1)
    signed = np.concatenate([first.linear(first.gap), -second.linear(second.gap)])
    sign = np.repeat([1.0, -1.0], [n, second.n_bins])
    trace = float(sign @ mapped**2 @ sign)
    return math.sqrt(max(4 * float(signed @ mapped @ signed) - 2 * trace, 2 * trace, 0.0))


def _draw_norms(
    first: BinnedResiduals, second: BinnedResiduals, covariance: Float64Array, seed: int
) -> tuple[float, float]:
    """Standard error of a − b and the part of it that is noise, from draws of normal gaps."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    noise = np.random.default_rng(seed).standard_normal((COMPARISON_DRAWS, len(root))) @ root.T
    a, noise_of_a = first.subtract(noise[:, : first.n_bins])
    b, noise_of_b = second.subtract(noise[:, first.n_bins :])
    return float((a - b).std(ddof=1)), noise_of_a - noise_of_b
