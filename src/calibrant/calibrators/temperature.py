"""Temperature scaling: the exact minimizer, the best of a grid, and an ensemble with the raw model and chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from calibrant._checks import check_number, check_positive
from calibrant._names import check_choice
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_bounds, check_grid, check_in_range, check_shape
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import BOUNDS, LEVEL, Likelihood, solve_temperature, temperature_interval
from calibrant.calibrators.modules import IdentityModule, MixtureModule, TemperatureModule
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.metrics.checks import check_nonzero_weights
from calibrant.metrics.scorecard import row_weights
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

PAPER_GRID = (1.25, 1.5, 1.75, 2.0)  # the paper's temperatures, tried on validation NLL
KKT_TOLERANCE = 1e-7
FEW_INFLUENTIAL_ROWS = 10.0  # with fewer, the interval itself is less certain


@final
class Identity(Calibrator):
    """Leaves predictions unchanged: the baseline of a comparison."""

    name: ClassVar[str] = "identity"
    keeps_argmax: ClassVar[bool] = True
    likelihood_fitted: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True
    of_confidence: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        check_validation(validation, of_confidence=cls.of_confidence)
        return cls.from_parameters(validation)

    def row_module(self) -> nn.Module:
        return IdentityModule()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OneTemperature(Calibrator):
    """Divides the logits by one temperature; the predicted classes do not change."""

    keeps_argmax: ClassVar[bool] = True

    temperature: float

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def row_module(self) -> nn.Module:
        return TemperatureModule(temperature=self.temperature)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TemperatureScaling(OneTemperature):
    """Divides the logits by the temperature that minimizes the NLL (Guo et al. 2017).

    Args:
        temperature: The temperature T.
        interval: The 95 % confidence interval of T; None at a bound. It holds for independent rows, also if no
            temperature makes the model calibrated, and its upper limit may be infinite.
        influential_rows: The number of rows that the interval rests on; see `rests_on_few_rows`.
        standard_error: The standard error of T. Show the interval instead: with few errors, or logits of heavy tails,
            T ± 1.96 standard errors covers the truth too rarely.
        slope: Of the mean NLL in log T: 0 at the optimum.
        at_bound: Whether T is a bound.

    >>> logits = torch.tensor([[2.0, 0.0]] * 40)
    >>> calibrator = TemperatureScaling.fit(Predictions.from_logits(logits, [0, 0, 0, 1] * 10))
    >>> round(calibrator.temperature, 6)  # 2 / T = log 3, the odds of being correct
    1.820478
    >>> [round(limit, 2) for limit in calibrator.interval]
    [1.11, 7.6]
    """

    name: ClassVar[str] = "temperature"
    likelihood_fitted: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True

    interval: tuple[float, float] | None = None
    influential_rows: float | None = None
    standard_error: float | None = None
    slope: float | None = None
    at_bound: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval is not None:
            low, high = self.interval
            if not 0 <= low <= self.temperature <= high:
                raise InvalidInputError(
                    f"interval must contain the temperature {self.temperature:g}, got {low:g}, {high:g}"
                )

    @classmethod
    @prepare_rows
    def fit(
        cls,
        validation: Predictions,
        *,
        bounds: tuple[float, float] = BOUNDS,
        at_bound: str = "raise",
        weights: str | None = None,
        clip: float | None = None,
    ) -> Self:
        """Minimize the NLL of z / T, which is convex in 1/T.

        Args:
            validation: Labelled rows that the model was not trained on.
            bounds: Of the temperature.
            at_bound: "raise", or "clip" to take the bound if the optimum lies beyond it.
            weights: A column of row weights.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.

        Returns:
            The fitted calibrator.

        Raises:
            NotConvergedError: There is no optimum (all predictions are correct, or no better than chance), or it lies
                outside the bounds.
            InvalidInputError: A label has probability 0.
        """
        check_validation(validation)
        take_bound = check_choice("at_bound", at_bound, ("raise", "clip")) == "clip"
        w = None if weights is None else row_weights(validation, weights)
        rows = weighted_likelihood(validation, w)
        solution = solve_temperature(rows, check_bounds("bounds", bounds), clip=take_bound)
        return cls.from_parameters(
            validation,
            row_weights=w,
            nll_after=solution.nll,
            temperature=solution.temperature,
            interval=None if solution.at_bound else temperature_interval(rows, solution),
            influential_rows=None if solution.at_bound else solution.influential_rows,
            standard_error=solution.standard_error,
            slope=solution.slope,
            at_bound=solution.at_bound,
        )

    @property
    def rests_on_few_rows(self) -> bool:
        """Whether fewer than ten rows tell most of the temperature: a few errors, or logits that are far larger."""
        return self.influential_rows is not None and self.influential_rows < FEW_INFLUENTIAL_ROWS

    @property
    def shown_parameters(self) -> dict[str, str]:
        shown = {"temperature": f"{self.temperature:.6g}"}
        if self.interval is not None:
            shown["interval"] = f"{self.interval[0]:.4g} to {self.interval[1]:.4g} ({100 * LEVEL:.0f} %)"
        return shown

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"interval": self.interval and list(self.interval)}


@final
class GridTemperature(OneTemperature):
    """Temperature scaling by the best temperature of a grid, as in the MaxEnt paper."""

    name: ClassVar[str] = "temperature_grid"

    @classmethod
    @prepare_rows
    def fit(
        cls,
        validation: Predictions,
        *,
        grid: Sequence[float] = PAPER_GRID,
        weights: str | None = None,
        clip: float | None = None,
    ) -> Self:
        """Take the temperature of least NLL, the smallest of equals.

        Args:
            grid: The temperatures.
            weights: A column of row weights.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        check_validation(validation)
        w = None if weights is None else row_weights(validation, weights)
        rows = weighted_likelihood(validation, w)
        best = min(sorted(check_grid("grid", grid)), key=lambda temperature: rows.sums(1 / temperature)[0])
        return cls.from_parameters(validation, row_weights=w, temperature=best)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EnsembleTemperature(Calibrator):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K, T of temperature scaling, w by likelihood (Zhang et al. 2020)."""

    name: ClassVar[str] = "ensemble_temperature"
    keeps_argmax: ClassVar[bool] = True
    likelihood_fitted: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True

    temperature: float
    weights: Tensor  # (3,) not negative, of sum 1

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        check_shape("weights", self.weights, (3,))
        check_in_range("weights", self.weights, 0.0, 1.0)
        check_number("sum of weights", float(self.weights.sum()), minimum=1 - 1e-9, maximum=1 + 1e-9)

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, clip: float | None = None) -> Self:
        """Fit the temperature, then the weights.

        Args:
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        check_validation(validation)
        rows = weighted_likelihood(validation)
        temperature = solve_temperature(rows).temperature
        scaled, raw = (rows.terms(scale)[0].neg().exp() for scale in (1 / temperature, 1.0))
        components = torch.stack([scaled, raw, torch.full_like(raw, 1 / validation.n_classes)], dim=1)
        return cls.from_parameters(validation, temperature=temperature, weights=mixture_weights(components))

    def row_module(self) -> nn.Module:
        return MixtureModule(temperature=self.temperature, weights=self.weights)


def weighted_likelihood(validation: Predictions, weights: Tensor | None = None) -> Likelihood:
    """Of the rows with nonzero weight."""
    if weights is None:
        return Likelihood(validation.logits, validation.labels)
    counts = check_nonzero_weights(weights)
    return Likelihood(validation.logits[counts], validation.labels[counts], weights[counts])


def mixture_weights(components: Tensor) -> Tensor:
    """The weights w on the simplex that maximize Σ log(components @ w), for components (n, m).

    At the optimum the mean of component / mixture is at most 1 for every component, and 1 where its weight is not 0.
    """
    from scipy.optimize import minimize

    c = components.numpy()
    m = c.shape[1]

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        mixture = np.maximum(c @ w, 1e-300)
        return -float(np.log(mixture).mean()), -(c / mixture[:, None]).mean(0)

    w = np.full(m, 1 / m)
    for _ in range(200):
        start = w * (c / np.maximum(c @ w, 1e-300)[:, None]).mean(0)  # a step of EM, which keeps w on the simplex
        result = minimize(
            objective,
            start,
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * m,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(m)},
            options={"ftol": 1e-15, "maxiter": 200},
        )
        better = np.clip(result.x, 0.0, 1.0)
        better /= better.sum()
        w = better if objective(better)[0] <= objective(start)[0] else start
        gain = -objective(w)[1]
        if gain.max() - 1 <= KKT_TOLERANCE:
            return torch.from_numpy(w)
    raise NotConvergedError(
        f"the weights of the mixture did not converge: a component could still gain {gain.max() - 1:.1e}"
    )
