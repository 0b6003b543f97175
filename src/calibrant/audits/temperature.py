"""What a temperature would change: fitted on one part of the rows and measured on the other, for each part in turn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from calibrant.audits.sample import WEIGHTS
from calibrant.audits.verdict import alpha, strict
from calibrant.calibrators.choice import cross_fit
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import CalibrantError
from calibrant.metrics.compare import compare
from calibrant.metrics.intervals import MIN_OUTCOME_ROWS
from calibrant.metrics.sample_scores import top_class
from calibrant.metrics.scorecard import row_weights
from calibrant.metrics.scoring import score
from calibrant.predictions import Predictions

MEASURED = ("nll", "ece")
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A metric before and after, on rows that were not fitted on."""

    before: float
    before_interval: tuple[float, float]
    after: float
    after_interval: tuple[float, float]
    difference: float  # after − before, paired by rows
    interval: tuple[float, float]
    p_value: float
    beyond_chance: bool  # whether the difference is
    stays: float  # the lower limit of what is left, at a level of at least 95 %

    @property
    def better(self) -> bool:
        """Whether it falls beyond chance."""
        return self.beyond_chance and self.difference < 0

    @property
    def worse(self) -> bool:
        return self.beyond_chance and self.difference > 0


@dataclass(frozen=True, slots=True)
class TemperatureEffect:
    """The temperature of all rows of a sample, and what it does to rows that it has not seen; or why there is none."""

    n_sample: int
    n_rows: int
    temperature: float | None = None
    standard_error: float | None = None
    changes: Mapping[str, Change] = field(default_factory=dict)  # of NLL and ECE; empty where they were not measured
    failure: str = ""

    @property
    def worse(self) -> list[str]:
        """The metrics that rise beyond chance."""
        return [name for name, change in self.changes.items() if change.worse]

    @property
    def helps(self) -> bool:
        """Whether one of the metrics falls beyond chance, and none rises."""
        return not self.worse and any(change.better for change in self.changes.values())


def temperature_effect(
    sample: Predictions, n_rows: int, *, weighted: bool, n_bins: int, level: float, seed: int
) -> TemperatureEffect:
    """The effect on a sample of so many rows."""
    weights = WEIGHTS if weighted else None
    if why := unfit(sample, weights):
        return TemperatureEffect(len(sample), n_rows, failure=why)
    try:
        fitted = cross_fit(sample, "temperature", folds=FOLDS, weights=weights)
    except CalibrantError as error:
        return _unmeasured(sample, n_rows, weights, str(error))
    calibrator = fitted.calibrator
    assert isinstance(calibrator, TemperatureScaling)
    pair = fitted.predictions, sample
    after, before = (score(rows, metrics=MEASURED, n_bins=n_bins, weights=weights) for rows in pair)
    changes = {
        row.metric: Change(
            row.b,
            before.interval(row.metric, level=level, seed=seed),
            row.a,
            after.interval(row.metric, level=level, seed=seed),
            row.difference,
            row.interval,
            row.p_value,
            row.p_value <= alpha(level),
            after.interval(row.metric, level=strict(level), seed=seed)[0],
        )
        for row in compare(*pair, metrics=MEASURED, weights=weights, n_bins=n_bins, level=level, seed=seed)
    }
    return TemperatureEffect(len(sample), n_rows, calibrator.temperature, calibrator.standard_error, changes)


def unfit(sample: Predictions, weights: str | None) -> str:
    """Why there is nothing to fit, or nothing to measure it on; empty where there is."""
    correct = top_class(sample.logits) == sample.labels
    w = torch.ones(len(sample), dtype=torch.float64) if weights is None else row_weights(sample, weights)
    effective = float(w.sum() ** 2 / (w @ w))
    for rows, outcome in ((correct, "correct"), (~correct, "incorrect")):
        if float(w[rows].sum() / w.sum()) * effective < MIN_OUTCOME_ROWS:
            by = "" if weights is None else ", by their weight,"
            return f"fewer than {MIN_OUTCOME_ROWS} rows{by} are {outcome}, too few to fit one and to measure it"
    impossible = sample.logits.gather(1, sample.labels.unsqueeze(1)).squeeze(1) == -math.inf
    if impossible.any():
        return f"{int(impossible.sum()):,} of {len(sample):,} rows have a label of probability 0"
    if len(np.unique(sample.row_hashes[0])) < FOLDS:
        return f"there are fewer than {FOLDS} different rows"
    return ""


def _unmeasured(sample: Predictions, n_rows: int, weights: str | None, why: str) -> TemperatureEffect:
    """Where all rows have no best temperature either, that is the reason; else a part of them is too easy or hard."""
    try:
        fitted = TemperatureScaling.fit(sample, weights=weights)
    except CalibrantError as error:
        return TemperatureEffect(len(sample), n_rows, failure=str(error))
    failure = f"it cannot be measured on rows that it was not fitted on: {why}"
    return TemperatureEffect(len(sample), n_rows, fitted.temperature, fitted.standard_error, failure=failure)
