"""Set temperature: one T for an unlabelled set of rows, predicted from what the model says of the whole set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._checks import check_feature_count, check_whole
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.domains import CLEAN, pooled_log_temperatures, shift_types
from calibrant.calibrators.modules import DividedBySet, divided, row_statistics
from calibrant.calibrators.neighbours import Bank
from calibrant.calibrators.ridge import fit_ridge
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

LEAST_SETS = 3
MARGIN = 0.25  # how far beyond the known temperatures a set's may lie, as a share of their range in log T
BLOCK_ROWS = 2**14


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SetTemperature(Calibrator):
    """One temperature for each unlabelled set, from its mean entropy, confidence and distance to known features.

    A set is the rows of a call; where they have all columns of ``sets``, each combination of their values is one. The
    regression is fitted over corrupted versions of the validation set, a set each.
    """

    name: ClassVar[str] = "set_temperature"
    keeps_argmax: ClassVar[bool] = True
    fits_shifts: ClassVar[bool] = True

    sets: tuple[str, ...]
    weight: Tensor  # (2,) or (3,) of mean entropy, mean confidence and mean distance
    intercept: float
    low: float  # limits of log T
    high: float
    bank: Tensor | None  # (m, f) features of known rows
    k: int

    @classmethod
    def fit(
        cls,
        validation: Predictions,
        *,
        sets: Sequence[str] = ("corruption", "severity"),
        reference: Predictions | None = None,
        k: int | None = None,
    ) -> Self:
        """sets: columns whose values tell the sets of validation apart, the type of corruption first.

        reference: rows with features to measure distances from (of the training set, say); by default the clean rows
        of validation, where it has features. k: how many of them are neighbours.
        """
        check_validation(validation)
        if k is not None:
            check_whole("k", k, 1)
        columns = tuple([sets] if isinstance(sets, str) else sets)
        number, n_sets = set_numbers(validation, columns)
        if n_sets < LEAST_SETS:
            raise InvalidInputError(
                f"validation must hold at least {LEAST_SETS} sets by {', '.join(columns)}, got {n_sets}"
            )
        statistics, bank, k_used = _statistics(validation, columns[0], reference, k)
        means = np.stack([np.bincount(number, s) / np.bincount(number) for s in statistics.T.numpy()], axis=1)
        log_t = pooled_log_temperatures(validation, number, n_sets)
        first = np.zeros(n_sets, dtype=np.int64)
        first[number] = validation.groups(columns[0])[0]
        weight, intercept = fit_ridge(torch.from_numpy(means), log_t, first, np.ones(n_sets))
        margin = MARGIN * float(np.ptp(log_t))
        return cls.fitted_to(
            validation,
            shifts=shift_types(validation, columns[0]),
            sets=columns,
            weight=weight,
            intercept=intercept,
            low=float(log_t.min()) - margin,
            high=float(log_t.max()) + margin,
            bank=bank,
            k=k_used,
        )

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("logits",) if self.bank is None else ("logits", "features")

    @property
    def n_features(self) -> int:
        return 0 if self.bank is None else self.bank.shape[1]

    def module(self) -> nn.Module:
        """A module for which the rows of a call are the set: give it many at a time, or use `adapt`."""
        return DividedBySet(self.weight, self.intercept, self.low, self.high, self.bank, self.k)

    def temperature_of(self, target: Predictions) -> float:
        """The temperature of these rows, taken as one set; labels are not looked at."""
        return float(np.exp(self._log_temperatures(target, np.zeros(len(target), dtype=np.int64), 1)[0]))

    def adapt(self, target: Predictions) -> TemperatureScaling:
        """The temperature scaling for the set that these unlabelled rows are a sample of."""
        return TemperatureScaling(n_classes=self.n_classes, fitted=self.fitted, temperature=self.temperature_of(target))

    def _mended(self, predictions: Predictions) -> Tensor:
        number, n_sets = np.zeros(len(predictions), dtype=np.int64), 1
        if all(name in predictions.columns.column_names for name in self.sets):
            number, n_sets = set_numbers(predictions, self.sets)
        temperatures = np.exp(self._log_temperatures(predictions, number, n_sets))
        return divided(predictions.logits, torch.from_numpy(temperatures[number]).unsqueeze(1))

    def _log_temperatures(
        self, predictions: Predictions, number: NDArray[np.int64], n_sets: int
    ) -> NDArray[np.float64]:
        if len(predictions) == 0:
            return np.zeros(n_sets)
        statistics = logit_statistics(predictions.logits)
        if self.bank is not None:
            distances = Bank(self.bank, self.k, torch.zeros(0)).distances(self._inputs(predictions)[1])
            statistics = torch.cat([statistics, distances.unsqueeze(1)], dim=1)
        by_row = (statistics @ self.weight).numpy()
        return np.clip(self.intercept + np.bincount(number, by_row) / np.bincount(number), self.low, self.high)


def logit_statistics(logits: Tensor) -> Tensor:
    """(n, 2) relative entropy and confidence of each row, float64, block by block."""
    return torch.cat([row_statistics(block.double()) for block in logits.split(BLOCK_ROWS)])


def set_numbers(predictions: Predictions, columns: Sequence[str]) -> tuple[NDArray[np.int64], int]:
    """The number of each row's set among those that the columns tell apart, and how many there are."""
    encoded = np.stack([predictions.groups(name)[0] for name in columns])
    distinct, number = np.unique(encoded, axis=1, return_inverse=True)
    return number.reshape(-1).astype(np.int64), distinct.shape[1]


def _statistics(
    validation: Predictions, column: str, reference: Predictions | None, k: int | None
) -> tuple[Tensor, Tensor | None, int]:
    """Statistics of each row; the bank of features and the number of neighbours, where there are features."""
    statistics = logit_statistics(validation.logits)
    if validation.features is None:
        if reference is not None:
            raise InvalidInputError("validation must have features where a reference is given")
        return statistics, None, 0
    number, values = validation.groups(column)
    clean = np.isin(number, [i for i, value in enumerate(values) if value in CLEAN])
    if reference is None and not clean.any():
        return statistics, None, 0
    own = reference is None
    known = validation[clean] if reference is None else reference
    bank = Bank.of(SetTemperature.name, known, k, "validation" if own else "reference")
    check_feature_count(SetTemperature.name, bank.features.shape[1], validation.features.shape[1])
    distances = bank.distances(validation.features)
    if own:
        distances[torch.from_numpy(clean)] = bank.own_distances(validation.features[torch.from_numpy(clean)])
    return torch.cat([statistics, distances.unsqueeze(1)], dim=1), bank.features, bank.k
