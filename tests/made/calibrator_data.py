"""Synthetic predictions whose true class probabilities are known: labels are drawn from them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from calibrant import Predictions
from calibrant.calibrators import Calibrator

TYPES = ("blur", "fog", "noise")
SEVERITIES = (1.0, 2.0, 3.0)
DOMAINS = ("north", "east", "south", "west")
N_FEATURES = 6


@dataclass(frozen=True)
class Truth:
    """Predictions with the probabilities that their labels were drawn from."""

    predictions: Predictions
    probs: Tensor

    def error(self, found: Predictions) -> float:
        """Mean total variation between the found and the true probabilities."""
        return (found.probs.double() - self.probs).abs().sum(1).div(2).mean().item()

    def top_error(self, found: Predictions) -> float:
        """Mean distance of the confidence from the true probability of the predicted class."""
        confidence, top = found.probs.double().max(1)
        return (confidence - self.probs.gather(1, top[:, None])[:, 0]).abs().mean().item()


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def drawn(seen: Tensor, true: Tensor, generator: torch.Generator, **options: Any) -> Truth:
    """Rows of the logits `seen`, with labels drawn from the probabilities `true`."""
    labels = true.multinomial(1, generator=generator)[:, 0]
    return Truth(Predictions.from_logits(seen, labels, **options), true)


def like(predictions: Predictions, **changes: Any) -> Predictions:
    """The same rows with other logits, labels, columns or features; what is None is left out."""
    parts = {
        "logits": predictions.logits,
        "labels": predictions.labels,
        "columns": {
            column: predictions.columns[column]
            for column in predictions.columns.column_names
            if column != "feature_norm"
        },
        "features": predictions.features,
        "class_names": predictions.class_names,
        "metadata": predictions.metadata,
    } | changes
    return Predictions.from_logits(parts.pop("logits"), parts.pop("labels"), **parts)


def bare(predictions: Predictions) -> Predictions:
    """Logits, labels and features alone."""
    return Predictions.from_logits(predictions.logits, predictions.labels, features=predictions.features)


def permuted(predictions: Predictions, seed: int) -> Predictions:
    return predictions[torch.randperm(len(predictions), generator=generator_of(seed))]


def nll_per_row(predictions: Predictions, labels: Tensor | None = None) -> Tensor:
    labels = predictions.labels if labels is None else labels
    return -predictions.logits.double().log_softmax(1).gather(1, labels[:, None])[:, 0]


# Shifted rows, with all columns and features that any calibrator needs


def shifted_rows(
    n: int,
    n_classes: int,
    *,
    seed: int,
    types: Sequence[str] = TYPES,
    severities: Sequence[float] = SEVERITIES,
    dtype: torch.dtype = torch.float64,
    truth: str = "shift",
) -> Truth:
    """Rows of several corruption types, severities and domains, of which each combination is as frequent.

    With severity the signal fades, the confidence fades less, and the features move away. `truth` says where the labels
    come from: "shift", a temperature that grows with severity and from domain to domain; "calibrated", the predictions
    themselves; "hidden", temperatures of 1/2 or 2 that nothing in the row tells of.
    """
    generator = generator_of(seed)
    index = torch.arange(n)
    kind = index % len(types)
    level = index // len(types) % len(severities)
    domain = index // (len(types) * len(severities)) % len(DOMAINS)
    severity = torch.tensor(severities, dtype=torch.float64)[level]
    features = 0.2 * normal(n, N_FEATURES, generator=generator)
    features[:, 0] += severity
    features[:, 1] += domain
    features[:, 2] += 2.0
    seen = (3.0 - 0.3 * severity)[:, None] * normal(n, n_classes, generator=generator)
    seen = seen.to(dtype)
    temperature = (0.2 + 0.25 * severity + 0.1 * domain).exp()
    if truth == "calibrated":
        temperature = torch.ones(n, dtype=torch.float64)
    elif truth == "hidden":
        temperature = torch.where(uniform(n, generator=generator) < 0.5, 0.5, 2.0).double()
    return drawn(
        seen,
        (seen.double() / temperature[:, None]).softmax(1),
        generator,
        columns={
            "corruption": [types[i] for i in kind.tolist()],
            "severity": severity.tolist(),
            "domain": [DOMAINS[i] for i in domain.tolist()],
        },
        features=features,
        class_names=[f"class {i}" for i in range(n_classes)],
        metadata={"model": "synthetic"},
    )


def near_ties(predictions: Predictions, *, seed: int) -> Predictions:
    """The same rows with their two greatest logits one representable number apart, or equal, at any magnitude."""
    generator = generator_of(seed)
    n, n_classes = predictions.logits.shape
    scales = torch.tensor([1e-3, 0.1, 1.0, 5.0, 40.0, 1e4], dtype=predictions.logits.dtype)
    logits = predictions.logits * scales[torch.randint(len(scales), (n,), generator=generator)][:, None]
    greatest = logits.amax(1)
    above = torch.nextafter(greatest, torch.full_like(greatest, math.inf))
    pair = uniform(n, n_classes, generator=generator).argsort(1)[:, :2]
    rows = torch.arange(n)
    logits[rows, pair[:, 0]] = greatest
    logits[rows, pair[:, 1]] = torch.where(rows % 5 > 0, above, greatest)
    return like(predictions, logits=logits)


def rounded_rows(n: int, n_classes: int, *, seed: int) -> Predictions:
    """Shifted rows with one of six rows of rounded probabilities each: rows repeat."""
    predictions = shifted_rows(n, n_classes, seed=seed).predictions
    pool = torch.full((6, n_classes), 0.1, dtype=torch.float64)
    pool[torch.arange(6), torch.arange(6) % n_classes] = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9, 0.95]).double()
    pool /= pool.sum(1, keepdim=True)
    generator = generator_of(seed)
    kind = torch.randint(6, (n,), generator=generator)
    labels = pool[kind].pow(0.7).multinomial(1, generator=generator)[:, 0]
    return like(predictions, logits=pool[kind].log(), labels=labels)


# Data whose miscalibration has one form: what is true is a function of what is seen


def mapped(
    n: int,
    n_classes: int,
    true_logits: Callable[[Tensor], Tensor],
    *,
    seed: int,
    scale: float = 3.0,
    columns: Mapping[str, Any] | None = None,
) -> Truth:
    generator = generator_of(seed)
    seen = scale * normal(n, n_classes, generator=generator)
    return drawn(seen, true_logits(seen).softmax(1), generator, columns=columns)


def two_class(n: int, true_positive: Callable[[Tensor], Tensor], *, seed: int) -> Truth:
    """Two classes whose probability of class 1 is uniform; its true value is a function of the one seen."""
    generator = generator_of(seed)
    positive = uniform(n, generator=generator).clamp(1e-6, 1 - 1e-6)
    true = true_positive(positive)
    seen = torch.stack((1 - positive, positive), 1).log() + normal(n, 1, generator=generator)
    return drawn(seen, torch.stack((1 - true, true), 1), generator)


def along_a_line(position: Tensor, generator: torch.Generator, noise: float = 0.1) -> Tensor:
    """Features around the point of a line that the position names."""
    direction = torch.tensor([1.0, -0.5, 0.5, 0.0, 0.25, 0.0], dtype=torch.float64)
    offset = torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0, -1.0], dtype=torch.float64)
    return offset + position[:, None] * direction + noise * normal(len(position), N_FEATURES, generator=generator)


def at_temperatures(temperature: Tensor, generator: torch.Generator, **options: Any) -> Truth:
    """Four classes; each row's logits are true when they are divided by its temperature."""
    seen = 3.0 * normal(len(temperature), 4, generator=generator)
    return drawn(seen, (seen / temperature[:, None]).softmax(1), generator, **options)


def domain_rows(n: int, positions: Mapping[str, float], *, seed: int) -> Truth:
    """Domains that lie on a line of the feature space; the logarithm of their temperature is linear along it."""
    generator = generator_of(seed)
    names = [list(positions)[i % len(positions)] for i in range(n)]
    position = torch.tensor([positions[name] for name in names], dtype=torch.float64)
    features = along_a_line(position, generator)
    return at_temperatures((0.3 + 1.1 * position).exp(), generator, columns={"domain": names}, features=features)


def fade(severity: float) -> tuple[float, float]:
    """TemperatureSolution of the true and of the seen logits of one severity from 0 to 5."""
    return 2.0 - 0.3 * severity, 3.2 - 0.2 * severity


def set_rows(n_per_set: int, sets: Sequence[tuple[str, float]], *, seed: int) -> Truth:
    """Sets of one corruption and severity, of one temperature each, which grows with severity."""
    generator = generator_of(seed)
    unit = normal(n_per_set * len(sets), 4, generator=generator)
    scales = torch.tensor([fade(severity) for _, severity in sets], dtype=torch.float64)
    true_scale, seen_scale = scales.repeat_interleave(n_per_set, 0).T
    severity = torch.tensor([severity for _, severity in sets], dtype=torch.float64).repeat_interleave(n_per_set)
    return drawn(
        seen_scale[:, None] * unit,
        (true_scale[:, None] * unit).softmax(1),
        generator,
        columns={
            "corruption": [kind for kind, _ in sets for _ in range(n_per_set)],
            "severity": severity.tolist(),
        },
        features=along_a_line(severity / 5, generator),
    )


def cluster_rows(n: int, share_far: float, *, seed: int) -> Truth:
    """Two clusters of features: predictions are calibrated at the near one, three times too sharp at the far one."""
    generator = generator_of(seed)
    far = uniform(n, generator=generator) < share_far
    features = 0.5 * normal(n, N_FEATURES, generator=generator)
    features[:, 0] += torch.where(far, 2.0, -2.0)
    return at_temperatures(torch.where(far, 3.0, 1.0).double(), generator, features=features)


def angle_rows(n: int, *, seed: int, widest: float = 1.5) -> Truth:
    """Features on the unit sphere at some angle from its pole; the temperature is linear in their distance from it."""
    generator = generator_of(seed)
    angle = widest * uniform(n, generator=generator)
    around = torch.nn.functional.normalize(normal(n, N_FEATURES - 1, generator=generator), dim=1)
    features = torch.cat((angle.cos()[:, None], angle.sin()[:, None] * around), 1)
    return at_temperatures(1.0 + 2.5 * 2 * (angle / 2).sin(), generator, features=features)


def scored_rows(n: int, *, seed: int, rising: bool) -> Truth:
    """A column `noise` in which 1/T is linear, rising or falling."""
    generator = generator_of(seed)
    noise = uniform(n, generator=generator)
    inverse = 0.25 + 0.75 * (noise if rising else 1 - noise)
    return at_temperatures(1 / inverse, generator, columns={"noise": noise.tolist()})


def class_rows(n: int, prior: Sequence[float], *, seed: int, spread: float = 1.0) -> Truth:
    """Normal classes of three features in these proportions, seen by a model that is twice too sharp, and biased.

    The model was trained on equal proportions. `spread` is the standard deviation of the rows of a class, of which the
    model knows nothing.
    """
    k, generator = len(prior), generator_of(seed)
    centres = 1.5 * normal(k, 3, generator=generator_of(0))
    shares = torch.tensor(prior, dtype=torch.float64)
    labels = shares.multinomial(n, replacement=True, generator=generator)
    x = centres[labels] + spread * normal(n, 3, generator=generator)
    log_density = -(x[:, None] - centres).square().sum(2) / 2
    seen = 2 * log_density + 0.5 * torch.arange(k).cos()
    return Truth(Predictions.from_logits(seen, labels), (log_density + shares.log()).softmax(1))


def draw(
    n: int, temperature: float | Tensor = 2.0, seed: int = 0, *, spread: float = 2.0, n_classes: int = 3, **options: Any
) -> Predictions:
    """Rows whose best temperature is the one given, for all or for each of them."""
    generator = generator_of(seed)
    true = spread * normal(n, n_classes, generator=generator)
    labels = true.softmax(1).multinomial(1, generator=generator)[:, 0]
    scale = torch.as_tensor(temperature, dtype=torch.float64).reshape(-1, 1)
    return Predictions.from_logits(true * scale, labels, **options)


def draw32(n: int, n_classes: int, seed: int, *, factor: float = 1.0, **options: Any) -> Predictions:
    """`draw` in single precision; the rows are calibrated when their logits are divided by the factor."""
    rows = draw(n, factor, seed, n_classes=n_classes, **options)
    return replace(rows, logits=rows.logits.float())


def row_temperatures(calibrator: Calibrator, predictions: Predictions) -> Tensor:
    """What each row's logits were divided by."""
    after = calibrator(predictions, allow_same_rows=True).logits
    before = predictions.logits
    return (before.amax(1) - before.amin(1)) / (after.amax(1) - after.amin(1))


# In numpy, for oracles of scipy and scikit-learn

FloatArray = NDArray[np.float64]
Labels = NDArray[np.int64]


class Rows(NamedTuple):
    """Logits with labels, and weights."""

    logits: FloatArray
    labels: Labels
    weights: FloatArray | None = None

    def predictions(self, dtype: torch.dtype = torch.float64) -> Predictions:
        columns = None if self.weights is None else {"weight": self.weights}
        return Predictions.from_logits(torch.tensor(self.logits, dtype=dtype), self.labels, columns=columns)

    def take(self, index: NDArray[np.bool_] | Labels) -> "Rows":
        return Rows(self.logits[index], self.labels[index], None if self.weights is None else self.weights[index])


def sample(probs: FloatArray, random: np.random.Generator) -> Labels:
    """A class for each row of probabilities."""
    return np.minimum((probs.cumsum(1) < random.random((len(probs), 1))).sum(1), probs.shape[1] - 1)


def skewed(n: int, n_classes: int, seed: int = 0) -> Rows:
    """Rows that need more than a temperature: each class has its own scale and offset."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, n_classes)) * 2
    scale, offset = np.linspace(0.4, 1.1, n_classes), np.linspace(-0.6, 0.8, n_classes)
    return Rows(logits, sample(softmax(scale * logits + offset, axis=1), random))


def curved(n: int, truth: Callable[[FloatArray], FloatArray], seed: int = 0) -> tuple[Rows, FloatArray]:
    """Two classes whose true P(y = 1) is a function of the predicted one; and that truth."""
    random = np.random.default_rng(seed)
    given = random.uniform(0.01, 0.99, size=n)
    true = truth(given)
    logits = np.stack([np.log1p(-given), np.log(given)], 1)
    return Rows(logits, (random.random(n) < true).astype(np.int64)), true


def noisy(n: int, n_classes: int, noise: float, seed: int) -> Rows:
    """Overconfident rows, and a share of labels that are drawn by lot."""
    random = np.random.default_rng(seed)
    true_logits = random.normal(size=(n, n_classes)) * 2
    labels = sample(softmax(true_logits, axis=1), random)
    return Rows(true_logits * 1.5, np.where(random.random(n) < noise, random.integers(n_classes, size=n), labels))


def calibrated(calibrator: Calibrator, rows: Rows) -> FloatArray:
    """Probabilities of rows, though the calibrator was fitted on them."""
    found: FloatArray = calibrator(rows.predictions(), allow_same_rows=True).probs.double().numpy()
    assert found.sum(1) == pytest.approx(np.ones(len(found)), abs=1e-9)
    return found
