"""Structured vector and matrix scaling: a temperature, then an affine map whose prior is stronger the larger it is.

Berta, Holzmüller, Jordan and Bach, "Structured Matrix Scaling for Multi-Class Calibration" (2025).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn

from calibrant._checks import check_positive
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import natural_scale
from calibrant.calibrators.modules import TemperatureModule
from calibrant.calibrators.scaling import AffineScaling, fit_affine, min_finite
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StructuredScaling(AffineScaling):
    """W log softmax(z / T) + b: the T of temperature scaling, then W near the identity and b near 0."""

    log_probs: ClassVar[bool] = True

    temperature: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("temperature", self.temperature)

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, strength: float = 1.0, clip: float | None = None) -> Self:
        """Fit the temperature, then maximize the likelihood times the prior of `structured_precision`.

        Args:
            strength: Scale of the prior's precision; 1 is the published one.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        identity = cls.checked_identity(validation, strength)
        temperature = 1 / natural_scale(validation.logits, validation.labels)
        log_probs = TemperatureModule(temperature=temperature)(validation.logits.double()).log_softmax(1)
        floor = min_finite(log_probs)
        inputs = torch.where(log_probs == -math.inf, floor, log_probs)
        precision = structured_precision(len(inputs), identity, strength)
        weight, bias = fit_affine(inputs, validation.labels, identity, precision)
        return cls.from_parameters(validation, weight=weight, bias=bias, floor=floor, temperature=temperature)

    def row_module(self) -> nn.Module:
        return nn.Sequential(TemperatureModule(temperature=self.temperature), super().row_module())


@final
class StructuredVectorScaling(StructuredScaling):
    """SVS: a temperature, then a weight near 1 and a bias near 0 for each class (Berta et al. 2025)."""

    name: ClassVar[str] = "svs"
    diagonal: ClassVar[bool] = True


@final
class StructuredMatrixScaling(StructuredScaling):
    """SMS: a temperature, then a matrix near the identity, above all off its diagonal, and a bias (Berta et al.)."""

    name: ClassVar[str] = "sms"


def structured_precision(n_rows: int, identity: Tensor, strength: float) -> Tensor:
    """The prior's precision of each parameter: 2 m / n where there are m parameters of its kind.

    These are k biases, k weights of a class's own log-probability, and k (k − 1) off-diagonal weights. The mean NLL
    plus half of precision times squared deviation is the published objective, with ridge penalties of λ = 1.
    """
    k = len(identity)
    precision = torch.full((k, 2 if identity.ndim == 1 else k + 1), 2 * k * strength / n_rows, dtype=torch.float64)
    if identity.ndim > 1:
        precision[:, :-1].masked_fill_(identity == 0, 2 * k * (k - 1) * strength / n_rows)
    return precision
