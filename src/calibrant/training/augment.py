"""AugMix with its consistency loss, mixup and cutmix: functions of seed, epoch and row, however a batch is divided."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._arrays import count_keys, to_device
from calibrant.corruptions import Draws
from calibrant.losses.fused import full_precision

# Of Hendrycks et al. 2020, for CIFAR.
N_CHAINS, MAX_DEPTH = 3, 3
MIN_LEVEL, MAX_LEVEL = 0.1, 3.0  # of 10
JS_WEIGHT = 12.0

N_LEVELS = 256  # grey levels


def augmix(images: Tensor, draws: Draws) -> Tensor:
    """The clean images and two AugMix views of each, uint8 (3n, c, h, w) (Hendrycks et al. 2020)."""
    return torch.cat([images, augmix_view(images, draws, "first"), augmix_view(images, draws, "second")])


def augmix_view(images: Tensor, draws: Draws, name: str) -> Tensor:
    r"""A mixture of each image with three chains of one to three operations, uint8 (n, c, h, w).

    .. math:: (1 - m)\,x + m \sum_i w_i\,chain_i(x)

    with m from Beta(1, 1) and w from Dirichlet(1, 1, 1).

    Args:
        images: uint8 (n, c, h, w).
        draws: The random numbers of each image, on the CPU.
        name: The name of the view: another one has other numbers.
    """
    device = images.device
    depths = draws.integers(f"{name} depth", 1, MAX_DEPTH + 1, N_CHAINS)
    operations = draws.integers(f"{name} operation", 0, len(OPERATIONS), N_CHAINS, MAX_DEPTH)
    levels = MIN_LEVEL + (MAX_LEVEL - MIN_LEVEL) * draws.uniforms(f"{name} level", N_CHAINS, MAX_DEPTH)
    levels *= 2 * draws.integers(f"{name} sign", 0, 2, N_CHAINS, MAX_DEPTH) - 1
    chains = images.repeat(N_CHAINS, 1, 1, 1)
    for step in range(MAX_DEPTH):
        # (n, chains) as the rows of `chains`; an operation that does not exist where a chain has ended
        operation = operations[:, :, step].where(depths > step, -1).T.flatten()
        level = levels[:, :, step].T.flatten().float()
        for number, operate in enumerate(OPERATIONS.values()):
            rows = (operation == number).nonzero()[:, 0]
            if len(rows):
                here = to_device(rows, device)
                changed = operate(chains.index_select(0, here), to_device(level[rows], device))
                chains.index_copy_(0, here, changed)
    shares = -draws.uniforms(f"{name} weights", N_CHAINS).log()  # exponential numbers, divided by their sum: Dirichlet
    mixed = draws.uniforms(f"{name} mixed", 1)
    weights = torch.cat([1 - mixed, mixed * shares / shares.sum(1, keepdim=True)], dim=1)
    weights = to_device(weights.float(), device)
    view = torch.zeros(images.shape, device=device, dtype=torch.float32)
    for weight, part in zip(weights.unbind(1), (images, *chains.chunk(N_CHAINS)), strict=True):
        view += _per_image(weight) * part
    return view.round_().to(torch.uint8)


def mixup(images: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    r""":math:`\lambda x + (1 - \lambda) x'` of each image and its partner, and of their labels (Zhang et al. 2018).

    Args:
        images: uint8 (2n, c, h, w): the images, then their partners.
        labels: One-hot (2n, k).
        draws: The random numbers of each image, on the CPU.

    Returns:
        Images, uint8 (n, c, h, w), and labels, float32 (n, k), with λ from Beta(1, 1).
    """
    share = draws[: len(images) // 2].uniforms("share")
    share = to_device(share.float(), images.device)
    weight = _per_image(share)
    own, other = images.chunk(2)
    return (weight * own + (1 - weight) * other).round_().to(torch.uint8), _mixed_labels(labels, share)


def cutmix(images: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """A box of each image filled from its partner; labels have the shares of the areas (Yun et al. 2019).

    The box has the sides of the image times sqrt(1 - λ), with λ from Beta(1, 1), and is cut off where it leaves the
    image. Arguments and results are those of :func:`mixup`.
    """
    own, other = images.chunk(2)
    draws = draws[: len(own)]
    scale = (1 - draws.uniforms("share")).sqrt()
    in_box = []
    for axis, size in (("down", images.shape[2]), ("across", images.shape[3])):
        middle = draws.integers(axis, 0, size)
        reach = (size * scale).long() // 2
        place = torch.arange(size)
        in_box.append((place >= (middle - reach)[:, None]) & (place < (middle + reach)[:, None]))
    down, across = in_box
    share = 1 - down.double().mean(1) * across.double().mean(1)
    box = to_device(down[:, None, :, None] & across[:, None, None, :], images.device)
    return torch.where(box, other, own), _mixed_labels(labels, to_device(share.float(), images.device))


MIXES: dict[str, Callable[[Tensor, Tensor, Draws], tuple[Tensor, Tensor]]] = {"mixup": mixup, "cutmix": cutmix}


def _mixed_labels(labels: Tensor, share: Tensor) -> Tensor:
    own, other = labels.chunk(2)
    return share[:, None] * own + (1 - share[:, None]) * other


def js_divergence(logits: Tensor) -> Tensor:
    """Mean Jensen-Shannon divergence between the predictions of the views of each image; logits are (views, n, k)."""
    with full_precision(logits.device.type):
        log_probs = (logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits).log_softmax(-1)
        mixture = log_probs.logsumexp(0) - math.log(len(logits))
        return (log_probs.exp() * (log_probs - mixture)).sum(-1).mean()


# The operations, none of them among the corruptions of the tests: images, uint8 (n, c, h, w), and the level of each
# image, (n,), from -3 to 3; as Pillow's up to rounding.


def autocontrast(images: Tensor, levels: Tensor) -> Tensor:
    """The grey levels of each channel stretched to 0 … 255."""
    low, high = images.amin((2, 3), keepdim=True).int(), images.amax((2, 3), keepdim=True).int()
    varies = high > low
    low, width = low.where(varies, 0), (high - low).where(varies, N_LEVELS - 1)
    return ((images - low) * (N_LEVELS - 1) // width).to(torch.uint8)


def equalize(images: Tensor, levels: Tensor) -> Tensor:
    """Each channel with all grey levels about equally frequent."""
    n, channels, height, width = images.shape
    offsets = N_LEVELS * torch.arange(n * channels, device=images.device, dtype=torch.int32)
    keys = (images.reshape(-1, height * width) + offsets[:, None]).flatten()
    counts = count_keys(keys, N_LEVELS * n * channels).view(-1, N_LEVELS)
    largest = images.reshape(-1, height * width).amax(1, keepdim=True).long()
    step = (height * width - counts.gather(1, largest)) // (N_LEVELS - 1)
    below = counts.cumsum(1) - counts
    tables = ((below + step // 2) // step.clamp_min(1)).clamp_max(N_LEVELS - 1)
    tables = tables.where(step > 0, torch.arange(N_LEVELS, device=images.device)).to(torch.uint8)
    return tables.flatten().index_select(0, keys).view(images.shape)


def posterize(images: Tensor, levels: Tensor) -> Tensor:
    """The highest four or three bits of each grey level."""
    n_dropped = 4 + (levels.abs() * 4 / 10).int()
    return images & _per_image(N_LEVELS - 2**n_dropped).to(torch.uint8)


def solarize(images: Tensor, levels: Tensor) -> Tensor:
    """The brightest grey levels inverted."""
    threshold = _per_image(N_LEVELS - (levels.abs() * N_LEVELS / 10).int()).to(torch.uint8)  # 254 at most
    return torch.where(images < threshold, images, N_LEVELS - 1 - images)


def rotate(images: Tensor, levels: Tensor) -> Tensor:
    """Rotated around the middle by up to 8 whole degrees."""
    angle = (levels * 30 / 10).trunc().deg2rad()
    middle_y, middle_x = images.shape[2] / 2, images.shape[3] / 2
    cos, sin = angle.cos(), angle.sin()
    across = (cos, -sin, middle_x - cos * middle_x + sin * middle_y)
    return _affine(images, across, (sin, cos, middle_y - sin * middle_x - cos * middle_y))


def shear_x(images: Tensor, levels: Tensor) -> Tensor:
    """Rows shifted by up to 0.09 of their distance from the top."""
    return _affine(images, (1, levels * 0.3 / 10, 0), (0, 1, 0))


def shear_y(images: Tensor, levels: Tensor) -> Tensor:
    """Columns shifted by up to 0.09 of their distance from the left."""
    return _affine(images, (1, 0, 0), (levels * 0.3 / 10, 1, 0))


def translate_x(images: Tensor, levels: Tensor) -> Tensor:
    """Shifted sideways by up to a tenth of the width, in whole pixels."""
    return _affine(images, (1, 0, (levels * images.shape[3] / 30).trunc()), (0, 1, 0))


def translate_y(images: Tensor, levels: Tensor) -> Tensor:
    """Shifted up or down by up to a tenth of the height, in whole pixels."""
    return _affine(images, (1, 0, 0), (0, 1, (levels * images.shape[2] / 30).trunc()))


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "rotate": rotate,
    "solarize": solarize,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
}

Row = tuple[Tensor | float, Tensor | float, Tensor | float]


def _affine(images: Tensor, across: Row, down: Row) -> Tensor:
    """Each pixel from where a matrix puts its middle, bilinear; black where that is outside the image."""
    height, width = images.shape[2:]
    x = torch.arange(width, device=images.device, dtype=torch.float32) + 0.5
    y = torch.arange(height, device=images.device, dtype=torch.float32)[:, None] + 0.5
    to_x, to_y = (
        ((_in_grid(a) * x + _in_grid(b) * y + _in_grid(c)) * (2 / size) - 1).expand(len(images), height, width)
        for (a, b, c), size in ((across, width), (down, height))
    )
    inside = (to_x.abs() <= 1) & (to_y.abs() <= 1)
    grid = torch.stack([to_x, to_y], dim=-1)
    moved = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return moved.mul_(inside[:, None]).round_().to(torch.uint8)


def _in_grid(value: Tensor | float) -> Tensor | float:
    return value[:, None, None] if isinstance(value, Tensor) else value


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]
