"""Losses with one contract, `criterion(logits, labels)`, by name in the table LOSSES."""

from collections.abc import Callable
from functools import partial

from calibrant.losses import functional
from calibrant.losses.maxent import MaxEntLoss, Telemetry
from calibrant.losses.modules import (
    AvUCLoss,
    CrossEntropyLoss,
    DualFocalLoss,
    FLSDLoss,
    FocalLoss,
    InverseFocalLoss,
    LabelRelaxationLoss,
    Loss,
    MarginSmoothingLoss,
    MDCALoss,
    MMCELoss,
    PolyLoss,
    SoftAvUCLoss,
)

__all__ = [
    "LOSSES",
    "AvUCLoss",
    "CrossEntropyLoss",
    "DualFocalLoss",
    "FLSDLoss",
    "FocalLoss",
    "InverseFocalLoss",
    "LabelRelaxationLoss",
    "Loss",
    "MDCALoss",
    "MMCELoss",
    "MarginSmoothingLoss",
    "MaxEntLoss",
    "PolyLoss",
    "SoftAvUCLoss",
    "Telemetry",
    "functional",
]

# Every loss by its name, with the paper's settings as defaults. The maxent losses take the class prior first.
LOSSES: dict[str, Callable[..., Loss]] = {
    "cross_entropy": CrossEntropyLoss,
    "focal": FocalLoss,
    "inverse_focal": InverseFocalLoss,
    "poly": PolyLoss,
    "avuc": AvUCLoss,
    "soft_avuc": SoftAvUCLoss,
    "maxent_mean": partial(MaxEntLoss, form="mean"),
    "maxent_variance": partial(MaxEntLoss, form="variance"),
    "maxent_mean_variance": partial(MaxEntLoss, form="mean_variance"),
    "maxent_prior": partial(MaxEntLoss, form="prior"),
    "flsd": FLSDLoss,
    "dual_focal": DualFocalLoss,
    "mmce": MMCELoss,
    "mdca": MDCALoss,
    "mbls": MarginSmoothingLoss,
    "label_relaxation": LabelRelaxationLoss,
}
