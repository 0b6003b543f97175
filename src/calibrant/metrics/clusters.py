"""Rows that come in clusters, such as those of one patient: by how much their sums vary more than independent rows.

The sums of the rows are kept for at most 64 groups of whole clusters; up to 64 clusters, each is its own group. Where
there are more, they are grouped by the first bits of a hash of their value, as many as fit: the groups depend on the
set of all clusters and not on their order, and groups of clusters are as independent as clusters. The variance between
the groups divided by that of independent rows is the **design effect**. Multiplied by it, the sum of the squared
weights counts as many rows as the clusters are worth, and every interval, test and noise floor follows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincc, stdtrit
from torch import Tensor

from calibrant._arrays import blocks, sum_of, value_hashes
from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.exact import GapDirection, ece_p_value, student_p_value
from calibrant.metrics.histogram import FineHistogram
from calibrant.metrics.means import MEAN_COLUMNS, Means
from calibrant.metrics.sample_scores import SampleScores, softmax_rounding
from calibrant.predictions import Predictions

MAX_CLUSTER_GROUPS = 64  # their variance has 63 degrees of freedom
MAX_CLUSTER_GROUPS_BY_GROUP = 32  # in each group of rows: half the memory, intervals wider by 2 %
MAX_CLUSTER_CLASSES = 64  # evenly spread classes whose probabilities are summed
MIN_SOFT_EFFECT = 1e-4  # the weighted labels of a row vary less than independent ones, or not at all
KEY_BITS = 52  # of a hash: differences are exact in float64


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSums:
    """Sums of rows by group of clusters and part of a scorecard; adding two of them is adding their data."""

    key: Tensor  # (j,) int64, increasing: hashes of the clusters without their last bits
    sums: Mapping[str, Tensor]  # (j, 2, m) float64 by part: Σw and Σwx of m columns
    limit: int  # of the number of groups
    dropped: int = 0  # bits
    least_effect: float = 1.0  # that intervals, tests and noise floors take

    def __len__(self) -> int:
        return len(self.key)

    def __add__(self, other: Self) -> Self:
        dropped = max(self.dropped, other.dropped)
        keys = torch.cat([part.key >> dropped << dropped for part in (self, other)])
        sums = {name: torch.cat([own, other.sums[name]]) for name, own in self.sums.items()}
        return replace(self, key=keys, sums=sums, dropped=dropped).reduce()

    def reduce(self) -> Self:
        """The same rows in at most ``limit`` groups, each once."""
        distinct = self.key.unique()
        dropped = max(self.dropped, _bits_to_drop(distinct.numpy(), self.limit))
        key, number = (self.key >> dropped << dropped).unique(return_inverse=True)
        sums = {
            name: part.new_zeros(len(key), *part.shape[1:]).index_add_(0, number, part)
            for name, part in self.sums.items()
        }
        return replace(self, key=key, sums=sums, dropped=dropped)


def cluster_keys(predictions: Predictions, cluster: str) -> Tensor:
    """(n,) int64: hashes of the values of a column."""
    hashes = value_hashes(cluster, predictions.column(cluster)) >> np.uint64(64 - KEY_BITS)
    return torch.from_numpy(hashes.astype(np.int64))


def _bits_to_drop(keys: NDArray[np.int64], limit: int) -> int:
    """The fewest last bits without which increasing keys have at most ``limit`` values."""
    differing = np.frexp((keys[1:] ^ keys[:-1]).astype(np.float64))[1]  # the last bits that neighbours differ in
    return 0 if len(keys) <= limit else int(np.sort(differing)[-limit])


def sum_by_cluster(keys: Tensor, limit: int, parts: Mapping[str, tuple[Tensor, int, Tensor]], w: Tensor) -> ClusterSums:
    """The sums of rows. parts: the column of each row (n,), or (n, c) for c of them, their number, and the values."""
    distinct = keys.unique()
    dropped = _bits_to_drop(distinct.numpy(), limit)
    key, group = (keys >> dropped << dropped).unique(return_inverse=True)
    sums = {}
    for name, (number, n_columns, values) in parts.items():
        slot = group.view(-1, *[1] * (number.ndim - 1)) * n_columns + number
        weight = w.view(-1, *[1] * (number.ndim - 1)).expand_as(values)
        totals = [torch.bincount(slot.flatten(), x.flatten(), len(key) * n_columns) for x in (weight, weight * values)]
        sums[name] = torch.stack(totals).view(2, len(key), n_columns).transpose(0, 1).contiguous()
    return ClusterSums(key, sums, limit, dropped)


def card_clusters(
    predictions: Predictions,
    rows: SampleScores,
    weights: Tensor | None,
    *,
    cluster: str,
    n_bins: int,
    limit: int,
    parts: set[str],
    positive: tuple[Tensor, Tensor, Tensor] | None,
    least_effect: float = 1.0,
) -> ClusterSums:
    """The sums behind the design effects of a scorecard's parts."""
    keys = cluster_keys(predictions, cluster)
    w = torch.ones(len(keys), dtype=torch.float64) if weights is None else weights
    columns = torch.stack([getattr(rows, name).double() for name in MEAN_COLUMNS], dim=1)
    which = torch.arange(len(MEAN_COLUMNS)) + len(MEAN_COLUMNS) * (~rows.correct).long().unsqueeze(1)
    found = {"means": (which, 2 * len(MEAN_COLUMNS), columns)}  # of the correct rows, then of the errors
    for name, scores in (("bins", (rows.confidence, rows.complement, rows.correct)), ("positive_bins", positive)):
        if scores is not None:
            found[name] = (_bins(scores[0], n_bins), n_bins, scores[0].double() - scores[2].double())
    total = replace(sum_by_cluster(keys, limit, found, w), least_effect=least_effect)
    if "classes" not in parts:
        return total
    classes, class_sums = spread_classes(predictions.n_classes), []
    for block in blocks(len(keys), predictions.n_classes):
        logits, labels = predictions.logits[block], predictions.labels[block]
        probs = (logits[:, classes] - logits.logsumexp(1, keepdim=True)).exp()
        residual = probs.double() - (labels.unsqueeze(1) == classes).double()
        cells = _bins(probs, n_bins) + n_bins * torch.arange(len(classes))
        part = sum_by_cluster(keys[block], limit, {"classes": (cells, n_bins * len(classes), residual)}, w[block])
        class_sums.append(part)
    return replace(total, sums={**total.sums, **reduce(add, class_sums).sums})


def _bins(confidence: Tensor, n_bins: int) -> Tensor:
    return bin_numbers(confidence, n_bins, softmax_rounding(confidence.dtype))


def spread_classes(n_classes: int) -> Tensor:
    """At most 64 classes, evenly spread."""
    n = min(n_classes, MAX_CLUSTER_CLASSES)
    return torch.arange(n) * n_classes // n


# Design effects


def inflate(sums: Any, effect: float | Tensor) -> Any:
    """The sums with fewer independent rows: the squared weights times a design effect."""
    if isinstance(sums, FineHistogram):
        return replace(sums, sums=inflate(sums.sums, effect))
    if isinstance(sums, Means):
        powers = torch.tensor([1.0, effect, effect], dtype=torch.float64)
        return replace(sums, squared=sums.squared * effect, sums=sums.sums * powers)
    return replace(sums, squared=sums.squared * effect)


def mean_effect(clusters: ClusterSums, means: Means, column: str, *, errors: bool) -> tuple[float, float]:
    """The design effect of a mean over rows, and its degrees of freedom."""
    index, which = MEAN_COLUMNS.index(column), int(errors)
    parts = clusters.sums["means"].view(len(clusters), 2, 2, -1)[..., index]  # correct rows, errors
    part = parts[..., 1:] if errors else parts.sum(-1, keepdim=True)
    total, first, second = means.sums[which, index].tolist()
    squared = float(means.squared[which])
    mean = total / float(means.weight[which])
    variance = second - 2 * mean * first + mean**2 * squared
    return _ratio(part, np.array([variance]), squared)


def gap_effect(clusters: ClusterSums, part: str, bins: BinSums) -> tuple[float, float]:
    """The same for confidence − accuracy over all bins: of all rows, or the mean over classes."""
    sums = _by_class(clusters.sums[part], bins).sum(-1)
    return _ratio(sums, _gap_variance(bins).numpy(), sum_of(bins.squared))


def bin_effect(clusters: ClusterSums, part: str, bins: BinSums) -> float:
    """The design effect of the gap of a bin: that of their mean absolute noise, to which it adds its root."""
    sums = _by_class(clusters.sums[part], bins).flatten(2)
    accuracy = torch.nan_to_num(bins.accuracy)
    independent = sum_of((bins.squared * accuracy * (1 - accuracy)).sqrt())
    between = np.sqrt((_deviations(sums) ** 2).sum(0)).sum()
    return float(between / independent) ** 2 if independent > 0 else 1.0


def column_effects(clusters: ClusterSums, part: str, sums: BinSums) -> tuple[Tensor, list[float]]:
    """The design effects of confidence − accuracy of each bin by itself, at least 1, and their degrees of freedom."""
    columns = clusters.sums[part]
    found = [
        _ratio(columns[..., k : k + 1], _gap_variance(sums[k : k + 1]).numpy(), max(float(sums.squared[k]), 1e-300))
        for k in range(len(sums.total))
    ]
    effects, freedom = zip(*found, strict=True)
    return torch.tensor(effects, dtype=torch.float64).clamp(min=1.0), list(freedom)


def _by_class(part: Tensor, bins: BinSums) -> Tensor:
    """(j, 2, classes, bins)"""
    return part.view(len(part), 2, -1, bins.total.shape[-1])


def _gap_variance(bins: BinSums) -> Tensor:
    """(classes,) the variance of the weighted sum of confidence − correct, about its mean, for independent rows."""
    total = bins.total.view(-1, bins.total.shape[-1])
    filled = bins.total > 0  # an empty bin may have a confidence, rounded from 0
    accuracy, confidence = (torch.where(filled, x, 0.0).view_as(total) for x in (bins.accuracy, bins.mean_confidence))
    mean = ((confidence - accuracy) * total).sum(-1, keepdim=True) / total.sum(-1, keepdim=True)
    gap = confidence - accuracy - mean
    return (bins.squared.view_as(total) * (accuracy * (1 - accuracy) + gap**2)).sum(-1)


def _ratio(sums: Tensor, variance: Float64Array, squared: float) -> tuple[float, float]:
    """Variance between groups by that of independent rows; without any variance, as if the rows of a group were one.

    Groups of different sizes give fewer degrees of freedom: those of as many equal ones, (ΣW)²/ΣW².
    """
    weight = sums[:, 0].numpy()
    size = weight.sum(1)
    freedom = float(size.sum() ** 2 / max((size**2).sum(), 1e-300)) - 1
    freedom = freedom if freedom > 1e-9 else 0.0
    if not bool(sums.isfinite().all()):
        return float((weight**2).sum()) / squared, freedom
    between, independent = float((_deviations(sums) ** 2).sum()), float(variance.sum())
    if independent <= 1e-12 * squared or not math.isfinite(between):
        return float((weight**2).sum()) / squared, freedom
    return between / independent, freedom


def _deviations(sums: Tensor) -> Float64Array:
    """(j, m): what each group adds to a weighted sum, minus its expectation; the sum of squares is the variance.

    A group of a share h of the weight deviates too little from a mean that it is part of: by a factor of √(1 − h).
    What is only in one group has no other mean than 0, that of a calibrated model.
    """
    weight, total = (sums[:, i].numpy() for i in (0, 1))
    everything = np.maximum(weight.sum(0), 1e-300)
    others = 1 - weight / everything
    centred = total - weight * (total.sum(0) / everything)
    return np.where(others > 1e-9, centred / np.sqrt(np.maximum(others, 1e-9)), total)


def adjust_effect(
    effect: float, freedom: float, n_effective: float, level: float = 0.95, least_effect: float = 1.0
) -> float:
    """A design effect that makes intervals as wide as its degrees of freedom demand (Korn and Graubard 1998).

    At least ``least_effect``, and at most what leaves one independent row of an effective number ``n_effective``.
    """
    if freedom <= 0:
        return n_effective
    effect, quantile = max(effect, least_effect), (1 + level) / 2
    of_rows = max(n_effective / effect - 1, freedom)
    return min(effect * float(stdtrit(freedom, quantile) / stdtrit(of_rows, quantile)) ** 2, n_effective)


def clustered_ece_p_value(clusters: ClusterSums, bins: BinSums, direction: GapDirection = "both") -> float:
    """`ece_p_value` for rows in clusters: never below that of independent rows, unless their labels are soft.

    The gaps of the bins of a calibrated model are about normal, with the design effect of a bin and the correlations
    between groups of clusters; the mean and the variance of the sum of their absolute values (or of those of one sign)
    follow, and a gamma distribution has the same. Its deviate has Student's distribution where groups are few.
    """
    _, freedom = gap_effect(clusters, "bins", bins)
    if freedom <= 0:
        return 1.0
    deviations = _deviations(clusters.sums["bins"])
    covariance = deviations.T @ deviations
    confidence = np.clip(np.nan_to_num(bins.mean_confidence.numpy()), 0.0, 1.0)
    effect = max(bin_effect(clusters, "bins", bins), clusters.least_effect)
    deviation = np.sqrt(effect * bins.squared.numpy() * confidence * (1 - confidence))
    gap = (bins.confidence - bins.weight[:, 1]).numpy()
    size = np.abs(gap) if direction == "both" else np.maximum(gap if direction == "over" else -gap, 0.0)
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = np.clip(covariance / scale / scale[:, None], -1.0, 1.0)
    np.fill_diagonal(correlation, 1.0)
    root, angle = np.sqrt(1 - correlation**2), np.arcsin(correlation)
    mean, product = math.sqrt(2 / math.pi), (root + correlation * angle) * 2 / math.pi  # E|x| and E|xy|
    if direction != "both":
        mean, product = (
            mean / 2,
            (root + correlation * (math.pi / 2 + angle)) / (2 * math.pi),
        )  # of their positive parts
    expected = mean * deviation.sum()
    variance = float(deviation @ (product - mean**2) @ deviation)
    if variance <= 0:
        return ece_p_value(bins, direction)
    p_value = float(gammaincc(expected**2 / variance, size.sum() * expected / variance))
    p_value = student_p_value(p_value, freedom)
    return p_value if clusters.least_effect < 1 else max(p_value, ece_p_value(bins, direction))
