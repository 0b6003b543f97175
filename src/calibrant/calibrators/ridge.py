"""Ridge regression whose penalty is the one that predicts left-out groups best."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RIDGE_PENALTIES = tuple(10.0**power for power in range(-6, 3))  # as shares of the mean variance of the inputs
RIDGE_FOLDS = 5


def fit_ridge(
    inputs: Tensor, targets: NDArray[np.float64], groups: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[Tensor, float]:
    """Weight (f,) and intercept, the inputs standardised; groups of rows are left out together."""
    x, y, w = inputs.double(), torch.from_numpy(targets), torch.from_numpy(weights / weights.sum())
    centre = w @ x
    spread = (w @ (x - centre).square()).sqrt()
    spread = torch.where(
        spread > 1e-12 * (1 + centre.abs()), spread, torch.inf
    )  # an input that does not vary says nothing
    standard = (x - centre) / spread
    folds = torch.from_numpy(groups % min(RIDGE_FOLDS, int(groups.max()) + 1))
    penalty = _best_penalty(standard, y, w, folds)
    weight, intercept = _solve(standard, y, w, (penalty,))[0]
    return weight / spread, float(intercept - (weight / spread) @ centre)


def _best_penalty(x: Tensor, y: Tensor, w: Tensor, folds: Tensor) -> float:
    errors = torch.zeros(len(RIDGE_PENALTIES), dtype=torch.float64)
    for fold in folds.unique():
        out = folds == fold
        if bool(out.all()):
            return RIDGE_PENALTIES[-1]
        for i, (weight, intercept) in enumerate(_solve(x[~out], y[~out], w[~out], RIDGE_PENALTIES)):
            errors[i] += w[out] @ (x[out] @ weight + intercept - y[out]).square()
    return RIDGE_PENALTIES[int(errors.argmin())]


def _solve(x: Tensor, y: Tensor, w: Tensor, penalties: tuple[float, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weight and intercept for each penalty, from one eigendecomposition."""
    w = w / w.sum()
    centre, middle = w @ x, w @ y
    values, vectors = torch.linalg.eigh((x - centre).T @ (w.unsqueeze(1) * (x - centre)))
    moment = vectors.T @ ((x - centre).T @ (w * (y - middle)))
    found = []
    for penalty in penalties:
        weight = vectors @ (moment / (values.clamp(min=0) + penalty * max(1e-12, float(values.mean()))))
        found.append((weight, middle - weight @ centre))
    return found
