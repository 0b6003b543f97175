"""What a calibrator does to logits, as modules that script, export and run behind a model.

They compute in the type of their buffers and return float32, or float64 for logits of that type. ``module.float()`` is
for devices without float64; step functions then meet their edges only as closely as float32 does.
"""

import math

import torch
from torch import Tensor, nn

NO_CHANCE = -1e3  # below the largest: stands for a logit of −inf where a matrix multiplies it
NEWTON_STEPS = 30
SPAN = 3.0  # how much larger or smaller than that of all rows the scale of one may be
LEAST_ODDS = -1e5  # stands for the logarithm of 0 in log-odds


def like(calibrated: Tensor, logits: Tensor) -> Tensor:
    return calibrated if logits.dtype == torch.float64 else calibrated.float()


def divided(logits: Tensor, temperature: Tensor) -> Tensor:
    """Z / T up to a constant for each row: the largest becomes 0, and no other can round to it."""
    z = logits.to(temperature.dtype)
    return like((z - z.amax(1, keepdim=True)) / temperature, logits)


def keeping_top(calibrated: Tensor, logits: Tensor) -> Tensor:
    """With the class on top that was there before, where rounding made it equal to another."""
    top = logits.argmax(1, keepdim=True)
    best = calibrated.amax(1, keepdim=True)
    above = torch.where(calibrated.argmax(1, keepdim=True) == top, best, best + best.abs() * 1e-6 + 1e-30)
    return calibrated.scatter(1, top, above)


def entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(1)


def with_floor(logits: Tensor, floor: float = NO_CHANCE) -> Tensor:
    """With finite numbers in place of −inf."""
    return torch.where(logits == float("-inf"), logits.amax(1, keepdim=True) + floor, logits)


def logit_norm(logits: Tensor) -> Tensor:
    """Euclidean norm of the logits less their mean, which a constant does not change."""
    z = with_floor(logits)
    return (z - z.mean(1, keepdim=True)).square().sum(1).sqrt()


def row_statistics(logits: Tensor) -> Tensor:
    """(n, 2) entropy as a share of its largest possible value, and confidence."""
    log_probs = logits.log_softmax(1)
    return torch.stack([entropy(log_probs) / math.log(logits.shape[1]), log_probs.amax(1).exp()], dim=1)


def mix_entropy(mix: Tensor) -> Tensor:
    """(m,) entropy of mean predictions (m, k), as a share of its largest possible value."""
    return entropy(mix.log()) / math.log(mix.shape[1])


def log_distance(features: Tensor, centre: Tensor, axes: Tensor, variances: Tensor) -> Tensor:
    """(n,) logarithm of the distance from a cloud of features, in its own standard deviations.

    The cloud has a variance along each of its axes (f, r), and one, the last, in all directions beside them.
    """
    x = features.to(centre.dtype) - centre
    along = (x @ axes).square()
    beside = (x.square().sum(1) - along.sum(1)).clamp(min=0.0)
    return 0.5 * ((along / variances[:-1]).sum(1) + beside / variances[-1]).clamp(min=1e-12).log()


def interpolated(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear through (c, m) knots, constant beyond them, at (c, n) points."""
    right = torch.searchsorted(knots, x.contiguous()).clamp(1, knots.shape[1] - 1)
    x0, x1 = knots.gather(1, right - 1), knots.gather(1, right)
    share = torch.where(x1 > x0, (x - x0) / (x1 - x0), torch.zeros_like(x)).clamp(0.0, 1.0)
    y0 = values.gather(1, right - 1)
    return y0 + share * (values.gather(1, right) - y0)


def scale_of_confidence(logits: Tensor, confidence: Tensor, n_steps: int = NEWTON_STEPS) -> Tensor:
    """(n,) β with which max softmax(β z) is the confidence, or as near above 1/K as makes no difference.

    With u = z − max z, log Σ_{j ≠ top} exp(β u_j) = log(1/confidence − 1). The left side is convex and decreases, so
    Newton's method comes up to the root from β = 0.
    """
    n_classes = logits.shape[1]
    u = (logits - logits.amax(1, keepdim=True)).clamp(min=-1e15)
    others = torch.zeros_like(u).scatter(1, logits.argmax(1, keepdim=True), float("-inf"))
    reachable = confidence.clamp(min=1.0 / n_classes + 1e-3 * (1.0 - 1.0 / n_classes))
    wanted = ((1.0 - reachable) / reachable).log()
    scale = torch.zeros_like(confidence)
    for _ in range(n_steps):
        weighted = scale.unsqueeze(1) * u + others
        slope = (weighted.softmax(1) * u).sum(1).clamp(max=-1e-12)
        scale = (scale - (weighted.logsumexp(1) - wanted) / slope).clamp(1e-12, 1e12)
    return scale


def mean_distance(features: Tensor, bank: Tensor, k: int) -> Tensor:
    """Mean Euclidean distance of each row to its k nearest rows of the bank, all scaled to length 1."""
    return nearest_mean(square_distances(features, bank), k)


def square_distances(features: Tensor, bank: Tensor) -> Tensor:
    """(n, m) squared distances of rows, scaled to length 1, from those of the bank."""
    rows = nn.functional.normalize(features.to(bank.dtype), dim=1)
    return (rows.square().sum(1, keepdim=True) + bank.square().sum(1) - 2.0 * rows @ bank.T).clamp(min=0.0)


def nearest_mean(squares: Tensor, k: int) -> Tensor:
    """(n,) mean of the k least distances, from their squares."""
    return squares.topk(k, dim=1, largest=False).values.sqrt().mean(1)


class Unchanged(nn.Module):
    """The identity."""

    def forward(self, logits: Tensor) -> Tensor:
        return like(logits, logits)


class Divided(nn.Module):
    """One temperature for all rows."""

    temperature: Tensor

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

    def forward(self, logits: Tensor) -> Tensor:
        return divided(logits, self.temperature)


class Mixed(nn.Module):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K."""

    temperature: Tensor
    weights: Tensor

    def __init__(self, temperature: float, weights: Tensor) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))
        self.register_buffer("weights", weights.clone())

    def forward(self, logits: Tensor) -> Tensor:
        z = logits.to(self.weights.dtype)
        w = self.weights.log()
        uniform = torch.zeros_like(z).log_softmax(1)
        parts = [w[0] + (z / self.temperature).log_softmax(1), w[1] + z.log_softmax(1), w[2] + uniform]
        return keeping_top(like(torch.stack(parts).logsumexp(0), logits), logits)


class Affine(nn.Module):
    """A weight for each class, or a matrix, and a bias; on the logits or on the log-probabilities.

    A logit of −inf stays one, and counts as so much below the largest (``floor``) for the other classes.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, *, log_probs: bool, floor: float) -> None:
        super().__init__()
        self.log_probs, self.floor = log_probs, floor
        self.register_buffer("weight", weight.clone())
        self.register_buffer("bias", bias.clone())

    def inputs(self, logits: Tensor) -> Tensor:
        z = logits.to(self.weight.dtype)
        if self.log_probs:
            return z.log_softmax(1).clamp(min=self.floor)
        return with_floor(z, self.floor)

    def forward(self, logits: Tensor) -> Tensor:
        x = self.inputs(logits)
        scaled = x * self.weight if self.weight.dim() == 1 else x @ self.weight.T
        impossible = logits == float("-inf")
        return like((scaled + self.bias).masked_fill(impossible, float("-inf")), logits)


class LogOdds(nn.Module):
    """Two classes: the log-odds of class 1 become a log p₁ − b log p₀ + c."""

    coefficients: Tensor

    def __init__(self, a: float, b: float, c: float) -> None:
        super().__init__()
        self.least_odds = LEAST_ODDS
        self.register_buffer("coefficients", torch.tensor([a, b, c], dtype=torch.float64))

    def forward(self, logits: Tensor) -> Tensor:
        log_probs = logits.to(self.coefficients.dtype).log_softmax(1).clamp(min=self.least_odds)
        a, b, c = self.coefficients[0], self.coefficients[1], self.coefficients[2]
        odds = a * log_probs[:, 1] - b * log_probs[:, 0] + c
        return like(torch.stack([torch.zeros_like(odds), odds], dim=1), logits)


class ClassMaps(nn.Module):
    """A map of the probability of each class, or one for all; then rows are scaled to sum 1.

    ``linear``: values (c, m) at knots (c, m); else values (c, m + 1) between them, each up to its right knot.
    """

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor, *, linear: bool, keeps_top: bool = False) -> None:
        super().__init__()
        self.linear, self.keeps_top = linear, keeps_top
        self.register_buffer("knots", knots.clone())
        self.register_buffer("values", values.clone())

    def forward(self, logits: Tensor) -> Tensor:
        probs = logits.to(self.knots.dtype).softmax(1)
        x = probs.T.reshape(self.knots.shape[0], -1).contiguous()
        if self.linear:
            y = interpolated(x, self.knots, self.values)
        else:
            y = self.values.gather(1, torch.searchsorted(self.knots, x))
        mapped = y.reshape(probs.shape[1], probs.shape[0]).T
        out = like((mapped / mapped.sum(1, keepdim=True)).log(), logits)
        return keeping_top(out, logits) if self.keeps_top else out


class TopMap(nn.Module):
    """A map of the largest probability: each row is divided by the temperature that makes it so, within limits."""

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor, scale: float) -> None:
        super().__init__()
        self.least, self.most = scale / SPAN, scale * SPAN
        self.register_buffer("knots", knots.unsqueeze(0).clone())
        self.register_buffer("values", values.unsqueeze(0).clone())

    def forward(self, logits: Tensor) -> Tensor:
        probs = logits.to(self.knots.dtype).softmax(1)
        mended = interpolated(probs.amax(1).unsqueeze(0), self.knots, self.values).squeeze(0)
        scale = scale_of_confidence(logits.to(self.knots.dtype), mended).clamp(self.least, self.most)
        return divided(logits, 1.0 / scale.unsqueeze(1))


class DividedByScore(nn.Module):
    """1/T is a piecewise linear function of a score of each row: of its logits, or a second argument."""

    knots: Tensor
    scales: Tensor

    def __init__(self, knots: Tensor, scales: Tensor, score: str) -> None:
        super().__init__()
        self.score = score
        self.register_buffer("knots", knots.unsqueeze(0).clone())
        self.register_buffer("scales", scales.unsqueeze(0).clone())

    def forward(self, logits: Tensor, score: Tensor | None = None) -> Tensor:
        z = logits.to(self.knots.dtype)
        if self.score == "entropy":
            x = entropy(z.log_softmax(1))
        elif self.score == "logit_norm":
            x = logit_norm(z)
        else:
            assert score is not None
            x = score.to(z.dtype)
        return divided(logits, 1.0 / interpolated(x.unsqueeze(0), self.knots, self.scales).T)


class DividedByDistance(nn.Module):
    """T = w₀ + w₁ d, d the distance of a row's features to the bank."""

    bank: Tensor
    weights: Tensor

    def __init__(self, bank: Tensor, k: int, w0: float, w1: float) -> None:
        super().__init__()
        self.k = k
        self.register_buffer("bank", bank.double())
        self.register_buffer("weights", torch.tensor([w0, w1], dtype=torch.float64))

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        distance = mean_distance(features, self.bank, self.k)
        return divided(logits, (self.weights[0] + self.weights[1] * distance).unsqueeze(1))


class DividedByFeatures(nn.Module):
    """log T is linear in the features, within limits."""

    weight: Tensor
    constants: Tensor

    def __init__(self, weight: Tensor, intercept: float, low: float, high: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight.clone())
        self.register_buffer("constants", torch.tensor([intercept, low, high], dtype=torch.float64))

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        c = self.constants
        log_t = torch.maximum(torch.minimum(c[0] + features.to(c.dtype) @ self.weight, c[2]), c[1])
        return divided(logits, log_t.exp().unsqueeze(1))


class DividedBySet(nn.Module):
    """One T for all rows of a call, from what they are like together; log T is linear in that, within limits.

    With axes (f, r), the features count; with ``same_mix``, the entropy of the mean prediction does.
    """

    weight: Tensor
    constants: Tensor
    centre: Tensor
    axes: Tensor
    variances: Tensor

    def __init__(
        self, weight: Tensor, constants: tuple[float, float, float], cloud: tuple[Tensor, ...], same_mix: bool
    ) -> None:
        super().__init__()
        self.same_mix, self.has_cloud = same_mix, len(cloud) > 0
        self.register_buffer("weight", weight.clone())
        self.register_buffer("constants", torch.tensor(constants, dtype=torch.float64))
        nothing = torch.zeros(0, dtype=torch.float64)
        for name, values in zip(("centre", "axes", "variances"), cloud or (nothing,) * 3, strict=True):
            self.register_buffer(name, values.clone())

    def forward(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        c = self.constants
        z = logits.to(c.dtype)
        parts = [row_statistics(z).mean(0)]
        if self.has_cloud:
            assert features is not None
            parts.append(log_distance(features, self.centre, self.axes, self.variances).mean().unsqueeze(0))
        if self.same_mix:
            parts.append(mix_entropy(z.softmax(1).mean(0).unsqueeze(0)))
        log_t = torch.maximum(torch.minimum(c[0] + torch.cat(parts) @ self.weight, c[2]), c[1])
        return divided(logits, log_t.exp())
