"""The estimators: how accurate predictions are, without their labels."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import identity, kron, vstack

from calibrant._arrays import blocks
from calibrant.calibrators.maps import row_statistics
from calibrant.calibrators.sets import SetTemperature
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.estimates.base import (
    Estimate,
    Estimator,
    Quantity,
    ShiftedSets,
    accuracy,
    mean_confidence,
    set_columns,
    with_sampling,
)
from calibrant.predictions import Predictions

TRANSPORT_ROWS = 1000  # of the target at most: the time grows with the square
EXPECTED_LEVELS = tuple(np.arange(0.05, 1.0, 0.1).tolist())  # whose mean is the expected error


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedConfidence(Estimator):
    """The mean confidence after temperature scaling on the unshifted rows; what CBPE is for accuracy."""

    name: ClassVar[str] = "confidence"

    calibrator: TemperatureScaling

    @classmethod
    def _parameters(cls, clean: Predictions, shifted: ShiftedSets) -> dict[str, Any]:
        return {"calibrator": TemperatureScaling.fit(clean)}

    def _accuracy_of(self, target: Predictions) -> float:
        return mean_confidence(target, self.calibrator.temperature)

    def _estimate(self, target: Predictions, level: float) -> Estimate:
        found = super()._estimate(target, level)
        return _with_recall(found, target, (self.calibrator.temperature,))


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class DifferenceOfConfidences(Estimator):
    """The accuracy of the reference, less the fall of the mean confidence times a factor (Guillory et al. 2021).

    The factor is that of a regression over shifted sets; 1 without any.
    """

    name: ClassVar[str] = "doc"

    reference_accuracy: float
    reference_confidence: float
    factor: float

    @classmethod
    def _parameters(cls, clean: Predictions, shifted: ShiftedSets) -> dict[str, Any]:
        level, confidence = accuracy(clean), mean_confidence(clean)
        falls = np.array([(confidence - mean_confidence(rows), level - accuracy(rows)) for _, rows in shifted])
        squares = float((falls[:, 0] ** 2).sum()) if shifted else 0.0
        factor = float(falls[:, 0] @ falls[:, 1]) / squares if squares > 0 else 1.0
        return {"reference_accuracy": level, "reference_confidence": confidence, "factor": factor}

    def _accuracy_of(self, target: Predictions) -> float:
        return self.reference_accuracy - self.factor * (self.reference_confidence - mean_confidence(target))


@dataclass(frozen=True, eq=False, kw_only=True)
class AverageThreshold(Estimator):
    """The share of rows whose confidence is above a threshold, that of the reference being right (Garg et al. 2022)."""

    name: ClassVar[str] = "atc_confidence"

    temperature: float
    threshold: float

    @classmethod
    def _parameters(cls, clean: Predictions, shifted: ShiftedSets) -> dict[str, Any]:
        temperature = TemperatureScaling.fit(clean).temperature
        scores = np.sort(cls._scores(clean, temperature))
        n_errors = round((1 - accuracy(clean)) * len(clean))
        bounds = np.concatenate([[-np.inf], scores, [np.inf]])
        return {"temperature": temperature, "threshold": _between(bounds[n_errors], bounds[n_errors + 1])}

    def _accuracy_of(self, target: Predictions) -> float:
        return float((self._scores(target, self.temperature) > self.threshold).mean())

    @classmethod
    def _scores(cls, rows: Predictions, temperature: float) -> "np.ndarray[Any, np.dtype[np.float64]]":
        return _statistics(rows, temperature)[:, 1]


@final
class EntropyThreshold(AverageThreshold):
    """The same with the negative entropy in place of the confidence."""

    name: ClassVar[str] = "atc_entropy"

    @classmethod
    def _scores(cls, rows: Predictions, temperature: float) -> "np.ndarray[Any, np.dtype[np.float64]]":
        return -_statistics(rows, temperature)[:, 0]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidenceTransport(Estimator):
    """The cost of transporting predictions to labels in the proportions of the reference (COT, Lu et al. 2023).

    It assumes that the class proportions stay. It solves a linear program on at most 1,000 rows, in about a second for
    ten classes.
    """

    name: ClassVar[str] = "cot"

    temperature: float
    proportions: tuple[float, ...]

    @classmethod
    def _parameters(cls, clean: Predictions, shifted: ShiftedSets) -> dict[str, Any]:
        counts = torch.bincount(clean.labels, minlength=clean.n_classes)
        shares = tuple((counts.double() / len(clean)).tolist())
        return {"temperature": TemperatureScaling.fit(clean).temperature, "proportions": shares}

    def _accuracy_of(self, target: Predictions) -> float:
        rows = target[np.argsort(target.row_hashes[0], kind="stable")[:TRANSPORT_ROWS]]
        n, k = rows.logits.shape
        cost = 1 - (rows.logits.double() / self.temperature).softmax(1)
        of_row, of_class = kron(identity(n), np.ones((1, k))), kron(np.ones((1, n)), identity(k))
        sums = np.concatenate([np.full(n, 1 / n), self.proportions])
        found = linprog(cost.numpy().ravel(), A_eq=vstack([of_row, of_class]), b_eq=sums, method="highs")
        return 1 - float(found.fun)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SetTemperatureEstimator(Estimator):
    """The mean confidence after `SetTemperature`, which predicts a temperature for the target."""

    name: ClassVar[str] = "set_temperature"

    calibrator: SetTemperature

    @classmethod
    def _parameters(cls, clean: Predictions, shifted: ShiftedSets) -> dict[str, Any]:
        rows = Predictions.concat([clean, *(rows for _, rows in shifted)])
        return {"calibrator": SetTemperature.fit(rows, sets=set_columns(rows))}

    def _left_out_errors(self, clean: Predictions, shifted: ShiftedSets) -> torch.Tensor:
        return self.errors  # the calibrator knows its errors

    @classmethod
    def of(cls, calibrator: SetTemperature) -> Self:
        """The estimator of a calibrator that is already fitted."""
        return cls(
            n_classes=calibrator.n_classes,
            class_names=calibrator.class_names,
            rows=calibrator.fitted.rows,
            n_rows=calibrator.fitted.n_rows,
            shifts=calibrator.fitted.shifts,
            errors=torch.zeros(0, dtype=torch.float64),
            calibrator=calibrator,
        )

    def _accuracy_of(self, target: Predictions) -> float:
        return mean_confidence(target, self.calibrator.temperature_of(target))

    def _estimate(self, target: Predictions, level: float) -> Estimate:
        temperature = self.calibrator.temperature_of(target)
        ends, *others = self.calibrator.temperature_intervals(target, (level, *EXPECTED_LEVELS))
        value, high, low = (mean_confidence(target, t) for t in (temperature, *ends))
        off = [abs(mean_confidence(target, t) - value) for pair in others for t in pair]
        now = mean_confidence(target)
        found = self._combine(
            target,
            level,
            Quantity(value, low, high),
            temperature=Quantity(temperature, *ends),
            ece=Quantity(abs(now - value), *_distance(now, low, high)),
            ece_after=Quantity(float(np.mean(off)), 0.0, max(high - value, value - low)),
            unlike=self.calibrator.is_unlike(target),
        )
        return _with_recall(found, target, (temperature, *ends))


def _distance(value: float, low: float, high: float) -> tuple[float, float]:
    """The least and the greatest distance of a value from an interval's points."""
    ends = sorted((abs(value - low), abs(value - high)))
    return (0.0 if low <= value <= high else ends[0], ends[1])


def _with_recall(found: Estimate, target: Predictions, temperatures: tuple[float, ...]) -> Estimate:
    """With the recall of each class: the expected right predictions of it over its expected rows.

    The interval is of the temperatures, the first of which is the estimated one, and of the sampling of rows.
    """
    k = target.n_classes
    of_temperature = []
    for temperature in temperatures:
        right, expected = torch.zeros(k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
        for part in blocks(*target.logits.shape):
            probs = (target.logits[part].double() / temperature).softmax(1)
            confidence, predicted = probs.max(1)
            right.index_add_(0, predicted, confidence)
            expected += probs.sum(0)
        of_temperature.append((right / expected.clamp(min=1e-12), expected))
    recalls = torch.stack([recall for recall, _ in of_temperature])
    expected = of_temperature[0][1]
    quantities = [
        with_sampling(Quantity(*row), n, found.level) if n >= 1 else None
        for row, n in zip(
            torch.stack([recalls[0], recalls.amin(0), recalls.amax(0)], dim=1).tolist(), expected.tolist(), strict=True
        )
    ]
    return replace(found, recall=tuple(quantities))


def _statistics(rows: Predictions, temperature: float) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """(n, 2) entropy and confidence of the rows at a temperature."""
    parts = [row_statistics(rows.logits[part].double() / temperature) for part in blocks(*rows.logits.shape)]
    return torch.cat(parts).numpy()


def _between(low: float, high: float) -> float:
    """A number between two scores, one of which may be infinite."""
    if np.isfinite(low) and np.isfinite(high):
        return float((low + high) / 2)
    return float(high - 1) if np.isfinite(high) else float(low + 1)


ESTIMATORS: dict[str, type[Estimator]] = {
    "set_temperature": SetTemperatureEstimator,
    "confidence": CalibratedConfidence,
    "doc": DifferenceOfConfidences,
    "atc_confidence": AverageThreshold,
    "atc_entropy": EntropyThreshold,
    "cot": ConfidenceTransport,
}
