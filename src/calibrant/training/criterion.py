"""The loss of a run, by name, with the class prior of the training split where it needs one."""

import inspect

from torch import Tensor

from calibrant._names import check_choice
from calibrant.losses import LOSSES, Loss
from calibrant.training.settings import Settings

SET_BY_DATA = ("prior", "form", "class_values", "features")  # options that the name of a loss and the data set decide


def loss_options(name: str) -> list[str]:
    """The options of a loss that ``loss_options`` of the settings may have."""
    parameters = inspect.signature(LOSSES[check_choice("loss", name, LOSSES)]).parameters.values()
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in SET_BY_DATA]


def build_criterion(settings: Settings, prior: Tensor) -> Loss:
    """The loss of the settings for training labels of this class prior."""
    build = LOSSES[settings.loss]
    arguments = [prior] if "prior" in inspect.signature(build).parameters else []
    # not validated: the training loop itself detects NaN in the logits
    return build(*arguments, **settings.loss_options, label_smoothing=settings.label_smoothing, validate=False)


def warmup_criterion(settings: Settings) -> Loss:
    return LOSSES["cross_entropy"](label_smoothing=settings.label_smoothing, validate=False)
