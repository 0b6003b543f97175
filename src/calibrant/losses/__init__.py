"""Losses with one contract, `criterion(logits, labels)`, by name in the table LOSSES."""

from collections.abc import Callable
from functools import partial

from calibrant.losses import functional as functional
from calibrant.losses.maxent import MaxEntLoss as MaxEntLoss
from calibrant.losses.maxent import Telemetry as Telemetry
from calibrant.losses.modules import AvUCLoss as AvUCLoss
from calibrant.losses.modules import CrossEntropyLoss as CrossEntropyLoss
from calibrant.losses.modules import DualFocalLoss as DualFocalLoss
from calibrant.losses.modules import FLSDLoss as FLSDLoss
from calibrant.losses.modules import FocalLoss as FocalLoss
from calibrant.losses.modules import InverseFocalLoss as InverseFocalLoss
from calibrant.losses.modules import LabelRelaxationLoss as LabelRelaxationLoss
from calibrant.losses.modules import Loss as Loss
from calibrant.losses.modules import MarginSmoothingLoss as MarginSmoothingLoss
from calibrant.losses.modules import MDCALoss as MDCALoss
from calibrant.losses.modules import MMCELoss as MMCELoss
from calibrant.losses.modules import PolyLoss as PolyLoss
from calibrant.losses.modules import SoftAvUCLoss as SoftAvUCLoss

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
