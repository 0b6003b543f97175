"""The base class of models: images in, logits out, with the features before the last layer."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from calibrant._checks import MAX_CLASSES, MAX_IMAGE_SIZE, check_integer
from calibrant._signatures import checked

MAX_CHANNELS = 1000


def check_sizes(n_classes: int, image_size: int, channels: int) -> None:
    """What every model is built from."""
    check_integer("n_classes", n_classes, 2, MAX_CLASSES)
    check_integer("image_size", image_size, 8, MAX_IMAGE_SIZE)
    check_integer("channels", channels, 1, MAX_CHANNELS)


class Classifier(nn.Module, ABC):
    """A classifier whose last layer is linear.

    Images are floating point (n, c, h, w), normalised by the mean and std of the data set. The models of `MODELS` are
    built from n_classes, image_size and channels; see `build_model`.

    Args:
        n_classes: The number of classes.
        image_size: The side of the images in pixels.
        channels: Their channels, 1 or 3.
    """

    @property
    @abstractmethod
    def head(self) -> nn.Linear:
        """The last layer."""

    @abstractmethod
    def embed(self, images: Tensor) -> Tensor:
        """The penultimate features.

        Args:
            images: Floating point (n, c, h, w).

        Returns:
            Features (n, n_features).
        """

    def forward(self, images: Tensor) -> Tensor:
        """The logits.

        Args:
            images: Floating point (n, c, h, w).

        Returns:
            Logits (n, n_classes).
        """
        logits: Tensor = self.head(self.embed(images))
        return logits


@checked
def n_parameters(model: nn.Module) -> int:
    """The number of parameters.

    Args:
        model: A model.

    Returns:
        The number.
    """
    return sum(parameter.numel() for parameter in model.parameters())
