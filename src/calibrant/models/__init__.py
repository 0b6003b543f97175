"""Models, built from the number of classes and the size of the images; they return logits."""

from collections.abc import Callable
from functools import partial

from torch import nn

from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.models.base import Classifier, n_parameters
from calibrant.models.densenet import DenseNet
from calibrant.models.own import build_own, find_builder, import_model
from calibrant.models.resnet import BasicBlock, Bottleneck, ResNet
from calibrant.models.small import MLP, SmallConvNet, SmallResNet
from calibrant.models.timm import PREFIX, TimmClassifier
from calibrant.models.weights import load_weights, read_tensors, write_tensors

MODELS: dict[str, Callable[..., Classifier]] = {
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    "densenet121": DenseNet,
    "narrow_resnet": partial(ResNet, BasicBlock, (1, 1, 1, 1), widths=(16, 32, 64, 128)),
    "small_resnet": SmallResNet,
    "small_convnet": SmallConvNet,
    "mlp": MLP,
}

__all__ = [
    "MLP",
    "MODELS",
    "Classifier",
    "DenseNet",
    "ResNet",
    "SmallConvNet",
    "SmallResNet",
    "TimmClassifier",
    "build_model",
    "check_model",
    "import_model",
    "load_weights",
    "n_parameters",
    "read_tensors",
    "write_tensors",
]


@checked
def check_model(name: str) -> str:
    """Check the name of a model.

    Args:
        name: A name in `MODELS`, timm: and the name of a model of timm, or file.py:name of a model of your own.

    Returns:
        The name.

    Raises:
        UnknownNameError: The name is not in `MODELS`.
        NoDataError: Your own file cannot be imported, or has no such name.
        InvalidInputError: Your own model cannot be built from n_classes, image_size and channels.
    """
    if name.startswith(PREFIX):
        return name
    if ":" not in name and not name.endswith(".py"):
        return check_choice("model", name, MODELS)
    find_builder(name)
    return name


@checked
def build_model(name: str, n_classes: int, *, image_size: int, channels: int = 3) -> nn.Module:
    """Build a model; its weights are drawn from torch's generator.

    Args:
        name: A name in `MODELS`, timm:NAME where timm is installed, or file.py:name of a class or function of your own
            that is called with n_classes, image_size and channels and returns a module from images to logits.
        n_classes: The number of classes.
        image_size: The side of the images in pixels.
        channels: The channels of the images.

    Returns:
        The model.

    Raises:
        UnknownNameError: there is no model of this name.
        NoDataError: your own file cannot be imported, or has no such name.
        InvalidInputError: another argument breaks its rule.
        MissingExtraError: timm is not installed.

    >>> import torch
    >>> model = build_model("resnet18", 10, image_size=32)
    >>> n_parameters(model), model(torch.zeros(2, 3, 32, 32)).shape, model.embed(torch.zeros(2, 3, 32, 32)).shape
    (11173962, torch.Size([2, 10]), torch.Size([2, 512]))
    """
    if check_model(name).startswith(PREFIX):
        return TimmClassifier(name.removeprefix(PREFIX), n_classes, image_size=image_size, channels=channels)
    if ":" in name:
        return build_own(name, n_classes, image_size=image_size, channels=channels)
    return MODELS[name](n_classes, image_size=image_size, channels=channels)
