"""Set temperature: one T for each unlabelled set of rows, predicted from statistics of the set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import check_column_names, check_positive
from calibrant.calibrators.base import Calibrator, check_validation, scale_rows
from calibrant.calibrators.checks import check_feature_count, check_has_features, check_predictions, check_shape
from calibrant.calibrators.domains import clean_rows, fit_ridge, pooled_log_temperatures, shift_types, sorted_groups
from calibrant.calibrators.maps import log_mahalanobis, prior_entropy, row_statistics
from calibrant.calibrators.modules import SetTemperatureModule
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

FeatureGaussian: TypeAlias = tuple[Tensor, ...]  # centre (f,), axes (f, r), variances (r + 1,); empty without features
MIN_SETS = 3
MAX_AXES = 16
MARGIN = 0.25  # a set's log T may exceed the range of those in the fit by this share of it


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SetTemperature(Calibrator):
    """One temperature for each unlabelled set, from its mean entropy, confidence and distance to known features.

    A set is the rows of a call, or, if they have all columns of ``sets``, the rows of each combination of values. The
    regression is fitted to corrupted versions of the validation set, each one a set. Sets should have hundreds of rows:
    statistics of a few are too noisy.
    """

    name: ClassVar[str] = "set_temperature"
    keeps_argmax: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = False
    needs_columns: ClassVar[tuple[str, ...]] = ("severity",)
    fits_shifts: ClassVar[bool] = True

    sets: tuple[str, ...]
    weight: Tensor  # of the statistics of a set, as `set_statistics` has them
    intercept: float
    min_log_t: float
    max_log_t: float
    gaussian: tuple[Tensor, ...]
    same_prior: bool

    def __post_init__(self) -> None:
        check_shape("weight", self.weight, (2 + len(self.gaussian[2:]) + self.same_prior,))
        if self.gaussian:
            centre, axes, variances = self.gaussian
            check_shape("centre", centre, (None,))
            check_shape("axes", axes, (len(centre), None))
            check_shape("variances", variances, (axes.shape[1] + 1,))
            check_positive("variances", float(variances.min()))

    @classmethod
    def fit(
        cls,
        validation: Predictions,
        *,
        sets: Sequence[str] = ("corruption", "severity"),
        reference: Predictions | None = None,
        same_prior: bool = False,
    ) -> Self:
        """Fit a ridge regression of log T on the statistics of sets.

        Args:
            sets: Columns whose values define the sets of validation, the type of corruption first.
            reference: Rows with features to measure distances from, such as those of the training set; by default
                the clean rows of validation, or all rows if none is clean.
            same_prior: Whether the sets to calibrate have about the class proportions of those of validation. The
                entropy of the mean prediction is then a statistic too; it misleads if the proportions differ.
        """
        check_validation(validation)
        columns = check_column_names("sets", sets)
        number, n_sets = set_numbers(validation, columns)
        if n_sets < MIN_SETS:
            got = f"got {n_sets} by {', '.join(columns)}"
            raise InvalidInputError(f"validation must hold at least {MIN_SETS} sets, {got}")
        gaussian = _reference_gaussian(validation, columns[0], reference)
        statistics = set_statistics(validation, number, n_sets, gaussian, same_prior=same_prior)
        log_t = pooled_log_temperatures(validation, number, n_sets)
        first = np.zeros(n_sets, dtype=np.int64)
        first[number] = sorted_groups(validation, columns[0])[0]  # types are left out together
        weight, intercept = fit_ridge(statistics, log_t, first, np.ones(n_sets))
        margin = MARGIN * float(np.ptp(log_t))
        return cls.from_parameters(
            validation,
            shifts=shift_types(validation, columns[0]),
            sets=columns,
            weight=weight,
            intercept=intercept,
            min_log_t=float(log_t.min()) - margin,
            max_log_t=float(log_t.max()) + margin,
            gaussian=gaussian,
            same_prior=same_prior,
        )

    @classmethod
    def fit_for(cls, target: Predictions, validation: Predictions, *, shift: str) -> Self:
        return cls.fit(validation, sets=(shift, *cls.needs_columns))

    @property
    def n_features(self) -> int:
        return len(self.gaussian[0]) if self.gaussian else 0

    def row_module(self) -> nn.Module:
        """A module that takes the rows of a call as one set; call it with many rows, or use `adapt`."""
        return SetTemperatureModule(
            self.weight, (self.intercept, self.min_log_t, self.max_log_t), self.gaussian, self.same_prior
        )

    def temperature_of(self, target: Predictions) -> float:
        """The temperature of these rows, as one set.

        Args:
            target: The rows. Labels are not used.

        Returns:
            The temperature.
        """
        return float(self._temperatures(target, np.zeros(len(target), dtype=np.int64), 1)[0])

    def adapt(self, target: Predictions) -> TemperatureScaling:
        """Temperature scaling for the set that these rows are a sample of.

        Args:
            target: The rows. Labels are not used.

        Returns:
            The calibrator, which treats rows one by one.
        """
        return TemperatureScaling(
            n_classes=self.n_classes,
            class_names=self.class_names,
            fitted=replace(self.fitted, nll_after=None),
            temperature=self.temperature_of(target),
        )

    def _calibrated_logits(self, predictions: Predictions) -> Tensor:
        number, n_sets = np.zeros(len(predictions), dtype=np.int64), 1
        missing = [name for name in self.sets if name not in predictions.columns.column_names]
        if not missing:
            number, n_sets = set_numbers(predictions, self.sets)
        elif len(missing) < len(self.sets):
            names = ", ".join(self.sets)
            raise InvalidInputError(
                f"predictions must have all columns of sets, {names}, or none: {missing[0]!r} is not there"
            )
        if len(predictions) == 0:
            return predictions.logits
        return scale_rows(predictions.logits, self._temperatures(predictions, number, n_sets)[number])

    def _temperatures(self, predictions: Predictions, number: NDArray[np.int64], n_sets: int) -> Tensor:
        if len(predictions) == 0:
            raise InvalidInputError("predictions must have rows: an empty set has no temperature")
        self._inputs(predictions)
        statistics = set_statistics(predictions, number, n_sets, self.gaussian, same_prior=self.same_prior)
        return (self.intercept + statistics @ self.weight).clamp(self.min_log_t, self.max_log_t).exp()


def set_numbers(predictions: Predictions, columns: Sequence[str]) -> tuple[NDArray[np.int64], int]:
    """The index of each row's set, and the number of sets; the columns define them."""
    encoded = np.stack([predictions.groups(name)[0] for name in columns])
    distinct, number = np.unique(encoded, axis=1, return_inverse=True)
    return number.reshape(-1).astype(np.int64), distinct.shape[1]


def set_statistics(
    predictions: Predictions, number: NDArray[np.int64], n_sets: int, gaussian: FeatureGaussian, *, same_prior: bool
) -> Tensor:
    """(n_sets, d) of each set: mean entropy, mean confidence, mean log distance, entropy of the mean prediction."""
    of_row = torch.from_numpy(number)
    k = predictions.n_classes
    sums = torch.zeros(n_sets, 2 + k + len(gaussian[2:]), dtype=torch.float64)
    for rows in blocks(*predictions.logits.shape):
        logits = predictions.logits[rows].double()
        parts = [row_statistics(logits), logits.softmax(1)]
        if gaussian:
            features: Tensor = predictions.features[rows]  # type: ignore[index]
            parts.append(log_mahalanobis(features, *gaussian).unsqueeze(1))
        sums.index_add_(0, of_row[rows], torch.cat(parts, dim=1))
    means = sums / torch.bincount(of_row, minlength=n_sets).unsqueeze(1)
    mix = prior_entropy(means[:, 2 : 2 + k]).unsqueeze(1)
    return torch.cat([means[:, :2], means[:, 2 + k :], *([mix] if same_prior else [])], dim=1)


def _reference_gaussian(validation: Predictions, column: str, reference: Predictions | None) -> FeatureGaussian:
    """Of the features of reference, of the clean rows of validation, or of all rows; empty without features."""
    if reference is not None:
        check_predictions("reference", reference)
        known = check_has_features(SetTemperature.name, reference.features, "reference")
        own = check_has_features(SetTemperature.name, validation.features, "validation")
        check_feature_count(SetTemperature.name, known.shape[1], own.shape[1])
        return fit_gaussian(known)
    if validation.features is None:
        return ()
    clean = clean_rows(validation, column)
    return fit_gaussian(validation.features[clean if clean.any() else ~clean])


def fit_gaussian(features: Tensor) -> FeatureGaussian:
    """Center, principal axes and variances, the last of them the mean of the other directions."""
    x = features.double()
    centre = x.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(x.T, correction=0).reshape(len(centre), len(centre)))
    r = min(MAX_AXES, len(centre) - 1)
    rest = values[: len(values) - r].mean()
    least = 1e-3 * values.mean().clamp(min=1e-12)  # keeps a direction without variance from dominating
    variances = torch.cat([values[len(values) - r :], rest.unsqueeze(0)]).clamp(min=0) + least
    return centre, vectors[:, len(values) - r :].contiguous(), variances
