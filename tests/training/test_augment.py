"""AugMix: each operation as Pillow's, views that depend on the image's key alone, and the consistency loss."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file
from torch import Tensor

from calibrant.corruptions import CORRUPTIONS, Draws
from calibrant.data import class_prior, open_dataset
from calibrant.losses import LOSSES
from calibrant.models import build_model
from calibrant.training import augment, train
from calibrant.training.augment import OPERATIONS, augmix, augmix_view, js_divergence
from calibrant.training.criterion import build_criterion
from made.training import log_of, quick

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
    """Operations that add 1: a chain of depth d adds d, weights sum to 1, and a whole image of weight m is moved."""
    calls: list[int] = []

    def add(images: Tensor, levels: Tensor) -> Tensor:
        assert (levels.abs() >= 0.1).all()
        assert (levels.abs() <= 3).all()
        calls.append(len(images))
        return images + 60

    monkeypatch.setattr(augment, "OPERATIONS", {"one": add, "other": add})
    n = 4000
    images = torch.full((n, 1, 1, 1), 10, dtype=torch.uint8)
    grown = augmix_view(images, draws(list(range(n))), "first").flatten().double() - 10
    assert sum(calls) == pytest.approx(3 * n * 2, rel=0.02)  # three chains of 2 operations on average
    assert grown.min() >= 0
    assert grown.max() <= 180
    assert grown.mean() == pytest.approx(0.5 * 120, rel=0.03)
    # Var = E[m²]·E[Σw²]·Var(60 d) + Var(m)·120²: 1/3 · 1/2 · 2400 + 1200
    assert grown.var() == pytest.approx(1600, rel=0.06)


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


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_of_a_step(tmp_path: Path, loss: str) -> None:
    """One step on all images, from weights that are known."""
    torch.manual_seed(3)
    model, weights = build_model("mlp", 10, image_size=8, channels=1), tmp_path / "start.safetensors"
    save_file(model.state_dict(), weights)
    split = open_dataset("digits").split("train").sample(96)
    assert isinstance(split.images, Tensor)
    images = augmix(split.images, Draws.of(list(range(96)), 0, 0, "augmix", device=torch.device("cpu")))
    with torch.no_grad():
        logits = model((images.float() / 255 - 0.5) / 0.5)
    options = {"loss": loss, "loss_warmup": 0, "label_smoothing": 0.1, "augment": "augmix", "weights": str(weights)}
    plain = {"train_sample": 96, "batch_size": 96, "epochs": 1, "crop_padding": 0, "flip": False, "shifts": ("none",)}
    settings = quick(**options, **plain)
    (line,) = log_of(train(settings, tmp_path / "run"))
    criterion = build_criterion(settings, class_prior(split.labels, 10))
    expected = criterion(logits[:96], split.labels) + 12 * js_divergence(logits.view(3, 96, 10))
    assert line["train_loss"] == pytest.approx(float(expected), rel=1e-4)
    assert line["train_accuracy"] == float((logits[:96].argmax(1) == split.labels).double().mean())
