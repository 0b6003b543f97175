"""What a temperature would change: fitted on one part of the rows and measured on the other, for each part in turn."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from calibrant.calibrators.choice import cross_fit
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import CalibrantError
from calibrant.metrics.compare import Difference, compare
from calibrant.metrics.intervals import RARE
from calibrant.metrics.outcomes import top_class
from calibrant.metrics.scorecard import row_weights
from calibrant.metrics.scoring import score
from calibrant.predictions import Predictions
from calibrant.report.audit.sample import WEIGHTS
from calibrant.report.audit.verdict import alpha, strict

MEASURED = ("nll", "ece")
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A metric before and after, on the same rows; none of them was fitted on."""

    before: float
    before_interval: tuple[float, float]
    after: float
    after_interval: tuple[float, float]
    difference: float  # after less before, paired by rows
    interval: tuple[float, float]
    p_value: float
    shown: bool  # whether the difference is beyond chance
    stays: float  # the lower limit of what is left, at a level of at least 95 %

    @property
    def better(self) -> bool:
        """Whether it falls beyond chance."""
        return self.shown and self.difference < 0

    @property
    def worse(self) -> bool:
        return self.shown and self.difference > 0


@dataclass(frozen=True, slots=True)
class TemperatureEffect:
    """The temperature of all rows of a sample, and what it does to rows that it has not seen; or why there is none."""

    n_sample: int
    n_rows: int
    temperature: float | None = None
    standard_error: float | None = None
    nll: Change | None = None
    ece: Change | None = None
    failure: str = ""


def temperature_effect(
    sample: Predictions, n_rows: int, *, weighted: bool, n_bins: int, level: float, seed: int
) -> TemperatureEffect:
    """The effect on a sample of so many rows."""
    size = len(sample)
    weights = WEIGHTS if weighted else None
    if why := unfit(sample, weights):
        return TemperatureEffect(size, n_rows, failure=why)
    try:
        fitted = cross_fit(sample, "temperature", folds=FOLDS, weights=weights)
    except CalibrantError as error:
        return _unmeasured(sample, n_rows, weights, str(error))
    mended, calibrator = fitted.predictions, fitted.calibrator
    assert isinstance(calibrator, TemperatureScaling)
    cards = [score(rows, metrics=MEASURED, n_bins=n_bins, weights=weights) for rows in (mended, sample)]
    rows = compare(mended, sample, metrics=MEASURED, weights=weights, n_bins=n_bins, level=level, seed=seed)
    changes = {}
    for row in rows:
        after, before = (card.interval(row.metric, level=level, seed=seed) for card in cards)
        stays = cards[0].interval(row.metric, level=strict(level), seed=seed)[0]
        changes[row.metric] = _change(row, before, after, stays, level)
    found = calibrator.temperature, calibrator.standard_error
    return TemperatureEffect(size, n_rows, *found, changes["nll"], changes["ece"])


def unfit(sample: Predictions, weights: str | None) -> str:
    """Why there is nothing to fit, or nothing to measure it on; empty where there is."""
    top = top_class(sample.logits)
    correct = top == sample.labels
    w = torch.ones(len(sample), dtype=torch.float64) if weights is None else row_weights(sample, weights)
    effective = float(w.sum() ** 2 / (w @ w))
    for rows, outcome in ((correct, "right"), (~correct, "wrong")):
        if float(w[rows].sum() / w.sum()) * effective < RARE:
            by = "" if weights is None else ", by their weight,"
            return f"fewer than {RARE} rows{by} are {outcome}, too few to fit one and to measure it"
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


def _change(
    row: Difference, before: tuple[float, float], after: tuple[float, float], stays: float, level: float
) -> Change:
    shown = row.p_value <= alpha(level)
    return Change(row.b, before, row.a, after, row.difference, row.interval, row.p_value, shown, stays)
