"""Vector, matrix, Dirichlet and bias-corrected scaling: affine maps of logits, by penalized likelihood."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import check_memory, check_positive
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_likely_labels, check_shape
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import natural_scale
from calibrant.calibrators.maps import floor_logits
from calibrant.calibrators.modules import AffineModule
from calibrant.errors import NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

AFFINE_BLOCK = 2**17  # logits computed at once
MAX_LBFGS_STEPS = 5000
LBFGS_PAIRS = 30  # of positions and gradients that are kept
LBFGS_VECTORS = 2 * LBFGS_PAIRS + 10  # of the size of all parameters, that are in memory at once
MAX_NEWTON_STEPS = 100
MAX_DECREMENT = 1e-16  # twice the mean penalized NLL over its minimum
MAX_EXCESS = 1e-10  # of the mean penalized NLL over its minimum, by the Newton decrement, relative to 1 + NLL


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AffineScaling(Calibrator):
    """W x + b on the logits x, or on the log-probabilities, with a Gaussian prior around temperature scaling.

    For x scaled by the best temperature, the prior lets weights and biases deviate from the identity by about 1, and
    the off-diagonal weights of a row together move a logit by about 1. The minimizer is unique, also for classes
    without labels.
    """

    keeps_argmax: ClassVar[bool] = False
    likelihood_fitted: ClassVar[bool] = True
    log_probs: ClassVar[bool] = False
    diagonal: ClassVar[bool] = False

    weight: Tensor  # (k,) or (k, k)
    bias: Tensor  # (k,)
    floor: float  # in place of −inf: the least value of validation

    def __post_init__(self) -> None:
        k = self.n_classes
        check_shape("weight", self.weight, (k,) if self.diagonal else (k, k))
        check_shape("bias", self.bias, (k,))

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, strength: float = 1.0, clip: float | None = None) -> Self:
        """Maximize the likelihood times the prior.

        Args:
            strength: Scale of the prior's precision; at 1 the prior counts as much as a few rows.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        identity = cls.checked_identity(validation, strength)
        below_top = validation.logits - validation.logits.amax(1, keepdim=True)
        floor = min_finite(validation.log_probs) if cls.log_probs else min_finite(below_top) or -30.0
        nothing = torch.zeros(validation.n_classes, dtype=torch.float64)
        inputs = AffineModule(identity, nothing, log_probs=cls.log_probs, floor=floor).inputs(validation.logits)
        scale = natural_scale(inputs, validation.labels)
        inputs = scale * inputs
        weight, bias = fit_affine(inputs, validation.labels, identity, unit_precision(inputs, identity, strength))
        return cls.from_parameters(validation, weight=scale * weight, bias=bias, floor=floor)

    @classmethod
    def checked_identity(cls, validation: Predictions, strength: float) -> Tensor:
        """The weights that change nothing, after the checks of the rows and the option."""
        check_validation(validation)
        check_positive("strength", strength)
        check_likely_labels(validation.logits, validation.labels)
        k = validation.n_classes
        n_parameters = k * (2 if cls.diagonal else k + 1)
        check_memory(f"{cls.name} scaling of {k:,} classes", 8 * n_parameters * LBFGS_VECTORS)
        return torch.ones(k, dtype=torch.float64) if cls.diagonal else torch.eye(k, dtype=torch.float64)

    def row_module(self) -> nn.Module:
        return AffineModule(self.weight, self.bias, log_probs=self.log_probs, floor=self.floor)


@final
class VectorScaling(AffineScaling):
    """A weight and a bias for each class's logit (Guo et al. 2017).

    A constant added to a row's logits changes the result, though not the row's probabilities. Fit and apply it to
    logits of the same model.
    """

    name: ClassVar[str] = "vector"
    default_candidate: ClassVar[bool] = True
    diagonal: ClassVar[bool] = True


@final
class MatrixScaling(AffineScaling):
    """A matrix and a bias on the logits, off-diagonals regularised (Guo et al. 2017; Kull et al. 2019).

    A constant added to a row's logits changes the result, as with vector scaling.
    """

    name: ClassVar[str] = "matrix"


@final
class DirichletCalibration(AffineScaling):
    """A matrix and a bias on the log-probabilities, off-diagonals regularised (Kull et al. 2019)."""

    name: ClassVar[str] = "dirichlet"
    default_candidate: ClassVar[bool] = True
    log_probs: ClassVar[bool] = True


def min_finite(values: Tensor) -> float:
    """The least of values ≤ 0 except −inf."""
    return float(torch.where(values == -math.inf, 0.0, values).min())


def unit_precision(inputs: Tensor, identity: Tensor, strength: float) -> Tensor:
    """The prior's precision of each parameter, with b last: (k, 2), or (k, k + 1) with smaller off-diagonal weights."""
    n, k = inputs.shape
    precision = torch.full((k, 2 if identity.ndim == 1 else k + 1), strength / n, dtype=torch.float64)
    if identity.ndim > 1:
        off_diagonal = k * max(1.0, float(inputs.var(0, correction=0).mean())) * strength / n
        precision[:, :-1].masked_fill_(identity == 0, off_diagonal)
    return precision


def fit_affine(inputs: Tensor, labels: Tensor, identity: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Weight, of the shape of the identity, and bias that minimize the mean NLL plus the prior's penalty.

    Convex. L-BFGS runs in coordinates in which the Hessian at the identity is about the identity: half the squared
    gradient approximates the excess over the minimum.
    """
    from scipy.optimize import minimize

    problem = AffineProblem(inputs, labels, identity, precision)

    def stop(intermediate_result: "OptimizeResult") -> None:
        if problem.decrement <= MAX_EXCESS * (1 + intermediate_result.fun):
            raise StopIteration

    start = np.zeros(problem.identity.numel())
    options = {
        "maxiter": MAX_LBFGS_STEPS,
        "maxfun": 2 * MAX_LBFGS_STEPS,
        "maxcor": LBFGS_PAIRS,
        "ftol": 0.0,
        "gtol": 0.0,
    }
    result = minimize(problem, start, jac=True, method="L-BFGS-B", options=options, callback=stop)
    after, _ = problem(result.x)
    if problem.decrement > 100 * MAX_EXCESS * (1 + after):
        raise NotConvergedError(f"the scaling did not converge: the NLL is about {problem.decrement:.1e} too large")
    theta = problem.parameters(result.x)
    return theta[:, :-1].squeeze(1) if identity.ndim == 1 else theta[:, :-1], theta[:, -1]


class AffineProblem:
    """The penalized mean NLL of W x + b and its gradient; parameters (k, d + 1) are the rows of W, with b last."""

    def __init__(self, inputs: Tensor, labels: Tensor, identity: Tensor, precision: Tensor) -> None:
        self.inputs, self.labels, self.diagonal = inputs, labels, identity.ndim == 1
        weight = identity.unsqueeze(1) if self.diagonal else identity
        self.identity = torch.cat([weight, torch.zeros(len(weight), 1, dtype=torch.float64)], dim=1)
        self.precision = precision
        self.factor = self._factor()
        self.decrement = math.inf

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((self.inputs[rows], self.labels[rows]) for rows in blocks(*self.inputs.shape, size=AFFINE_BLOCK))

    def _factor(self) -> Tensor:
        """Cholesky factor of the approximate Hessian: (k, 2, 2) of each class, or (k + 1, k + 1) for all classes."""
        n, k = self.inputs.shape
        hessian = torch.zeros(*((k, 2, 2) if self.diagonal else (k + 1, k + 1)), dtype=torch.float64)
        for x, _ in self._blocks():
            probs = x.softmax(1)
            spread = probs * (1 - probs)
            if self.diagonal:
                moments = [spread * x * x, spread * x, spread * x, spread]
                hessian += torch.stack([moment.sum(0) for moment in moments], dim=1).reshape(k, 2, 2)
            else:
                extended = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
                hessian += extended.T @ (spread.mean(1, keepdim=True) * extended)
        prior = torch.diag_embed(self.precision) if self.diagonal else self.precision.amax(0).diag()
        factor, failed = torch.linalg.cholesky_ex(hessian / n + prior)
        if bool(failed.any()):
            raise NotConvergedError("the scaling is ill-conditioned: subtract from each row's logits the largest one")
        return torch.as_tensor(factor)

    def parameters(self, position: NDArray[np.float64]) -> Tensor:
        moved = torch.from_numpy(position).reshape(self.identity.shape)
        return self.identity + self._solve_triangular(moved, self.factor, upper=False)

    def _solve_triangular(self, rows: Tensor, factor: Tensor, *, upper: bool) -> Tensor:
        """Each row times the inverse of the factor."""
        stacked = rows.unsqueeze(1) if self.diagonal else rows
        found: Tensor = torch.linalg.solve_triangular(factor, stacked, upper=upper, left=False)
        return found.reshape(rows.shape)

    def __call__(self, position: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        theta = self.parameters(position)
        value, gradient = self._likelihood(theta)
        deviation = theta - self.identity
        value += 0.5 * float((self.precision * deviation.square()).sum())
        scaled = self._solve_triangular(gradient + self.precision * deviation, self.factor.mT, upper=True)
        self.decrement = 0.5 * float(scaled.square().sum())
        return value, scaled.flatten().numpy()

    def _likelihood(self, theta: Tensor) -> tuple[float, Tensor]:
        """Mean NLL and its gradient, block by block."""
        weight, bias = theta[:, :-1], theta[:, -1]
        total, gradient = 0.0, torch.zeros_like(theta)
        for x, labels in self._blocks():
            y = labels.unsqueeze(1)
            z = torch.addcmul(bias, x, weight.squeeze(1)) if self.diagonal else torch.addmm(bias, x, weight.T)
            log_probs = z.log_softmax(1)
            total -= float(log_probs.gather(1, y).sum())
            residual = log_probs.exp_()
            residual.scatter_add_(1, y, torch.full_like(y, -1, dtype=torch.float64))
            gradient[:, -1] += residual.sum(0)
            gradient[:, :-1] += (residual * x).sum(0).unsqueeze(1) if self.diagonal else residual.T @ x
        return total / len(self.inputs), gradient / len(self.inputs)


class BiasCorrectedTemperature(NamedTuple):
    """softmax(scale · z + bias), fitted to the labels of rows."""

    scale: float  # 1/T
    bias: NDArray[np.float64]  # (k,)
    influence: NDArray[np.float64]  # (n, 1 + k) of each row on scale and bias, times n


def fit_bias_corrected(validation: Predictions) -> BiasCorrectedTemperature:
    """Bias-corrected temperature scaling (Alexandari et al. 2020): Newton's method on the mean NLL plus a prior.

    The prior is that of `AffineScaling`. Without it, the mean prediction is the class frequencies of validation.
    """
    check_likely_labels(validation.logits, validation.labels)
    logits = floor_logits(validation.logits.double())
    logits = logits - logits.amax(1, keepdim=True)
    unit = natural_scale(logits, validation.labels)
    problem = _BiasCorrection((unit * logits).numpy(), validation.labels.numpy())
    theta = problem.start
    value, gradient, hessian = problem(theta)
    for _ in range(MAX_NEWTON_STEPS):
        step = np.linalg.solve(hessian, -gradient)
        decrement = -float(gradient @ step)
        if decrement <= MAX_DECREMENT:
            break
        size = 1.0
        while (moved := problem(theta + size * step))[0] > value - 1e-4 * size * decrement and size > 1e-9:
            size /= 2
        theta, (value, gradient, hessian) = theta + size * step, moved
    else:
        raise NotConvergedError(f"the bias correction did not converge: the NLL is about {decrement:.1e} too large")
    if theta[0] <= 0:
        raise NotConvergedError("no temperature is best: the labels do not follow the logits")
    influence = problem.scores(theta) @ np.linalg.inv(hessian)
    influence[:, 0] *= unit
    return BiasCorrectedTemperature(unit * float(theta[0]), theta[1:], influence)


class _BiasCorrection:
    """The penalized mean NLL of scale · u + bias with gradient and Hessian; parameters (1 + k,), the scale first."""

    def __init__(self, u: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        self.u, self.labels, self.rows = u, labels, np.arange(len(u))
        self.start = np.concatenate([[1.0], np.zeros(u.shape[1])])

    def _log_probs(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        z: NDArray[np.float64] = theta[0] * self.u + theta[1:]
        z -= z.max(1, keepdims=True)
        z -= np.log(np.exp(z).sum(1, keepdims=True))
        return z

    def scores(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, 1 + k) gradient of the log-likelihood of each row."""
        residual = -np.exp(self._log_probs(theta))
        residual[self.rows, self.labels] += 1.0
        return np.concatenate([(residual * self.u).sum(1, keepdims=True), residual], axis=1)

    def __call__(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        n, k = self.u.shape
        log_probs = self._log_probs(theta)
        probs, deviation = np.exp(log_probs), theta - self.start
        value = -float(log_probs[self.rows, self.labels].mean()) + 0.5 * float(deviation @ deviation) / n
        weighted = probs * self.u
        mean = weighted.sum(1, keepdims=True)
        hessian = np.eye(k + 1) / n
        hessian[0, 0] += float((weighted * (self.u - mean)).sum()) / n
        hessian[0, 1:] = hessian[1:, 0] = (weighted - probs * mean).mean(0)
        hessian[1:, 1:] += np.diag(probs.mean(0)) - probs.T @ probs / n
        return value, -self.scores(theta).mean(0) + deviation / n, hessian
