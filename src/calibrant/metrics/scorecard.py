"""The scorecard: every metric of a set of predictions from one pass, with intervals and noise floors.

`METRICS` is the table; a metric is a formula over one of the four parts of a scorecard, which are sums and merge by
addition: means, bins, classes (the bins of every class) and cells (the fine histogram).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from calibrant._checks import (
    check_bins,
    check_choice,
    check_counting,
    check_group_count,
    check_level,
    check_row_weights,
)
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics import intervals
from calibrant.metrics.bins import (
    ReliabilityCurve,
    bin_numbers,
    cece,
    debiased,
    ece,
    mce,
    over,
    reliability,
    rmsce,
    under,
)
from calibrant.metrics.cells import TIE_BITS, Cells, equal_mass, exact_cells, grid_cells
from calibrant.metrics.means import Means, means
from calibrant.metrics.outcomes import outcomes, rounding
from calibrant.metrics.ranking import (
    RiskCoverageCurve,
    adaptive_bound,
    aurc,
    aurc_bound,
    aurc_interval,
    ks,
    ks_bound,
    risk_coverage,
)
from calibrant.metrics.smooth import smooth, smooth_bound
from calibrant.metrics.tally import Tally, tally
from calibrant.predictions import UNKNOWN, Predictions, Scan

EXACT_ROWS = 2**20
NO_ROWS = "predictions must have at least one row that counts"


@dataclass(frozen=True)
class Events:
    """Probabilities of something that then happened or not: the tallies of one question."""

    bins: Tally | None = None
    cells: Cells | None = None

    def __add__(self, other: Self) -> Self:
        return type(self)(_plus(self.bins, other.bins), _plus(self.cells, other.cells))


def events(
    confidence: Tensor,
    doubt: Tensor,
    happened: Tensor,
    weights: Tensor | None,
    n_bins: int,
    parts: set[str],
    exact: bool,
) -> Events:
    """The tallies of computed probabilities, whose last digits are rounding."""
    bins = cells = None
    if "bins" in parts:
        numbers = bin_numbers(confidence, n_bins, rounding(confidence.dtype))
        bins = tally(numbers, n_bins, confidence, happened, weights)
    if "cells" in parts and exact:
        cells = exact_cells(confidence, doubt, happened, weights, TIE_BITS[confidence.dtype])
    elif "cells" in parts:
        cells = grid_cells(confidence, doubt, happened, weights)
    return Events(bins, cells)


def _plus(a: Any, b: Any) -> Any:
    return None if a is None else a + b


@dataclass(frozen=True)
class Scorecard:
    """Sums over rows from which every metric is read; ``a + b`` is the scorecard of both sets of rows.

    ``card.ece`` or ``card["ece"]`` is a value, `interval`, `noise_floor` and `error_bound` say what it is worth.
    """

    names: tuple[str, ...]  # the metrics asked for
    n_rows: int
    n_classes: int
    n_bins: int
    means: Means | None = None
    top: Events = field(default_factory=Events)  # the largest probability, and whether its class is the label
    positive: Events | None = None  # with two classes: the probability of class 1, and whether it is the label
    classes: Tally | None = None  # (n_classes, n_bins)

    @classmethod
    def of(
        cls,
        predictions: Predictions,
        *,
        metrics: Iterable[str] | None = None,
        n_bins: int = 15,
        weights: str | None = None,
        exact: bool = True,
    ) -> Self:
        """The scorecard of predictions in memory; ``exact=False`` for one of bounded size."""
        names = check_metrics(metrics, predictions.n_classes)
        check_bins(n_bins)
        if len(predictions) == 0:
            raise InvalidInputError(NO_ROWS)
        unknown = predictions.labels == UNKNOWN
        if unknown.any():
            first = int(unknown.nonzero()[0])
            got = f"{int(unknown.sum()):,} of {len(unknown):,} rows have none, the first is row {first}"
            raise InvalidInputError(f"predictions must have labels to be scored; {got}")
        w = None
        if weights is not None:
            w = row_weights(predictions, weights)
            counts = check_counting(w)
            predictions, w = predictions[counts], w[counts]
        parts = {part for name in names for part in METRICS[name].parts}
        rows, classes = outcomes(
            predictions.logits, predictions.labels, n_bins=n_bins if "classes" in parts else None, weights=w
        )
        positive = None
        if any(METRICS[name].binary for name in names):
            happened = predictions.labels == 1
            likelier = rows.correct == happened  # class 1 is the likelier one where it is rightly or wrongly predicted
            probability = torch.where(likelier, rows.confidence, rows.doubt)
            complement = torch.where(likelier, rows.doubt, rows.confidence)
            positive = events(probability, complement, happened, w, n_bins, parts, exact)
        return cls(
            names,
            len(predictions),
            predictions.n_classes,
            n_bins,
            means(rows, w) if "means" in parts else None,
            events(rows.confidence, rows.doubt, rows.correct, w, n_bins, parts, exact),
            positive,
            classes,
        )

    def __add__(self, other: Self) -> Self:
        for name in ("names", "n_classes", "n_bins"):
            if getattr(self, name) != getattr(other, name):
                got = f"{getattr(self, name)} and {getattr(other, name)}"
                raise InvalidInputError(f"scorecards must agree in {name} to be added, got {got}")
        return replace(
            self,
            n_rows=self.n_rows + other.n_rows,
            means=_plus(self.means, other.means),
            top=self.top + other.top,
            positive=_plus(self.positive, other.positive),
            classes=_plus(self.classes, other.classes),
        )

    def __getitem__(self, name: str) -> float:
        return self._metric(name).value(self)

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name not in METRICS:
            raise AttributeError(f"a scorecard has no attribute {name!r}")
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def values(self) -> dict[str, float | None]:
        """Every metric; None where it is undefined, as the NLL of the errors where there is none."""
        return {name: self.get(name) for name in self.names}

    def get(self, name: str) -> float | None:
        try:
            return self[name]
        except UndefinedMetricError:
            return None

    def interval(self, name: str, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
        """Limits between which the metric's true value lies, `level` of the time. Raises: UndefinedMetricError."""
        check_level(level)
        return self._metric(name).interval(self, level, seed)

    def noise_floor(self, name: str, *, seed: int = 0) -> float:
        """Expected value for a perfectly calibrated model with these confidences, on as many rows.

        Raises: InvalidInputError for a metric that is no calibration error.
        """
        floor = self._metric(name).floor
        if floor is None:
            raise InvalidInputError(f"{name} has no noise floor: it is no calibration error")
        return floor(self, seed)

    def error_bound(self, name: str) -> float:
        """How far a value that comes from a stream's histogram may be from the exact one; 0.0 where it is exact."""
        bound = self._metric(name).bound
        events = self.positive if METRICS[name].binary else self.top
        return 0.0 if bound is None or events is None or events.cells is None or events.cells.exact else bound(self)

    def reliability(self) -> ReliabilityCurve:
        """Accuracy against confidence of the top label, bin by bin, with bin strengths."""
        return reliability(self.top_bins)

    def risk_coverage(self) -> RiskCoverageCurve:
        """Error rate among the most confident rows against their share."""
        return risk_coverage(self.top_cells)

    def _metric(self, name: str) -> "Metric":
        check_choice("metric", name, METRICS)
        if name not in self.names:
            raise InvalidInputError(f"{name} was not asked for; this scorecard has {', '.join(self.names)}")
        return METRICS[name]

    @property
    def top_bins(self) -> Tally:
        return _bins(self.top, self.n_bins)

    @property
    def top_cells(self) -> Tally:
        return _cells(self.top).tally

    def __repr__(self) -> str:
        return f"Scorecard({self.n_rows:,} rows, {self.n_classes} classes, {', '.join(self._short())})"

    def _short(self) -> Iterator[str]:
        for name, value in list(self.values().items())[:3]:
            yield f"{name} –" if value is None else f"{name} {value:.4g}"


def _needed(part: Any, name: str) -> Any:
    if part is None:
        raise InvalidInputError(f"this scorecard was made for metrics that need no {name}")
    return part


def check_metrics(metrics: Iterable[str] | None, n_classes: int) -> tuple[str, ...]:
    """The metrics asked for, in the order of the table; by default all that two, or more, classes have."""
    wanted = set(METRICS) if metrics is None else set([metrics] if isinstance(metrics, str) else metrics)
    for name in sorted(wanted):
        check_choice("metric", name, METRICS)
        if METRICS[name].binary and n_classes != 2 and metrics is not None:
            raise InvalidInputError(f"{name} is for two classes, the predictions have {n_classes}")
    if not wanted:
        raise InvalidInputError("metrics must name at least one metric")
    return tuple(name for name in METRICS if name in wanted and (n_classes == 2 or not METRICS[name].binary))


def row_weights(predictions: Predictions, name: str) -> Tensor:
    """The weights of the rows, from a column."""
    column = predictions.column(name)
    if column.null_count or not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidInputError(
            f"weights must be numbers, got {column.type} with {column.null_count} nulls in {name!r}"
        )
    values = torch.from_numpy(column.to_numpy().astype(np.float64))
    return check_row_weights(values, len(predictions))


@dataclass(frozen=True)
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
        check_group_count(self.by, len(self.cards.keys() | other.cards.keys()))
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


def score(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: str | None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
) -> Any:
    """The scorecard of predictions; with ``by``, `Groups`: one for each value of that column.

    Predictions in memory are scored exactly, and so is a scan of at most 2^20 rows. A larger one, or any iterable of
    Predictions, is scored in one pass and bounded memory: adaece, l2ce, kse, smece and aurc then come from a fine
    histogram, and `Scorecard.error_bound` says how good they are. weights: the name of a column of row weights.

    >>> predictions = Predictions.from_probs([[0.75, 0.25], [0.25, 0.75]], [0, 0])
    >>> score(predictions).accuracy
    0.5
    """
    names = (metrics,) if isinstance(metrics, str) else None if metrics is None else tuple(metrics)
    if isinstance(predictions, Predictions):
        return merge([score_batch(predictions, by, names, n_bins, weights, exact=True)])
    exact = is_small(predictions)
    return merge(score_batch(batch, by, names, n_bins, weights, exact=exact) for batch in predictions)


def is_small(predictions: Iterable[Predictions]) -> bool:
    """Whether these are files of so few rows that a cell for each confidence takes no more memory than the grid may."""
    return isinstance(predictions, Scan) and predictions.n_rows <= EXACT_ROWS


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
    exact: bool,
) -> Any:
    """Scorecard or groups of one batch; None where no row of it has a weight."""
    if weights is not None:
        counts = row_weights(predictions, weights) > 0
        if not counts.any():
            return None
        predictions = predictions[counts]

    def card_of(rows: Predictions) -> Scorecard:
        return Scorecard.of(rows, metrics=metrics, n_bins=n_bins, weights=weights, exact=exact)

    if by is None:
        return card_of(predictions)
    number, values = predictions.groups(by)
    check_group_count(by, len(values))
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(values) + 1))
    lean = predictions.select([] if weights is None else [weights])
    cards = {group: card_of(lean[order[edges[i] : edges[i + 1]]]) for i, group in enumerate(values)}
    return Groups(by, dict(sorted(cards.items(), key=_sort_key)), card_of(predictions))


@dataclass(frozen=True)
class Metric:
    """A row of the table: how to read a metric, and what it is worth, from a scorecard."""

    title: str
    parts: tuple[str, ...]
    value: Callable[[Scorecard], float]
    interval: Callable[[Scorecard, float, int], tuple[float, float]]
    floor: Callable[[Scorecard, int], float] | None = None
    bound: Callable[[Scorecard], float] | None = None
    higher_is_better: bool = False
    binary: bool = False


def _mean(title: str, column: str, *, errors: bool = False, higher_is_better: bool = False) -> Metric:
    def value(card: Scorecard) -> float:
        return card.means.value(column, errors=errors)  # type: ignore[union-attr]

    def interval(card: Scorecard, level: float, _: int) -> tuple[float, float]:
        return card.means.interval(column, level, errors=errors)  # type: ignore[union-attr]

    return Metric(title, ("means",), value, interval, higher_is_better=higher_is_better)


Side = Callable[[Scorecard], Events]
Reading = Callable[[Events, int], Tally]  # the tally that a metric reads, of events and the number of bins


def _top(card: Scorecard) -> Events:
    return card.top


def _positive(card: Scorecard) -> Events:
    return _needed(card.positive, "probability of class 1")  # type: ignore[no-any-return]


def _bins(events: Events, _: int) -> Tally:
    return _needed(events.bins, "bins")  # type: ignore[no-any-return]


def _cells(events: Events) -> Cells:
    return _needed(events.cells, "cells")  # type: ignore[no-any-return]


def _mass_bins(events: Events, n_bins: int) -> Tally:
    return equal_mass(_cells(events).tally, n_bins)


def _classes(card: Scorecard) -> Tally:
    return _needed(card.classes, "classes")  # type: ignore[no-any-return]


def _binned(
    title: str,
    side: Side,
    reading: Reading,
    formula: Callable[[Tally], Tensor],
    norm: intervals.Norm,
    scaled: Callable[[intervals.Noise, Tally], intervals.Noise] | None = None,
    floor: Callable[[Tally, int], float] | None = None,
) -> Metric:
    """A norm of the gaps of bins, each gap scaled by its bin's mass where the norm asks for it."""

    def noise(bins: Tally, seed: int) -> intervals.Noise:
        plain = intervals.gaps(bins, seed)
        return plain if scaled is None else scaled(plain, bins)

    def interval(card: Scorecard, level: float, seed: int) -> tuple[float, float]:
        drawn = noise(reading(side(card), card.n_bins), seed)
        observed = float(norm(drawn[0]))
        if norm is intervals.largest:
            return intervals.largest_interval(observed, drawn, level)
        return intervals.interval(observed, drawn, norm, level)

    def noise_floor(card: Scorecard, seed: int) -> float:
        bins = reading(side(card), card.n_bins)
        return intervals.floor(noise(bins, seed), norm) if floor is None else floor(bins, seed)

    def bound(card: Scorecard) -> float:
        return float(adaptive_bound(_cells(side(card)), card.n_bins))

    return Metric(
        title,
        ("bins",) if reading is _bins else ("cells",),
        lambda card: float(formula(reading(side(card), card.n_bins))),
        interval,
        noise_floor,
        None if reading is _bins else bound,
        binary=side is _positive,
    )


def _ks(title: str, side: Side) -> Metric:
    def cells(card: Scorecard) -> Cells:
        return _cells(side(card))

    def interval(card: Scorecard, level: float, seed: int) -> tuple[float, float]:
        return intervals.ks_interval(cells(card).tally, float(ks(cells(card).tally)), seed, level)

    return Metric(
        title,
        ("cells",),
        lambda card: float(ks(cells(card).tally)),
        interval,
        lambda card, seed: intervals.floor(intervals.cumulative(cells(card).tally, seed), intervals.largest),
        lambda card: float(ks_bound(cells(card))),
        binary=side is _positive,
    )


def _smooth(title: str, side: Side) -> Metric:
    def cells(card: Scorecard) -> Cells:
        return _cells(side(card))

    return Metric(
        title,
        ("cells",),
        lambda card: float(smooth(cells(card).tally)),
        lambda card, level, seed: intervals.smooth_interval(
            cells(card).tally, float(smooth(cells(card).tally)), seed, level
        ),
        lambda card, seed: intervals.smooth_floor(cells(card).tally, seed),
        lambda card: float(smooth_bound(cells(card))),
        binary=side is _positive,
    )


def _calibration(side: Side, suffix: str, of: str) -> dict[str, Metric]:
    """The calibration errors of one question."""
    root, mass = intervals.per_root_mass, intervals.per_mass
    return {
        f"ece{suffix}": _binned(f"expected error{of}", side, _bins, ece, intervals.absolute_sum),
        f"mce{suffix}": _binned(f"error of the worst bin{of}", side, _bins, mce, intervals.largest, mass),
        f"rmsce{suffix}": _binned(f"root mean square{of}", side, _bins, rmsce, intervals.root_sum, root),
        f"adaece{suffix}": _binned(f"bins of equal mass{of}", side, _mass_bins, ece, intervals.absolute_sum),
        f"l2ce{suffix}": _binned(
            f"L2, without chance{of}", side, _mass_bins, debiased, intervals.root_sum, root, intervals.debiased_floor
        ),
        f"kse{suffix}": _ks(f"Kolmogorov-Smirnov{of}", side),
        f"smece{suffix}": _smooth(f"without bins{of}", side),
    }


METRICS: dict[str, Metric] = {
    "accuracy": _mean("share of right rows", "correct", higher_is_better=True),
    "confidence": _mean("mean of the largest", "confidence"),
    **_calibration(_top, "", ""),
    "overconfidence": _binned("overconfident part", _top, _bins, over, intervals.negative_sum),
    "underconfidence": _binned("underconfident part", _top, _bins, under, intervals.positive_sum),
    "cece": Metric(
        "mean over classes",
        ("classes",),
        lambda card: float(cece(_classes(card))),
        lambda card, level, seed: intervals.classwise_interval(
            _classes(card), float(cece(_classes(card))), seed, level
        ),
        lambda card, _: intervals.classwise_floor(_classes(card)),
    ),
    "nll": _mean("log-likelihood", "nll"),
    "brier": _mean("Brier score", "brier"),
    "nll_on_errors": _mean("NLL of the errors", "nll", errors=True),
    "brier_on_errors": _mean("Brier of the errors", "brier", errors=True),
    "entropy": _mean("mean entropy", "entropy"),
    "aurc": Metric(
        "risk-coverage area",
        ("cells",),
        lambda card: float(aurc(card.top_cells)),
        lambda card, level, _: aurc_interval(card.top_cells, level),
        bound=lambda card: float(aurc_bound(_cells(card.top))),
    ),
    **_calibration(_positive, "_positive", ", P(y = 1)"),
}
