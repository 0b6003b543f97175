"""Scoring: predictions in memory or in a stream, all rows or group by group."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self, overload

import numpy as np
from torch import Tensor

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_instance, check_n_bins, check_same_class_names, in_order
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.checks import check_group_count
from calibrant.metrics.group_cards import GroupCards, group_cards, sort_key
from calibrant.metrics.histogram import MAX_HISTOGRAM_BINS
from calibrant.metrics.scorecard import NO_ROWS, Scorecard, row_weights
from calibrant.metrics.soft_labels import expand_soft_labels
from calibrant.metrics.table import METRICS, metric_names, need_labels
from calibrant.predictions import LABEL_PROBS, Predictions
from calibrant.scan import Scan

GROUPED_ELEMENTS = 2**23  # numbers of predictions whose groups are scored at a time


@dataclass(frozen=True, eq=False)
class Groups(Mapping[Any, Scorecard]):
    """One scorecard for each value of a column, sorted by value, and one of all rows.

    Args:
        by: The column.
        cards: The scorecards by value, sorted.
        overall: The scorecard of all rows.
    """

    by: str
    cards: Mapping[Any, Scorecard]
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
        overall = self.overall + other.overall
        if isinstance(self.cards, GroupCards) and isinstance(other.cards, GroupCards):
            n_groups = len({*self.cards.groups, *other.cards.groups})
            check_group_count(self.by, n_groups, self.overall.n_classes * self.overall.n_bins)
            return type(self)(self.by, self.cards + other.cards, overall)
        cards = dict(self.cards)
        for group, card in other.cards.items():
            cards[group] = cards[group] + card if group in cards else card
        return type(self)(self.by, dict(sorted(cards.items(), key=sort_key)), overall)


class Unlabelled:
    """Counts of the rows without a label, which are left out: of all rows, and by group of each of some columns."""

    def __init__(self, by: Sequence[str]) -> None:
        self.n_labelled = self.n = 0
        self.groups: dict[str, Counter[Any]] = {name: Counter() for name in by}

    def count(self, predictions: Predictions) -> Tensor | None:
        """Which rows have a label; None where all have."""
        known = predictions.labels != UNKNOWN
        n_labelled = int(known.sum())
        self.n_labelled += n_labelled
        self.n += len(predictions) - n_labelled
        if n_labelled == len(predictions):
            return None
        for name, counts in self.groups.items():
            number, values = predictions.select([name])[~known].groups(name)
            counts.update(dict(zip(values, np.bincount(number).tolist(), strict=True)))
            check_group_count(name, len(counts), predictions.n_classes)
        return known

    def noted(self, total: Any) -> Any:
        """A scorecard or groups with these counts."""
        if isinstance(total, Scorecard):
            return replace(total, n_unlabelled=self.n)
        cards = replace(total.cards, n_unlabelled=self.groups[total.by])
        return Groups(total.by, cards, self.noted(total.overall))

    def __add__(self, other: Self) -> Self:
        total = type(self)(list(self.groups))
        total.n_labelled, total.n = self.n_labelled + other.n_labelled, self.n + other.n
        total.groups = {name: counts + other.groups[name] for name, counts in self.groups.items()}
        return total


def no_rows(source: object, unlabelled: Unlabelled) -> InvalidInputError:
    """Why nothing of the source can be scored."""
    if unlabelled.n_labelled or not unlabelled.n:
        return InvalidInputError(f"{', '.join(source.files)}: {NO_ROWS}" if isinstance(source, Scan) else NO_ROWS)
    return no_labels(source)


def no_labels(source: object) -> InvalidInputError:
    """What to type where no row has a label."""
    free = " and ".join(name for name in METRICS if not METRICS[name].needs_labels)
    advice = f"without labels there are calibrant estimate, and the metrics {free} (--metrics)"
    if not isinstance(source, Scan):
        return InvalidInputError(f"predictions have no row with a label: {advice}")
    if source.has_labels:
        return InvalidInputError(f"{', '.join(source.files)}: no row has a label; {advice}")
    return InvalidInputError(f"{source.sources[0].without_labels}; {advice}")


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
        predictions: Predictions, a scan of files, or batches of predictions. Rows without a label are left out, and
            counted in ``n_unlabelled``, unless all metrics are such as need none: confidence and entropy.
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
        InvalidInputError: There is no row, no row has a label, all weights are 0, or an argument is invalid.
        UnknownNameError: A metric or a column does not exist.

    >>> predictions = Predictions.from_probs([[0.75, 0.25], [0.25, 0.75]], [0, 0])
    >>> score(predictions).accuracy
    0.5
    """
    names = None if metrics is None else metric_names(metrics)
    check_n_bins(n_bins)
    stream = not isinstance(predictions, Predictions)
    batches = batches_of(predictions, _present(by, weights, cluster))
    if by is not None:
        check_instance("by", by, str)
    unlabelled = Unlabelled(_present(by))
    if need_labels(names or METRICS):
        batches = _labelled(batches, unlabelled)
    if by is not None:
        batches = _large(batches)

    def cards() -> Iterator[Any]:
        first_row = 0
        for batch in batches:
            rows, w, groups = expand_soft_labels(batch, weights, cluster, first_row=first_row)
            options: dict[str, Any] = {"n_bins": n_bins, "weights": w, "cluster": groups}
            yield score_batch(rows, by=by, metrics=names, stream=stream, **options)
            first_row += len(batch)

    total = sum_of_cards(cards())
    if total is None:
        raise no_rows(predictions, unlabelled)
    scored: Scorecard | Groups = unlabelled.noted(total)
    return scored


def _labelled(batches: Iterable[Predictions], unlabelled: Unlabelled) -> Iterator[Predictions]:
    """The labelled rows of batches that have any; the others are counted."""
    for batch in batches:
        known = None if batch.has_soft_labels else unlabelled.count(batch)
        if known is None or known.any():
            yield batch if known is None else batch[known]


def _large(batches: Iterable[Predictions]) -> Iterator[Predictions]:
    """The same rows in fewer batches: with each, the sums of all groups are added."""
    waiting: list[Predictions] = []
    for batch in batches:
        full = (len(batch) + sum(map(len, waiting))) * batch.n_classes > GROUPED_ELEMENTS
        if waiting and (full or _kind(batch) != _kind(waiting[0])):
            yield Predictions.concat(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield Predictions.concat(waiting)


def _kind(batch: Predictions) -> tuple[object, ...]:
    """What must be equal in batches whose rows become one batch."""
    types = {name: str(batch.columns.schema.field(name).type) for name in batch.columns.column_names}
    return batch.n_classes, batch.top_label, batch.logits.dtype, types, batch.features is None


def _present(*columns: str | None) -> list[str]:
    return [column for column in columns if column is not None]


def batches_of(predictions: Predictions | Iterable[Predictions], columns: Sequence[str]) -> Iterator[Predictions]:
    """Predictions, those of a scan with these columns, or several of them, of the same class names."""
    batches: Iterable[object] = [predictions]
    if isinstance(predictions, Scan):
        soft = [LABEL_PROBS] if LABEL_PROBS in predictions.column_names else []
        batches = predictions.batches([*columns, *soft])
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


def sum_of_cards(cards: Iterable[Any]) -> Any:
    """The sum of scorecards, or of groups of them, from left to right, without those that are None; or None."""
    counted = (card for card in cards if card is not None)
    first = next(counted, None)
    return None if first is None else reduce(add, counted, first)


def merge(cards: Iterable[Any]) -> Any:
    """The same of at least one. Raises: InvalidInputError."""
    total = sum_of_cards(cards)
    if total is None:
        raise InvalidInputError(NO_ROWS)
    return total


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

    options: dict[str, Any] = {"metrics": metrics, "n_bins": n_bins, "weights": weights, "cluster": cluster}
    if overall is None:
        max_histogram_bins = MAX_HISTOGRAM_BINS if stream else None
        overall = Scorecard.of(predictions, max_histogram_bins=max_histogram_bins, **options)
    if by is None:
        return overall
    number, values = predictions.groups(by)
    check_group_count(by, len(values), predictions.n_classes * n_bins)
    return Groups(by, group_cards(predictions, number, values, stream=stream, **options), overall)
