"""Losses that depend on the log-probability of the label only, each with its value and its slope.

The slope lets the fused path do without automatic differentiation. The loss of a soft label is the expectation
Σ_k t_k · curve(log p_k).
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from calibrant._checks import check_fraction, check_number, check_positive

FOCAL_GAMMA = 1.0
INVERSE_FOCAL_GAMMA = 2.0
POLY_EPSILON = 1.0
GAMMA_LOW, GAMMA_HIGH, GAMMA_THRESHOLD = 5.0, 3.0, 0.2  # FLSD-53
RELAXATION_ALPHA = 0.1

Curve = partial[tuple[Tensor, Tensor]]  # its keywords are the settings: it prints and pickles

_check_gamma = partial(check_number, "gamma", minimum=0)
SETTING_CHECKS: dict[str, Callable[[float], float]] = {
    "gamma": _check_gamma,
    "gamma_low": _check_gamma,
    "gamma_high": _check_gamma,
    "threshold": partial(check_number, "threshold", minimum=0, maximum=1),
    "epsilon": partial(check_number, "epsilon"),
    "alpha": lambda alpha: check_positive("alpha", check_fraction("alpha", alpha)),
}


def make_curve(function: Callable[..., tuple[Tensor, Tensor]], **settings: float) -> Curve:
    """One of the functions below with checked settings."""
    return partial(function, **{name: SETTING_CHECKS[name](value) for name, value in settings.items()})


def cross_entropy(log_p: Tensor) -> tuple[Tensor, Tensor]:
    r""":math:`-\log p`."""
    return -log_p, torch.full_like(log_p, -1.0)


def focal(log_p: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    r""":math:`-(1-p)^\gamma \log p`, with :math:`q = p - 1` below."""
    q = log_p.expm1()
    if gamma == 1:  # the paper's setting: q·log p, slope p·log p + q
        value = q * log_p
        return value, value + log_p + q
    rest = (-q).clamp_min(torch.finfo(q.dtype).tiny)  # a power below 1 has no slope at p = 1
    weight = rest**gamma
    return -weight * log_p, gamma * (q + 1) * rest ** (gamma - 1) * log_p - weight


def inverse_focal(log_p: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    r""":math:`-(1+p)^\gamma \log p`."""
    p = log_p.exp()
    weight = (1 + p) ** gamma
    return -weight * log_p, -weight - gamma * p * (1 + p) ** (gamma - 1) * log_p


def poly(log_p: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    r""":math:`-\log p + \epsilon (1-p)`."""
    q = log_p.expm1()
    return torch.add(-log_p, q, alpha=-epsilon), -1 - epsilon * (q + 1)


def flsd(log_p: Tensor, gamma_low: float, gamma_high: float, threshold: float) -> tuple[Tensor, Tensor]:
    r"""Focal loss whose :math:`\gamma` is larger where p is small, and a constant to the gradient."""
    low, high = focal(log_p, gamma_low), focal(log_p, gamma_high)
    rounding = 8 * torch.finfo(log_p.dtype).eps  # five equal logits have p = 0.2, however that is rounded
    is_low = log_p < math.log(max(threshold, 1e-300)) - rounding
    return torch.where(is_low, low[0], high[0]), torch.where(is_low, low[1], high[1])


def label_relaxation(log_p: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    r"""0 where :math:`p \ge 1-\alpha`, else the divergence :math:`KL((1-\alpha, \alpha) \| (p, 1-p))`."""
    outside = log_p < math.log1p(-alpha)
    rest = torch.where(outside, -log_p.expm1(), alpha)  # 1 − p; inside, a constant that keeps the gradient finite
    constant = (1 - alpha) * math.log1p(-alpha) + alpha * math.log(alpha)
    value = constant - (1 - alpha) * log_p - alpha * rest.log()
    slope = -(1 - alpha) + alpha * (1 - rest) / rest
    return torch.where(outside, value, 0.0), torch.where(outside, slope, 0.0)
