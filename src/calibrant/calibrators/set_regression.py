"""The regression behind set temperature: log T of a set as a cubic polynomial of its statistics."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.calibrators.domains import RIDGE_PENALTIES
from calibrant.calibrators.maps import monomials

LEVELS = torch.linspace(0, 1, 101, dtype=torch.float64)  # of the quantiles of errors that are kept


@dataclass(frozen=True, eq=False)
class SetRegression:
    """A ridge regression on `monomials` of standardized statistics, through its origin.

    Args:
        scale: (4, d) origin, spread, and the least and greatest standardized values in the fit.
        weight: (p,) of the monomials.
        inverse: (p, p) of their regularized second moments: vᵀ inverse v / n_groups is the variance of a prediction due
            to the fit, relative to that of a set.
        errors: (101,) quantiles of absolute errors over groups left out, in units of the standard deviation above.
        rmse: Root mean squared error over groups left out.
    """

    scale: Tensor
    weight: Tensor
    inverse: Tensor
    errors: Tensor
    rmse: float


def cubic_factors(d: int) -> Tensor:
    """(p, 3) the factors of all monomials of ``d`` variables from degree 1 to 3, as `monomials` takes them."""
    return torch.combinations(torch.arange(d + 1), 3, with_replacement=True)[1:]


def fit_cubic(
    statistics: Tensor, targets: Tensor, weights: Tensor, groups: NDArray[np.int64], origin: Tensor, level: float
) -> SetRegression:
    """Fit (m,) targets of weights (m,) to statistics (m, d); the polynomial has the value ``level`` at the origin.

    Whether it is linear or cubic, and the penalty, are those of the least error over groups left out.
    """
    w = weights / weights.sum()
    deviation = statistics - origin
    spread = (w @ deviation.square()).sqrt()
    spread = torch.where(spread > 1e-12 * (1 + origin.abs()), spread, torch.inf)  # a constant one does not count
    standard = deviation / spread
    factors = cubic_factors(statistics.shape[1])
    x = monomials(standard, factors)
    size = (w @ x.square()).sqrt().clamp(min=1e-150)
    x, y = x / size, targets - level
    linear = ((factors > 0).sum(1) == 1).double()
    _, numbers = np.unique(groups, return_inverse=True)
    members = [torch.from_numpy(np.flatnonzero(numbers == group)) for group in range(int(numbers.max()) + 1)]
    least, found = torch.inf, None
    for columns in (linear, torch.ones_like(linear)):
        inputs = [x[rows] * columns for rows in members]
        moments = [_moments(own, y[rows], w[rows]) for own, rows in zip(inputs, members, strict=True)]
        total = torch.stack(moments).sum(0)
        for penalty in RIDGE_PENALTIES:
            error, leverage = torch.empty_like(y), torch.empty_like(y)
            for rows, own, left_out in zip(members, inputs, moments, strict=True):
                inverse, solution = _ridge(total - left_out, penalty)
                error[rows] = y[rows] - own @ solution
                leverage[rows] = (own @ inverse * own).sum(1)
            squared = float(w @ error.square())
            if squared < least:
                least, found = squared, (columns, total, penalty, error, leverage)
    assert found is not None
    columns, total, penalty, error, leverage = found
    inverse, solution = _ridge(total, penalty)
    deviations = error.abs() / (1 + leverage / len(members)).sqrt()
    return SetRegression(
        scale=torch.stack([origin, spread.clamp(max=1e150), standard.amin(0), standard.amax(0)]),
        weight=solution * columns / size,
        inverse=(inverse * columns * columns.unsqueeze(1) / (size * size.unsqueeze(1))).contiguous(),
        errors=weighted_quantiles(deviations, w, LEVELS),
        rmse=least**0.5,
    )


def _moments(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """(p + 2, p + 2) weighted sums of products of the inputs, the target, and 1."""
    columns = torch.cat([x, torch.stack([y, torch.ones_like(y)], dim=1)], dim=1)
    return columns.T @ (w.unsqueeze(1) * columns)


def _ridge(moments: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """The inverse of the regularized second moments of the inputs, and the solution."""
    means = moments / moments[-1, -1]
    second, mixed = means[:-2, :-2], means[:-2, -2]
    least = penalty * second.diagonal().mean().clamp(min=1e-12)
    inverse = torch.linalg.inv(second + least * torch.eye(len(second), dtype=torch.float64))
    return inverse, inverse @ mixed


def weighted_quantiles(values: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """The least values that at least these shares of the weight do not exceed.

    >>> weighted_quantiles(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 1.0, 1.0]), torch.tensor([0.5, 1.0]))
    tensor([2., 3.])
    """
    order = values.argsort()
    reached = weights[order].cumsum(0) / weights.sum()
    return values[order][torch.searchsorted(reached, levels - 1e-9).clamp(max=len(values) - 1)]
