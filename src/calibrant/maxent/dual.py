"""The convex dual of maximum-entropy problems, solved by a damped Newton method for many problems at once."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from calibrant._arrays import blocks
from calibrant.errors import NotConvergedError

RESIDUAL_TOLERANCE = (
    1e-12  # largest relative residual of a solved problem, unless its multipliers are so large that the
)
MAX_TOLERANCE = 1e-8  #     rounding of the exponents alone exceeds it; then that rounding, up to this bound
FLAT = 1e-9  # features are taken for dependent where their singular values fall below this part of the largest
EDGE = 1e-10  # a normalized distribution whose features vary less than this has run into the edge of the reachable
MAX_NEWTON_STEPS = 200
MAX_HALVINGS = 50
BLOCK_POINTS = 2**17  # problems × support points evaluated at a time: 1 MiB of float64, which stays in the cache
N_PILOTS = 128  # problems solved first, where there are many, as starting points for the others
TINY, EPSILON = torch.finfo(torch.float64).tiny, torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class MomentProblem(ABC):
    """Many problems over the same support points (the classes): the λ for which the moments of f are the targets.

    Each feature and its target are divided by the feature's largest magnitude.
    """

    targets: Tensor  # (n_problems, n_constraints), scaled
    scales: Tensor  # (n_problems or 1, n_constraints), the divisors of features and targets
    origin: Tensor  # (n_constraints,), subtracted from both before the division
    signed: Tensor  # (n_constraints,), whether the feature takes values of both signs
    normalized: bool

    @property
    @abstractmethod
    def n_points(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows: Tensor | slice) -> Self:
        """Some of the problems."""

    @abstractmethod
    def exponents(self, multipliers: Tensor) -> Tensor:
        """λ·f(k), (n_problems, n_points)."""

    @abstractmethod
    def moments(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_k w_k f(k) and Σ_k w_k f(k) f(k)ᵀ for weights (n_problems, n_points)."""

    def residual_scale(self) -> Tensor:
        """The target; where values of both signs may cancel in it, at least a thousandth of the feature's size."""
        return torch.maximum(self.targets.abs(), torch.where(self.signed, 1e-3, TINY))

    @abstractmethod
    def flat_directions(self) -> Tensor:
        """Columns, orthonormal or 0, along which λ changes nothing: (n_problems or 1, n_constraints, n_constraints)."""


def _feature_origin(features: Tensor, gibbs: str) -> Tensor:
    """The value nearest to 0 of features of one sign: a normalized distribution has the same multipliers from there."""
    nearest = features.amin(0).clamp_min(0) + features.amax(0).clamp_max(0)
    return nearest if gibbs == "normalized" else torch.zeros_like(nearest)


@final
@dataclass(frozen=True)
class LinearProblem(MomentProblem):
    """The same features for every problem."""

    features: Tensor  # (n_points, n_constraints), scaled
    products: Tensor  # (n_points, n_constraints · (1 + n_constraints)): the features and their pairwise products

    @classmethod
    def of(cls, features: Tensor, targets: Tensor, gibbs: str) -> Self:
        origin = _feature_origin(features, gibbs)
        features, targets = features - origin, targets - origin
        scales = features.abs().amax(0)
        scales = torch.where(scales > 0, scales, 1.0)
        signed = (features.amin(0) < 0) & (features.amax(0) > 0)
        features = features / scales
        pairs = (features[:, :, None] * features[:, None, :]).flatten(1)
        products = torch.cat([features, pairs], dim=1)
        return cls(targets / scales, scales[None], origin, signed, gibbs == "normalized", features, products)

    @property
    def n_points(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return replace(self, targets=self.targets[rows])

    def exponents(self, multipliers: Tensor) -> Tensor:
        return multipliers @ self.features.T

    def moments(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        n = self.targets.shape[1]
        sums = weights @ self.products
        return sums[:, :n], sums[:, n:].unflatten(1, (n, n))

    def flat_directions(self) -> Tensor:
        return _flat_directions(self.features[None], self.normalized)


@final
@dataclass(frozen=True)
class CenteredProblem(MomentProblem):
    r"""Features :math:`v` and :math:`(v - \mu_y)^2`, the center :math:`\mu_y` differing between problems."""

    values: Tensor  # (n_points,)
    centers: Tensor  # (n_problems,)

    @classmethod
    def of(cls, values: Tensor, centers: Tensor, targets: Tensor, gibbs: str) -> Self:
        origin = torch.stack([_feature_origin(values, gibbs), torch.zeros_like(values[0])])
        values, centers, targets = values - origin[0], centers - origin[0], targets - origin
        low, high = values.aminmax()
        spread = torch.maximum((low - centers) ** 2, (high - centers) ** 2)
        scales = torch.stack([torch.maximum(low.abs(), high.abs()).expand_as(spread), spread], dim=1)
        signed = torch.stack([(low < 0) & (high > 0), torch.zeros_like(low, dtype=torch.bool)])
        return cls(targets / scales, scales, origin, signed, gibbs == "normalized", values, centers)

    @property
    def n_points(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return replace(self, targets=self.targets[rows], scales=self.scales[rows], centers=self.centers[rows])

    def exponents(self, multipliers: Tensor) -> Tensor:
        first, second = (multipliers / self.scales).unbind(1)
        return self._squares().mul_(second[:, None]).addr_(first, self.values)

    def moments(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        powers = torch.stack([self.values, self.values**2], dim=1)
        value, value_value = (weights @ powers).unbind(1)
        squares = self._squares()
        weighted = weights * squares
        square, value_square = weighted.sum(1), weighted @ self.values
        square_square = weighted.mul_(squares).sum(1)
        first = torch.stack([value, square], dim=1) / self.scales
        second = torch.stack([value_value, value_square, value_square, square_square], dim=1).unflatten(1, (2, 2))
        return first, second / (self.scales[:, :, None] * self.scales[:, None, :])

    def flat_directions(self) -> Tensor:
        values = self.values.unique()
        if len(values) > 2:  # a line meets the parabola (v, (v − μ)²) in two points only
            return self.targets.new_zeros(1, 2, 2)
        features = torch.stack(torch.broadcast_tensors(values, (values - self.centers[:, None]) ** 2), dim=2)
        return _flat_directions(features / self.scales[:, None, :], self.normalized)

    def _squares(self) -> Tensor:
        return (self.values - self.centers[:, None]).square_()


class _Point(NamedTuple):
    """The dual at some multipliers: value, slope, curvature, and the distance of the moments from the targets."""

    value: Tensor  # (n_problems,)
    gradient: Tensor  # (n_problems, n_constraints)
    hessian: Tensor  # (n_problems, n_constraints, n_constraints)
    residual: Tensor  # (n_problems,)
    tolerance: Tensor  # (n_problems,), of the residual


def _evaluate(problem: MomentProblem, multipliers: Tensor) -> _Point:
    r"""Dual :math:`\sum_k e^{-1-\lambda f(k)} + \lambda c`, or :math:`\log\sum_k e^{-\lambda f(k)} + \lambda c`."""
    rows = blocks(len(multipliers), problem.n_points, size=BLOCK_POINTS)
    parts = [_sums(problem[block], multipliers[block]) for block in rows]
    mass, moments, hessian = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
    gap = moments - problem.targets
    return _Point(
        value=mass + (multipliers * problem.targets).sum(1),
        gradient=-gap,
        hessian=hessian,
        residual=(gap.abs() / problem.residual_scale()).amax(1),
        tolerance=(16 * EPSILON * multipliers.abs().sum(1)).clamp(RESIDUAL_TOLERANCE, MAX_TOLERANCE),
    )


def _sums(problem: MomentProblem, multipliers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mass of the Gibbs weights (its logarithm where normalized), their moments, and the Hessian of the dual.

    The Hessian is the second moments, central where normalized.
    """
    exponents = problem.exponents(multipliers).neg_()
    if problem.normalized:
        mass = exponents.logsumexp(1)
        weights = exponents.sub_(mass[:, None]).exp_()
    else:
        weights = exponents.sub_(1).exp_()
        mass = weights.sum(1)
    moments, second = problem.moments(weights)
    if problem.normalized:
        second = second - moments[:, :, None] * moments[:, None, :]
    return mass, moments, second


def _flat_directions(features: Tensor, normalized: bool) -> Tensor:
    """Directions in which no feature (no difference of features, where normalized) has any extent."""
    if normalized:
        features = features - features.mean(1, keepdim=True)
    _, size, directions = torch.linalg.svd(torch.linalg.qr(features).R)
    size = torch.nn.functional.pad(size, (0, directions.shape[-1] - size.shape[-1]))
    flat: Tensor = directions.mT * (size <= FLAT * size[:, :1])[:, None, :]
    return flat


def _newton(problem: MomentProblem, multipliers: Tensor, flat: Tensor) -> tuple[Tensor, Tensor, int]:
    """Damped Newton on every row of ``multipliers`` at once, in place; residuals, which rows are solved, steps taken.

    A row drops out when it has converged, or when no step of its direction improves it any more.
    """
    lift = (flat @ flat.mT).expand(len(multipliers), -1, -1)  # a curvature along them, which keeps steps away
    rows, current = torch.arange(len(multipliers), device="cpu"), multipliers.clone()
    point = _evaluate(problem, multipliers)
    residuals, solved = torch.empty_like(point.residual), torch.zeros_like(rows, dtype=torch.bool)
    previous = torch.full_like(point.residual, torch.inf)
    for n_steps in range(MAX_NEWTON_STEPS + 1):
        at_rounding = (point.residual <= point.tolerance) & ~(point.residual < previous / 2)
        unfinished = ~(point.residual <= RESIDUAL_TOLERANCE) & ~at_rounding & (point.residual != previous)
        if n_steps == MAX_NEWTON_STEPS or not unfinished.all():
            multipliers[rows], residuals[rows] = current, point.residual
            solved[rows] = point.residual <= point.tolerance
            rows, current = rows[unfinished], current[unfinished]
            problem, point = problem[unfinished], _Point(*(part[unfinished] for part in point))
        if n_steps == MAX_NEWTON_STEPS or len(rows) == 0:
            break
        previous = point.residual
        step = _step(problem, point, point.hessian + lift[rows])
        current, point = _line_search(problem, current, point, step)
    return residuals, solved, n_steps


def _step(problem: MomentProblem, point: _Point, hessian: Tensor) -> Tensor:
    r"""Newton's step for :math:`\log m(\lambda) = \log c` where the moments m are sums of exponentials of one sign.

    These equations are closer to linear than :math:`m(\lambda) = c`, which halves the steps from far away; at the root
    both steps agree. Where this step would not descend on the dual, the ordinary Newton step is taken.
    """
    gradient = point.gradient
    if problem.normalized:
        return _newton_step(hessian, gradient)
    moments = problem.targets - gradient
    ratio = moments / problem.targets
    step = _newton_step(hessian, torch.where(ratio > 0, -moments * ratio.log(), gradient))
    uphill = ~((gradient * step).sum(1) < 0)
    if uphill.any():
        step[uphill] = _newton_step(hessian[uphill], gradient[uphill])
    return step


def _newton_step(hessian: Tensor, gradient: Tensor) -> Tensor:
    """Solution of H·step = −gradient, with a multiple of the identity added to H for precision."""
    diagonal = hessian.diagonal(dim1=-2, dim2=-1)
    lift = EPSILON * diagonal.amax(-1, keepdim=True) + TINY
    if gradient.shape[1] == 1:
        return -gradient / (diagonal + lift)
    step, failed = torch.linalg.solve_ex(hessian + lift.expand_as(diagonal).diag_embed(), -gradient)
    return torch.where(failed[:, None] == 0, step, -gradient)


def _line_search(problem: MomentProblem, multipliers: Tensor, point: _Point, step: Tensor) -> tuple[Tensor, _Point]:
    """Halve each row's step until the dual falls enough or, at the last digits, the residual does; else stay."""
    descent = 1e-4 * (point.gradient * step).sum(1)
    pending = torch.ones_like(point.residual, dtype=torch.bool)
    best, reached = multipliers.clone(), _Point(*(part.clone() for part in point))
    for halvings in range(MAX_HALVINGS):
        trial = multipliers + 0.5**halvings * step
        found = _evaluate(problem, trial)
        better = (found.value <= point.value + 0.5**halvings * descent) | (found.residual < point.residual)
        if halvings == 0 and better.all():
            return trial, found
        accepted = better & pending
        best[accepted] = trial[accepted]
        for old, new in zip(reached, found, strict=True):
            old[accepted] = new[accepted]
        pending &= ~better
        if not pending.any():
            break
    return best, reached


def _initial_multipliers(problem: MomentProblem, flat: Tensor) -> Tensor:
    """Zero, or a spline through some solved classes where one parameter distinguishes the problems."""
    zeros = torch.zeros_like(problem.targets)
    one_parameter = problem.targets.shape[1] == 1 or isinstance(problem, CenteredProblem)
    if len(zeros) <= 4 * N_PILOTS or not one_parameter:
        return zeros
    from scipy.interpolate import CubicSpline

    parameter, order = (problem.targets * problem.scales)[:, 0].sort()
    pilots = torch.linspace(0, len(order) - 1, N_PILOTS, device="cpu").long()
    pilots = pilots[parameter[pilots].diff(prepend=parameter.new_tensor([-torch.inf])) > 0]
    if len(pilots) < N_PILOTS // 2:
        return zeros
    solved = zeros[order[pilots]]
    _newton(problem[order[pilots]], solved, flat)
    zeros[order] = torch.from_numpy(CubicSpline(parameter[pilots], solved)(parameter))
    return zeros


def solve_dual(problem: MomentProblem) -> tuple[Tensor, float, int]:
    """Multipliers (n_problems, n_constraints), the worst relative residual, and the number of Newton steps.

    Raises: NotConvergedError, naming the row as a class.
    """
    flat = problem.flat_directions()
    multipliers = _initial_multipliers(problem, flat)
    residuals, solved, n_steps = _newton(problem, multipliers, flat)
    solved &= _inside(problem, multipliers, flat)
    if not solved.all():
        worst = int(residuals.nan_to_num(torch.inf).masked_fill(solved, -1).argmax())
        raise NotConvergedError(_failure_message(problem, worst, float(residuals[worst])))
    multipliers = multipliers / problem.scales
    if flat.any():
        multipliers = _least_norm(multipliers, flat / problem.scales[..., None])
    return multipliers, float(residuals.max()), n_steps


def _inside(problem: MomentProblem, multipliers: Tensor, flat: Tensor) -> Tensor:
    """Whether the targets lie inside the reachable moments: at the edge, λ is infinite.

    There the distribution is concentrated on a face of the support, where some feature does not vary.
    """
    if not problem.normalized:
        return torch.ones_like(multipliers[:, 0], dtype=torch.bool)
    varies: Tensor = torch.linalg.eigvalsh(_evaluate(problem, multipliers).hessian + flat @ flat.mT)
    return varies[:, 0] > EDGE


def _least_norm(multipliers: Tensor, flat: Tensor) -> Tensor:
    """The shortest of all multipliers that give the same distribution."""
    along: Tensor = flat @ (torch.linalg.pinv(flat) @ multipliers[..., None])
    return multipliers - along[..., 0]


def _failure_message(problem: MomentProblem, row: int, residual: float) -> str:
    """Why class ``row`` has no multipliers."""
    one = problem[slice(row, row + 1)]
    constraint = torch.eye(len(one.signed), dtype=torch.float64, device="cpu")
    features = torch.cat([one.exponents(unit[None]) for unit in constraint]) * one.scales.T + one.origin[:, None]
    low, high = features.amin(1).tolist(), features.amax(1).tolist()
    targets = (one.targets * one.scales + one.origin)[0].tolist()
    for n, (least, most, target) in enumerate(zip(low, high, targets, strict=True)):
        if not one.normalized:  # weights of any total mass: only the sign of a moment can be out of reach
            least, most = (0.0 if least >= 0 else -torch.inf), (0.0 if most <= 0 else torch.inf)
        margin = 1e-9 * (most - least) if one.normalized else 0.0
        if not least + margin < target < most - margin:
            reach = f"outside the reachable moments, which lie strictly between {least:g} and {most:g}"
            return f"no multipliers for class {row}: target {target:g} of constraint {n} is {reach}"
    return (
        f"no multipliers for class {row}: its targets {[float(f'{t:.6g}') for t in targets]} lie outside the "
        f"reachable moments, or too close to their edge for double precision (best relative residual {residual:.1e}); "
        "a class whose prior is 0 or nearly 0 can cause this"
    )
