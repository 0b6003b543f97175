"""The effect of temperature scaling on the rows of an audit, measured by cross-validation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from calibrant._arrays import sum_of
from calibrant.audits.sample import SAMPLE_CLUSTER, SAMPLE_WEIGHTS
from calibrant.audits.verdict import MIN_OUTCOME_ROWS, decision_level, significance_level
from calibrant.calibrators.choice import cross_fit
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import CalibrantError
from calibrant.metrics.compare import compare
from calibrant.metrics.sample_scores import top_class
from calibrant.metrics.scorecard import row_weights
from calibrant.metrics.scoring import score
from calibrant.predictions import Predictions

CHANGED_METRICS = ("nll", "ece")
TEMPERATURE_FOLDS = 5


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric before and after temperature scaling, on rows that the temperature was not fitted on.

    Args:
        before: The metric before.
        before_interval: Its interval.
        after: The metric after.
        after_interval: Its interval.
        difference: after − before.
        interval: The interval of the difference, paired by rows.
        p_value: P-value of the difference.
        significant: Whether the difference is significant.
        after_lower_limit: Lower limit of the metric after, at a level of at least 95 %.
    """

    before: float
    before_interval: tuple[float, float]
    after: float
    after_interval: tuple[float, float]
    difference: float
    interval: tuple[float, float]
    p_value: float
    significant: bool
    after_lower_limit: float

    @property
    def improved(self) -> bool:
        """Whether the metric decreases significantly."""
        return self.significant and self.difference < 0

    @property
    def worsened(self) -> bool:
        """Whether the metric increases significantly."""
        return self.significant and self.difference > 0


@dataclass(frozen=True, slots=True)
class TemperatureEffect:
    """A temperature and its effect on rows that it was not fitted on, or the reason why there is none.

    Args:
        n_sample: Number of rows of the sample.
        n_rows: Number of rows of the audit.
        temperature: The temperature fitted on the whole sample; None where it cannot be fitted.
        interval: Its 95 % confidence interval, which holds for independent rows; None for clusters.
        influential_rows: The number of rows that the interval rests on.
        changes: The changes of NLL and ECE by cross-validation; empty where they cannot be measured.
        failure: Why there are no changes.
    """

    n_sample: int
    n_rows: int
    temperature: float | None = None
    interval: tuple[float, float] | None = None
    influential_rows: float | None = None
    changes: Mapping[str, MetricChange] = field(default_factory=dict)
    failure: str = ""

    @property
    def worsened(self) -> list[str]:
        """The metrics that increase significantly."""
        return [name for name, change in self.changes.items() if change.worsened]

    @property
    def helps(self) -> bool:
        """Whether a metric decreases significantly and none increases significantly."""
        return not self.worsened and any(change.improved for change in self.changes.values())


def temperature_effect(
    sample: Predictions,
    n_rows: int,
    *,
    weighted: bool,
    clustered: bool,
    n_bins: int,
    level: float,
    seed: int,
    top_label: bool = False,
) -> TemperatureEffect:
    """The effect measured on a sample of ``n_rows`` rows; no cluster is in several folds."""
    if top_label:
        return TemperatureEffect(len(sample), n_rows, failure="a temperature needs the probabilities of all classes")
    weights, cluster = SAMPLE_WEIGHTS if weighted else None, SAMPLE_CLUSTER if clustered else None
    if reason := reason_not_to_fit(sample, weights):
        return TemperatureEffect(len(sample), n_rows, failure=reason)
    try:
        fitted = cross_fit(sample, "temperature", folds=TEMPERATURE_FOLDS, cluster=cluster, weights=weights)
    except CalibrantError as error:
        return _effect_not_measured(sample, n_rows, weights, str(error), clustered=clustered)
    calibrator = fitted.calibrator
    assert isinstance(calibrator, TemperatureScaling)
    pair = fitted.predictions, sample
    options: dict[str, Any] = {"metrics": CHANGED_METRICS, "n_bins": n_bins, "weights": weights, "cluster": cluster}
    after, before = (score(rows, **options) for rows in pair)
    changes = {
        row.metric: MetricChange(
            before=row.b,
            before_interval=before.interval(row.metric, level=level, seed=seed),
            after=row.a,
            after_interval=after.interval(row.metric, level=level, seed=seed),
            difference=row.difference,
            interval=row.interval,
            p_value=row.p_value,
            significant=row.p_value <= significance_level(level),
            after_lower_limit=after.interval(row.metric, level=decision_level(level), seed=seed)[0],
        )
        for row in compare(*pair, **options, level=level, seed=seed)
    }
    return replace(_effect(calibrator, sample, n_rows, clustered=clustered), changes=changes)


def _effect(calibrator: TemperatureScaling, sample: Predictions, n_rows: int, *, clustered: bool) -> TemperatureEffect:
    """The temperature of the whole sample."""
    return TemperatureEffect(
        n_sample=len(sample),
        n_rows=n_rows,
        temperature=calibrator.temperature,
        interval=None if clustered else calibrator.interval,
        influential_rows=None if clustered else calibrator.influential_rows,
    )


def reason_not_to_fit(sample: Predictions, weights: str | None) -> str:
    """Why no temperature can be fitted or measured; empty where it can."""
    correct = top_class(sample.logits) == sample.labels
    w = torch.ones(len(sample), dtype=torch.float64) if weights is None else row_weights(sample, weights)
    total = sum_of(w)
    n_effective = total**2 / sum_of(w.square())
    for rows, outcome in ((correct, "correct"), (~correct, "incorrect")):
        if sum_of(w[rows]) / total * n_effective < MIN_OUTCOME_ROWS:
            effective = "" if weights is None else "effective "
            few = f"fewer than {MIN_OUTCOME_ROWS} {effective}rows are {outcome}"
            return f"{few}, too few to fit and evaluate a temperature"
    impossible = sample.logits.gather(1, sample.labels.unsqueeze(1)).squeeze(1) == -math.inf
    if impossible.any():
        return f"{int(impossible.sum()):,} of {len(sample):,} rows have a label of probability 0"
    if len(np.unique(sample.row_hashes[0])) < TEMPERATURE_FOLDS:
        return f"there are fewer than {TEMPERATURE_FOLDS} different rows"
    return ""


def _effect_not_measured(
    sample: Predictions, n_rows: int, weights: str | None, reason: str, *, clustered: bool
) -> TemperatureEffect:
    """Only the temperature of the whole sample, or the reason why there is none."""
    try:
        fitted = TemperatureScaling.fit(sample, weights=weights)
    except CalibrantError as error:
        return TemperatureEffect(len(sample), n_rows, failure=str(error))
    failure = f"cross-validation failed: {reason}"
    return replace(_effect(fitted, sample, n_rows, clustered=clustered), failure=failure)
