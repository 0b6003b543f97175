"""Vector, matrix and Dirichlet scaling: an affine map of logits or log-probabilities, by penalised likelihood."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor, nn

from calibrant._arrays import blocks
from calibrant._checks import check_positive
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_likely_labels, check_shape
from calibrant.calibrators.modules import AffineModule
from calibrant.calibrators.scale import natural_scale
from calibrant.errors import NotConvergedError
from calibrant.predictions import Predictions

AFFINE_BLOCK = 2**17  # numbers of a block
MAX_LBFGS_STEPS = 5000
EXCESS = 1e-10  # of the mean penalised NLL over its minimum, by the Newton decrement, relative to 1 + NLL


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AffineScaling(Calibrator):
    """W x + b on the logits x, or on the log-probabilities, with a Gaussian prior around temperature scaling.

    In units of what the best temperature makes of x, weights and biases deviate from the identity by about 1, and the
    off-diagonal weights of a matrix by so little that all of a row together move a logit by about 1. So the minimiser
    is unique, also where classes have no label.
    """

    keeps_argmax: ClassVar[bool] = False
    likelihood_fitted: ClassVar[bool] = True
    log_probs: ClassVar[bool] = False
    diagonal: ClassVar[bool] = False

    weight: Tensor  # (k,) or (k, k)
    bias: Tensor  # (k,)
    floor: float  # what −inf counts as: the least that validation had

    def __post_init__(self) -> None:
        k = self.n_classes
        check_shape("weight", self.weight, (k,) if self.diagonal else (k, k))
        check_shape("bias", self.bias, (k,))

    @classmethod
    def fit(cls, validation: Predictions, *, strength: float = 1.0) -> Self:
        """The maximum of likelihood and prior; ``strength`` scales the prior, which is worth a few rows."""
        check_validation(validation)
        check_positive("strength", strength)
        check_likely_labels(validation.logits, validation.labels)
        k = validation.n_classes
        identity = torch.ones(k, dtype=torch.float64) if cls.diagonal else torch.eye(k, dtype=torch.float64)
        nothing = torch.zeros(k, dtype=torch.float64)
        floor = min_finite_log_prob(validation.log_probs()) if cls.log_probs else min_finite_gap(validation.logits)
        inputs = AffineModule(identity, nothing, log_probs=cls.log_probs, floor=floor).inputs(validation.logits)
        scale = natural_scale(inputs, validation.labels)
        weight, bias = fit_affine(scale * inputs, validation.labels, identity, strength)
        return cls.from_parameters(validation, weight=scale * weight, bias=bias, floor=floor)

    def module(self) -> nn.Module:
        return AffineModule(self.weight, self.bias, log_probs=self.log_probs, floor=self.floor)


@final
class VectorScaling(AffineScaling):
    """A weight and a bias for each class's logit (Guo et al. 2017).

    Logits are taken as they come: a constant added to a row's logits, which its probabilities do not feel, changes the
    result. Fit and apply it on logits of the same model.
    """

    name: ClassVar[str] = "vector"
    default_candidate: ClassVar[bool] = True
    diagonal: ClassVar[bool] = True


@final
class MatrixScaling(AffineScaling):
    """A matrix and a bias on the logits, off-diagonals regularised (Guo et al. 2017; Kull et al. 2019).

    As with vector scaling, logits are taken as they come.
    """

    name: ClassVar[str] = "matrix"


@final
class DirichletCalibration(AffineScaling):
    """A matrix and a bias on the log-probabilities, off-diagonals regularised (Kull et al. 2019)."""

    name: ClassVar[str] = "dirichlet"
    default_candidate: ClassVar[bool] = True
    log_probs: ClassVar[bool] = True


def min_finite_log_prob(log_probs: Tensor) -> float:
    """The least log-probability but −inf."""
    return float(torch.where(log_probs == -math.inf, 0.0, log_probs).min())


def min_finite_gap(logits: Tensor) -> float:
    """The least finite logit, below the largest of its row; −30 where all others are −inf."""
    below = logits - logits.amax(1, keepdim=True)
    return float(torch.where(below == -math.inf, 0.0, below).min()) or -30.0


def fit_affine(inputs: Tensor, labels: Tensor, identity: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Weight, of the shape of the identity, and bias that minimise the mean NLL and the prior's penalty.

    Convex. L-BFGS runs in coordinates in which the Hessian at the identity is about the identity, so that half the
    squared gradient is about what is left to gain.
    """
    problem = AffineProblem(inputs, labels, identity, strength)

    def stop(intermediate_result: OptimizeResult) -> None:
        if problem.decrement <= EXCESS * (1 + intermediate_result.fun):
            raise StopIteration

    start = np.zeros(problem.identity.numel())
    options = {"maxiter": MAX_LBFGS_STEPS, "maxfun": 2 * MAX_LBFGS_STEPS, "maxcor": 30, "ftol": 0.0, "gtol": 0.0}
    result = minimize(problem, start, jac=True, method="L-BFGS-B", options=options, callback=stop)
    after, _ = problem(result.x)
    if problem.decrement > 100 * EXCESS * (1 + after):
        left = f"about {problem.decrement:.1e} of the NLL is left to gain"
        raise NotConvergedError(f"the scaling did not converge: {left}")
    theta = problem.parameters(result.x)
    return theta[:, :-1].squeeze(1) if identity.ndim == 1 else theta[:, :-1], theta[:, -1]


class AffineProblem:
    """The penalised mean NLL of W x + b and its gradient; parameters (k, d + 1) are the rows of W, with b last."""

    def __init__(self, inputs: Tensor, labels: Tensor, identity: Tensor, strength: float) -> None:
        n, k = inputs.shape
        self.inputs, self.labels, self.diagonal = inputs, labels, identity.ndim == 1
        weight = identity.unsqueeze(1) if self.diagonal else identity
        self.identity = torch.cat([weight, torch.zeros(k, 1, dtype=torch.float64)], dim=1)
        self.precision = torch.full_like(self.identity, strength / n)
        if not self.diagonal:
            others = k * max(1.0, float(inputs.var(0, correction=0).mean())) * strength / n
            self.precision[:, :-1] = others + torch.eye(k, dtype=torch.float64) * (strength / n - others)
        self.factor = self._factor()
        self.decrement = math.inf

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((self.inputs[rows], self.labels[rows]) for rows in blocks(*self.inputs.shape, size=AFFINE_BLOCK))

    def _factor(self) -> Tensor:
        """The Cholesky factor of about the Hessian of a class's parameters: (k, 2, 2), or (k + 1, k + 1) for all."""
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
            raise NotConvergedError("the scaling is ill-conditioned: subtract from each row's logits their largest")
        return torch.as_tensor(factor)

    def parameters(self, position: NDArray[np.float64]) -> Tensor:
        moved = torch.from_numpy(position).reshape(self.identity.shape)
        return self.identity + self._solve_triangular(moved, self.factor, upper=False)

    def _solve_triangular(self, rows: Tensor, factor: Tensor, *, upper: bool) -> Tensor:
        """Each row times the inverse of a class's factor, or of the one of all."""
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
