"""AugMix, mixup and cutmix: operations as Pillow's, images that depend on their key alone, the loss of a step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from calibrant._signals import StopRequest
from calibrant.corruptions import CORRUPTIONS, Draws
from calibrant.data import open_dataset
from calibrant.losses import LOSSES
from calibrant.runs import RunFolder
from calibrant.training import augment
from calibrant.training.augment import MIXES, OPERATIONS, augmix, augmix_view, cutmix, js_divergence
from calibrant.training.batches import Epoch
from calibrant.training.callback import TrainingCallback
from calibrant.training.checkpoint import TrainingState
from calibrant.training.criterion import build_criterion
from calibrant.training.engine import new_fabric
from calibrant.training.loop import TrainingLoop
from made.training import quick

AFFINE = Image.Transform.AFFINE
BILINEAR = Image.Resampling.BILINEAR


def moved(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, AFFINE, matrix, resample=BILINEAR)


# The published operations, for a level with a sign
PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, level: ImageOps.posterize(image, 4 - int(abs(level) * 4 / 10)),
    "rotate": lambda image, level: image.rotate(int(level * 30 / 10), resample=BILINEAR),
    "solarize": lambda image, level: ImageOps.solarize(image, 256 - int(abs(level) * 256 / 10)),
    "shear_x": lambda image, level: moved(image, 1, level * 0.3 / 10, 0, 0, 1, 0),
    "shear_y": lambda image, level: moved(image, 1, 0, 0, level * 0.3 / 10, 1, 0),
    "translate_x": lambda image, level: moved(image, 1, 0, int(level * image.width / 3 / 10), 0, 1, 0),
    "translate_y": lambda image, level: moved(image, 1, 0, 0, 0, 1, int(level * image.height / 3 / 10)),
}
LEVELS = torch.tensor([0.1, -0.7, 1.3, -1.9, 2.6, -2.95])


def photographs(channels: int) -> Tensor:
    """Smooth images of other grey levels each, 40 x 28 pixels; the first is of one grey level."""
    generator = torch.Generator().manual_seed(0)
    coarse = 255 * torch.rand(len(LEVELS), channels, 5, 4, generator=generator)
    images = torch.nn.functional.interpolate(coarse, (40, 28), mode="bicubic").clamp(3, 250)
    images[0] = 77
    images[1] = images[1] / 4 + 90
    return images.to(torch.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_pillow(name: str, channels: int) -> None:
    images = photographs(channels)
    for image, level, found in zip(images, LEVELS.tolist(), OPERATIONS[name](images, LEVELS), strict=True):
        pixels = image.permute(1, 2, 0).numpy()
        expected = PILLOW[name](Image.fromarray(pixels[..., 0] if channels == 1 else pixels), level)
        distance = np.abs(np.asarray(expected).reshape(pixels.shape) - found.permute(1, 2, 0).numpy().astype(float))
        assert distance.max() <= 1  # Pillow truncates where we round
        assert (distance == 0).mean() > (0.3 if name in ("rotate", "shear_x", "shear_y") else 0.98)
    assert name not in CORRUPTIONS


def draws(keys: list[int], seed: int = 0, epoch: int = 0) -> Draws:
    return Draws.of(keys, seed, epoch, device=torch.device("cpu"))


def test_a_view_depends_on_the_key_of_its_image_alone() -> None:
    images, keys = photographs(3).repeat(4, 1, 1, 1), list(range(24))
    clean, first, second = augmix(images, draws(keys)).chunk(3)
    assert torch.equal(clean, images)
    for row in (0, 5, 23):
        alone = augmix(images[row : row + 1], draws([row]))
        assert torch.equal(alone, torch.stack([clean[row], first[row], second[row]]))
    others = [first, second, augmix_view(images, draws(keys, seed=1), "first")]
    others.append(augmix_view(images, draws(keys, epoch=1), "first"))
    assert len({other.numpy().tobytes() for other in others}) == 4


def test_a_view_is_a_mixture_of_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that add 60 or nothing: a chain adds 60 on average, with variance 60² (E d / 4 + Var d / 4) = 2400."""
    n_operated = 0
    signs: set[float] = set()

    def add(images: Tensor, levels: Tensor) -> Tensor:
        nonlocal n_operated
        assert (levels.abs() >= 0.1).all()
        assert (levels.abs() <= 3).all()
        signs.update(levels.sign().tolist())
        n_operated += len(images)
        return images + 60

    monkeypatch.setattr(augment, "OPERATIONS", {"add": add, "keep": lambda images, levels: images})
    n = 20_000
    images = torch.full((n, 1, 1, 1), 10, dtype=torch.uint8)
    grown = augmix_view(images, draws(list(range(n))), "first").flatten().double() - 10
    assert n_operated == pytest.approx(3 * n, rel=0.02)  # half of 2 operations in each of three chains
    assert signs == {-1.0, 1.0}
    assert grown.min() >= 0
    assert grown.max() <= 180
    assert grown.mean() == pytest.approx(0.5 * 60, rel=0.03)  # E m = 1/2
    assert grown.var() == pytest.approx(2400 / 3 / 2 + 60**2 / 12, rel=0.03)  # E m² E Σw² · 2400 + Var m · 60²


def test_js_divergence() -> None:
    logits = 3 * torch.randn(3, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probs = logits.softmax(-1)
    middle = probs.mean(0)
    slow = sum((p * (p / middle).log()).sum() for p in probs) / 3 / 7
    assert js_divergence(logits) == pytest.approx(float(slow), rel=1e-12)
    assert js_divergence(logits[:1].expand(3, 7, 5)) == pytest.approx(0, abs=1e-15)
    assert torch.autograd.gradcheck(js_divergence, logits.requires_grad_())
    far = torch.tensor([[[1e4, 0.0]], [[0.0, 1e4]], [[1e4, 0.0]]], requires_grad=True)
    js_divergence(far).backward()
    assert far.grad is not None
    assert far.grad.isfinite().all()


# Mixup and cutmix


def halves(channels: int, height: int, width: int, n: int = 300) -> tuple[Tensor, Tensor]:
    """Images of grey level 0 and class 0, then their partners, of grey level 200 and class 2."""
    images = torch.zeros(2 * n, channels, height, width, dtype=torch.uint8)
    images[n:] = 200
    return images, torch.nn.functional.one_hot(torch.arange(2 * n) // n * 2, 3)


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("shape", [(1, 9, 7), (3, 6, 11)], ids=str)
def test_labels_have_the_shares_of_the_images(name: str, shape: tuple[int, int, int]) -> None:
    images, labels = halves(*shape)
    mixed, soft = MIXES[name](images, labels, draws(list(range(600))))
    shares = mixed.double().mean((1, 2, 3)) / 200
    assert (shares - soft[:, 2]).abs().max() <= (0.5 / 200 if name == "mixup" else 0) + 1e-6
    assert (soft.sum(1) - 1).abs().max() < 1e-6
    assert (soft[:, 1] == 0).all()
    if name == "mixup":  # λ is uniform
        assert torch.histc(soft[:, 0], 5, 0, 1).tolist() == pytest.approx([60] * 5, abs=25)
    rows = torch.tensor([7, 307])
    alone, of_alone = MIXES[name](images[rows], labels[rows], draws(rows.tolist()))
    assert torch.equal(alone[0], mixed[7])
    assert torch.equal(of_alone[0], soft[7])


def test_boxes_are_those_of_the_published_code() -> None:
    images, labels = halves(1, 9, 7)
    mixed, _ = cutmix(images, labels, draws(list(range(600))))
    drawn = draws(list(range(300)))
    shares, down, across = drawn.uniforms("share"), drawn.integers("down", 0, 9), drawn.integers("across", 0, 7)
    for image, share, y, x in zip(mixed, shares.tolist(), down.tolist(), across.tolist(), strict=True):
        height, width = int(9 * np.sqrt(1 - share)), int(7 * np.sqrt(1 - share))
        top, bottom, left, right = y - height // 2, y + height // 2, x - width // 2, x + width // 2
        expected = np.zeros((9, 7))
        expected[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = 200
        assert (image[0].numpy() == expected).all()


# Steps of training


@pytest.mark.parametrize("name", ["augmix", *MIXES])
def test_the_loss_of_a_step(tmp_path: Path, name: str) -> None:
    """A step on all images, with each loss; the learning rate is too small to change the weights."""
    given = {"augment": name, "train_sample": 96, "batch_size": 96, "lr": 1e-30, "crop_padding": 1, "flip": True}
    followers: Any = {"callback": TrainingCallback(), "request": StopRequest()}
    folder, data = RunFolder(tmp_path), open_dataset("digits")
    loop = TrainingLoop(quick(**given, seed=5), data, folder, new_fabric("cpu"), **followers)
    assert isinstance(loop.images, Tensor)
    plan = Epoch.draw(96, seed=5, epoch=0, padding=1, flip=True)
    rows = torch.arange(96)
    images, labels = plan.augment(loop.images, rows, 1), loop.labels
    of_rows = Draws.of(rows.tolist(), 5, 0, name, device=torch.device("cpu"))
    if name == "augmix":
        images = augmix(images, of_rows)
    else:
        assert sorted(plan.partners.tolist()) == rows.tolist()
        both = torch.cat([rows, plan.partners])
        one_hot = nn.functional.one_hot(labels, 10)[both]
        images, labels = MIXES[name](plan.augment(loop.images[both], both, 1), one_hot, of_rows)
    with torch.no_grad():
        for parameter in loop.modules["model"].parameters():
            parameter *= 3  # views that differ in their predictions
        logits = loop.modules["model"]((images.float() / 255 - 0.5) / 0.5)
    n_correct = int((logits[:96].argmax(1) == (labels if name == "augmix" else labels.argmax(1))).sum())
    for loss in LOSSES:
        loop.criterion = build_criterion(quick(loss=loss, label_smoothing=0.1), data.prior)
        expected = loop.criterion(logits[:96], labels)
        if name == "augmix":
            expected = expected + 12 * js_divergence(logits.view(3, 96, 10))
        loop.state = TrainingState(loop.train.digest)
        loop._train_epoch()
        assert loop.state.loss_sum / 96 == pytest.approx(float(expected), rel=1e-4), loss
        assert loop.state.n_correct == n_correct
        assert all(parameter.grad.isfinite().all() for parameter in loop.model.parameters())
