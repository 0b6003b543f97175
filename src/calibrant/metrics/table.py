"""The table of metrics: for each its names, its value, interval and noise floor as functions of a scorecard.

A scorecard holds parts, sums that merge by addition: ``means`` (over rows), ``bins`` (equal-width bins of the
confidence), ``histogram`` (the fine histogram of the confidence) and ``classes`` (the bins of every class).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from calibrant._names import check_choice
from calibrant.errors import InvalidInputError
from calibrant.metrics import classwise, influence, intervals, ranking
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import debiased, ece, mce, over, rmsce, under
from calibrant.metrics.histogram import FineHistogram, equal_mass_bins
from calibrant.metrics.hypotheses import Limits
from calibrant.metrics.influence import BinnedResiduals, ScoredPredictions
from calibrant.metrics.intervals import Norm
from calibrant.metrics.smooth import smooth, smooth_bound

if TYPE_CHECKING:
    from calibrant.metrics.scorecard import Scorecard


@dataclass(frozen=True)
class Quantity:
    """How a number is named and formatted.

    Args:
        key: The name in files, options and Python: "ece".
        heading: The name in tables and figures: "ECE".
        title: The full name: "expected calibration error".
        in_percent: Whether it is shown in percent.
        better: Which values are better; None where the number only describes a model.
    """

    key: str
    heading: str
    title: str
    in_percent: bool = True
    better: Literal["higher", "lower"] | None = "lower"

    @property
    def higher_is_better(self) -> bool:
        return self.better == "higher"


@dataclass(frozen=True, kw_only=True)
class Metric(Quantity):
    """An entry of the table: a number that is computed from a scorecard.

    `compare` needs either gaps or influence.

    Args:
        parts: The parts of a scorecard that it needs.
        value: The metric of a scorecard.
        interval: The confidence interval, from a scorecard, a level and a seed.
        floor: The noise floor, from a scorecard and a seed; None where it is not a calibration error.
        bound: The error bound, from a fine histogram and n_bins; None where the value of a stream is exact.
        binary: Whether it measures the probability of class 1.
        all_classes: Whether it needs the probabilities of all classes, not of the predicted one alone.
        gaps: The binned residuals of a model's rows, from these and n_bins.
        influence: The influence of each row on the value.
        noise: The expected part of the value that is noise; 0 by default.
        on_errors: Whether it is a mean over the errors.
        debiased: Whether it is the root of a squared norm minus its bias, at least 0.
        needs_labels: Whether it cannot be computed without labels.
    """

    parts: tuple[str, ...]
    value: Callable[["Scorecard"], float]
    interval: Callable[["Scorecard", float, int], Limits]
    floor: Callable[["Scorecard", int], float] | None = None
    bound: Callable[[FineHistogram, int], float] | None = None
    binary: bool = False
    all_classes: bool = False
    gaps: Callable[[ScoredPredictions, int], BinnedResiduals] | None = None
    influence: Callable[[ScoredPredictions, "Scorecard"], Tensor] | None = None
    noise: Callable[["Scorecard"], float] | None = None
    on_errors: bool = False
    debiased: bool = False
    needs_labels: bool = True

    @property
    def comparable(self) -> bool:
        return self.gaps is not None or self.influence is not None


def _mean(
    key: str, heading: str, title: str, column: str, *, errors: bool = False, needs_labels: bool = True, **shown: Any
) -> Metric:
    """The mean of a column over all rows, or over the errors."""
    return Metric(
        key,
        heading,
        title,
        **shown,
        parts=("means",),
        value=lambda card: card.means.value(column, errors=errors),
        interval=lambda card, level, _: card.means.interval(column, level, errors=errors),
        influence=lambda model, card: influence.mean_influence(model, column, card[key], errors=errors),
        on_errors=errors,
        needs_labels=needs_labels,
        all_classes=column not in ("correct", "confidence"),
    )


def _calibration_error(
    key: str,
    heading: str,
    title: str,
    *,
    part: str,
    sums: Callable[["Scorecard"], BinSums],
    formula: Callable[[BinSums], Tensor],
    interval: Callable[[BinSums, float, int], Limits],
    floor: Callable[[BinSums, int], float],
    gaps: Callable[[ScoredPredictions, int], BinnedResiduals],
    bound: Callable[[FineHistogram, int], float] | None = None,
    debiased: bool = False,
) -> Metric:
    """A calibration error of the predicted class, from functions of the sums of a scorecard."""

    def limits(card: "Scorecard", level: float, seed: int) -> Limits:
        observed = sums(card)
        (low, high), value = interval(observed, level, seed), float(formula(observed))
        return min(low, value), max(high, value)  # a debiased value may lie below the interval

    return Metric(
        key,
        heading,
        title,
        parts=(part,),
        value=lambda card: float(formula(sums(card))),
        interval=limits,
        floor=lambda card, seed: floor(sums(card), seed),
        bound=bound,
        gaps=gaps,
        debiased=debiased,
    )


def _equal_width(key: str, heading: str, title: str, formula: Callable[[BinSums], Tensor], norm: Norm) -> Metric:
    """A calibration error over bins of equal width."""
    return _calibration_error(
        key,
        heading,
        title,
        part="bins",
        sums=lambda card: card.top_bins,
        formula=formula,
        interval=partial(intervals.binned_interval, norm=norm),
        floor=partial(intervals.binned_floor, norm=norm),
        gaps=partial(influence.bin_gaps, norm=norm),
    )


_equal_mass_bins = lru_cache(maxsize=4)(equal_mass_bins)  # one object, for which hypotheses are drawn once


def _equal_mass(key: str, heading: str, title: str, *, norm: Norm, **functions: Any) -> Metric:
    """A calibration error over bins of equal mass."""
    return _calibration_error(
        key,
        heading,
        title,
        part="histogram",
        sums=lambda card: _equal_mass_bins(card.top_histogram, card.n_bins),
        gaps=partial(influence.equal_mass_gaps, norm=norm),
        **functions,
    )


def _binless(key: str, heading: str, title: str, **functions: Any) -> Metric:
    """A calibration error without bins."""
    return _calibration_error(key, heading, title, part="histogram", sums=lambda card: card.top_histogram, **functions)


def _of_positive_class(metric: Metric) -> Metric:
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
        all_classes=True,
        gaps=None,
    )


_SUM, _ROOT = intervals.ABSOLUTE_SUM, intervals.ROOT_MEAN_SQUARE
_CALIBRATION_ERRORS = (
    _equal_width("ece", "ECE", "expected calibration error", ece, _SUM),
    _equal_width("mce", "MCE", "maximum calibration error", mce, intervals.LARGEST_PER_MASS),
    _equal_width("rmsce", "RMS-CE", "root mean square calibration error", rmsce, _ROOT),
    _equal_mass(
        "adaece",
        "AdaECE",
        "adaptive ECE",
        norm=_SUM,
        formula=ece,
        interval=partial(intervals.binned_interval, norm=_SUM),
        floor=partial(intervals.binned_floor, norm=_SUM),
        bound=ranking.adaptive_bound,
    ),
    _equal_mass(
        "l2ce",
        "L2-CE",
        "debiased L2 calibration error",
        norm=_ROOT,
        formula=debiased,
        interval=intervals.debiased_interval,
        floor=intervals.debiased_floor,
        bound=ranking.debiased_bound,
        debiased=True,
    ),
    _binless(
        "kse",
        "KSE",
        "Kolmogorov-Smirnov error",
        formula=ranking.ks,
        interval=intervals.ks_interval,
        floor=intervals.ks_floor,
        gaps=influence.ks_gaps,
        bound=ranking.ks_bound,
    ),
    _binless(
        "smece",
        "smECE",
        "smooth ECE",
        formula=smooth,
        interval=intervals.smooth_interval,
        floor=intervals.smooth_floor,
        gaps=influence.smooth_gaps,
        bound=smooth_bound,
    ),
)
_METRICS = (
    _mean("accuracy", "Accuracy", "accuracy", "correct", better="higher"),
    _mean("confidence", "Confidence", "mean confidence", "confidence", better=None, needs_labels=False),
    *_CALIBRATION_ERRORS,
    _equal_width("overconfidence", "Overconfidence", "overconfident part of the ECE", over, intervals.POSITIVE_SUM),
    _equal_width("underconfidence", "Underconfidence", "underconfident part of the ECE", under, intervals.NEGATIVE_SUM),
    Metric(
        "cece",
        "CECE",
        "classwise ECE",
        parts=("classes",),
        all_classes=True,
        value=lambda card: float(classwise.cece(card.class_bins)),
        interval=lambda card, level, seed: classwise.classwise_interval(
            card.class_bins, level, seed, multilabel=card.multilabel
        ),
        floor=lambda card, _: classwise.classwise_floor(card.class_bins),
        influence=lambda model, card: influence.classwise_row_influence(model, card.class_bins),
        noise=lambda card: influence.classwise_noise(card.class_bins),
    ),
    _mean("nll", "NLL", "negative log-likelihood", "nll", in_percent=False),
    _mean("brier", "Brier", "Brier score", "brier", in_percent=False),
    _mean("nll_on_errors", "NLL (err.)", "NLL of the errors", "nll", errors=True, in_percent=False),
    _mean("brier_on_errors", "Brier (err.)", "Brier score of the errors", "brier", errors=True, in_percent=False),
    _mean("entropy", "Entropy", "mean entropy", "entropy", in_percent=False, better=None, needs_labels=False),
    Metric(
        "aurc",
        "AURC",
        "area under the risk-coverage curve",
        parts=("histogram",),
        value=lambda card: float(ranking.aurc(card.top_histogram)),
        interval=lambda card, level, _: ranking.aurc_interval(card.top_histogram, level),
        bound=ranking.aurc_bound,
        influence=lambda model, _: influence.aurc_row_influence(model),
    ),
    *map(_of_positive_class, _CALIBRATION_ERRORS),
)
METRICS: dict[str, Metric] = {metric.key: metric for metric in _METRICS}


def metric_names(metrics: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several, each of a metric."""
    try:
        names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    except (TypeError, RuntimeError):  # not iterable, or a nested tensor
        raise InvalidInputError(f"metrics must be names of metrics, got {type(metrics).__name__}") from None
    return tuple(check_choice("metric", name, METRICS) for name in names)


def check_metrics(metrics: Iterable[str] | None, n_classes: int, *, top_label: bool = False) -> tuple[str, ...]:
    """Names of metrics in the order of the table; by default all that apply to so many classes, or to the confidence.

    Raises: InvalidInputError where one does not apply.
    """
    wanted = set(METRICS if metrics is None else metric_names(metrics))
    for name in sorted(wanted):
        if METRICS[name].all_classes and top_label and metrics is not None:
            raise InvalidInputError(needs_all_classes(name))
        if METRICS[name].binary and n_classes != 2 and metrics is not None:
            raise InvalidInputError(f"{name} is for two classes, the predictions have {n_classes}")
    if not wanted:
        raise InvalidInputError("metrics must name at least one metric")
    if top_label:
        return tuple(name for name in METRICS if name in wanted and not METRICS[name].all_classes)
    return tuple(name for name in METRICS if name in wanted and (n_classes == 2 or not METRICS[name].binary))


def need_labels(names: Iterable[str]) -> bool:
    """Whether one of the metrics cannot be computed without labels."""
    return any(METRICS[name].needs_labels for name in names)


def needs_all_classes(name: str) -> str:
    """Why a metric is refused for predictions of which only the confidence is known."""
    needs = "needs the probabilities of all classes, these predictions have only the confidence of the predicted class"
    return f"{name} {needs}: choose from {', '.join(name for name in METRICS if not METRICS[name].all_classes)}"


def is_binary(names: Iterable[str]) -> bool:
    """Whether one of the metrics measures the probability of class 1."""
    return any(METRICS[name].binary for name in names)
