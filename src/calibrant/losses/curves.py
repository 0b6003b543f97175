"""Curves: losses that depend on one number only, the log-probability of the label; with the defaults of each.

A curve gives its value and its slope at each log-probability, so that the fused path needs no automatic
differentiation. For a soft label the loss is the expectation, Σ_k t_k · curve(log p_k).
"""

import math
from functools import partial

import torch
from torch import Tensor

from calibrant._checks import check_fraction, check_number
from calibrant.errors import InvalidInputError

FOCAL_GAMMA = 1.0
INVERSE_FOCAL_GAMMA = 2.0
POLY_EPSILON = 1.0
GAMMA_LOW, GAMMA_HIGH, GAMMA_THRESHOLD = 5.0, 3.0, 0.2  # FLSD-53
RELAXATION_ALPHA = 0.1

Curve = partial[tuple[Tensor, Tensor]]  # its keywords are the settings: it prints and pickles


def cross_entropy() -> Curve:
    r""":math:`-\log p`."""
    return partial(_cross_entropy)


def _cross_entropy(log_p: Tensor) -> tuple[Tensor, Tensor]:
    return -log_p, torch.full_like(log_p, -1.0)


def focal(gamma: float) -> Curve:
    r""":math:`-(1-p)^\gamma \log p`, with :math:`q = p - 1` below."""
    return partial(_focal, gamma=check_number("gamma", gamma, minimum=0))


def _focal(log_p: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    q = log_p.expm1()
    if gamma == 1:  # the paper's setting: q·log p, slope p·log p + q
        value = q * log_p
        return value, value + log_p + q
    rest = (-q).clamp_min(torch.finfo(q.dtype).tiny)  # a power below 1 has no slope at p = 1
    weight = rest**gamma
    return -weight * log_p, gamma * (q + 1) * rest ** (gamma - 1) * log_p - weight


def inverse_focal(gamma: float) -> Curve:
    r""":math:`-(1+p)^\gamma \log p`."""
    return partial(_inverse_focal, gamma=check_number("gamma", gamma, minimum=0))


def _inverse_focal(log_p: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    p = log_p.exp()
    weight = (1 + p) ** gamma
    return -weight * log_p, -weight - gamma * p * (1 + p) ** (gamma - 1) * log_p


def poly(epsilon: float) -> Curve:
    r""":math:`-\log p + \epsilon (1-p)`."""
    return partial(_poly, epsilon=check_number("epsilon", epsilon))


def _poly(log_p: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    q = log_p.expm1()
    return torch.add(-log_p, q, alpha=-epsilon), -1 - epsilon * (q + 1)


def step_focal(gamma_low: float, gamma_high: float, threshold: float) -> Curve:
    r"""Focal loss whose :math:`\gamma` is larger where p is small, and a constant to the gradient (FLSD)."""
    return partial(
        _step_focal,
        gamma_low=check_number("gamma", gamma_low, minimum=0),
        gamma_high=check_number("gamma", gamma_high, minimum=0),
        threshold=check_number("threshold", threshold, minimum=0, maximum=1),
    )


def _step_focal(log_p: Tensor, gamma_low: float, gamma_high: float, threshold: float) -> tuple[Tensor, Tensor]:
    low, high = _focal(log_p, gamma_low), _focal(log_p, gamma_high)
    rounding = 8 * torch.finfo(log_p.dtype).eps  # five equal logits have p = 0.2, however that is rounded
    is_low = log_p < math.log(max(threshold, 1e-300)) - rounding
    return torch.where(is_low, low[0], high[0]), torch.where(is_low, low[1], high[1])


def relaxation(alpha: float) -> Curve:
    r"""0 where :math:`p \ge 1-\alpha`, else the divergence :math:`KL((1-\alpha, \alpha) \| (p, 1-p))`."""
    if check_fraction("alpha", alpha) == 0:
        raise InvalidInputError("alpha must lie in (0, 1), got 0")
    return partial(_relaxation, alpha=alpha)


def _relaxation(log_p: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    outside = log_p < math.log1p(-alpha)
    rest = torch.where(outside, -log_p.expm1(), alpha)  # 1 − p; inside, a constant that keeps the gradient finite
    constant = (1 - alpha) * math.log1p(-alpha) + alpha * math.log(alpha)
    value = constant - (1 - alpha) * log_p - alpha * rest.log()
    slope = -(1 - alpha) + alpha * (1 - rest) / rest
    return torch.where(outside, value, 0.0), torch.where(outside, slope, 0.0)
