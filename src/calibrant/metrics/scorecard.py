"""The scorecard: every metric of a set of predictions from one pass, with intervals and noise floors."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from torch import Tensor

from calibrant._arrays import UNKNOWN, sum_of
from calibrant._checks import check_all_labelled, check_instance, check_integer, check_level, check_n_bins
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.bins import ReliabilityCurve, bin_numbers, reliability
from calibrant.metrics.checks import check_nonzero_weights, check_row_weights
from calibrant.metrics.clusters import (
    MAX_CLUSTER_GROUPS,
    MIN_SOFT_EFFECT,
    ClusterSums,
    adjust_effect,
    bin_effect,
    card_clusters,
    gap_effect,
    inflate,
    mean_effect,
    spread_classes,
)
from calibrant.metrics.histogram import TIE_BITS, fine_histogram
from calibrant.metrics.means import MEAN_COLUMNS, Means, means
from calibrant.metrics.murphy import BrierDecomposition, murphy_decomposition
from calibrant.metrics.ranking import RiskCoverageCurve, risk_coverage
from calibrant.metrics.sample_scores import SampleScores, positive_class, score_rows, softmax_rounding, top_class
from calibrant.metrics.table import METRICS, Metric, check_metrics, is_binary, need_labels, needs_all_classes
from calibrant.predictions import LABEL_ROW, LABEL_WEIGHT, Predictions

NO_ROWS = "predictions must have at least one row that counts"


class DesignEffects(NamedTuple):
    """By how much the rows of clusters vary more than independent ones."""

    overall: float  # of a sum over all bins
    in_bins: float  # of one bin
    freedom: float  # degrees of freedom of the overall effect
    n_effective: float  # without clusters


POSITIVE = "positive_"  # begins the parts that describe the probability of class 1


@dataclass(frozen=True, eq=False)
class Scorecard:
    """Sums over rows, from which every metric is computed; ``a + b`` is the scorecard of both sets of rows.

    ``card.ece`` and ``card["ece"]`` are the value of a metric.

    Args:
        names: The metrics.
        n_rows: The number of rows.
        n_classes: The number of classes.
        n_bins: The number of bins of the binned calibration errors.
        sums: The parts that the metrics need, see `calibrant.metrics.table`.
        multilabel: Whether a row may have several classes.
        clusters: Sums by groups of clusters, where rows of one cluster are not independent.
        n_unlabelled: The number of further rows, without a label, that `score` left out.
        top_label: Whether only the confidence of the predicted class is known.
    """

    names: tuple[str, ...]
    n_rows: int
    n_classes: int
    n_bins: int
    sums: Mapping[str, Any]
    multilabel: bool = False
    clusters: ClusterSums | None = None
    n_unlabelled: int = 0
    top_label: bool = False

    @classmethod
    def of(
        cls,
        predictions: Predictions,
        *,
        metrics: Iterable[str] | None = None,
        n_bins: int = 15,
        weights: str | None = None,
        cluster: str | None = None,
        max_histogram_bins: int | None = None,
        max_cluster_groups: int = MAX_CLUSTER_GROUPS,
        scored: tuple[SampleScores, BinSums | None] | None = None,
    ) -> Self:
        """The scorecard of predictions in memory.

        Args:
            predictions: Predictions, labelled if a metric needs labels.
            metrics: Names in `METRICS`; all of them by default.
            n_bins: The number of bins of the binned calibration errors.
            weights: A column of row weights.
            cluster: A column; rows that share its value are not independent.
            max_histogram_bins: A limit of the size of the fine histogram; none by default.
            max_cluster_groups: A limit of the number of groups of clusters.
            scored: What `score_rows` returns for these rows, if it is known and no row has weight 0.

        Returns:
            The scorecard.

        Raises:
            InvalidInputError: There is no row, a row has no label, all weights are 0, or an argument is invalid.
            UnknownNameError: A metric or a column does not exist.
        """
        check_instance("predictions", predictions, Predictions)
        names = check_metrics(metrics, predictions.n_classes, top_label=predictions.top_label)
        check_n_bins(n_bins)
        check_integer("max_cluster_groups", max_cluster_groups, 2)
        if max_histogram_bins is not None:
            check_integer("max_histogram_bins", max_histogram_bins, 1)
        if len(predictions) == 0:
            raise InvalidInputError(NO_ROWS)
        predictions, w = rows_that_count(predictions, names, weights)
        parts = needed_parts(names, clustered=cluster is not None)
        class_bins = n_bins if "classes" in parts else None
        rows, classes = scored or score_rows(predictions, n_bins=class_bins, weights=w)
        sums: dict[str, Any] = {"means": means(rows, w)} if "means" in parts else {}
        if classes is not None:
            sums["classes"] = classes
        top = rows.confidence, rows.complement, rows.correct
        sums |= _confidence_sums(*top, weights=w, n_bins=n_bins, parts=parts, max_histogram_bins=max_histogram_bins)
        positive = positive_class(rows, predictions.labels == 1) if is_binary(names) else None
        if positive is not None:
            more = _confidence_sums(
                *positive, weights=w, n_bins=n_bins, parts=parts, max_histogram_bins=max_histogram_bins
            )
            sums |= {f"{POSITIVE}{part}": part_sums for part, part_sums in more.items()}
        clusters = None
        if cluster is not None:
            options: dict[str, Any] = {"cluster": cluster, "n_bins": n_bins, "limit": max_cluster_groups}
            options["least_effect"] = MIN_SOFT_EFFECT if weights == LABEL_WEIGHT else 1.0
            clusters = card_clusters(predictions, rows, w, positive=positive, parts=parts, **options)
        n_rows = len(predictions)
        if weights == LABEL_WEIGHT and LABEL_ROW in predictions.columns.column_names:
            n_rows = len(predictions.column(LABEL_ROW).unique())
        more = {"clusters": clusters, "top_label": predictions.top_label}
        return cls(names, n_rows, predictions.n_classes, n_bins, sums, **more)

    def __add__(self, other: Self) -> Self:
        check_instance("what is added to a scorecard", other, Scorecard)
        for name in ("n_classes", "n_bins", "names", "multilabel", "top_label"):
            if getattr(self, name) != getattr(other, name):
                got = f"{getattr(self, name)} and {getattr(other, name)}"
                raise InvalidInputError(f"scorecards must have the same {name} to be added, got {got}")
        if (self.clusters is None) != (other.clusters is None):
            raise InvalidInputError("scorecards must both have clusters, or neither, to be added")
        sums = {part: own + other.sums[part] for part, own in self.sums.items()}
        clusters = None if self.clusters is None or other.clusters is None else self.clusters + other.clusters
        counts = {name: getattr(self, name) + getattr(other, name) for name in ("n_rows", "n_unlabelled")}
        return replace(self, **counts, sums=sums, clusters=clusters)

    def __radd__(self, other: int) -> Self:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # sum() starts with 0

    def __getitem__(self, name: str) -> float:
        return self._metric(name).value(self)

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name not in METRICS:
            raise AttributeError(f"a scorecard has no attribute {name!r}")
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def values(self) -> dict[str, float | None]:
        """Every metric by name; None where it is undefined, such as `nll_on_errors` without errors."""
        return {name: self.get(name) for name in self.names}

    def to_dict(self, prefix: str = "") -> dict[str, float]:
        """Every metric that is defined, as trackers of experiments take it.

        Args:
            prefix: What the names begin with, such as "test/".

        Returns:
            The values by name. The names of metrics have letters and _ only.
        """
        check_instance("prefix", prefix, str)
        return {f"{prefix}{name}": value for name, value in self.values().items() if value is not None}

    def get(self, name: str) -> float | None:
        """A metric by name; None where it is undefined."""
        try:
            return self[name]
        except UndefinedMetricError:
            return None

    def interval(self, name: str, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
        """Confidence interval of a metric.

        Args:
            name: The metric.
            level: The probability that the interval covers the true value.
            seed: The seed of the draws.

        Returns:
            The lower and the upper limit.

        Raises:
            UndefinedMetricError: The metric is undefined on these rows.
        """
        check_level(level)
        metric, seed = self._metric(name), check_integer("seed", seed, 0)
        low, high = metric.interval(self._without_clusters(metric, level), level, seed)
        if self.clusters is None or metric.floor is None:
            return low, high
        effects = self._design_effects(metric)
        in_bins = max(effects.in_bins, self.clusters.least_effect)
        wider = math.sqrt(effects.overall / in_bins) if effects.overall > in_bins else 1.0
        middle = (low + high) / 2  # the bins of a cluster err together, which adds to the width and not to the noise
        return max(middle - wider * (middle - low), 0.0), min(middle + wider * (high - middle), 1.0)

    def noise_floor(self, name: str, *, seed: int = 0) -> float:
        """Expected value for a perfectly calibrated model with these confidences, on as many rows.

        Args:
            name: A calibration error.
            seed: The seed of the draws.

        Returns:
            The mean over draws.

        Raises:
            InvalidInputError: The metric is not a calibration error.
        """
        metric = self._metric(name)
        if metric.floor is None:
            raise InvalidInputError(f"{name} has no noise floor: it is not a calibration error")
        return metric.floor(self._without_clusters(metric), check_integer("seed", seed, 0))

    def error_bound(self, name: str) -> float:
        """Largest possible error of a metric that was computed from the fine histogram of a stream.

        Confidences that agree to 18 bits (float32; 42 in float64) are equal up to the rounding of a softmax.

        Args:
            name: The metric.

        Returns:
            The bound; 0.0 where the value is exact.
        """
        metric = self._metric(name)
        histogram = (self.positive_class if metric.binary else self).sums.get("histogram")
        if metric.bound is None or histogram is None or histogram.exact:
            return 0.0
        return metric.bound(histogram, self.n_bins)

    def reliability(self) -> ReliabilityCurve:
        """Accuracy against mean confidence of the predicted class, for each bin that is not empty."""
        return reliability(self.top_bins)

    def risk_coverage(self) -> RiskCoverageCurve:
        """Error rate among the most confident rows against their share of all rows."""
        return risk_coverage(self.top_histogram)

    def brier_decomposition(self) -> BrierDecomposition:
        """The Brier score as reliability − resolution + uncertainty + what differs within bins, without intervals.

        It needs the metrics brier and cece, and assumes independent rows.
        """
        return murphy_decomposition(self.class_bins, self["brier"])

    @property
    def n_effective(self) -> float:
        """Effective sample size: (Σw)²/Σw², and with clusters the number of independent rows that they are worth.

        That is the size of a sample with the same variance of confidence − accuracy, fewer where clusters are few.
        """
        n_effective = _n_effective(self.top_bins)
        if self.clusters is None:
            return n_effective
        effect, freedom = gap_effect(self.clusters, "bins", self.top_bins)
        return n_effective / adjust_effect(effect, freedom, n_effective, least_effect=self.clusters.least_effect)

    def effective_bins(self, level: float = 0.95) -> BinSums:
        """`top_bins` with the number of independent rows of each bin, for intervals of this level of one bin."""
        check_level(level)
        if self.clusters is None:
            return self.top_bins
        bins = self.top_bins
        effect, (_, freedom) = bin_effect(self.clusters, "bins", bins), gap_effect(self.clusters, "bins", bins)
        effect = adjust_effect(effect, freedom, _n_effective(bins), level, self.clusters.least_effect)
        inflated: BinSums = inflate(bins, effect)
        return inflated

    def effective_histogram(self, level: float = 0.95) -> BinSums:
        """`top_histogram` with the number of independent rows, for intervals of this level of many bins together."""
        check_level(level)
        if self.clusters is None:
            return self.top_histogram
        return self._without_clusters(METRICS["aurc"], level).top_histogram

    def gap_rows(self) -> tuple[BinSums, float]:
        """`top_histogram` with the number of independent rows, and the degrees of freedom of that number."""
        if self.clusters is None:
            return self.top_histogram, math.inf
        effect, freedom = gap_effect(self.clusters, "bins", self.top_bins)
        effect = min(max(effect, self.clusters.least_effect), _n_effective(self.top_bins))
        return inflate(self.top_histogram, effect), freedom

    def _without_clusters(self, metric: Metric, level: float | None = None) -> Self:
        """The same scorecard with the number of independent rows; without a level, for the noise floor of a metric."""
        if self.clusters is None:
            return self
        effects = self._design_effects(metric)
        effect = least = max(effects.in_bins, self.clusters.least_effect)
        if level is not None:
            effect = adjust_effect(effect, effects.freedom, effects.n_effective, level, least)
        effect = min(effect, effects.n_effective)
        return replace(self, clusters=None, sums={part: inflate(sums, effect) for part, sums in self.sums.items()})

    def _design_effects(self, metric: Metric) -> DesignEffects:
        assert self.clusters is not None
        if metric.parts == ("means",):
            errors = metric.on_errors
            column = metric.key.removesuffix("_on_errors")
            which, column = int(errors), {"accuracy": "correct"}.get(column, column)
            n_effective = float(self.means.weight[which] ** 2 / self.means.squared[which])
            columns = (column,) if column in MEAN_COLUMNS else MEAN_COLUMNS  # another metric than those of the table
            effect, freedom = max(mean_effect(self.clusters, self.means, name, errors=errors) for name in columns)
            return DesignEffects(effect, effect, freedom, n_effective)
        part, bins = "bins", self.top_bins
        if metric.binary:
            part, bins = "positive_bins", self.positive_class.top_bins
        if metric.parts == ("classes",):
            part, bins = "classes", self.class_bins[spread_classes(self.n_classes)]
        overall, freedom = gap_effect(self.clusters, part, bins)
        if metric.key == "aurc":
            overall = max(overall, mean_effect(self.clusters, self.means, "correct", errors=False)[0])
        if part == "classes":  # where a prediction is wrong, the gap of one class rises and that of another falls
            overall = max(overall, gap_effect(self.clusters, "bins", self.top_bins)[0])
        in_bins = bin_effect(self.clusters, part, bins)
        overall = max(overall, in_bins)
        if metric.key.removesuffix("_positive") in ("aurc", "kse"):  # which add up the noise of many bins
            in_bins = overall
        return DesignEffects(overall, in_bins, freedom, _n_effective(bins))

    def _metric(self, name: str) -> Metric:
        check_choice("metric", name, METRICS)
        if METRICS[name].all_classes and self.top_label:
            raise InvalidInputError(needs_all_classes(name))
        if METRICS[name].binary and self.n_classes != 2:
            raise InvalidInputError(f"{name} is for two classes, these predictions have {self.n_classes}")
        if name not in self.names:
            raise InvalidInputError(f"this scorecard has no {name}, only {', '.join(self.names)}")
        return METRICS[name]

    def _part(self, name: str) -> Any:
        if name not in self.sums:
            raise InvalidInputError(f"the metrics of this scorecard need no {name}, so it has none")
        return self.sums[name]

    @property
    def means(self) -> Means:
        """Sums behind the means over rows."""
        return self._part("means")  # type: ignore[no-any-return]

    @property
    def top_bins(self) -> BinSums:
        """Sums over equal-width bins of the confidence in the predicted class."""
        return self._part("bins")  # type: ignore[no-any-return]

    @property
    def top_histogram(self) -> BinSums:
        """Sums over the fine histogram of the confidence in the predicted class, sorted."""
        return self._part("histogram").sums  # type: ignore[no-any-return]

    @property
    def class_bins(self) -> BinSums:
        """Sums over equal-width bins of the probability of each class, (n_classes, n_bins)."""
        return self._part("classes")  # type: ignore[no-any-return]

    @property
    def positive_class(self) -> Self:
        """The same scorecard with the probability of class 1 instead of the confidence in the predicted class."""
        positive = {part.removeprefix(POSITIVE): s for part, s in self.sums.items() if part.startswith(POSITIVE)}
        return replace(self, sums={**self.sums, **positive})

    def __repr__(self) -> str:
        first = [f"{name} –" if value is None else f"{name} {value:.4g}" for name, value in self.values().items()][:3]
        left_out = f" and {self.n_unlabelled:,} without label" if self.n_unlabelled else ""
        kind = "confidence of the predicted class" if self.top_label else f"{self.n_classes} classes"
        return f"Scorecard({self.n_rows:,} rows{left_out}, {kind}, {', '.join(first)})"


def _n_effective(bins: BinSums) -> float:
    """The effective sample size over all bins, of one class where there are several."""
    n_classes = bins.total.numel() // bins.total.shape[-1]
    return sum_of(bins.total) ** 2 / sum_of(bins.squared) / n_classes


def rows_that_count(
    predictions: Predictions, names: Iterable[str], weights: str | None
) -> tuple[Predictions, Tensor | None]:
    """The rows of positive weight, with labels if these metrics need them, and their weights.

    Raises:
        InvalidInputError: A row has no label, or all weights are 0.
    """
    if need_labels(names):
        check_all_labelled(predictions.labels == UNKNOWN)
    else:  # no metric looks at these
        predictions = replace(predictions, labels=top_class(predictions.logits))
    if weights is None:
        return predictions, None
    w = row_weights(predictions, weights)
    counts = check_nonzero_weights(w)
    return predictions[counts], w[counts]


def needed_parts(names: Iterable[str], *, clustered: bool) -> set[str]:
    """The parts of a scorecard that these metrics need."""
    parts = {part for name in names for part in METRICS[name].parts}
    if clustered:
        parts |= {"means", "bins"} if need_labels(names) else {"means"}  # every design effect needs them
    return parts


def _confidence_sums(
    confidence: Tensor,
    complement: Tensor,
    correct: Tensor,
    *,
    weights: Tensor | None,
    n_bins: int,
    parts: set[str],
    max_histogram_bins: int | None,
) -> dict[str, Any]:
    """Bins and fine histogram of probabilities that a softmax has rounded."""
    sums: dict[str, Any] = {}
    if "bins" in parts:
        numbers = bin_numbers(confidence, n_bins, softmax_rounding(confidence.dtype))
        sums["bins"] = bin_sums(numbers, n_bins, confidence, correct, weights)
    if "histogram" in parts:
        tie_bits = TIE_BITS[confidence.dtype]
        sums["histogram"] = fine_histogram(
            confidence, complement, correct, weights, tie_bits=tie_bits, limit=max_histogram_bins
        )
    return sums


def row_weights(predictions: Predictions, name: str) -> Tensor:
    """The weights of the rows, from a column."""
    return check_row_weights(predictions.numbers("weights", name), len(predictions))
