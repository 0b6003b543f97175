"""Gaussian perturbation of a validation set: predictions of copies with increasing noise (Tomani et al. 2021)."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from calibrant._checks import check_integer, check_integer_labels, check_tensor
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

PERTURBATION = "gaussian_perturbation"
SEARCH_ROWS = 1000  # images used to find the noise levels
SEARCH_STEPS = 12  # bisections of log σ for each level
MAX_LEVELS = 100
MAX_BATCH = 1_000_000
MAX_NOISE = 100.0  # in standard deviations of the images; accuracy is then at chance


@checked
def perturb_gaussian(
    model: Callable[[Tensor], Any],
    images: Tensor,
    labels: Tensor,
    *,
    n_levels: int = 10,
    seed: int = 0,
    batch_size: int = 256,
) -> Predictions:
    """Predict images, and copies of them with Gaussian noise, for `PerturbedTemperature` and `SetTemperature`.

    The noise levels are those at which accuracy falls by equal steps from that of clean images to chance.

    Args:
        model: Returns logits, or logits and features. A module must be in evaluation mode.
        images: (n, ...) floating point.
        labels: (n,) integers.
        n_levels: Number of noise levels.
        seed: Of the noise.
        batch_size: Images per call of the model.

    Returns:
        Predictions with the columns ``corruption``, ``severity`` (the level, 0 for clean) and ``noise`` (its σ).

    Raises:
        InvalidInputError: The model is in training mode, or the images are not floating point or empty.
    """
    check_integer("n_levels", n_levels, 1, MAX_LEVELS)
    check_integer("batch_size", batch_size, 1, MAX_BATCH)
    if isinstance(model, nn.Module) and model.training:
        raise InvalidInputError("model must be in evaluation mode: call model.eval() first")
    if not images.is_floating_point() or images.ndim == 0 or len(images) == 0:
        got = f"{images.dtype} of shape {tuple(images.shape)}"
        raise InvalidInputError(f"images must be floating point and not empty, got {got}")
    labels = check_integer_labels("labels", labels, (len(images),))

    def predicted(noise: float, rows: slice) -> Predictions:
        return _predict(model, images[rows], labels[rows], noise, check_integer("seed", seed, 0, 2**63 - 1), batch_size)

    few = slice(None, None, math.ceil(len(images) / SEARCH_ROWS))  # of all classes, also if images are sorted by class
    clean = predicted(0.0, few)
    top, chance = _accuracy(clean), 1 / clean.n_classes
    widest = MAX_NOISE * max(1e-6, float(images.std(correction=0)))
    parts, low = [], widest * 1e-6
    for level in range(n_levels + 1):
        noise = 0.0
        if level:
            wanted = top - (top - chance) * level / (n_levels + 1)
            noise = low = _noise_for_accuracy(lambda sigma: _accuracy(predicted(sigma, few)), wanted, low, widest)
        part = predicted(noise, slice(0, len(images)))
        columns = {
            "corruption": [PERTURBATION if level else "none"] * len(part),
            "severity": [level] * len(part),
            "noise": [noise] * len(part),
        }
        parts.append(Predictions.from_logits(part.logits, part.labels, features=part.features, columns=columns))
    return Predictions.concat(parts)


@torch.no_grad()
def _predict(
    model: Callable[[Tensor], Any], images: Tensor, labels: Tensor, noise: float, seed: int, batch_size: int
) -> Predictions:
    """Predictions with noise of this σ; each image has its own noise, which σ scales."""
    generator = torch.Generator().manual_seed(seed)
    logits, features = [], []
    for batch in images.split(batch_size):
        noisy = batch + noise * torch.randn(batch.shape, generator=generator).to(batch)
        output = model(noisy)
        found = output if isinstance(output, tuple) else (output,)
        for part in found[:2]:
            check_tensor("what the model returns", part)
        logits.append(found[0].float().cpu())
        features += [found[1].float().cpu()] if len(found) > 1 else []
    return Predictions.from_logits(torch.cat(logits), labels.cpu(), features=torch.cat(features) if features else None)


def _noise_for_accuracy(accuracy: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The σ between these at which accuracy is about the wanted one, by bisection of log σ."""
    for _ in range(SEARCH_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if accuracy(middle) > wanted else (low, middle)
    return math.sqrt(low * high)


def _accuracy(predictions: Predictions) -> float:
    return float((predictions.logits.argmax(1) == predictions.labels).double().mean())
