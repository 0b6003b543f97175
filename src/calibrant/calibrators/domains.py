"""One temperature for a perturbed validation set, one for each domain, and the ridge regression behind it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._checks import check_positive
from calibrant.calibrators.base import Calibrator, check_validation, scale_rows
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.modules import FeatureTemperatureModule
from calibrant.calibrators.temperature import OneTemperature
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

CLEAN = (None, "", "none", "clean", "identity")  # names of no corruption in a column of corruption types
POOL_ROWS, POOL_WEIGHT = 1024, 10.0  # a subset of all rows is added to each domain, of this total weight
RIDGE_PENALTIES = tuple(10.0**power for power in range(-6, 3))  # relative to the mean variance of the inputs
RIDGE_FOLDS = 5


@final
class PerturbedTemperature(OneTemperature):
    """One temperature, fitted to a validation set with perturbed copies of its rows (Tomani et al. 2021).

    The perturbed rows come from `perturb_gaussian`, or are predictions of images under any mixture of corruptions.
    """

    name: ClassVar[str] = "perturbed_temperature"
    fits_shifts: ClassVar[bool] = True

    @classmethod
    @prepare_rows
    def fit(cls, validation: Predictions, *, shift: str = "corruption", clip: float | None = None) -> Self:
        """Fit one temperature to all rows, and record their types of corruption.

        Args:
            shift: The column of corruption types, "none" for clean rows.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        check_validation(validation)
        types = shift_types(validation, shift)
        if not types:
            raise InvalidInputError(f"validation must have corrupted rows, its column {shift!r} names none")
        solution = solve_temperature(Likelihood(validation.logits, validation.labels))
        return cls.from_parameters(validation, shifts=types, temperature=solution.temperature)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DomainTemperature(Calibrator):
    """One temperature for each domain, and for others a regression on features (Yu et al. 2022).

    Logits of a known domain are divided by its temperature. Others, and all logits of `module`, are divided by the
    temperature of a ridge regression of log T on the features, within the range of the known ones.
    """

    name: ClassVar[str] = "domain_temperature"
    keeps_argmax: ClassVar[bool] = True
    needs_columns: ClassVar[tuple[str, ...]] = ("domain",)
    shows_progress: ClassVar[bool] = True

    domain: str
    temperatures: dict[str, float]
    weight: Tensor | None  # (f,) of the regression; None without features
    intercept: float
    left_out_rmse: float | None  # of log T, over domains left out of the regression

    def __post_init__(self) -> None:
        for name, temperature in self.temperatures.items():
            check_positive(f"temperature of {name}", temperature)

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(
        cls,
        validation: Predictions,
        *,
        domain: str = "domain",
        clip: float | None = None,
        progress: Callable[[str], None] = lambda step: None,
    ) -> Self:
        """Fit a temperature to each domain, with a subset of all rows that together counts as ten rows.

        Args:
            domain: The column of domains.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
            progress: Called with each step of the work.
        """
        check_validation(validation)
        number, values = sorted_groups(validation, domain)
        names = [f"{domain} {value!r}" for value in values]
        scales = pooled_log_temperatures(validation, number, names, progress)
        weight, intercept, rmse = None, float(np.mean(scales)), None
        if validation.features is not None and len(values) > 1:
            weights = (1 / np.bincount(number))[number]
            weight, intercept, rmse = fit_ridge(validation.features, scales[number], number, weights, progress)
        temperatures = dict(zip(map(domain_key, values), np.exp(scales).tolist(), strict=True))
        if len(temperatures) < len(values):
            raise InvalidInputError(f"domain must have values that differ as text, {domain!r} does not")
        return cls.from_parameters(
            validation,
            domain=domain,
            temperatures=temperatures,
            weight=weight,
            intercept=intercept,
            left_out_rmse=rmse,
        )

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"temperatures": self.temperatures}

    @property
    def n_features(self) -> int:
        return 0 if self.weight is None else len(self.weight)

    def row_module(self) -> nn.Module:
        if self.weight is None:
            raise InvalidInputError(
                f"{self.name} was fitted without features, or to one domain: it has no temperature for other domains"
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
    """A domain as text: 1 and 1.0 are equal, null differs from every text."""
    if value is None:
        return "\0null"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def sorted_groups(predictions: Predictions, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """`Predictions.groups` with the values sorted as text, whatever the order of the rows."""
    number, values = predictions.groups(name)
    order = sorted(range(len(values)), key=lambda i: domain_key(values[i]))
    return np.argsort(order)[number], [values[i] for i in order]


def clean_rows(predictions: Predictions, shift: str) -> Tensor:
    """(n,) whether a row is not corrupted."""
    number, values = predictions.groups(shift)
    return torch.from_numpy(np.isin(number, [i for i, value in enumerate(values) if value in CLEAN]))


def shift_types(predictions: Predictions, shift: str) -> tuple[str, ...]:
    """The types of corruption in a column, sorted, without `CLEAN`."""
    _, values = predictions.groups(shift)
    return tuple(sorted(str(value) for value in values if value not in CLEAN))


def pooled_log_temperatures(
    validation: Predictions, number: NDArray[np.int64], names: list[str], progress: Callable[[str], None]
) -> NDArray[np.float64]:
    """Log T of each group of rows, with a subset of all rows of weight `POOL_WEIGHT` added to it."""
    solve_temperature(Likelihood(validation.logits, validation.labels))  # raises an error if there is none for all rows
    pool = validation[np.argsort(validation.row_hashes[0], kind="stable")[:POOL_ROWS]]
    ends = np.cumsum(np.bincount(number))[:-1]
    found: list[float] = []
    for name, rows in zip(names, np.split(np.argsort(number, kind="stable"), ends), strict=True):
        progress(f"{name}, {len(found) + 1:,} of {len(names):,}")
        weights = torch.cat([torch.ones(len(rows)), torch.full((len(pool),), POOL_WEIGHT / len(pool))]).double()
        logits = torch.cat([validation.logits[rows], pool.logits])
        labels = torch.cat([validation.labels[rows], pool.labels])
        try:
            found.append(math.log(solve_temperature(Likelihood(logits, labels, weights)).temperature))
        except NotConvergedError:
            raise NotConvergedError(f"no temperature is best for {name}: its labels do not follow its logits") from None
    return np.array(found)


def fit_ridge(
    inputs: Tensor,
    targets: NDArray[np.float64],
    groups: NDArray[np.int64],
    weights: NDArray[np.float64],
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Tensor, float, float]:
    """Weight (f,) and intercept of a ridge regression, and its root mean squared error over groups left out.

    The penalty is the one of the least such error.
    """
    x, y, w = inputs.double(), torch.from_numpy(targets), torch.from_numpy(weights / weights.sum())
    origin, level = w @ x, float(w @ y)
    spread = (w @ (x - origin).square()).sqrt()
    spread = torch.where(spread > 1e-12 * (1 + origin.abs()), spread, torch.inf)  # constant inputs get weight 0
    standard = (x - origin) / spread
    _, numbers = np.unique(groups, return_inverse=True)
    folds = torch.from_numpy(numbers % RIDGE_FOLDS)
    penalty, error = _best_penalty(standard, y - level, w, folds, progress)
    [(weight, _)] = _ridge_solutions(standard, y - level, w, (penalty,))
    return weight / spread, level - float((weight / spread) @ origin), error**0.5


def _best_penalty(
    x: Tensor, y: Tensor, w: Tensor, folds: Tensor, progress: Callable[[str], None]
) -> tuple[float, float]:
    """The penalty of the least mean squared error over folds left out, and that error."""
    errors = torch.zeros(len(RIDGE_PENALTIES), dtype=torch.float64)
    for fold in range(int(folds.max()) + 1):
        progress(f"regression on features, fold {fold + 1} of {int(folds.max()) + 1}")
        out = folds == fold
        for i, (weight, intercept) in enumerate(_ridge_solutions(x[~out], y[~out], w[~out], RIDGE_PENALTIES)):
            errors[i] += w[out] @ (x[out] @ weight + intercept - y[out]).square()
    return RIDGE_PENALTIES[int(errors.argmin())], float(errors.min())


def _ridge_solutions(x: Tensor, y: Tensor, w: Tensor, penalties: tuple[float, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weight and intercept for each penalty.

    With rows a and targets b, centred and times the root of their weight, the weight is (aᵀa + c)⁻¹ aᵀb, which is
    aᵀ(aaᵀ + c)⁻¹ b: a system of as many equations as there are inputs, or as there are rows, if these are fewer.
    """
    root = (w / w.sum()).sqrt()
    centre, middle = root.square() @ x, root.square() @ y
    a, b = root.unsqueeze(1) * (x - centre), (root * (y - middle)).unsqueeze(1)
    wide = a.shape[0] < a.shape[1]
    products, target = (a @ a.T, b) if wide else (a.T @ a, a.T @ b)
    mean_variance, identity = float(products.trace()) / a.shape[1], torch.eye(len(products), dtype=torch.float64)
    found = []
    for penalty in penalties:
        factor = torch.linalg.cholesky(products + penalty * max(1e-12, mean_variance) * identity)
        solution = torch.cholesky_solve(target, factor)
        weight = (a.T @ solution if wide else solution).squeeze(1)
        found.append((weight, middle - weight @ centre))
    return found
