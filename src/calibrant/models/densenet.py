"""DenseNet-121 (Huang et al., CVPR 2017), with a stem for images of 32, 64 or 224 pixels."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.models.base import Classifier, check_sizes
from calibrant.models.resnet import stem

GROWTH, BOTTLENECK, STEM_CHANNELS = 32, 4, 64
BLOCK_DEPTHS = (6, 12, 24, 16)


class DenseLayer(nn.Module):
    """A bottleneck and a 3 x 3 convolution; their output is concatenated to the input."""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(n_in)
        self.conv1 = nn.Conv2d(n_in, BOTTLENECK * GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK * GROWTH)
        self.conv2 = nn.Conv2d(BOTTLENECK * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        inner = self.conv1(F.relu(self.norm1(values), inplace=True))
        return torch.cat((values, self.conv2(F.relu(self.norm2(inner), inplace=True))), dim=1)


class DenseNet(Classifier):
    """DenseNet-121: four dense blocks, and transitions that halve size and channels; names as in torchvision."""

    def __init__(self, n_classes: int, *, image_size: int, channels: int = 3) -> None:
        check_sizes(n_classes, image_size, channels)
        super().__init__()
        first, pool = stem(channels, STEM_CHANNELS, image_size)
        parts: list[tuple[str, nn.Module]] = [
            ("conv0", first),
            ("norm0", nn.BatchNorm2d(STEM_CHANNELS)),
            ("relu0", nn.ReLU(inplace=True)),
            ("pool0", pool),
        ]
        n_in = STEM_CHANNELS
        for number, depth in enumerate(BLOCK_DEPTHS, start=1):
            layers = [(f"denselayer{i + 1}", DenseLayer(n_in + i * GROWTH)) for i in range(depth)]
            parts.append((f"denseblock{number}", nn.Sequential(OrderedDict(layers))))
            n_in += depth * GROWTH
            if number < len(BLOCK_DEPTHS):
                parts.append((f"transition{number}", transition(n_in)))
                n_in //= 2
        parts.append((f"norm{len(BLOCK_DEPTHS) + 1}", nn.BatchNorm2d(n_in)))
        self.features = nn.Sequential(OrderedDict(parts))
        self.classifier = nn.Linear(n_in, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    @property
    def head(self) -> nn.Linear:
        return self.classifier

    def embed(self, images: Tensor) -> Tensor:
        return F.relu(self.features(images), inplace=True).mean((2, 3))


def transition(n_in: int) -> nn.Sequential:
    """Half the channels at half the size."""
    parts: list[tuple[str, nn.Module]] = [
        ("norm", nn.BatchNorm2d(n_in)),
        ("relu", nn.ReLU(inplace=True)),
        ("conv", nn.Conv2d(n_in, n_in // 2, 1, bias=False)),
        ("pool", nn.AvgPool2d(2)),
    ]
    return nn.Sequential(OrderedDict(parts))
