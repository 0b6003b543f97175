"""Temperatures for data of several kinds: one for a perturbed validation set, and one for each domain."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._checks import check_positive
from calibrant.calibrators.base import Calibrator, check_validation, scale_rows
from calibrant.calibrators.likelihood import Likelihood
from calibrant.calibrators.modules import FeatureTemperatureModule
from calibrant.calibrators.ridge import fit_ridge
from calibrant.calibrators.scale import BOUNDS, solve_temperature
from calibrant.calibrators.temperature import OneTemperature
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

CLEAN = (None, "", "none", "clean", "identity")  # what a column of corruption types says of rows that have none
POOL_ROWS, POOL_WORTH = 1024, 10.0  # of all rows: each domain also counts so many of them, together worth ten


@final
class PerturbedTemperature(OneTemperature):
    """One temperature, fitted to a validation set with perturbed copies of its rows (Tomani et al. 2021).

    The perturbed rows come from `perturb_gaussian`, or are predictions of images under any mixture of corruptions.
    """

    name: ClassVar[str] = "perturbed_temperature"
    fits_shifts: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions, *, shift: str = "corruption") -> Self:
        """shift: the column with the type of each row's corruption, "none" for clean ones; the types are recorded.

        Raises: NotConvergedError where there is no best temperature.
        """
        check_validation(validation)
        types = shift_types(validation, shift)
        if not types:
            raise InvalidInputError(f"validation must have corrupted rows, its column {shift!r} names none")
        scale = solve_temperature(Likelihood(validation.logits, validation.labels), BOUNDS)
        return cls.from_parameters(validation, shifts=types, temperature=scale.temperature)

    @classmethod
    def fit_for(cls, target: Predictions, validation: Predictions, *, shift: str) -> Self:
        return cls.fit(validation, shift=shift)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DomainTemperature(Calibrator):
    """One temperature for each domain, and for others a regression on features (Yu et al. 2022).

    Rows whose domain is known are divided by its temperature. Others, and what `module` sees, by the one that a ridge
    regression of log T on the features gives, within the range of the known ones.
    """

    name: ClassVar[str] = "domain_temperature"
    keeps_argmax: ClassVar[bool] = True
    needs_columns: ClassVar[tuple[str, ...]] = ("domain",)

    domain: str
    temperatures: dict[str, float]
    weight: Tensor | None  # (f,) of the regression, where there were features
    intercept: float

    def __post_init__(self) -> None:
        for name, temperature in self.temperatures.items():
            check_positive(f"temperature of {name}", temperature)

    @classmethod
    def fit(cls, validation: Predictions, *, domain: str = "domain") -> Self:
        """domain: the column that names each row's domain.

        Each domain's temperature also counts a sample of all rows, worth ten: a small domain borrows from the others.
        """
        check_validation(validation)
        number, values = sorted_groups(validation, domain)
        scales = pooled_log_temperatures(validation, number, len(values))
        weight, intercept = None, float(np.mean(scales))
        if validation.features is not None and len(values) > 1:
            weights = (1 / np.bincount(number))[number]
            weight, intercept = fit_ridge(validation.features, scales[number], number, weights)
        temperatures = dict(zip(map(domain_key, values), np.exp(scales).tolist(), strict=True))
        if len(temperatures) < len(values):
            raise InvalidInputError(f"domain must tell its values apart as text, {domain!r} does not")
        return cls.from_parameters(
            validation, domain=domain, temperatures=temperatures, weight=weight, intercept=intercept
        )

    @property
    def n_features(self) -> int:
        return 0 if self.weight is None else len(self.weight)

    def module(self) -> nn.Module:
        if self.weight is None:
            raise InvalidInputError(
                f"{self.name} was fitted without features, or to one domain: it has no map for rows of another one"
            )
        known = np.log(list(self.temperatures.values()))
        constants = (self.intercept, float(known.min()), float(known.max()))
        return FeatureTemperatureModule(weight=self.weight, constants=constants)

    def _calibrated_logits(self, predictions: Predictions) -> Tensor:
        if self.domain not in predictions.columns.column_names:
            return super()._calibrated_logits(predictions)
        number, values = predictions.groups(self.domain)
        of_value = np.array([self.temperatures.get(domain_key(value), np.nan) for value in values])
        temperature = torch.from_numpy(of_value[number])
        calibrated = scale_rows(predictions.logits, temperature)
        unknown = temperature.isnan()
        if unknown.any():
            calibrated[unknown] = super()._calibrated_logits(predictions[unknown])
        return calibrated

    def check_parameters(self) -> None:
        if self.weight is not None:
            super().check_parameters()


def domain_key(value: Any) -> str:
    """A domain as text: 1 and 1.0 are the same one, null is none of the words."""
    if value is None:
        return "\0null"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def sorted_groups(predictions: Predictions, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """As `Predictions.groups`, with the values sorted as text: it does not depend on the order of the rows."""
    number, values = predictions.groups(name)
    order = sorted(range(len(values)), key=lambda i: domain_key(values[i]))
    return np.argsort(order)[number], [values[i] for i in order]


def clean_rows(predictions: Predictions, shift: str) -> Tensor:
    """(n,) whether a column of corruption types says that a row has none."""
    number, values = predictions.groups(shift)
    return torch.from_numpy(np.isin(number, [i for i, value in enumerate(values) if value in CLEAN]))


def shift_types(predictions: Predictions, shift: str) -> tuple[str, ...]:
    """The types of corruption that a column names, sorted, without the words for none."""
    _, values = predictions.groups(shift)
    return tuple(sorted(str(value) for value in values if value not in CLEAN))


def pooled_log_temperatures(validation: Predictions, number: np.ndarray, n_groups: int) -> np.ndarray:
    """Log T of each group of rows, to which a sample of all rows is added, worth `POOL_WORTH` of them.

    Raises: NotConvergedError where the rows together have no best temperature.
    """
    solve_temperature(Likelihood(validation.logits, validation.labels), BOUNDS)
    pool = validation[np.argsort(validation.row_hashes[0], kind="stable")[:POOL_ROWS]]
    found = []
    for group in range(n_groups):
        rows = torch.from_numpy(number == group)
        n_rows = int(rows.sum())
        weights = torch.cat([torch.ones(n_rows), torch.full((len(pool),), POOL_WORTH / len(pool))]).double()
        logits = torch.cat([validation.logits[rows], pool.logits])
        labels = torch.cat([validation.labels[rows], pool.labels])
        found.append(np.log(solve_temperature(Likelihood(logits, labels, weights), BOUNDS).temperature))
    return np.array(found)
