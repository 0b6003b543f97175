"""The scorecard: every metric of a set of predictions from one pass, with intervals and noise floors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_all_labelled, check_integer, check_level
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.bins import ReliabilityCurve, bin_numbers, reliability
from calibrant.metrics.checks import check_nonzero_weights, check_row_weights
from calibrant.metrics.histogram import TIE_BITS, fine_histogram
from calibrant.metrics.means import Means, means
from calibrant.metrics.ranking import RiskCoverageCurve, risk_coverage
from calibrant.metrics.sample_scores import SampleScores, sample_scores, softmax_rounding
from calibrant.metrics.table import METRICS, Metric, check_metrics, is_binary
from calibrant.predictions import Predictions

NO_ROWS = "predictions must have at least one row that counts"
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
    """

    names: tuple[str, ...]
    n_rows: int
    n_classes: int
    n_bins: int
    sums: Mapping[str, Any]
    multilabel: bool = False

    @classmethod
    def of(
        cls,
        predictions: Predictions,
        *,
        metrics: Iterable[str] | None = None,
        n_bins: int = 15,
        weights: str | None = None,
        max_histogram_bins: int | None = None,
        scored: tuple[SampleScores, BinSums | None] | None = None,
    ) -> Self:
        """The scorecard of predictions in memory.

        Args:
            predictions: Labelled predictions.
            metrics: Names in `METRICS`; all of them by default.
            n_bins: The number of bins of the binned calibration errors.
            weights: A column of row weights.
            max_histogram_bins: A limit of the size of the fine histogram; none by default.
            scored: What `sample_scores` returns for these rows, if it is known and no row has weight 0.

        Returns:
            The scorecard.

        Raises:
            InvalidInputError: There is no row, a row has no label, all weights are 0, or an argument is invalid.
            UnknownNameError: A metric does not exist.
        """
        names = check_metrics(metrics, predictions.n_classes)
        check_integer("n_bins", n_bins, 1)
        if len(predictions) == 0:
            raise InvalidInputError(NO_ROWS)
        check_all_labelled(predictions.labels == UNKNOWN)
        w = None
        if weights is not None:
            w = row_weights(predictions, weights)
            counts = check_nonzero_weights(w)
            predictions, w = predictions[counts], w[counts]
        parts = {part for name in names for part in METRICS[name].parts}
        class_bins = n_bins if "classes" in parts else None
        rows, classes = scored or sample_scores(predictions.logits, predictions.labels, n_bins=class_bins, weights=w)
        sums: dict[str, Any] = {"means": means(rows, w)} if "means" in parts else {}
        if classes is not None:
            sums["classes"] = classes
        top = rows.confidence, rows.complement, rows.correct
        sums |= _confidence_sums(*top, weights=w, n_bins=n_bins, parts=parts, max_histogram_bins=max_histogram_bins)
        if is_binary(names):
            positive = _positive_class(rows, predictions.labels == 1)
            more = _confidence_sums(
                *positive, weights=w, n_bins=n_bins, parts=parts, max_histogram_bins=max_histogram_bins
            )
            sums |= {f"{POSITIVE}{part}": part_sums for part, part_sums in more.items()}
        return cls(names, len(predictions), predictions.n_classes, n_bins, sums)

    def __add__(self, other: Self) -> Self:
        for name in ("n_classes", "n_bins", "names", "multilabel"):
            if getattr(self, name) != getattr(other, name):
                got = f"{getattr(self, name)} and {getattr(other, name)}"
                raise InvalidInputError(f"scorecards must have the same {name} to be added, got {got}")
        sums = {part: own + other.sums[part] for part, own in self.sums.items()}
        return replace(self, n_rows=self.n_rows + other.n_rows, sums=sums)

    def __radd__(self, other: int) -> Self:
        return self if other == 0 else NotImplemented  # sum() starts with 0

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
        return self._metric(name).interval(self, level, check_integer("seed", seed, 0))

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
        floor = self._metric(name).floor
        if floor is None:
            raise InvalidInputError(f"{name} has no noise floor: it is not a calibration error")
        return floor(self, check_integer("seed", seed, 0))

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

    def _metric(self, name: str) -> Metric:
        check_choice("metric", name, METRICS)
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
        return f"Scorecard({self.n_rows:,} rows, {self.n_classes} classes, {', '.join(first)})"


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


def _positive_class(rows: SampleScores, is_positive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of two classes: the probability of class 1, of class 0, and whether the label is 1."""
    predicted = rows.correct == is_positive
    return (
        torch.where(predicted, rows.confidence, rows.complement),
        torch.where(predicted, rows.complement, rows.confidence),
        is_positive,
    )


def row_weights(predictions: Predictions, name: str) -> Tensor:
    """The weights of the rows, from a column."""
    return check_row_weights(predictions.numbers("weights", name), len(predictions))
