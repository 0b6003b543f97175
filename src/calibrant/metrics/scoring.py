"""Scoring: predictions in memory or in a stream, all rows or group by group."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Self, overload

import numpy as np

from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.checks import check_group_count
from calibrant.metrics.histogram import MAX_GROUP_HISTOGRAM_BINS, MAX_HISTOGRAM_BINS
from calibrant.metrics.scorecard import NO_ROWS, Scorecard, row_weights
from calibrant.metrics.table import METRICS
from calibrant.predictions import Predictions
from calibrant.scan import Scan


@dataclass(frozen=True, eq=False)
class Groups(Mapping[Any, Scorecard]):
    """One scorecard for each value of a column, in the order of the values, and one of all rows."""

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
        """The group with the worst value, and its scorecard. Raises: UndefinedMetricError where no group has one."""
        check_choice("metric", metric, METRICS)
        sign = -1.0 if METRICS[metric].higher_is_better else 1.0
        known = [(sign * value, group) for group, card in self.items() if (value := card.get(metric)) is not None]
        if not known:
            raise UndefinedMetricError(f"{metric} is undefined in every group of {self.by}")
        worst = max(known, key=lambda pair: pair[0])[1]
        return worst, self.cards[worst]

    def __add__(self, other: Self) -> Self:
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
) -> Scorecard: ...


@overload
def score(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: str,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
) -> Groups: ...


def score(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: str | None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
) -> Scorecard | Groups:
    """The scorecard of predictions; with ``by``, `Groups`: one for each value of that column.

    Predictions in memory are scored exactly. A scan, or any iterable of Predictions, is scored in one pass and bounded
    memory: adaece, l2ce, kse, smece and aurc then come from a fine histogram, which is exact up to 2^18 different
    confidences (2^15 in each group); `Scorecard.error_bound` says how good they are beyond. weights: the name of a
    column of row weights.

    >>> predictions = Predictions.from_probs([[0.75, 0.25], [0.25, 0.75]], [0, 0])
    >>> score(predictions).accuracy
    0.5
    """
    names = (metrics,) if isinstance(metrics, str) else None if metrics is None else tuple(metrics)
    stream = not isinstance(predictions, Predictions)
    batches: Iterable[Predictions] = predictions if stream else [predictions]  # type: ignore[list-item, assignment]
    if isinstance(predictions, Scan):
        batches = predictions.batches([column for column in (by, weights) if column is not None])
    total: Scorecard | Groups = merge(
        score_batch(_checked(batch), by, names, n_bins, weights, stream=stream) for batch in batches
    )
    return total


def _checked(batch: object) -> Predictions:
    if isinstance(batch, Predictions):
        return batch
    what = type(batch).__name__
    hint = "build them with Predictions.from_logits(logits, labels), or read files with Predictions.scan(path)"
    raise InvalidInputError(f"predictions must be Predictions, or several of them, got {what}; {hint}")


def merge(cards: Iterable[Any]) -> Any:
    """The sum of scorecards, or of groups of them, from left to right; None counts nothing."""
    counted = (card for card in cards if card is not None)
    first = next(counted, None)
    if first is None:
        raise InvalidInputError(NO_ROWS)
    return reduce(add, counted, first)


def score_batch(
    predictions: Predictions,
    by: str | None,
    metrics: tuple[str, ...] | None,
    n_bins: int,
    weights: str | None,
    *,
    stream: bool,
    overall: Scorecard | None = None,
) -> Any:
    """Scorecard or groups of one batch; None where no row of it has a weight. overall: its scorecard, if known."""
    if weights is not None:
        counts = row_weights(predictions, weights) > 0
        if not counts.any():
            return None
        predictions = predictions[counts]

    def card_of(rows: Predictions, max_histogram_bins: int = MAX_HISTOGRAM_BINS) -> Scorecard:
        limit = max_histogram_bins if stream else None
        return Scorecard.of(rows, metrics=metrics, n_bins=n_bins, weights=weights, max_histogram_bins=limit)

    if by is None:
        return card_of(predictions)
    number, values = predictions.groups(by)
    check_group_count(by, len(values), predictions.n_classes * n_bins)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(values) + 1))
    lean = predictions.select([] if weights is None else [weights])
    cards = {
        group: card_of(lean[order[edges[i] : edges[i + 1]]], MAX_GROUP_HISTOGRAM_BINS) for i, group in enumerate(values)
    }
    return Groups(by, dict(sorted(cards.items(), key=_sort_key)), overall or card_of(predictions))
