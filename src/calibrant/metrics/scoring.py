"""Scoring: predictions in memory or in a stream, all rows or group by group."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Self, overload

import numpy as np

from calibrant._checks import check_instance, check_n_bins, check_same_class_names, in_order
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.checks import check_group_count
from calibrant.metrics.clusters import MAX_CLUSTER_GROUPS, MAX_CLUSTER_GROUPS_BY_GROUP
from calibrant.metrics.histogram import MAX_GROUP_HISTOGRAM_BINS, MAX_HISTOGRAM_BINS
from calibrant.metrics.scorecard import NO_ROWS, Scorecard, row_weights
from calibrant.metrics.soft_labels import expand_soft_labels
from calibrant.metrics.table import METRICS, metric_names
from calibrant.predictions import LABEL_PROBS, LABEL_ROW, LABEL_WEIGHT, Predictions
from calibrant.scan import Scan


@dataclass(frozen=True, eq=False)
class Groups(Mapping[Any, Scorecard]):
    """One scorecard for each value of a column, sorted by value, and one of all rows.

    Args:
        by: The column.
        cards: The scorecards by value.
        overall: The scorecard of all rows.
    """

    by: str
    cards: dict[Any, Scorecard]
    overall: Scorecard

    def __getitem__(self, group: Any) -> Scorecard:
        return self.cards[group]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.cards)

    def __len__(self) -> int:
        return len(self.cards)

    def worst(self, metric: str) -> tuple[Any, Scorecard]:
        """The group with the worst value of a metric.

        Args:
            metric: The name of the metric.

        Returns:
            The group and its scorecard.

        Raises:
            UndefinedMetricError: The metric is undefined in every group.
        """
        check_choice("metric", metric, METRICS)
        sign = -1.0 if METRICS[metric].higher_is_better else 1.0
        defined = [(sign * value, group) for group, card in self.items() if (value := card.get(metric)) is not None]
        if not defined:
            raise UndefinedMetricError(f"{metric} is undefined in every group of {self.by}")
        worst = max(defined, key=lambda pair: pair[0])[1]
        return worst, self.cards[worst]

    def __add__(self, other: Self) -> Self:
        check_instance("what is added to groups", other, Groups)
        size = self.overall.n_classes * self.overall.n_bins
        check_group_count(self.by, len(self.cards.keys() | other.cards.keys()), size)
        cards = dict(self.cards)
        for group, card in other.cards.items():
            cards[group] = cards[group] + card if group in cards else card
        return type(self)(self.by, dict(sorted(cards.items(), key=_sort_key)), self.overall + other.overall)


def _sort_key(item: tuple[Any, Scorecard]) -> tuple[bool, str, Any]:
    group = item[0]
    return (
        group is None,
        type(group).__name__ if not isinstance(group, int | float) else "",
        0 if group is None else group,
    )


@overload
def score(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
    cluster: str | None = None,
) -> Scorecard: ...


@overload
def score(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: str,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
    cluster: str | None = None,
) -> Groups: ...


def score(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: str | None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
    cluster: str | None = None,
) -> Scorecard | Groups:
    """The scorecard of predictions.

    Predictions in memory are scored exactly. A scan, or any iterable of Predictions, is scored in one pass and bounded
    memory: adaece, l2ce, kse, smece and aurc are then computed from a fine histogram, which is exact up to 2^18
    distinct confidences (2^15 in each group). `Scorecard.error_bound` bounds the error beyond that.

    Soft labels (the column `label_probs`) are scored in expectation: as `Predictions.expand_labels` with
    ``weights="label_weight"`` and ``cluster="label_row"``, whose intervals are those of as many rows as there are.

    Args:
        predictions: Labelled predictions, a scan of files, or batches of predictions.
        by: A column; the result then has a scorecard for each of its values.
        metrics: Names in `METRICS`; all of them by default.
        n_bins: The number of bins of the binned calibration errors.
        weights: A column of row weights.
        cluster: A column; rows that share its value (a patient, an image) are not independent. Values stay the same;
            intervals and noise floors follow the variance between at most 64 groups of clusters, in each group of
            ``by`` at most 32.

    Returns:
        The scorecard; with ``by``, `Groups` of scorecards.

    Raises:
        InvalidInputError: There is no row, a row has no label, all weights are 0, or an argument is invalid.
        UnknownNameError: A metric or a column does not exist.

    >>> predictions = Predictions.from_probs([[0.75, 0.25], [0.25, 0.75]], [0, 0])
    >>> score(predictions).accuracy
    0.5
    """
    names = None if metrics is None else metric_names(metrics)
    check_n_bins(n_bins)
    stream = not isinstance(predictions, Predictions)

    def cards() -> Iterator[Any]:
        first_row = 0
        for batch in batches_of(predictions, _present(by, weights, cluster)):
            rows, w, groups = expand_soft_labels(batch, weights, cluster, first_row=first_row)
            options: dict[str, Any] = {"n_bins": n_bins, "weights": w, "cluster": groups}
            yield score_batch(rows, by=by, metrics=names, stream=stream, **options)
            first_row += len(batch)

    total: Scorecard | Groups = merge(cards())
    return total


def _present(*columns: str | None) -> list[str]:
    return [column for column in columns if column is not None]


def batches_of(predictions: Predictions | Iterable[Predictions], columns: Sequence[str]) -> Iterator[Predictions]:
    """Predictions, those of a scan with these columns, or several of them, of the same class names."""
    batches: Iterable[object] = [predictions]
    if isinstance(predictions, Scan):
        soft = [LABEL_PROBS] if LABEL_PROBS in predictions.column_names else []
        batches = predictions.check_labels().batches([*columns, *soft])
    elif not isinstance(predictions, Predictions):
        batches = in_order("predictions", "Predictions, or several of them,", predictions)
    names = None
    for batch in batches:
        if not isinstance(batch, Predictions):
            hint = "build them with Predictions.from_logits(logits, labels), or read files with Predictions.scan(path)"
            what = type(batch).__name__
            raise InvalidInputError(f"predictions must be Predictions, or several of them, got {what}; {hint}")
        check_same_class_names("the first batch", names, "every batch", batch.class_names)
        names = batch.class_names if names is None else names
        yield batch


def merge(cards: Iterable[Any]) -> Any:
    """The sum of scorecards, or of groups of them, from left to right, without those that are None."""
    counted = (card for card in cards if card is not None)
    first = next(counted, None)
    if first is None:
        raise InvalidInputError(NO_ROWS)
    return reduce(add, counted, first)


def score_batch(
    predictions: Predictions,
    *,
    by: str | None,
    metrics: tuple[str, ...] | None,
    n_bins: int,
    weights: str | None,
    cluster: str | None,
    stream: bool,
    overall: Scorecard | None = None,
) -> Any:
    """Scorecard or groups of one batch, whose ``overall`` scorecard may be known; None where all weights are 0."""
    if weights is not None:
        counts = row_weights(predictions, weights) > 0
        if not counts.any():
            return None
        predictions = predictions[counts]

    def card_of(
        rows: Predictions, max_histogram_bins: int = MAX_HISTOGRAM_BINS, max_cluster_groups: int = MAX_CLUSTER_GROUPS
    ) -> Scorecard:
        return Scorecard.of(
            rows,
            metrics=metrics,
            n_bins=n_bins,
            weights=weights,
            cluster=cluster,
            max_histogram_bins=max_histogram_bins if stream else None,
            max_cluster_groups=max_cluster_groups,
        )

    if by is None:
        return card_of(predictions)
    number, values = predictions.groups(by)
    check_group_count(by, len(values), predictions.n_classes * n_bins)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(values) + 1))
    lean = predictions.select(_present(weights, cluster, *([LABEL_ROW] if weights == LABEL_WEIGHT else [])))
    cards = {
        group: card_of(lean[order[edges[i] : edges[i + 1]]], MAX_GROUP_HISTOGRAM_BINS, MAX_CLUSTER_GROUPS_BY_GROUP)
        for i, group in enumerate(values)
    }
    return Groups(by, dict(sorted(cards.items(), key=_sort_key)), overall or card_of(predictions))
