"""Gaussian perturbation: copies of images whose noise lowers accuracy in equal steps."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calibrant as cb
from calibrant.calibrators import PerturbedTemperature, perturb_gaussian
from calibrant.errors import CalibrantError


class Linear(nn.Module):
    """Dot products with templates, and the image itself as features."""

    def __init__(self, templates: Tensor, *, features: bool = False) -> None:
        super().__init__()
        self.templates, self.features = templates, features

    def forward(self, images: Tensor) -> Any:
        flat = images.flatten(1)
        logits = flat @ self.templates.T
        return (logits, flat[:, :5]) if self.features else logits


def made_images(n: int = 800, n_classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Templates of 3 × 6 × 6 pixels, images near them, and their labels."""
    generator = torch.Generator().manual_seed(0)
    templates = torch.randn(n_classes, 108, generator=generator)
    labels = torch.randint(n_classes, (n,), generator=generator)
    images = templates[labels] + 2.0 * torch.randn(n, 108, generator=generator)
    return templates / 10, images.reshape(n, 3, 6, 6), labels


def test_perturbations_are_copies_with_columns_whose_levels_spread_the_accuracy_evenly() -> None:
    templates, images, labels = made_images()
    perturbed = perturb_gaussian(Linear(templates).eval(), images, labels, n_levels=8, seed=3)
    levels = [perturbed.where(severity=level) for level in range(9)]
    assert sum(map(len, levels)) == len(perturbed) == 9 * len(images)
    torch.testing.assert_close(levels[0].logits, Linear(templates)(images), rtol=1e-4, atol=1e-4)
    sigmas, found = [], []
    for level, part in enumerate(levels):
        assert torch.equal(part.labels, labels)
        [kind] = set(part.column("corruption").to_pylist())
        assert kind == ("gaussian_perturbation" if level else "none")
        sigmas += set(part.column("noise").to_pylist())
        found.append((part.logits.argmax(1) == part.labels).double().mean().item())
    assert sigmas[0] == 0
    assert sigmas == sorted(set(sigmas))
    assert len(sigmas) == 9
    clean, last = found[0], found[-1]
    assert clean > 0.9
    assert 0.2 < last < clean - 0.6 * (clean - 0.25)
    assert found == pytest.approx([clean + (last - clean) * level / 8 for level in range(9)], abs=0.07)
    calibrator = PerturbedTemperature.fit(perturbed)
    assert cb.score(calibrator(levels[8], allow_same_rows=True)).nll < cb.score(levels[8]).nll


def test_perturbations_follow_the_seed_alone_and_hold_features() -> None:
    templates, images, labels = made_images(60)
    model = Linear(templates, features=True).eval()
    found = perturb_gaussian(model, images, labels, n_levels=2, seed=3, batch_size=7)
    torch.manual_seed(99)
    assert perturb_gaussian(model, images, labels, n_levels=2, seed=3, batch_size=7).fingerprint == found.fingerprint
    assert perturb_gaussian(model, images, labels, n_levels=2, seed=4, batch_size=7).fingerprint != found.fingerprint
    assert not model.training
    clean = found.where(severity=0)
    assert clean.features is not None
    torch.testing.assert_close(clean.features.float(), images.flatten(1)[:, :5], rtol=1e-2, atol=1e-2)


def test_refusals_of_perturbations() -> None:
    templates, images, labels = made_images(20)
    model = Linear(templates).eval()
    for given, options, message in (
        (Linear(templates).train(), {}, "eval"),
        (model, {"n_levels": 0}, r"n_levels.*0"),
        (model, {"batch_size": 0}, r"batch_size.*0"),
        (model, {"labels": labels[:19]}, "19"),
        (model, {"images": images.byte()}, "uint8"),
    ):
        with pytest.raises(CalibrantError, match=message):
            perturb_gaussian(given, **({"images": images, "labels": labels} | options))  # type: ignore[arg-type]
