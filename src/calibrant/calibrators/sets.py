"""Set temperature: one T for each unlabelled set of rows, predicted from statistics of the set."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit
from torch import Tensor, nn

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
from calibrant.calibrators.checks import check_shape
from calibrant.calibrators.domains import shift_types
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.labelled_sets import MIX_SHARE, N_MIXES, LabelledSets
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.maps import MIN_SET_ROWS, cubic_of_set
from calibrant.calibrators.modules import SetTemperatureModule
from calibrant.calibrators.set_regression import LEVELS, cubic_factors, fit_cubic
from calibrant.calibrators.set_statistics import each_gaussian, set_means, set_numbers, set_statistics
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

MIN_SETS = 3
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
        if reference is not None:
            check_instance("reference", reference, Predictions)
            check_all_classes("reference", reference, "measure distances by class")
        return fit_to_sets(LabelledSets.of(validation, columns, reference))

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
        return float(self._temperatures(self._cubic_of_one(target)))

    @checked
    def is_unlike(self, target: Predictions) -> bool:
        """Whether a statistic of these rows, as one set, is far outside the range of the sets of the fit.

        Args:
            target: Rows. Labels are not used.

        Returns:
            True if their temperature is not to be trusted.
        """
        return len(target) > 0 and bool(self._cubic(self._clipped(target), np.zeros(len(target), dtype=np.int64))[1])

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
        cubic = self._cubic_of_one(target)
        temperature = float(self._temperatures(cubic))
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

    def _calibrated(self, predictions: Predictions) -> tuple[Tensor, dict[str, Any]]:
        columns, number = self._sets_of(predictions)
        n_rows = np.bincount(number)
        details = {
            "sets": list(columns),
            "n_sets": len(n_rows),
            "n_small_sets": int((n_rows < MIN_SET_ROWS).sum()),
            "n_unlike_sets": 0,
        }
        if len(predictions) == 0:
            return predictions.logits, details
        cubic, unlike = self._cubic(predictions, number)
        logits = scale_rows(predictions.logits, self._temperatures(cubic)[number])
        return logits, details | {"n_unlike_sets": int(unlike.sum())}

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

    @property
    def _noise(self) -> tuple[float, ...]:
        """What `maps.shrink_to_origin` takes; a chi-squared entropy has the variance 2 (K − 1)/(2 n log K)²."""
        second_order = (self.n_classes - 1) / (2 * math.log(self.n_classes) ** 2)
        return self.base_rows, second_order, self.scale.shape[1]

    def _cubic(self, predictions: Predictions, number: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The inputs of the regression for each set, and whether a set of enough rows is unlike those of the fit."""
        self._inputs(predictions)
        means, n_rows = set_means(predictions, number, self.gaussians)
        statistics = set_statistics(means, n_rows, self.n_classes)
        origin, spread, least, most = self.scale
        standard, margin = (statistics - origin) / spread, MARGIN * (most - least)
        unlike = ((standard < least - margin) | (standard > most + margin)).any(1) & (n_rows >= MIN_SET_ROWS)
        noise = torch.tensor(self._noise, dtype=torch.float64)
        factors = cubic_factors(statistics.shape[1])
        return cubic_of_set(statistics, n_rows, self.scale, self.precision, noise, factors), unlike

    def _cubic_of_one(self, target: Predictions) -> Tensor:
        """The inputs of the regression (1, p) for these rows as one set."""
        check_instance("target", target, Predictions)
        check_all_classes("target", target, "adapt a temperature")
        if len(target) < MIN_SET_ROWS:
            raise InvalidInputError(f"target must have at least {MIN_SET_ROWS} rows, a set, got {len(target)}")
        return self._cubic(self._clipped(target), np.zeros(len(target), dtype=np.int64))[0]

    def _temperatures(self, cubic: Tensor) -> Tensor:
        return (math.log(self.base_temperature) + cubic @ self.weight).clamp(self.min_log_t, self.max_log_t).exp()


@one_thread()
def fit_to_sets(sets: LabelledSets) -> SetTemperature:
    """`SetTemperature.fit`, where the sets are known."""
    if len(sets) < MIN_SETS:
        got = f"got {len(sets)} by {', '.join(sets.columns)}"
        raise InvalidInputError(f"validation must hold at least {MIN_SETS} sets, {got}")
    everything = math.log(solve_temperature(Likelihood(sets.rows.logits, sets.rows.labels)).temperature)
    statistics, log_t, information = sets.mixed(everything)
    level = everything
    if sets.clean.any():
        level = float(log_t[0])
        with suppress(NotConvergedError):  # if all clean rows are correct: that with other rows remains
            level = math.log(solve_temperature(Likelihood(sets.base.logits, sets.base.labels)).temperature)
    groups = np.repeat(sets.left_out_together, N_MIXES + 1)
    own = np.arange(len(groups)) % (N_MIXES + 1) == 0
    weights = information * torch.from_numpy(np.where(own, 1 - MIX_SHARE, MIX_SHARE / N_MIXES))
    known = ~log_t.isnan()
    n_known = int(known.numpy()[own].sum())
    if n_known < MIN_SETS or math.isnan(level):
        which = "the clean rows" if math.isnan(level) else f"{len(sets) - n_known} of {len(sets)} sets"
        raise NotConvergedError(f"no temperature is best for {which}: their labels do not follow their logits")
    kept = known & (weights > 0)
    origin, row_covariance = sets.noise
    found = fit_cubic(statistics[kept], log_t[kept], weights[kept], groups[kept.numpy()], origin, level)
    margin = MARGIN * float(log_t[kept].max() - log_t[kept].min())
    return SetTemperature.from_parameters(
        sets.rows,
        shifts=shift_types(sets.rows, sets.columns[0]),
        sets=sets.columns,
        base_temperature=math.exp(level),
        base_rows=len(sets.base),
        left_out_rmse=found.rmse,
        min_log_t=min(level, float(log_t[kept].min())) - margin,
        max_log_t=max(level, float(log_t[kept].max())) + margin,
        n_types=len(np.unique(groups)),
        scale=found.scale,
        weight=found.weight,
        inverse=found.inverse,
        errors=found.errors,
        precision=torch.linalg.inv(row_covariance).contiguous(),
        gaussians=sets.gaussians,
    )
