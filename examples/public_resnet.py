"""The CIFAR ResNets of He et al. (2015), with the weights published at github.com/akamaster/pytorch_resnet_cifar10."""

import sys
from pathlib import Path
from pickle import UnpicklingError

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.models import read_tensors, write_tensors

# The published weights expect the normalisation of ImageNet; calibrant normalises by 0.5 and 0.5.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two 3 x 3 convolutions; the shortcut drops every second pixel and pads channels with zeros on both sides."""

    def __init__(self, n_in: int, width: int) -> None:
        super().__init__()
        self.stride, self.padding = width // n_in, (width - n_in) // 2
        self.conv1 = nn.Conv2d(n_in, width, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, values: Tensor) -> Tensor:
        shortcut = F.pad(values[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        inner = F.relu(self.bn1(self.conv1(values)), inplace=True)
        return F.relu(self.bn2(self.conv2(inner)) + shortcut, inplace=True)


class CifarResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels, with n blocks each: 6 n + 2 layers."""

    def __init__(self, n_blocks: int, n_classes: int = 10) -> None:
        super().__init__()
        self.name = f"ResNet-{6 * n_blocks + 2}"
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(16, 16, n_blocks)
        self.layer2 = stage(16, 32, n_blocks)
        self.layer3 = stage(32, 64, n_blocks)
        self.linear = nn.Linear(64, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        mean, std = (images.new_tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
        values = F.relu(self.bn1(self.conv1((images * 0.5 + 0.5 - mean) / std)), inplace=True)
        values = self.layer3(self.layer2(self.layer1(values)))
        logits: Tensor = self.linear(values.mean((2, 3)))
        return logits


def stage(n_in: int, width: int, n_blocks: int) -> nn.Sequential:
    return nn.Sequential(Block(n_in, width), *(Block(width, width) for _ in range(n_blocks - 1)))


def resnet20(n_classes: int = 10, *, image_size: int = 32, channels: int = 3) -> CifarResNet:
    return CifarResNet(3, n_classes)


def resnet44(n_classes: int = 10, *, image_size: int = 32, channels: int = 3) -> CifarResNet:
    return CifarResNet(7, n_classes)


def load(path: Path) -> CifarResNet:
    """The network of published weights: a .th file of the repository above, or the same tensors as safetensors."""
    try:
        if path.suffix == ".safetensors":
            tensors, _ = read_tensors(path)
        else:
            saved = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
            tensors = {name.removeprefix("module."): tensor for name, tensor in saved.items()}
        n_blocks = sum(name.startswith("layer1.") and name.endswith(".conv1.weight") for name in tensors)
        model = CifarResNet(n_blocks, len(tensors["linear.bias"]))
        model.load_state_dict(tensors)
    except (OSError, KeyError, RuntimeError, UnpicklingError):
        raise InvalidInputError(f"{path} is not there, or no file of weights of a CIFAR ResNet") from None
    return model.eval()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: public_resnet.py resnet20-12fca82f.th data/resnet20_cifar10.safetensors")
    try:
        write_tensors(sys.argv[2], load(Path(sys.argv[1])).state_dict(), {})
    except CalibrantError as error:
        sys.exit(str(error))
