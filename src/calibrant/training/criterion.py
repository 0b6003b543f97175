"""The loss of a run: by its name, with the prior of the training split where it asks for one."""

import inspect

from torch import Tensor

from calibrant._names import check_choice
from calibrant.losses import LOSSES, Loss
from calibrant.training.settings import Settings

SET_BY_DATA = ("prior", "form", "class_values", "features")  # what the name of a loss and the data decide


def loss_options(name: str) -> list[str]:
    """The options of a loss that are settings of their own."""
    parameters = inspect.signature(LOSSES[check_choice("loss", name, LOSSES)]).parameters.values()
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in SET_BY_DATA]


def build_criterion(settings: Settings, prior: Tensor) -> Loss:
    """The loss of the settings for training labels of this class prior."""
    build = LOSSES[settings.loss]
    takes_prior = "prior" in inspect.signature(build).parameters
    options = dict(settings.loss_options)
    # what it is given are a model's logits, whose NaN the loop finds itself
    return build(*([prior] if takes_prior else []), **options, label_smoothing=settings.label_smoothing, validate=False)


def warmup_criterion(settings: Settings) -> Loss:
    return LOSSES["cross_entropy"](label_smoothing=settings.label_smoothing, validate=False)
