"""The models: each is built from the number of classes and the size of the images, and returns logits."""

from collections.abc import Callable

from calibrant._checks import check_integer
from calibrant._names import check_choice
from calibrant.models.base import Classifier, n_parameters
from calibrant.models.densenet import DenseNet, densenet121
from calibrant.models.own import import_model
from calibrant.models.resnet import ResNet, resnet18, resnet50
from calibrant.models.small import MLP, SmallConvNet, SmallResNet
from calibrant.models.timm import PREFIX, TimmClassifier
from calibrant.models.weights import load_weights, read_tensors, write_tensors

MODELS: dict[str, Callable[..., Classifier]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "densenet121": densenet121,
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
    "densenet121",
    "import_model",
    "load_weights",
    "n_parameters",
    "read_tensors",
    "resnet18",
    "resnet50",
    "write_tensors",
]


def check_model(name: str) -> str:
    """The name of a model of the table, or timm: and the name of one of timm's."""
    return name if name.startswith(PREFIX) else check_choice("model", name, MODELS)


def build_model(name: str, n_classes: int, *, image_size: int, channels: int = 3) -> Classifier:
    """The model of this name, its weights drawn from torch's generator; `timm:NAME` where timm is installed.

    >>> import torch
    >>> model = build_model("resnet18", 10, image_size=32)
    >>> n_parameters(model), model(torch.zeros(2, 3, 32, 32)).shape, model.embed(torch.zeros(2, 3, 32, 32)).shape
    (11173962, torch.Size([2, 10]), torch.Size([2, 512]))
    """
    n_classes, channels = check_integer("n_classes", n_classes, 2), check_integer("channels", channels, 1)
    image_size = check_integer("image_size", image_size, 8)
    if check_model(name).startswith(PREFIX):
        return TimmClassifier(name.removeprefix(PREFIX), n_classes, image_size=image_size, channels=channels)
    return MODELS[name](n_classes, image_size=image_size, channels=channels)
