"""Temperatures that depend on the row: monotone in a score, or linear in the distance to known features."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import check_instance, check_integer, check_number, check_positive
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import (
    check_feature_count,
    check_has_features,
    check_increasing,
    check_n_knots,
    check_shape,
)
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import Likelihood, solve_temperature
from calibrant.calibrators.maps import entropy, logit_norm, mean_distance, nearest_mean, square_distances
from calibrant.calibrators.modules import DistanceTemperatureModule, ScoreTemperatureModule
from calibrant.errors import InvalidInputError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

LOGIT_SCORES = {"entropy": lambda z: entropy(z.log_softmax(1)), "logit_norm": logit_norm}
TAIL = 0.02  # share of the rows beyond the first knot, and beyond the last
MAX_SCALE_RATIO = 8.0  # 1/T of a row, relative to that of all rows, lies within this factor
PRIOR_ROWS = 10.0  # the prior around the temperature of all rows counts as this many rows, at each knot
LBFGS_OPTIONS = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10}
BANK_ROWS = 5000  # at most; those of the least hashes, whatever the order of rows
MAX_NEIGHBORS = 200  # k by default (Tomani et al. 2023),
NEIGHBOR_SHARE = 0.01  # but no more than this share of the bank
DISTANCE_BLOCK = 2**20  # distances computed at once


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConditionalTemperature(Calibrator):
    """1/T is a monotone, piecewise linear function of a score of the row: its entropy, a norm, or any column."""

    name: ClassVar[str] = "conditional_temperature"
    keeps_argmax: ClassVar[bool] = True
    likelihood_fitted: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True

    score: str
    knots: Tensor  # (m,) scores
    scales: Tensor  # (m,) 1/T at each

    def __post_init__(self) -> None:
        check_shape("knots", self.knots, (None,))
        check_shape("scales", self.scales, tuple(self.knots.shape))
        check_increasing("knots", self.knots)
        check_positive("scales", float(self.scales.min()))

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(
        cls, validation: Predictions, *, score: str = "entropy", n_knots: int = 6, clip: float | None = None
    ) -> Self:
        """Minimize the NLL, convex in the values at the knots, with a prior around the temperature of all rows.

        The knots are quantiles of the score. The better of an increasing and a decreasing function is taken.

        Args:
            score: "entropy", "logit_norm" (of the centered logits), or a column of numbers, such as "feature_norm".
                A column named "entropy" or "logit_norm" is not used.
            n_knots: Number of knots.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        check_validation(validation)
        check_n_knots(n_knots)
        values = score_values(validation, score)
        rows = Likelihood(validation.logits, validation.labels)
        knots = torch.from_numpy(np.unique(np.quantile(values.numpy(), np.linspace(TAIL, 1 - TAIL, n_knots))))
        if len(knots) < 2:
            raise InvalidInputError(f"score must differ between rows, {score!r} does not")
        start = 1 / solve_temperature(rows).temperature
        hats = hat_functions(values, knots)
        scales = min((fit_monotone_scales(rows, hats, start, sign) for sign in (1, -1)), key=lambda found: found[0])[1]
        return cls.from_parameters(validation, score=score, knots=knots, scales=scales)

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("logits",) if self.score in LOGIT_SCORES else ("logits", "score")

    def row_module(self) -> nn.Module:
        return ScoreTemperatureModule(self.knots, self.scales, self.score)

    def _inputs(self, predictions: Predictions) -> tuple[Tensor, ...]:
        if self.score in LOGIT_SCORES:
            return (predictions.logits,)
        return predictions.logits, score_values(predictions, self.score)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DensityAwareScaling(Calibrator):
    """T = w₀ + w₁ d(x), d the mean distance to the k nearest rows of a feature bank (DAC, Tomani et al. 2023).

    A distance beyond those of the validation rows counts as the nearest of them.
    """

    name: ClassVar[str] = "density_aware"
    keeps_argmax: ClassVar[bool] = True
    likelihood_fitted: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    w0: float
    w1: float
    min_distance: float
    max_distance: float
    bank: Tensor  # (m, f) features, normalized to length 1
    k: int

    def __post_init__(self) -> None:
        check_positive("w0", self.w0)
        check_number("w1", self.w1, minimum=0.0)
        check_number("max_distance", self.max_distance, minimum=self.min_distance)
        check_integer("k", self.k, 1)
        if self.bank.ndim != 2 or self.k >= len(self.bank):
            raise InvalidInputError(f"k must be less than the rows of the bank, got {self.k}")

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(
        cls,
        validation: Predictions,
        *,
        reference: Predictions | None = None,
        k: int | None = None,
        clip: float | None = None,
    ) -> Self:
        """Minimize the NLL over w₀ > 0 and w₁ ≥ 0.

        Args:
            reference: Rows with features to measure distances from, such as those of the training set; by default
                the validation rows, each without itself.
            k: Number of neighbors; by default 1 % of the reference rows, at most 200.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        check_validation(validation)
        features = check_has_features(cls.name, validation.features, "validation")
        known, argument = (validation, "validation") if reference is None else (reference, "reference")
        check_instance(argument, known, Predictions)
        known_features = check_has_features(cls.name, known.features, argument)
        bank, members = feature_bank(known_features, known.row_hashes[0])
        check_feature_count(cls.name, bank.shape[1], features.shape[1])
        k = min(MAX_NEIGHBORS, math.ceil(NEIGHBOR_SHARE * len(bank))) if k is None else check_integer("k", k, 1)
        if k >= len(bank):
            raise InvalidInputError(f"k must be less than the {len(bank)} rows of {argument}, got {k}")
        distances = neighbor_distances(features, bank, k, members if reference is None else None)
        rows = Likelihood(validation.logits, validation.labels)
        nll, w0, w1 = fit_distance_weights(rows, distances, solve_temperature(rows).temperature)
        least, greatest = float(distances.min()), float(distances.max())
        return cls.from_parameters(
            validation, nll_after=nll, w0=w0, w1=w1, min_distance=least, max_distance=greatest, bank=bank, k=k
        )

    @property
    def n_features(self) -> int:
        return self.bank.shape[1]

    def row_module(self) -> nn.Module:
        return DistanceTemperatureModule(self.bank, self.k, (self.w0, self.w1, self.min_distance, self.max_distance))


def score_values(predictions: Predictions, score: str) -> Tensor:
    """(n,) float64, computed from the logits or read from a column."""
    check_instance("score", score, str)
    if score in LOGIT_SCORES:
        logits = predictions.logits
        return torch.cat([LOGIT_SCORES[score](logits[rows].double()) for rows in blocks(*logits.shape)])
    values = predictions.numbers("score", score)
    if not bool(values.isfinite().all()):
        raise InvalidInputError(
            f"score must be finite, {score!r} is not at row {int((~values.isfinite()).nonzero()[0])}"
        )
    return values


def hat_functions(values: Tensor, knots: Tensor) -> Tensor:
    """(n, m) weights of the values at the knots in linear interpolation, constant beyond the ends."""
    right = torch.searchsorted(knots, values).clamp(1, len(knots) - 1)
    share = ((values - knots[right - 1]) / (knots[right] - knots[right - 1])).clamp(0.0, 1.0)
    hats = torch.zeros(len(values), len(knots), dtype=torch.float64)
    rows = torch.arange(len(values))
    hats[rows, right - 1] = 1 - share
    hats[rows, right] += share
    return hats


def fit_monotone_scales(rows: Likelihood, hats: Tensor, start: float, sign: int) -> tuple[float, Tensor]:
    """The least penalized mean NLL, and 1/T at the knots that attains it: increasing, or decreasing for sign −1.

    The variables are the least value, relative to the start, and the steps between knots, all not negative: a convex
    problem within bounds. The penalty is that of `PRIOR_ROWS` average rows at the start. Without it, 1/T would grow
    without end where the model makes no error.
    """
    n, m = hats.shape
    from_step_functions = torch.tril(torch.ones(m, m, dtype=torch.float64))
    from_step_functions = from_step_functions if sign > 0 else from_step_functions.flip(0)
    basis = start * hats @ from_step_functions
    precision = PRIOR_ROWS / n * start**2 * float(rows.terms(start)[2].mean())

    def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        steps = torch.from_numpy(x)
        (value, slope, _), deviation = rows.terms(basis @ steps), from_step_functions @ steps - 1
        penalty = 0.5 * precision * deviation.square().sum()
        return float(value.mean() + penalty), (slope @ basis / n + precision * deviation @ from_step_functions).numpy()

    from scipy.optimize import minimize

    constant = np.eye(m)[0]
    bounds = [(1 / MAX_SCALE_RATIO, MAX_SCALE_RATIO)] + [(0.0, MAX_SCALE_RATIO)] * (m - 1)
    result = minimize(objective, constant, jac=True, method="L-BFGS-B", bounds=bounds, options=LBFGS_OPTIONS)
    found = result.x if result.fun <= objective(constant)[0] else constant
    return objective(found)[0], start * (from_step_functions @ torch.from_numpy(found)).clamp(max=MAX_SCALE_RATIO)


def fit_distance_weights(rows: Likelihood, distances: Tensor, temperature: float) -> tuple[float, float, float]:
    """The least mean NLL of T = w₀ + w₁ d, and the w₀ > 0 and w₁ ≥ 0 that attain it, from several starts."""
    mean = max(1e-12, float(distances.mean()))
    basis = temperature * torch.stack([torch.ones_like(distances), distances / mean], dim=1)

    def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale = 1 / (basis @ torch.from_numpy(x))
        value, slope, _ = rows.terms(scale)
        return float(value.mean()), (-slope * scale.square() @ basis / len(distances)).numpy()

    from scipy.optimize import minimize

    starts = [np.array(start) for start in ((1.0, 0.0), (0.5, 0.5), (0.05, 0.95))]
    bounds = [(1 / MAX_SCALE_RATIO, None), (0.0, None)]
    results = [
        minimize(objective, x, jac=True, method="L-BFGS-B", bounds=bounds, options=LBFGS_OPTIONS) for x in starts
    ]
    found = min([*((r.fun, *r.x) for r in results), (objective(starts[0])[0], *starts[0])])
    return float(found[0]), temperature * float(found[1]), temperature * float(found[2]) / mean


def feature_bank(features: Tensor, hashes: NDArray[np.uint64]) -> tuple[Tensor, Tensor]:
    """(m, f) float16 features of a subset of the rows, normalized to length 1, and (m,) the indices of these rows."""
    members = torch.from_numpy(np.argsort(hashes, kind="stable")[:BANK_ROWS])
    return nn.functional.normalize(features[members].float(), dim=1).half(), members


def neighbor_distances(features: Tensor, bank: Tensor, k: int, members: Tensor | None = None) -> Tensor:
    """(n,) float64 mean distance of each row to its k nearest rows of the bank.

    ``members``: the rows of features that the bank was made of; none of them counts as its own neighbor.
    """
    distances = torch.empty(len(features), dtype=torch.float64)
    bank = bank.double()
    for rows in blocks(len(features), len(bank), size=DISTANCE_BLOCK):
        distances[rows] = mean_distance(features[rows], bank, k)
    if members is None:
        return distances
    for part in blocks(len(bank), len(bank), size=DISTANCE_BLOCK):
        squares = square_distances(features[members[part]], bank)
        squares.diagonal(part.start).fill_(torch.inf)
        distances[members[part]] = nearest_mean(squares, k)
    return distances
