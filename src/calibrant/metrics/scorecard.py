"""The scorecard: every metric of a set of predictions from one pass, with intervals and noise floors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_all_labelled, check_integer, check_level
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, UndefinedMetricError
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import ReliabilityCurve, reliability
from calibrant.metrics.checks import check_nonzero_weights, check_row_weights
from calibrant.metrics.events import Events, events, plus
from calibrant.metrics.means import Means, means
from calibrant.metrics.ranking import RiskCoverageCurve, risk_coverage
from calibrant.metrics.sample_scores import SampleScores, sample_scores
from calibrant.metrics.table import METRICS, Metric, check_metrics, is_binary
from calibrant.predictions import Predictions

NO_ROWS = "predictions must have at least one row that counts"
PartT = TypeVar("PartT")


@dataclass(frozen=True, eq=False)
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
    classes: BinSums | None = None  # (n_classes, n_bins)
    multilabel: bool = False  # whether a row may have several classes

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
        """The scorecard of predictions in memory; with ``max_histogram_bins``, of bounded size.

        scored: their outcomes and class bins, where these are known and all rows count.
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
        rows, classes = scored or sample_scores(
            predictions.logits, predictions.labels, n_bins=n_bins if "classes" in parts else None, weights=w
        )
        return cls(
            names,
            len(predictions),
            predictions.n_classes,
            n_bins,
            means(rows, w) if "means" in parts else None,
            events(rows.confidence, rows.complement, rows.correct, w, n_bins, parts, max_histogram_bins),
            events(*positive(rows, predictions.labels == 1), w, n_bins, parts, max_histogram_bins)
            if is_binary(names)
            else None,
            classes,
        )

    def __add__(self, other: Self) -> Self:
        for name in ("n_classes", "n_bins", "names", "multilabel"):
            if getattr(self, name) != getattr(other, name):
                got = f"{getattr(self, name)} and {getattr(other, name)}"
                raise InvalidInputError(f"scorecards must agree in {name} to be added, got {got}")
        return replace(
            self,
            n_rows=self.n_rows + other.n_rows,
            means=plus(self.means, other.means),
            top=self.top + other.top,
            positive=plus(self.positive, other.positive),
            classes=plus(self.classes, other.classes),
        )

    def __radd__(self, other: int) -> Self:
        return self if other == 0 else NotImplemented  # so that sum() adds scorecards

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
        return self._metric(name).interval(self, level, check_integer("seed", seed, 0))

    def noise_floor(self, name: str, *, seed: int = 0) -> float:
        """Expected value for a perfectly calibrated model with these confidences, on as many rows.

        Raises: InvalidInputError for a metric that is no calibration error.
        """
        floor = self._metric(name).floor
        if floor is None:
            raise InvalidInputError(f"{name} has no noise floor: it is no calibration error")
        return floor(self, check_integer("seed", seed, 0))

    def error_bound(self, name: str) -> float:
        """How far a value that comes from a stream's histogram may be from the exact one; 0.0 where it is exact.

        Exact up to the rounding of a softmax: confidences that agree to 18 bits (float32; 42 in float64) are equal.
        """
        metric = self._metric(name)
        cells = (self.positive_class if metric.binary else self).top.cells
        return 0.0 if metric.bound is None or cells is None or cells.exact else metric.bound(cells, self.n_bins)

    def reliability(self) -> ReliabilityCurve:
        """Accuracy against confidence of the top label, bin by bin, with bin strengths."""
        return reliability(self.top_bins)

    def risk_coverage(self) -> RiskCoverageCurve:
        """Error rate among the most confident rows against their share."""
        return risk_coverage(self.top_histogram)

    def _metric(self, name: str) -> Metric:
        check_choice("metric", name, METRICS)
        if METRICS[name].binary and self.n_classes != 2:
            raise InvalidInputError(f"{name} is for two classes, these predictions have {self.n_classes}")
        if name not in self.names:
            raise InvalidInputError(f"{name} was not asked for; this scorecard has {', '.join(self.names)}")
        return METRICS[name]

    @property
    def top_bins(self) -> BinSums:
        return _needed(self.top.bins, "bins")

    @property
    def top_histogram(self) -> BinSums:
        return _needed(self.top.cells, "cells").sums

    @property
    def class_bins(self) -> BinSums:
        return _needed(self.classes, "classes")

    @property
    def positive_class(self) -> Self:
        """The scorecard with the probability of class 1 in the place of the largest probability."""
        return replace(self, top=_needed(self.positive, "probability of class 1"))

    def __repr__(self) -> str:
        return f"Scorecard({self.n_rows:,} rows, {self.n_classes} classes, {', '.join(self._short())})"

    def _short(self) -> Iterator[str]:
        for name, value in list(self.values().items())[:3]:
            yield f"{name} –" if value is None else f"{name} {value:.4g}"


def _needed(part: PartT | None, name: str) -> PartT:
    if part is None:
        raise InvalidInputError(f"this scorecard was made for metrics that need no {name}")
    return part


def positive(rows: SampleScores, happened: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of two classes: the probability of class 1, of class 0, and whether it was class 1."""
    likelier = rows.correct == happened  # class 1 is the likelier one where it is rightly or wrongly predicted
    return (
        torch.where(likelier, rows.confidence, rows.complement),
        torch.where(likelier, rows.complement, rows.confidence),
        happened,
    )


def row_weights(predictions: Predictions, name: str) -> Tensor:
    """The weights of the rows, from a column."""
    return check_row_weights(predictions.numbers("weights", name), len(predictions))
