"""The table of metrics: for each its names, a formula over a part of a scorecard, its interval and its noise floor.

A part is sums that merge by addition: means, bins, classes (the bins of every class) and cells (the fine histogram).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from calibrant._names import check_choice
from calibrant.errors import InvalidInputError
from calibrant.metrics import classwise, influence, intervals, ranking
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import debiased, ece, mce, over, rmsce, under
from calibrant.metrics.histogram import FineHistogram, equal_mass
from calibrant.metrics.influence import BinnedResiduals, ScoredPredictions
from calibrant.metrics.intervals import Limits, Norm
from calibrant.metrics.smooth import smooth, smooth_bound

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
    """A row of the table: how to read a metric from a scorecard, and what it is worth."""

    parts: tuple[str, ...]
    value: Callable[["Scorecard"], float]
    interval: Callable[["Scorecard", float, int], Limits]  # level, seed
    floor: Callable[["Scorecard", int], float] | None = None  # seed; None where it is no calibration error
    bound: Callable[[FineHistogram, int], float] | None = None  # n_bins; None where a stream has the exact value
    binary: bool = False  # whether it asks for the probability of class 1
    # for `compare`, one of two: the gaps of a model's rows (with n_bins), or the influence of each row on the value
    gaps: Callable[[ScoredPredictions, int], BinnedResiduals] | None = None
    influence: Callable[[ScoredPredictions, "Scorecard"], Tensor] | None = None
    noise: Callable[["Scorecard"], float] | None = None  # that it holds; gaps tell it themselves

    @property
    def comparable(self) -> bool:
        return self.gaps is not None or self.influence is not None


def _mean(key: str, heading: str, title: str, column: str, *, errors: bool = False, **shown: Any) -> Metric:
    """The mean of a column over all rows, or over the errors."""
    return Metric(
        key,
        heading,
        title,
        **shown,
        parts=("means",),
        value=lambda card: card.means.value(column, errors=errors),  # type: ignore[union-attr]
        interval=lambda card, level, _: card.means.interval(column, level, errors=errors),  # type: ignore[union-attr]
        influence=lambda model, card: influence.mean_influence(model, column, card[key], errors=errors),
    )


def _error(
    key: str,
    heading: str,
    title: str,
    part: str,
    read: Callable[["Scorecard"], BinSums],
    formula: Callable[[BinSums], Tensor],
    interval: Callable[[BinSums, float, int], Limits],
    floor: Callable[[BinSums, int], float],
    gaps: Callable[[ScoredPredictions, int], BinnedResiduals],
    bound: Callable[[FineHistogram, int], float] | None = None,
) -> Metric:
    """A calibration error of the top label, from functions of the tally that it reads."""

    def limits(card: "Scorecard", level: float, seed: int) -> Limits:
        tally = read(card)
        (low, high), value = interval(tally, level, seed), float(formula(tally))
        return min(low, value), max(high, value)  # a value without what chance adds may lie below

    return Metric(
        key,
        heading,
        title,
        parts=(part,),
        value=lambda card: float(formula(read(card))),
        interval=limits,
        floor=lambda card, seed: floor(read(card), seed),
        bound=bound,
        gaps=gaps,
    )


def _binned(key: str, heading: str, title: str, formula: Callable[[BinSums], Tensor], norm: Norm) -> Metric:
    """Over bins of equal width."""
    return _error(
        key,
        heading,
        title,
        "bins",
        lambda card: card.top_bins,
        formula,
        partial(intervals.binned_interval, norm=norm),
        partial(intervals.binned_floor, norm=norm),
        partial(influence.bin_gaps, norm=norm),
    )


def _of_positive(metric: Metric) -> Metric:
    """The same calibration error of the probability of class 1."""
    value, interval, floor = metric.value, metric.interval, metric.floor
    assert floor is not None
    return replace(
        metric,
        key=f"{metric.key}_positive",
        heading=f"{metric.heading}, P(y = 1)",
        title=f"{metric.title}, P(y = 1)",
        value=lambda card: value(card.positive_class),
        interval=lambda card, level, seed: interval(card.positive_class, level, seed),
        floor=lambda card, seed: floor(card.positive_class, seed),
        binary=True,
        gaps=None,
    )


SUM, ROOT = intervals.ABSOLUTE_SUM, intervals.ROOT_MEAN_SQUARE
_ERRORS = (
    _binned("ece", "ECE", "expected calibration error", ece, SUM),
    _binned("mce", "MCE", "maximum calibration error", mce, intervals.LARGEST_PER_MASS),
    _binned("rmsce", "RMS-CE", "root mean square calibration error", rmsce, ROOT),
    _error(
        "adaece",
        "AdaECE",
        "adaptive ECE",
        "cells",
        lambda card: equal_mass(card.top_histogram, card.n_bins),
        ece,
        partial(intervals.binned_interval, norm=SUM),
        partial(intervals.binned_floor, norm=SUM),
        partial(influence.equal_mass_gaps, norm=SUM),
        ranking.adaptive_bound,
    ),
    _error(
        "l2ce",
        "L2-CE",
        "debiased L2 calibration error",
        "cells",
        lambda card: equal_mass(card.top_histogram, card.n_bins),
        debiased,
        partial(intervals.binned_interval, norm=ROOT),
        intervals.debiased_floor,
        partial(influence.equal_mass_gaps, norm=ROOT),
        ranking.debiased_bound,
    ),
    _error(
        "kse",
        "KSE",
        "Kolmogorov-Smirnov error",
        "cells",
        lambda card: card.top_histogram,
        ranking.ks,
        intervals.ks_interval,
        intervals.ks_floor,
        influence.ks_gaps,
        lambda cells, _: ranking.ks_bound(cells),
    ),
    _error(
        "smece",
        "smECE",
        "smooth ECE",
        "cells",
        lambda card: card.top_histogram,
        smooth,
        intervals.smooth_interval,
        intervals.smooth_floor,
        influence.smooth_gaps,
        lambda cells, _: smooth_bound(cells),
    ),
)
_METRICS = (
    _mean("accuracy", "Accuracy", "accuracy", "correct", better="higher"),
    _mean("confidence", "Confidence", "mean confidence", "confidence", better=None),
    *_ERRORS,
    _binned("overconfidence", "Overconfidence", "overconfident part of the ECE", over, intervals.POSITIVE_SUM),
    _binned("underconfidence", "Underconfidence", "underconfident part of the ECE", under, intervals.NEGATIVE_SUM),
    Metric(
        "cece",
        "CECE",
        "classwise ECE",
        parts=("classes",),
        value=lambda card: float(classwise.cece(card.class_bins)),
        interval=lambda card, level, seed: classwise.classwise_interval(
            card.class_bins, level, seed, multilabel=card.multilabel
        ),
        floor=lambda card, _: classwise.classwise_floor(card.class_bins),
        influence=lambda model, card: classwise.classwise_influence(model, card.class_bins),
        noise=lambda card: classwise.classwise_noise(card.class_bins),
    ),
    _mean("nll", "NLL", "negative log-likelihood", "nll", in_percent=False),
    _mean("brier", "Brier", "Brier score", "brier", in_percent=False),
    _mean("nll_on_errors", "NLL (err.)", "NLL of the errors", "nll", errors=True, in_percent=False),
    _mean("brier_on_errors", "Brier (err.)", "Brier score of the errors", "brier", errors=True, in_percent=False),
    _mean("entropy", "Entropy", "mean entropy", "entropy", in_percent=False, better=None),
    Metric(
        "aurc",
        "AURC",
        "area under the risk-coverage curve",
        parts=("cells",),
        value=lambda card: float(ranking.aurc(card.top_histogram)),
        interval=lambda card, level, _: ranking.aurc_interval(card.top_histogram, level),
        bound=lambda cells, _: ranking.aurc_bound(cells),
        influence=lambda model, _: influence.area_influence(model),
    ),
    *map(_of_positive, _ERRORS),
)
METRICS: dict[str, Metric] = {metric.key: metric for metric in _METRICS}


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
