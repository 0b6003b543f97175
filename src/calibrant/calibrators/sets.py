"""Set temperature: one T for each unlabelled set of rows, predicted from statistics of the set."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import check_column_names, check_instance, check_integer, check_number, check_positive
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation, scale_rows
from calibrant.calibrators.checks import check_feature_count, check_has_features, check_shape
from calibrant.calibrators.domains import clean_rows, fit_ridge, pooled_log_temperatures, shift_types, sorted_groups
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.maps import (
    MIN_SET_ROWS,
    garrote,
    log_mahalanobis,
    prior_entropy,
    prior_residual,
    row_statistics,
    set_variance,
)
from calibrant.calibrators.modules import SetTemperatureModule
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

FeatureGaussian: TypeAlias = tuple[Tensor, ...]  # centre (f,), axes (f, r), variances (r + 1,); empty without features
Prior: TypeAlias = tuple[Tensor, ...]  # weight and constants of `prior_residual`; empty without same_prior
MIN_SETS = 3
MAX_AXES = 16
MARGIN = 0.25  # a set's log T may exceed the range of those in the fit by this share of it


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SetTemperature(Calibrator):
    """One temperature for each unlabelled set, from its mean entropy, confidence and distance to known features.

    A set is the rows of a combination of values of the columns ``sets``; if predictions have none of these columns, it
    is all rows of the call. The metadata of the result say which. The regression is fitted to corrupted versions of the
    validation set, each one a set, and passes through the clean set. A set that differs from it by less than two
    standard errors, or that has fewer than 20 rows, gets the temperature of the clean set. Sets should have hundreds of
    rows.
    """

    name: ClassVar[str] = "set_temperature"
    keeps_argmax: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = False
    fits_shifts: ClassVar[bool] = True

    sets: tuple[str, ...]
    base_temperature: float  # of the clean set; the geometric mean over sets if none is clean
    base_rows: int
    left_out_rmse: float  # of log T, over types of corruption left out of the regression, with its weights
    weight: Tensor  # of the statistics of a set, as `set_statistics` has them
    intercept: float
    row_variance: float  # within sets, of what a row adds to log T
    min_log_t: float
    max_log_t: float
    gaussian: tuple[Tensor, ...]
    prior: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        d = 2 + len(self.gaussian[2:])
        check_shape("weight", self.weight, (d + len(self.prior[1:]),))
        check_positive("base_temperature", self.base_temperature)
        check_integer("base_rows", self.base_rows, 1)
        check_number("row_variance", self.row_variance, minimum=0.0)
        if self.gaussian:
            centre, axes, variances = self.gaussian
            check_shape("centre", centre, (None,))
            check_shape("axes", axes, (len(centre), None))
            check_shape("variances", variances, (axes.shape[1] + 1,))
            check_positive("variances", float(variances.min()))
        if self.prior:
            weight, constants = self.prior
            check_shape("weight of prior", weight, (d,))
            check_shape("constants of prior", constants, (3,))

    @classmethod
    @checked
    @one_thread()
    def fit(
        cls,
        validation: Predictions,
        *,
        sets: Sequence[str] = ("corruption", "severity"),
        reference: Predictions | None = None,
        same_prior: bool = False,
    ) -> Self:
        """Fit a ridge regression of log T on the statistics of sets, through the clean set if there is one.

        Each set has the weight of what an error of its log T costs in NLL, to second order: a set at chance level,
        where all high temperatures are alike, has almost none.

        Args:
            sets: Columns whose values define the sets of validation, the type of corruption first ("none" if clean).
            reference: Rows with features to measure distances from, such as those of the training set; by default
                the clean rows of validation, or all rows if none is clean.
            same_prior: Whether the sets to calibrate have about the class proportions of those of validation. The
                entropy of the mean prediction is then a statistic too. It misleads if the proportions differ: a set of
                fewer classes looks like a corrupted one. What the other statistics do not explain of it is kept within
                its range in the fit.
        """
        check_validation(validation)
        columns = check_column_names("sets", sets)
        clean = clean_rows(validation, columns[0]).numpy()
        has_clean = bool(clean.any())
        number = set_numbers(validation, columns)
        number = np.unique(np.where(clean, -1, number), return_inverse=True)[1]  # all clean rows are one set, the first
        n_sets = int(number.max()) + 1
        if n_sets < MIN_SETS:
            got = f"got {n_sets} by {', '.join(columns)}"
            raise InvalidInputError(f"validation must hold at least {MIN_SETS} sets, {got}")
        gaussian = _reference_gaussian(validation, clean, reference)
        n_rows, means = set_means(validation, number, gaussian)
        statistics, mix = set_statistics(n_rows, means, validation.n_classes)
        groups = _left_out_together(validation, columns[0], number, has_clean)
        prior: Prior = ()
        if same_prior:
            prior = _fit_prior(statistics, mix, groups, has_clean)
            statistics = with_prior(statistics, mix, prior)
        log_t, information = pooled_log_temperatures(validation, number, n_sets)
        if has_clean:
            with suppress(NotConvergedError):  # if all clean rows are correct, for example, the pooled one remains
                own = Likelihood(validation.logits[number == 0], validation.labels[number == 0])
                log_t[0] = math.log(solve_temperature(own).temperature)
        known = ~np.isnan(log_t)
        if known.sum() < MIN_SETS or (has_clean and not known[0]):
            which = "the clean rows" if has_clean and not known[0] else f"{n_sets - known.sum()} of {n_sets} sets"
            raise NotConvergedError(f"no temperature is best for {which}: their labels do not follow their logits")
        log_t = log_t[known]
        weight, intercept, rmse = _fit_sets(
            statistics[torch.from_numpy(known)], log_t, groups[known], information[known], has_clean
        )
        margin = MARGIN * float(np.ptp(log_t))
        return cls.from_parameters(
            validation,
            shifts=shift_types(validation, columns[0]),
            sets=columns,
            base_temperature=math.exp(log_t[0] if has_clean else log_t.mean()),
            base_rows=int(clean.sum()) or len(validation),
            left_out_rmse=rmse,
            weight=weight,
            intercept=intercept,
            row_variance=row_variance(validation, number, means, weight, gaussian, prior),
            min_log_t=float(log_t.min()) - margin,
            max_log_t=float(log_t.max()) + margin,
            gaussian=gaussian,
            prior=prior,
        )

    @property
    def n_features(self) -> int:
        return len(self.gaussian[0]) if self.gaussian else 0

    def row_module(self) -> nn.Module:
        """A module that takes the rows of a call as one set; call it with many rows, or use `adapt`."""
        base = (math.log(self.base_temperature), self.base_rows, self.row_variance)
        constants = (*base, self.intercept, self.min_log_t, self.max_log_t)
        return SetTemperatureModule(self.weight, constants, self.gaussian, self.prior)

    def with_sets(self, sets: Sequence[str]) -> Self:
        """The same calibrator for predictions whose sets other columns define.

        Args:
            sets: Columns of the predictions. They must not depend on the labels.

        Returns:
            The calibrator.
        """
        return replace(self, sets=check_column_names("sets", sets))

    def temperature_of(self, target: Predictions) -> float:
        """The temperature of these rows, as one set.

        Args:
            target: At least 20 rows. Labels are not used.

        Returns:
            The temperature.

        Raises:
            InvalidInputError: There are fewer rows.
        """
        check_instance("target", target, Predictions)
        if len(target) < MIN_SET_ROWS:
            raise InvalidInputError(f"target must have at least {MIN_SET_ROWS} rows, a set, got {len(target)}")
        return float(self._temperatures(target, np.zeros(len(target), dtype=np.int64))[0])

    def adapt(self, target: Predictions) -> TemperatureScaling:
        """Temperature scaling for the set that these rows are a sample of.

        Args:
            target: At least 20 rows. Labels are not used.

        Returns:
            The calibrator, which treats rows one by one.

        Raises:
            InvalidInputError: There are fewer rows.
        """
        return TemperatureScaling(
            n_classes=self.n_classes,
            class_names=self.class_names,
            fitted=replace(self.fitted, nll_after=None),
            temperature=self.temperature_of(target),
        )

    @checked
    def calibrate(self, predictions: Predictions, *, first_row: int = 0) -> Predictions:
        calibrated = super().calibrate(predictions, first_row=first_row)
        columns, number = self._sets_of(predictions)
        n_rows = np.bincount(number)
        record = {"sets": list(columns), "n_sets": len(n_rows), "n_small_sets": int((n_rows < MIN_SET_ROWS).sum())}
        return replace(
            calibrated,
            metadata={**calibrated.metadata, "calibrator": calibrated.metadata["calibrator"] | record},
        )

    def _calibrated_logits(self, predictions: Predictions) -> Tensor:
        if len(predictions) == 0:
            return predictions.logits
        _, number = self._sets_of(predictions)
        return scale_rows(predictions.logits, self._temperatures(predictions, number)[number])

    def _sets_of(self, predictions: Predictions) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """The columns that define the sets, none if all rows are one, and the index of each row's set."""
        missing = [name for name in self.sets if name not in predictions.columns.column_names]
        if len(missing) == len(self.sets):
            return (), np.zeros(len(predictions), dtype=np.int64)
        if missing:
            names = ", ".join(self.sets)
            raise InvalidInputError(
                f"predictions must have all columns of sets, {names}, or none: {missing[0]!r} is not there"
            )
        return self.sets, set_numbers(predictions, self.sets)

    def _temperatures(self, predictions: Predictions, number: NDArray[np.int64]) -> Tensor:
        self._inputs(predictions)
        n_rows, means = set_means(predictions, number, self.gaussian)
        statistics, mix = set_statistics(n_rows, means, self.n_classes)
        if self.prior:
            statistics = with_prior(statistics, mix, self.prior)
        base = math.log(self.base_temperature)
        deviation = (self.intercept + statistics @ self.weight).clamp(self.min_log_t, self.max_log_t) - base
        noise = torch.tensor([self.row_variance, self.base_rows], dtype=torch.float64)
        return (base + garrote(deviation, set_variance(noise[0], n_rows, noise[1]))).exp()


def set_numbers(predictions: Predictions, columns: Sequence[str]) -> NDArray[np.int64]:
    """The index of each row's set; the columns define them."""
    encoded = np.stack([sorted_groups(predictions, name)[0] for name in columns])
    return np.unique(encoded, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def set_means(predictions: Predictions, number: NDArray[np.int64], gaussian: FeatureGaussian) -> tuple[Tensor, Tensor]:
    """The number of rows of each set, and the means of `row_values` (n_sets, d + k)."""
    of_row = torch.from_numpy(number)
    n_rows = torch.bincount(of_row).double()
    sums = torch.zeros(len(n_rows), 2 + len(gaussian[2:]) + predictions.n_classes, dtype=torch.float64)
    for rows in blocks(*predictions.logits.shape):
        sums.index_add_(0, of_row[rows], row_values(predictions, rows, gaussian))
    return n_rows, sums / n_rows.unsqueeze(1)


def row_values(predictions: Predictions, rows: slice, gaussian: FeatureGaussian) -> Tensor:
    """(n, d + k) of each row: entropy, confidence, log distance if there is a Gaussian; then its probabilities."""
    logits = predictions.logits[rows].double()
    parts = [row_statistics(logits)]
    if gaussian:
        features: Tensor = predictions.features[rows]  # type: ignore[index]
        parts.append(log_mahalanobis(features, *gaussian).unsqueeze(1))
    return torch.cat([*parts, logits.softmax(1)], dim=1)


def set_statistics(n_rows: Tensor, means: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """(n_sets, d) mean entropy, mean confidence and mean log distance; (n_sets,) entropy of the mean prediction."""
    d = means.shape[1] - n_classes
    return means[:, :d], prior_entropy(means[:, d:], n_rows)


def with_prior(statistics: Tensor, mix: Tensor, prior: Prior) -> Tensor:
    """The statistics (n_sets, d), and the entropy of the mean prediction as far as they do not explain it."""
    return torch.cat([statistics, prior_residual(mix, statistics, *prior).unsqueeze(1)], dim=1)


def row_variance(
    predictions: Predictions,
    number: NDArray[np.int64],
    means: Tensor,
    weight: Tensor,
    gaussian: FeatureGaussian,
    prior: Prior,
) -> float:
    """The variance within sets of what a row adds to log T; log T of a set of n rows has about 1/n of it."""
    of_row, k = torch.from_numpy(number), predictions.n_classes
    d = means.shape[1] - k
    log_mix = means[:, d:].log().clamp(min=-1e4) / math.log(k)
    total = 0.0
    for rows in blocks(*predictions.logits.shape):
        values = row_values(predictions, rows, gaussian) - means[of_row[rows]]
        added = values[:, :d] @ weight[:d]
        if prior:  # a row of probabilities p adds −Σ p log q to the entropy of the mean prediction q
            entropy = -(values[:, d:] * log_mix[of_row[rows]]).sum(1)
            added = added + weight[d] * (entropy - values[:, :d] @ prior[0])
        total += float(added.square().sum())
    return total / max(1, len(predictions) - len(means))


def _left_out_together(
    validation: Predictions, column: str, number: NDArray[np.int64], has_clean: bool
) -> NDArray[np.int64]:
    """(n_sets,) the group of each set in the cross-validation: its type; the set itself if all are of one type."""
    types = np.zeros(int(number.max()) + 1, dtype=np.int64)
    types[number] = sorted_groups(validation, column)[0]
    return types if len(np.unique(types[has_clean:])) > 1 else np.arange(len(types))


def _fit_sets(
    statistics: Tensor,
    targets: NDArray[np.float64],
    groups: NDArray[np.int64],
    weights: NDArray[np.float64],
    has_clean: bool,
) -> tuple[Tensor, float, float]:
    """`fit_ridge` of the sets; through the first one if that is the clean one."""
    through = (statistics[0], float(targets[0])) if has_clean else None
    rest = slice(int(has_clean), None)
    return fit_ridge(statistics[rest], targets[rest], groups[rest], weights[rest], through=through)


def _fit_prior(statistics: Tensor, mix: Tensor, groups: NDArray[np.int64], has_clean: bool) -> Prior:
    """The regression of the entropy of the mean prediction on the other statistics, and the range of its residuals."""
    weight, intercept, _ = _fit_sets(statistics, mix.numpy(), groups, np.ones(len(groups)), has_clean)
    residual = mix - intercept - statistics @ weight
    return weight, torch.tensor([intercept, float(residual.min()), float(residual.max())], dtype=torch.float64)


def _reference_gaussian(
    validation: Predictions, clean: NDArray[np.bool_], reference: Predictions | None
) -> FeatureGaussian:
    """Of the features of reference, of the clean rows of validation, or of all rows; empty without features."""
    if reference is not None:
        check_instance("reference", reference, Predictions)
        known = check_has_features(SetTemperature.name, reference.features, "reference")
        own = check_has_features(SetTemperature.name, validation.features, "validation")
        check_feature_count(SetTemperature.name, known.shape[1], own.shape[1])
        return fit_gaussian(known)
    if validation.features is None:
        return ()
    return fit_gaussian(validation.features[torch.from_numpy(clean if clean.any() else ~clean)])


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
