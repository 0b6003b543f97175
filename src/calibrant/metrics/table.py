"""The table of metrics: for each a formula over a part of a scorecard, its interval and its noise floor.

A part is sums that merge by addition: means, bins, classes (the bins of every class) and cells (the fine histogram).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from torch import Tensor

from calibrant._checks import check_choice
from calibrant.errors import InvalidInputError
from calibrant.metrics import intervals
from calibrant.metrics.bins import cece, debiased, ece, mce, over, rmsce, under
from calibrant.metrics.cells import Cells, equal_mass
from calibrant.metrics.events import Events
from calibrant.metrics.ranking import adaptive_bound, aurc, aurc_bound, aurc_interval, debiased_bound, ks, ks_bound
from calibrant.metrics.smooth import smooth, smooth_bound
from calibrant.metrics.tally import Tally

if TYPE_CHECKING:
    from calibrant.metrics.scorecard import Scorecard


@dataclass(frozen=True)
class Quantity:
    """How a number is called and shown; ``Quantity(name, name, name, in_percent=False, better=None)`` if unknown."""

    key: str  # in files, flags and Python: "ece"
    heading: str  # in tables and figures: "ECE"
    title: str  # in full: "expected calibration error"
    in_percent: bool = True
    better: Literal["higher", "lower"] | None = "lower"  # None: it only describes a model

    @property
    def higher_is_better(self) -> bool:
        return self.better == "higher"


@dataclass(frozen=True, kw_only=True)
class Metric(Quantity):
    """A row of the table: how to read a metric, and what it is worth, from a scorecard."""

    parts: tuple[str, ...]
    value: Callable[["Scorecard"], float]
    interval: Callable[["Scorecard", float, int], tuple[float, float]]
    floor: Callable[["Scorecard", int], float] | None = None
    bound: Callable[["Scorecard"], float] | None = None
    binary: bool = False


def needed(part: Any, name: str) -> Any:
    if part is None:
        raise InvalidInputError(f"this scorecard was made for metrics that need no {name}")
    return part


def _mean(quantity: Quantity, column: str, *, errors: bool = False) -> Metric:
    def value(card: "Scorecard") -> float:
        return card.means.value(column, errors=errors)  # type: ignore[union-attr]

    def interval(card: "Scorecard", level: float, _: int) -> tuple[float, float]:
        return card.means.interval(column, level, errors=errors)  # type: ignore[union-attr]

    return Metric(**vars(quantity), parts=("means",), value=value, interval=interval)


Side: TypeAlias = Callable[["Scorecard"], Events]
Reading: TypeAlias = Callable[[Events, int], Tally]  # the tally that a metric reads, of events and the number of bins


def _top(card: "Scorecard") -> Events:
    return card.top


def _positive(card: "Scorecard") -> Events:
    return needed(card.positive, "probability of class 1")  # type: ignore[no-any-return]


def _bins(events: Events, _: int) -> Tally:
    return needed(events.bins, "bins")  # type: ignore[no-any-return]


def _cells(events: Events) -> Cells:
    return needed(events.cells, "cells")  # type: ignore[no-any-return]


def _mass_bins(events: Events, n_bins: int) -> Tally:
    return equal_mass(_cells(events).tally, n_bins)


def _classes(card: "Scorecard") -> Tally:
    return needed(card.classes, "classes")  # type: ignore[no-any-return]


def _binned(
    quantity: Quantity,
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

    def interval(card: "Scorecard", level: float, seed: int) -> tuple[float, float]:
        bins = reading(side(card), card.n_bins)
        drawn = noise(bins, seed)
        observed, value = float(norm(drawn[0])), float(formula(bins))
        if norm is intervals.largest:
            low, high = intervals.largest_interval(observed, drawn, level)
        else:
            one_sign = norm in (intervals.negative_sum, intervals.positive_sum)
            low, high = intervals.interval(observed, drawn, norm, level, of_one_sign=one_sign)
        low, high = intervals.holding_gap((low, high), bins, norm, level)
        most = intervals.largest_possible(bins, norm, scaled)
        return min(low, value), max(min(high, most), value)  # a value without what chance adds may lie below

    def noise_floor(card: "Scorecard", seed: int) -> float:
        bins = reading(side(card), card.n_bins)
        return intervals.floor(noise(bins, seed), norm) if floor is None else floor(bins, seed)

    def bound(card: "Scorecard") -> float:
        cells = _cells(side(card))
        if formula is debiased:
            return debiased_bound(cells, card.n_bins, float(debiased(equal_mass(cells.tally, card.n_bins))))
        return float(adaptive_bound(cells, card.n_bins))

    return Metric(
        **vars(quantity),
        parts=("bins",) if reading is _bins else ("cells",),
        value=lambda card: float(formula(reading(side(card), card.n_bins))),
        interval=interval,
        floor=noise_floor,
        bound=None if reading is _bins else bound,
        binary=side is _positive,
    )


def _ks(quantity: Quantity, side: Side) -> Metric:
    def cells(card: "Scorecard") -> Cells:
        return _cells(side(card))

    def interval(card: "Scorecard", level: float, seed: int) -> tuple[float, float]:
        tally = cells(card).tally
        limits = intervals.ks_interval(tally, float(ks(tally)), seed, level)
        return intervals.holding_gap(limits, tally, intervals.largest, level)

    return Metric(
        **vars(quantity),
        parts=("cells",),
        value=lambda card: float(ks(cells(card).tally)),
        interval=interval,
        floor=lambda card, seed: intervals.floor(intervals.cumulative(cells(card).tally, seed), intervals.largest),
        bound=lambda card: float(ks_bound(cells(card))),
        binary=side is _positive,
    )


def _smooth(quantity: Quantity, side: Side) -> Metric:
    def cells(card: "Scorecard") -> Cells:
        return _cells(side(card))

    def interval(card: "Scorecard", level: float, seed: int) -> tuple[float, float]:
        tally = cells(card).tally
        limits = intervals.smooth_interval(tally, float(smooth(tally)), seed, level)
        return intervals.holding_gap(limits, tally, intervals.absolute_sum, level)

    return Metric(
        **vars(quantity),
        parts=("cells",),
        value=lambda card: float(smooth(cells(card).tally)),
        interval=interval,
        floor=lambda card, seed: intervals.smooth_floor(cells(card).tally, seed),
        bound=lambda card: float(smooth_bound(cells(card))),
        binary=side is _positive,
    )


def _calibration(side: Side, suffix: str = "", of: str = "") -> list[Metric]:
    """The calibration errors of one question."""

    def named(key: str, heading: str, title: str) -> Quantity:
        return Quantity(key + suffix, heading + of, title + of)

    root, mass = intervals.per_root_mass, intervals.per_mass
    return [
        _binned(named("ece", "ECE", "expected calibration error"), side, _bins, ece, intervals.absolute_sum),
        _binned(named("mce", "MCE", "maximum calibration error"), side, _bins, mce, intervals.largest, mass),
        _binned(
            named("rmsce", "RMS-CE", "root mean square calibration error"),
            side,
            _bins,
            rmsce,
            intervals.root_sum,
            root,
        ),
        _binned(named("adaece", "AdaECE", "adaptive ECE"), side, _mass_bins, ece, intervals.absolute_sum),
        _binned(
            named("l2ce", "L2-CE", "debiased L2 calibration error"),
            side,
            _mass_bins,
            debiased,
            intervals.root_sum,
            root,
            intervals.debiased_floor,
        ),
        _ks(named("kse", "KSE", "Kolmogorov-Smirnov error"), side),
        _smooth(named("smece", "smECE", "smooth ECE"), side),
    ]


OVER = Quantity("overconfidence", "Overconfidence", "overconfident part of the ECE")
UNDER = Quantity("underconfidence", "Underconfidence", "underconfident part of the ECE")

_ALL = (
    _mean(Quantity("accuracy", "Accuracy", "accuracy", better="higher"), "correct"),
    _mean(Quantity("confidence", "Confidence", "mean confidence", better=None), "confidence"),
    *_calibration(_top),
    _binned(OVER, _top, _bins, over, intervals.negative_sum),
    _binned(UNDER, _top, _bins, under, intervals.positive_sum),
    Metric(
        "cece",
        "CECE",
        "classwise ECE",
        parts=("classes",),
        value=lambda card: float(cece(_classes(card))),
        interval=lambda card, level, seed: intervals.classwise_interval(
            _classes(card), float(cece(_classes(card))), seed, level, exclusive=card.exclusive
        ),
        floor=lambda card, _: intervals.classwise_floor(_classes(card)),
    ),
    _mean(Quantity("nll", "NLL", "negative log-likelihood", in_percent=False), "nll"),
    _mean(Quantity("brier", "Brier", "Brier score", in_percent=False), "brier"),
    _mean(Quantity("nll_on_errors", "NLL (err.)", "NLL of the errors", in_percent=False), "nll", errors=True),
    _mean(
        Quantity("brier_on_errors", "Brier (err.)", "Brier score of the errors", in_percent=False),
        "brier",
        errors=True,
    ),
    _mean(Quantity("entropy", "Entropy", "mean entropy", in_percent=False, better=None), "entropy"),
    Metric(
        "aurc",
        "AURC",
        "area under the risk-coverage curve",
        parts=("cells",),
        value=lambda card: float(aurc(card.top_cells)),
        interval=lambda card, level, _: aurc_interval(card.top_cells, level),
        bound=lambda card: float(aurc_bound(_cells(card.top))),
    ),
    *_calibration(_positive, "_positive", ", P(y = 1)"),
)
METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}


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


def is_binary(names: Iterable[str]) -> bool:
    """Whether one of the metrics asks for the probability of class 1."""
    return any(METRICS[name].binary for name in names)
