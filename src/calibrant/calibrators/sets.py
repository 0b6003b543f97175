"""Set temperature: one T for each unlabelled set of rows, predicted from statistics of the set."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import (
    check_all_classes,
    check_column_names,
    check_instance,
    check_integer,
    check_level,
    check_positive,
)
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation, scale_rows
from calibrant.calibrators.checks import check_feature_count, check_has_features, check_shape
from calibrant.calibrators.domains import clean_rows, shift_types, sorted_groups
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.maps import (
    MIN_SET_ROWS,
    cubic_of_set,
    log_mahalanobis,
    prior_entropy,
    row_statistics,
)
from calibrant.calibrators.modules import SetTemperatureModule
from calibrant.calibrators.set_regression import (
    GRID,
    LEVELS,
    MIX_SHARE,
    N_MIXES,
    POOL_WEIGHT,
    class_mixes,
    cubic_factors,
    fit_cubic,
    grid_minima,
    nll_on_grid,
)
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

# Of all rows and then of classes: means (c, f), axes (f, r) and variances (r + 1,); empty without features.
FeatureGaussians: TypeAlias = tuple[Tensor, ...]
MIN_SETS = 3
MAX_AXES, MAX_CLASS_AXES = 16, 256
ROWS_PER_AXIS = 20  # of a class Gaussian, whose axes are of small variances too
FOLDS = 5
CLASS_DISTANCE = 3  # among the statistics
MARGIN = 0.25  # a set's log T, and its statistics, may exceed the range of those in the fit by this share of it


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SetTemperature(Calibrator):
    """One temperature for each unlabelled set, from statistics of its predictions and features.

    A set is the rows of a combination of values of the columns ``sets``; if predictions have none of these columns, it
    is all rows of the call. The metadata of the result say which. The statistics are the mean entropy and confidence,
    the mean distances of features from all known ones and from the nearest class, and the entropy of the mean
    prediction. The regression is fitted to corrupted versions of the validation set, each one a set, under its own and
    random class mixes, and passes through the clean set. A set that does not clearly differ from the clean one, or that
    has fewer than 20 rows, gets its temperature. Sets should have hundreds of rows.
    """

    name: ClassVar[str] = "set_temperature"
    keeps_argmax: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = False
    fits_shifts: ClassVar[bool] = True

    sets: tuple[str, ...]
    base_temperature: float  # of the clean set; of all rows if none is clean
    base_rows: int
    left_out_rmse: float  # of log T, over types of corruption left out of the regression, with its weights
    min_log_t: float
    max_log_t: float
    n_types: int
    scale: Tensor  # of the statistics, as `set_statistics` has them; see `SetRegression` for these four
    weight: Tensor
    inverse: Tensor
    errors: Tensor
    precision: Tensor  # see `maps.shrink_to_origin`
    gaussians: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        d = 3 + len(each_gaussian(self.gaussians))
        p = len(cubic_factors(d))
        for name, shape in {"scale": (4, d), "precision": (d, d), "weight": (p,), "inverse": (p, p)}.items():
            check_shape(name, getattr(self, name), shape)
        check_shape("errors", self.errors, (len(LEVELS),))
        check_positive("spread", float(self.scale[1].min()))
        check_positive("base_temperature", self.base_temperature)
        check_integer("base_rows", self.base_rows, 1)
        check_integer("n_types", self.n_types, 1)
        if len(self.gaussians) not in (0, 6):
            raise InvalidInputError(f"gaussians must be none or two, got {len(self.gaussians)} arrays")
        for means, axes, variances in each_gaussian(self.gaussians):
            check_shape("means", means, (None, self.n_features))
            check_shape("axes", axes, (self.n_features, None))
            check_shape("variances", variances, (axes.shape[1] + 1,))
            check_positive("variances", float(variances.min()))

    @classmethod
    @checked
    @prepare_rows
    @one_thread()
    def fit(
        cls,
        validation: Predictions,
        *,
        sets: Sequence[str] = ("corruption", "severity"),
        reference: Predictions | None = None,
        clip: float | None = None,
    ) -> Self:
        """Fit a polynomial of log T in the statistics of sets, through the clean set if there is one.

        Each set enters with its own class mix and with 30 random ones, which together have a tenth of the weight: an
        unusual mix of predictions counts as a sign of corruption as far as no other class mix explains it. The weight
        of a set is what an error of its log T costs in NLL, to second order: a set at chance level, where all high
        temperatures are alike, has almost none.

        Args:
            sets: Columns whose values define the sets of validation, the type of corruption first ("none" if clean).
            reference: Rows with features to measure distances from, such as those of the training set; by default
                the clean rows of validation, or all rows if none is clean.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
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
        gaussians = _reference_gaussians(validation, clean, reference)
        base = validation[torch.from_numpy(clean)] if has_clean else validation
        everything = math.log(solve_temperature(Likelihood(validation.logits, validation.labels)).temperature)
        statistics, log_t, information = _sets_of_fit(validation, number, gaussians, everything + GRID)
        level = everything
        if has_clean:
            level = float(log_t[0])
            with suppress(NotConvergedError):  # if all clean rows are correct: that with other rows remains
                level = math.log(solve_temperature(Likelihood(base.logits, base.labels)).temperature)
        own = bool(gaussians) and reference is None and len(base) >= MIN_SET_ROWS
        held_out = _held_out_distances(base) if own else None
        origin, row_covariance = _row_noise(base, gaussians, held_out)
        groups = np.repeat(_left_out_together(validation, columns[0], number, has_clean), N_MIXES + 1)
        own = np.arange(len(groups)) % (N_MIXES + 1) == 0
        weights = information * torch.from_numpy(np.where(own, 1 - MIX_SHARE, MIX_SHARE / N_MIXES))
        known = ~log_t.isnan()
        n_known = int(known.numpy()[own].sum())
        if n_known < MIN_SETS or math.isnan(level):
            which = "the clean rows" if math.isnan(level) else f"{n_sets - n_known} of {n_sets} sets"
            raise NotConvergedError(f"no temperature is best for {which}: their labels do not follow their logits")
        kept = known & (weights > 0)
        found = fit_cubic(statistics[kept], log_t[kept], weights[kept], groups[kept.numpy()], origin, level)
        margin = MARGIN * float(log_t[kept].max() - log_t[kept].min())
        return cls.from_parameters(
            validation,
            shifts=shift_types(validation, columns[0]),
            sets=columns,
            base_temperature=math.exp(level),
            base_rows=len(base),
            left_out_rmse=found.rmse,
            min_log_t=min(level, float(log_t[kept].min())) - margin,
            max_log_t=max(level, float(log_t[kept].max())) + margin,
            n_types=len(np.unique(groups)),
            scale=found.scale,
            weight=found.weight,
            inverse=found.inverse,
            errors=found.errors,
            precision=torch.linalg.inv(row_covariance).contiguous(),
            gaussians=gaussians,
        )

    @property
    def n_features(self) -> int:
        return self.gaussians[0].shape[1] if self.gaussians else 0

    def row_module(self) -> nn.Module:
        """A module that takes the rows of a call as one set; call it with many rows, or use `adapt`."""
        return SetTemperatureModule(
            self.gaussians,
            cubic_factors(self.scale.shape[1]),
            weight=self.weight,
            limits=(math.log(self.base_temperature), self.min_log_t, self.max_log_t),
            scale=self.scale,
            precision=self.precision,
            noise=self._noise,
        )

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
        check_all_classes("target", target, "adapt a temperature")
        if len(target) < MIN_SET_ROWS:
            raise InvalidInputError(f"target must have at least {MIN_SET_ROWS} rows, a set, got {len(target)}")
        return float(self._temperatures(target, np.zeros(len(target), dtype=np.int64))[0])

    @checked
    def is_unlike(self, target: Predictions) -> bool:
        """Whether a statistic of these rows, as one set, is far outside the range of the sets of the fit.

        Args:
            target: Rows. Labels are not used.

        Returns:
            True if their temperature is not to be trusted.
        """
        return len(target) > 0 and bool(self._unlike(target, np.zeros(len(target), dtype=np.int64))[0])

    @checked
    def temperature_interval(self, target: Predictions, *, level: float = 0.9) -> tuple[float, float]:
        """An interval of the temperature of these rows, as one set: of the error on types of corruption left out.

        Args:
            target: At least 20 rows. Labels are not used.
            level: The share of sets, of types left out of the fit, whose best temperature is within it.

        Returns:
            Its ends; wider the less the set resembles those of the fit.

        Raises:
            InvalidInputError: There are fewer rows.
        """
        return self.temperature_intervals(target, (level,))[0]

    @checked
    def temperature_intervals(self, target: Predictions, levels: Sequence[float]) -> list[tuple[float, float]]:
        """`temperature_interval` at several levels, from one pass over the rows.

        Args:
            target: At least 20 rows. Labels are not used.
            levels: The shares of sets whose best temperature is within.

        Returns:
            The ends of each.

        Raises:
            InvalidInputError: There are fewer rows.
        """
        temperature = self.temperature_of(target)
        cubic, _ = self._cubic(target, np.zeros(len(target), dtype=np.int64))
        leverage = float(((cubic @ self.inverse) * cubic).sum())
        found = []
        for level in levels:
            error = float(np.interp(check_level(level), LEVELS, self.errors))
            upper = 0.5 + level / 2
            of_few = float(stdtrit(max(1, self.n_types - 1), upper) / ndtri(upper))  # few types show few of the errors
            factor = math.exp(of_few * error * math.sqrt(1 + leverage / self.n_types))
            found.append((temperature / factor, temperature * factor))
        return found

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
            clip=self.clip,
            fitted=replace(self.fitted, nll_after=None),
            temperature=self.temperature_of(target),
        )

    @checked
    def calibrate(self, predictions: Predictions, *, first_row: int = 0) -> Predictions:
        calibrated = super().calibrate(predictions, first_row=first_row)
        columns, number = self._sets_of(predictions)
        n_rows = np.bincount(number)
        record = {
            "sets": list(columns),
            "n_sets": len(n_rows),
            "n_small_sets": int((n_rows < MIN_SET_ROWS).sum()),
            "n_unlike_sets": int(self._unlike(predictions, number).sum()) if len(predictions) else 0,
        }
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

    def _unlike(self, predictions: Predictions, number: NDArray[np.int64]) -> Tensor:
        """(n_sets,) whether a statistic of a set of enough rows is far outside the range of those of the fit."""
        _, statistics = self._cubic(predictions, number)
        origin, spread, least, most = self.scale
        margin = MARGIN * (most - least)
        standard = (statistics - origin) / spread
        outside = (standard < least - margin) | (standard > most + margin)
        found: Tensor = outside.any(1) & torch.from_numpy(np.bincount(number) >= MIN_SET_ROWS)
        return found

    @property
    def _noise(self) -> tuple[float, ...]:
        """What `maps.shrink_to_origin` takes; a chi-squared entropy has the variance 2 (K − 1)/(2 n log K)²."""
        second_order = (self.n_classes - 1) / (2 * math.log(self.n_classes) ** 2)
        return self.base_rows, second_order, self.scale.shape[1]

    def _cubic(self, predictions: Predictions, number: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The inputs of the regression for each set, and the statistics of the sets."""
        predictions = self._clipped(predictions)
        self._inputs(predictions)
        means, n_rows = set_means(predictions, number, self.gaussians)
        statistics = set_statistics(means, n_rows, self.n_classes)
        noise = torch.tensor(self._noise, dtype=torch.float64)
        factors = cubic_factors(statistics.shape[1])
        return cubic_of_set(statistics, n_rows, self.scale, self.precision, noise, factors), statistics

    def _temperatures(self, predictions: Predictions, number: NDArray[np.int64]) -> Tensor:
        cubic, _ = self._cubic(predictions, number)
        return (math.log(self.base_temperature) + cubic @ self.weight).clamp(self.min_log_t, self.max_log_t).exp()


def set_numbers(predictions: Predictions, columns: Sequence[str]) -> NDArray[np.int64]:
    """The index of each row's set; the columns define them."""
    found = np.zeros(len(predictions), dtype=np.int64)
    for name in columns:
        number, values = sorted_groups(predictions, name)
        found = np.unique(found * max(1, len(values)) + number, return_inverse=True)[1]
    return found.astype(np.int64)


def each_gaussian(gaussians: FeatureGaussians) -> list[tuple[Tensor, ...]]:
    """Means, axes and variances of each of the Gaussians."""
    return [gaussians[i : i + 3] for i in range(0, len(gaussians), 3)]


def set_means(
    predictions: Predictions, number: NDArray[np.int64], gaussians: FeatureGaussians
) -> tuple[Tensor, Tensor]:
    """The means of `row_values` of each set (n_sets, d − 1 + k), and its number of rows (n_sets,)."""
    of_row = torch.from_numpy(number)
    n_rows = torch.bincount(of_row).double()
    width = 2 + len(each_gaussian(gaussians)) + predictions.n_classes
    sums = torch.zeros(len(n_rows), width, dtype=torch.float64)
    for rows in blocks(*predictions.logits.shape):
        sums.index_add_(0, of_row[rows], row_values(predictions, rows, gaussians))
    return sums / n_rows.unsqueeze(1), n_rows


def row_values(predictions: Predictions, rows: slice, gaussians: FeatureGaussians) -> Tensor:
    """(n, d − 1 + k) of each row: entropy, confidence, log distances if there are Gaussians; then its probabilities."""
    logits = predictions.logits[rows].double()
    parts = [row_statistics(logits)]
    for gaussian in each_gaussian(gaussians):
        features: Tensor = predictions.features[rows]  # type: ignore[index]
        parts.append(log_mahalanobis(features, *gaussian).unsqueeze(1))
    return torch.cat([*parts, logits.softmax(1)], dim=1)


def set_statistics(means: Tensor, n_rows: Tensor, n_classes: int) -> Tensor:
    """(m, d) means of entropy, confidence and log distances, and entropy of the mean prediction, from `set_means`."""
    d = means.shape[1] - n_classes
    return torch.cat([means[:, :d], prior_entropy(means[:, d:], n_rows).unsqueeze(1)], dim=1)


def _sets_of_fit(
    validation: Predictions, number: NDArray[np.int64], gaussians: FeatureGaussians, grid: NDArray[np.float64]
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each set, by its own class mix and then others: statistics, best log T (NaN if none), its information."""
    generator = np.random.default_rng(0)
    pool = nll_on_grid(validation, torch.full((1, len(validation)), 1 / len(validation), dtype=torch.float64), grid)
    statistics, log_t, information = [], [], []
    for one in range(int(number.max()) + 1):
        rows = validation[torch.from_numpy(number == one)]
        mixes = class_mixes(rows.labels, generator)
        means = sum(mixes[:, part] @ row_values(rows, part, gaussians) for part in blocks(*rows.logits.shape))
        assert isinstance(means, Tensor)
        n_rows = 1 / mixes.square().sum(1)
        nll = nll_on_grid(rows, mixes, grid) * n_rows.unsqueeze(1) + POOL_WEIGHT * pool
        minima, curvature = grid_minima(nll / (n_rows.unsqueeze(1) + POOL_WEIGHT), grid)
        statistics.append(set_statistics(means, n_rows, validation.n_classes))
        log_t.append(minima)
        information.append(curvature)
    return torch.cat(statistics), torch.cat(log_t), torch.cat(information)


def _row_noise(base: Predictions, gaussians: FeatureGaussians, held_out: Tensor | None) -> tuple[Tensor, Tensor]:
    """The statistics of a set, and the covariance of what its rows add to them.

    A row of probabilities p adds −Σ p log q to the entropy of the mean prediction q. Its distance from the nearest
    class is that of a new row, ``held_out`` (n,), if the Gaussians were fitted to these rows.
    """
    k = base.n_classes
    means, n_rows = set_means(base, np.zeros(len(base), dtype=np.int64), gaussians)
    statistics = set_statistics(means, n_rows, k)
    if held_out is not None:
        statistics[0, CLASS_DISTANCE] = held_out.mean()
    d = statistics.shape[1] - 1
    sums, squares = torch.zeros(d + 1, dtype=torch.float64), torch.zeros(d + 1, d + 1, dtype=torch.float64)
    surprise = -means[0, d:].log().clamp(min=-1e4) / math.log(k)
    for rows in blocks(*base.logits.shape):
        values = row_values(base, rows, gaussians)
        if held_out is not None:
            values[:, CLASS_DISTANCE] = held_out[rows]
        added = torch.cat([values[:, :d], (values[:, d:] @ surprise).unsqueeze(1)], dim=1) - statistics
        sums += added.sum(0)
        squares += added.T @ added
    mean = sums / len(base)
    covariance = squares / len(base) - mean.outer(mean)
    least = 1e-6 * covariance.diagonal().mean().clamp(min=1e-9)  # keeps statistics that are all alike from dominating
    return statistics[0], covariance + least * torch.eye(d + 1, dtype=torch.float64)


def _left_out_together(
    validation: Predictions, column: str, number: NDArray[np.int64], has_clean: bool
) -> NDArray[np.int64]:
    """(n_sets,) the group of each set in the cross-validation: its type; the set itself if all are of one type."""
    types = np.zeros(int(number.max()) + 1, dtype=np.int64)
    types[number] = sorted_groups(validation, column)[0]
    return types if len(np.unique(types[has_clean:])) > 1 else np.arange(len(types))


def _reference_gaussians(
    validation: Predictions, clean: NDArray[np.bool_], reference: Predictions | None
) -> FeatureGaussians:
    """Of the features of reference, of the clean rows of validation, or of all rows; empty without features."""
    if reference is not None:
        check_instance("reference", reference, Predictions)
        check_all_classes("reference", reference, "measure distances by class")
        known = check_has_features(SetTemperature.name, reference.features, "reference")
        own = check_has_features(SetTemperature.name, validation.features, "validation")
        check_feature_count(SetTemperature.name, known.shape[1], own.shape[1])
        return fit_gaussians(reference)
    if validation.features is None:
        return ()
    return fit_gaussians(validation[torch.from_numpy(clean if clean.any() else ~clean)])


def fit_gaussians(rows: Predictions) -> FeatureGaussians:
    """Of all rows, and with the mean of each predicted class."""
    features = rows.features
    assert features is not None
    one_class = torch.zeros(len(features), dtype=torch.int64)
    n_axes = min(MAX_CLASS_AXES, len(features) // ROWS_PER_AXIS)
    return *fit_gaussian(features, one_class, MAX_AXES), *fit_gaussian(features, rows.logits.argmax(1), n_axes)


def fit_gaussian(features: Tensor, classes: Tensor, n_axes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of each class; principal axes and variances within classes, the last of them the mean of the others."""
    x = features.double()
    known, of_row = classes.unique(return_inverse=True)
    counts = torch.bincount(of_row).unsqueeze(1)
    means = torch.zeros(len(known), x.shape[1], dtype=torch.float64).index_add_(0, of_row, x) / counts
    residuals = x - means[of_row]
    values, vectors = torch.linalg.eigh(residuals.T @ residuals / len(x))
    r = min(n_axes, x.shape[1] - 1)
    rest = values[: len(values) - r].mean()
    least = 1e-3 * values.mean().clamp(min=1e-12)  # keeps a direction without variance from dominating
    variances = torch.cat([values[len(values) - r :], rest.unsqueeze(0)]).clamp(min=0) + least
    return means, vectors[:, len(values) - r :].contiguous(), variances


def _held_out_distances(rows: Predictions) -> Tensor:
    """(n,) log distance from the nearest class, by a fit to the other folds; those of a fit to all are too short."""
    found = torch.empty(len(rows), dtype=torch.float64)
    order = torch.from_numpy(np.argsort(rows.row_hashes[0], kind="stable"))
    for own in order.tensor_split(FOLDS):
        others = torch.ones(len(rows), dtype=torch.bool)
        others[own] = False
        _, of_classes = each_gaussian(fit_gaussians(rows[others]))
        found[own] = log_mahalanobis(rows[own].features, *of_classes)  # type: ignore[arg-type]
    return found
