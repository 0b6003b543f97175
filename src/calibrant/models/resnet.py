"""Residual networks (He et al., CVPR 2016), with a stem for images of 32, 64 or 224 pixels."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant._signatures import checked
from calibrant.errors import InvalidInputError
from calibrant.models.base import Classifier, check_sizes

MAX_WIDTH = 10_000  # also the greatest number of blocks in a stage
MAX_SIDE_32, MAX_SIDE_64 = 48, 112  # pixels: the largest images with the stem for 32, and for 64, pixels


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(n_in, width, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = F.relu(self.bn1(self.conv1(images)), inplace=True)
        return F.relu(self.bn2(self.conv2(inner)) + self.downsample(images), inplace=True)


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 ones, and a shortcut; the stride is on the 3 x 3."""

    expansion = 4

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = shortcut(n_in, 4 * width, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = F.relu(self.bn1(self.conv1(images)), inplace=True)
        inner = F.relu(self.bn2(self.conv2(inner)), inplace=True)
        return F.relu(self.bn3(self.conv3(inner)) + self.downsample(images), inplace=True)


def shortcut(n_in: int, n_out: int, stride: int) -> nn.Module:
    if n_in == n_out and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))


class ResNet(Classifier):
    """Stages of blocks, each half the size of the one before.

    The stem is a 3 x 3 convolution for images of 32 pixels, the same with stride 2 for 64, and a 7 x 7 with stride 2
    and pooling for 224. Names are those of torchvision; its weights for 224 pixels can be loaded.
    """

    @checked
    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        n_classes: int,
        *,
        image_size: int,
        channels: int = 3,
        widths: Sequence[int] = (64, 128, 256, 512),
    ) -> None:
        check_sizes(n_classes, image_size, channels)
        if not 0 < len(depths) == len(widths) or not all(0 < n <= MAX_WIDTH for n in (*depths, *widths)):
            got = f"{tuple(depths)} and {tuple(widths)}"
            raise InvalidInputError(f"depths and widths must be as many, from 1 to {MAX_WIDTH}, got {got}")
        super().__init__()
        n_in = widths[0]
        self.conv1, self.maxpool = stem(channels, n_in, image_size)
        self.bn1 = nn.BatchNorm2d(n_in)
        self.stages = [f"layer{number}" for number in range(1, len(depths) + 1)]
        for stage, depth, width in zip(self.stages, depths, widths, strict=True):
            blocks = []
            for position in range(depth):
                stride = 2 if position == 0 and stage != "layer1" else 1
                blocks.append(block(n_in, width, stride))
                n_in = width * block.expansion
            self.add_module(stage, nn.Sequential(*blocks))
        self.fc = nn.Linear(n_in, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def head(self) -> nn.Linear:
        return self.fc

    def embed(self, images: Tensor) -> Tensor:
        values: Tensor = self.maxpool(F.relu(self.bn1(self.conv1(images)), inplace=True))
        for stage in self.stages:
            values = getattr(self, stage)(values)
        return values.mean((2, 3))


def stem(channels: int, width: int, image_size: int) -> tuple[nn.Conv2d, nn.Module]:
    """The first convolution and the pooling after it."""
    if image_size <= MAX_SIDE_64:
        stride = 1 if image_size <= MAX_SIDE_32 else 2
        return nn.Conv2d(channels, width, 3, stride, padding=1, bias=False), nn.Identity()
    return nn.Conv2d(channels, width, 7, 2, padding=3, bias=False), nn.MaxPool2d(3, 2, padding=1)
