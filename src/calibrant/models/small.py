"""Models that train on one processor core: a small residual network, a plain convolutional one and a perceptron."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant._checks import check_memory
from calibrant.models.base import Classifier, check_sizes
from calibrant.models.resnet import BasicBlock, ResNet

WIDTHS = (16, 32, 96)
CHANNELS = (16, 32, 64)
HIDDEN = (256, 128)


class SmallResNet(ResNet):
    """Six blocks of 16, 32 and 96 channels behind a stem of stride 2: 0.3 million parameters."""

    def __init__(self, n_classes: int, *, image_size: int, channels: int = 3) -> None:
        super().__init__(BasicBlock, (2, 2, 2), n_classes, image_size=image_size, channels=channels, widths=WIDTHS)
        self.conv1 = nn.Conv2d(channels, WIDTHS[0], 3, 2, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")


class SmallConvNet(Classifier):
    """Three convolutions of stride 2 with batch normalisation: an epoch of thousands of small images in a second."""

    def __init__(self, n_classes: int, *, image_size: int, channels: int = 3) -> None:
        check_sizes(n_classes, image_size, channels)
        super().__init__()
        layers: list[nn.Module] = []
        side = image_size
        for before, after in pairwise((channels, *CHANNELS)):
            layers += [nn.Conv2d(before, after, 3, 2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            side = -(-side // 2)
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.fc = nn.Linear(CHANNELS[-1] * side**2, n_classes)

    @property
    def head(self) -> nn.Linear:
        return self.fc

    def embed(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


class MLP(Classifier):
    """Two hidden layers without batch normalisation: its gradients do not depend on how a batch is divided."""

    def __init__(self, n_classes: int, *, image_size: int, channels: int = 3) -> None:
        check_sizes(n_classes, image_size, channels)
        super().__init__()
        check_memory(f"an mlp for {image_size} x {image_size} pixels", 4 * channels * image_size**2 * HIDDEN[0])
        self.hidden1 = nn.Linear(channels * image_size**2, HIDDEN[0])
        self.hidden2 = nn.Linear(*HIDDEN)
        self.fc = nn.Linear(HIDDEN[1], n_classes)

    @property
    def head(self) -> nn.Linear:
        return self.fc

    def embed(self, images: Tensor) -> Tensor:
        return F.relu(self.hidden2(F.relu(self.hidden1(images.flatten(1)))))
