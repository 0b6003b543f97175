"""Curves: losses that depend on one number only, the log-probability of the label; with the defaults of each.

For a soft label the loss is its expectation, Σ_k t_k · curve(log p_k). Each curve also gives its slope, so that the
fused path needs no automatic differentiation.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant._checks import check_fraction, check_number
from calibrant.errors import InvalidInputError


class Curve(ABC):
    @abstractmethod
    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """The loss at each log-probability, and its derivative with respect to that log-probability."""


@final
@dataclass(frozen=True)
class CrossEntropy(Curve):
    r""":math:`-\log p`."""

    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        return -log_p, torch.full_like(log_p, -1.0)


@final
@dataclass(frozen=True)
class Focal(Curve):
    r""":math:`-(1-p)^\gamma \log p`, with :math:`q = p - 1` below."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, least=0)

    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        q = log_p.expm1()
        if self.gamma == 1:  # the paper's setting: q·log p, slope p·log p + q
            value = q * log_p
            return value, value + log_p + q
        rest = (-q).clamp_min(torch.finfo(q.dtype).tiny)  # a power below 1 has no slope at p = 1
        weight = rest**self.gamma
        return -weight * log_p, self.gamma * (q + 1) * rest ** (self.gamma - 1) * log_p - weight


@final
@dataclass(frozen=True)
class InverseFocal(Curve):
    r""":math:`-(1+p)^\gamma \log p`."""

    gamma: float = 2.0

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, least=0)

    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        p = log_p.exp()
        weight = (1 + p) ** self.gamma
        return -weight * log_p, -weight - self.gamma * p * (1 + p) ** (self.gamma - 1) * log_p


@final
@dataclass(frozen=True)
class Poly(Curve):
    r""":math:`-\log p + \epsilon (1-p)`."""

    epsilon: float = 1.0

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon)

    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        q = log_p.expm1()
        return torch.add(-log_p, q, alpha=-self.epsilon), -1 - self.epsilon * (q + 1)


@final
@dataclass(frozen=True)
class StepFocal(Curve):
    r"""Focal loss whose :math:`\gamma` is larger where p is small, and a constant to the gradient (FLSD)."""

    low: Focal = Focal(5.0)
    high: Focal = Focal(3.0)
    threshold: float = 0.2

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, least=0, most=1)

    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self.low.value_and_slope(log_p), self.high.value_and_slope(log_p)
        rounding = 8 * torch.finfo(log_p.dtype).eps  # five equal logits have p = 0.2, however that is rounded
        is_low = log_p < math.log(max(self.threshold, 1e-300)) - rounding
        return torch.where(is_low, low[0], high[0]), torch.where(is_low, low[1], high[1])


@final
@dataclass(frozen=True)
class Relaxation(Curve):
    r"""0 where :math:`p \ge 1-\alpha`, else the divergence :math:`KL((1-\alpha, \alpha) \| (p, 1-p))`."""

    alpha: float = 0.1

    def __post_init__(self) -> None:
        if check_fraction("alpha", self.alpha) == 0:
            raise InvalidInputError("alpha must lie in (0, 1), got 0")

    def value_and_slope(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        a = self.alpha
        outside = log_p < math.log1p(-a)
        rest = torch.where(outside, -log_p.expm1(), a)  # 1 − p; inside, a constant that keeps the gradient finite
        constant = (1 - a) * math.log1p(-a) + a * math.log(a)
        value = constant - (1 - a) * log_p - a * rest.log()
        slope = -(1 - a) + a * (1 - rest) / rest
        return torch.where(outside, value, 0.0), torch.where(outside, slope, 0.0)
