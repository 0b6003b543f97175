"""The models of timm, as `timm:NAME`; needs the extra `timm`."""

from typing import Any

from torch import Tensor, nn

from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, MissingExtraError, ResourceError
from calibrant.models.base import Classifier, check_sizes

PREFIX = "timm:"


class TimmClassifier(Classifier):
    """A model of timm with random weights."""

    @checked
    def __init__(self, name: str, n_classes: int, *, image_size: int, channels: int = 3) -> None:
        check_sizes(n_classes, image_size, channels)
        super().__init__()
        self.body = _create(name, n_classes, image_size, channels)
        if not isinstance(self.head, nn.Linear):
            raise InvalidInputError(f"{PREFIX}{name} does not end in a linear layer, but in {type(self.head).__name__}")

    @property
    def head(self) -> nn.Linear:
        layer: nn.Linear = self.body.get_classifier()
        return layer

    def embed(self, images: Tensor) -> Tensor:
        features: Tensor = self.body.forward_head(self.body.forward_features(images), pre_logits=True)
        return features


def _create(name: str, n_classes: int, image_size: int, channels: int) -> Any:
    try:
        import timm
    except ImportError:
        raise MissingExtraError(f"{PREFIX}{name}", "timm") from None
    except RuntimeError as error:  # of a torchvision that was built for another torch
        raise ResourceError(f"{PREFIX}{name} needs timm, which cannot be loaded: {error}") from None
    if name not in timm.list_models():
        raise InvalidInputError(f"{PREFIX}{name} is no model of timm {timm.__version__}")
    options = {"num_classes": n_classes, "in_chans": channels}
    try:
        return timm.create_model(name, img_size=image_size, **options)
    except TypeError as error:  # convolutional models take images of any size and have no such option
        if "unexpected keyword argument 'img_size'" not in str(error):
            raise
        return timm.create_model(name, **options)
