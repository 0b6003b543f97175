"""The scorecards of many groups of rows: their sums lie side by side in the same tensors, and are added all at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.metrics.bin_sums import bin_sums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.clusters import MAX_CLUSTER_GROUPS_BY_GROUP, MIN_SOFT_EFFECT, ClusterSums, card_clusters
from calibrant.metrics.group_histograms import GroupHistograms, group_histograms
from calibrant.metrics.histogram import MAX_GROUP_HISTOGRAM_BINS, TIE_BITS
from calibrant.metrics.means import group_means
from calibrant.metrics.sample_scores import SampleScores, positive_class, score_rows, softmax_rounding
from calibrant.metrics.scorecard import POSITIVE, Scorecard, needed_parts, rows_that_count
from calibrant.metrics.table import check_metrics, is_binary
from calibrant.predictions import LABEL_ROW, LABEL_WEIGHT, Predictions


@dataclass(frozen=True, eq=False)
class GroupCards(Mapping[Any, Scorecard]):
    """Scorecards by group, in the order of the groups; each is a slice of the sums, made when it is asked for."""

    empty: Scorecard  # what all scorecards have in common
    groups: tuple[Any, ...]  # in the order of the sums
    n_rows: Tensor  # (groups,) int64
    sums: Mapping[str, Any]  # the parts of a scorecard, with a first dimension of groups
    clusters: tuple[ClusterSums, ...] | None
    n_unlabelled: Mapping[Any, int] = field(default_factory=dict)

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        return dict(sorted(((group, number) for number, group in enumerate(self.groups)), key=sort_key))

    @cached_property
    def _cards(self) -> dict[Any, Scorecard]:
        return {}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, group: Any) -> Scorecard:
        if group not in self._cards:
            number = self._numbers[group]
            self._cards[group] = replace(
                self.empty,
                n_rows=int(self.n_rows[number]),
                sums={part: sums[number] for part, sums in self.sums.items()},
                clusters=None if self.clusters is None else self.clusters[number],
                n_unlabelled=self.n_unlabelled.get(group, 0),
            )
        return self._cards[group]

    def __add__(self, other: Self) -> Self:
        known = {group: number for number, group in enumerate(self.groups)}
        number = torch.tensor([known.setdefault(group, len(known)) for group in other.groups])
        clusters = None
        if self.clusters is not None and other.clusters is not None:
            added = dict(enumerate(self.clusters))
            for index, sums in zip(number.tolist(), other.clusters, strict=True):
                added[index] = added[index] + sums if index in added else sums
            clusters = tuple(added.values())
        return replace(
            self,
            groups=tuple(known),
            n_rows=_add_at(self.n_rows, other.n_rows, number, len(known)),
            sums={part: _add_sums(own, other.sums[part], number, len(known)) for part, own in self.sums.items()},
            clusters=clusters,
            n_unlabelled={},
        )


def sort_key(item: tuple[Any, object]) -> tuple[bool, str, Any]:
    """Of the item of a group: numbers come first, null comes last."""
    group = item[0]
    return (
        group is None,
        type(group).__name__ if not isinstance(group, int | float) else "",
        0 if group is None else group,
    )


def _add_at(a: Tensor, b: Tensor, number: Tensor, n_groups: int) -> Tensor:
    """The sums a of the first groups, plus b[i] for the group ``number[i]``."""
    total = a.new_zeros(n_groups, *a.shape[1:])
    total[: len(a)] = a
    return total.index_add_(0, number, b)


def _add_sums(a: Any, b: Any, number: Tensor, n_groups: int) -> Any:
    if isinstance(a, GroupHistograms):
        return a.renumber(torch.arange(len(a.dropped)), n_groups) + b.renumber(number, n_groups)
    return type(a)(*(_add_at(getattr(a, name), getattr(b, name), number, n_groups) for name in a.__slots__))


def group_cards(
    predictions: Predictions,
    number: NDArray[np.int64],
    values: Sequence[Any],
    *,
    metrics: tuple[str, ...] | None,
    n_bins: int,
    weights: str | None,
    cluster: str | None,
    stream: bool,
) -> GroupCards:
    """The scorecards of the groups of rows of positive weight, whose ``number`` is that of one of the values."""
    order = np.argsort(number.astype(np.min_scalar_type(len(values))), kind="stable")
    columns = [name for name in (weights, cluster, LABEL_ROW if weights == LABEL_WEIGHT else None) if name is not None]
    groups, n_groups = torch.from_numpy(number[order]), len(values)
    names = check_metrics(metrics, predictions.n_classes, top_label=predictions.top_label)
    rows, w = rows_that_count(predictions.select(columns)[order], names, weights)
    parts = needed_parts(names, clustered=cluster is not None)
    scores, classes = score_rows(rows, n_bins=n_bins if "classes" in parts else None, weights=w, groups=groups)
    sums: dict[str, Any] = {"means": group_means(scores, w, groups, n_groups)} if "means" in parts else {}
    if classes is not None:
        sums["classes"] = classes.view(n_groups, rows.n_classes, n_bins)
    outcomes = {"": (scores.confidence, scores.complement, scores.correct)}
    if is_binary(names):
        outcomes[POSITIVE] = positive_class(scores, rows.labels == 1)
    for prefix, (confidence, complement, correct) in outcomes.items():
        if "bins" in parts:
            cell = groups * n_bins + bin_numbers(confidence, n_bins, softmax_rounding(confidence.dtype))
            sums[f"{prefix}bins"] = bin_sums(cell, n_groups * n_bins, confidence, correct, w).view(n_groups, n_bins)
        if "histogram" in parts:
            limit = MAX_GROUP_HISTOGRAM_BINS if stream else None
            options: dict[str, Any] = {"tie_bits": TIE_BITS[confidence.dtype], "limit": limit}
            histograms = group_histograms(confidence, complement, correct, w, groups, n_groups, **options)
            sums[f"{prefix}histogram"] = histograms
    n_rows = torch.bincount(groups)
    if weights == LABEL_WEIGHT and LABEL_ROW in columns:
        pairs = torch.stack([groups, rows.numbers("the numbers of rows", LABEL_ROW).long()], dim=1)
        n_rows = torch.bincount(pairs.unique(dim=0)[:, 0])
    clusters = None
    if cluster is not None:
        common: dict[str, Any] = {"n_bins": n_bins, "parts": parts, "cluster": cluster}
        common["least_effect"] = MIN_SOFT_EFFECT if weights == LABEL_WEIGHT else 1.0
        clusters = tuple(_clusters(rows, scores, w, groups, outcomes.get(POSITIVE), common))
    empty = Scorecard(names, 0, rows.n_classes, n_bins, {}, top_label=rows.top_label)
    return GroupCards(empty, tuple(values), n_rows, sums, clusters)


def _clusters(
    predictions: Predictions,
    scores: SampleScores,
    weights: Tensor | None,
    groups: Tensor,
    positive: tuple[Tensor, Tensor, Tensor] | None,
    options: Mapping[str, Any],
) -> Iterator[ClusterSums]:
    """The sums by cluster of each group, group by group: few rows are clustered in many groups."""
    end = 0
    for size in torch.bincount(groups).tolist():
        rows, end = slice(end, end + size), end + size
        yield card_clusters(
            predictions[rows],
            SampleScores(*(getattr(scores, column.name)[rows] for column in fields(scores))),
            None if weights is None else weights[rows],
            positive=None if positive is None else (positive[0][rows], positive[1][rows], positive[2][rows]),
            limit=MAX_CLUSTER_GROUPS_BY_GROUP,
            **options,
        )
