"""What a calibrator does to logits, as modules that script, export and run behind a model.

They compute in the type of their buffers and return float32, or float64 for logits of that type. ``module.float()`` is
for devices without float64; step functions then meet their edges only as closely as float32 does.
"""

import torch
from torch import Tensor, nn

from calibrant.calibrators.maps import (
    entropy,
    floor_logits,
    interpolate,
    log_mahalanobis,
    logit_norm,
    match_dtype,
    mean_distance,
    prior_entropy,
    restore_argmax,
    row_statistics,
    scale_for_confidence,
    scale_logits,
)

MAX_ROW_RATIO = 3.0  # how much larger or smaller than that of all rows the scale of one may be
MIN_ODDS = -1e5  # stands for the logarithm of 0 in log-odds


class BufferModule(nn.Module):
    """A module whose numbers are buffers in float64."""

    def __init__(self, **values: Tensor | float | tuple[float, ...]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float64).clone())


class IdentityModule(nn.Module):
    """The identity."""

    def forward(self, logits: Tensor) -> Tensor:
        return match_dtype(logits, logits)


class TemperatureModule(BufferModule):
    """One temperature for all rows."""

    temperature: Tensor

    def forward(self, logits: Tensor) -> Tensor:
        return scale_logits(logits, self.temperature)


class MixtureModule(BufferModule):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K."""

    temperature: Tensor
    weights: Tensor

    def forward(self, logits: Tensor) -> Tensor:
        z = logits.to(self.weights.dtype)
        w = self.weights.log()
        uniform = torch.zeros_like(z).log_softmax(1)
        parts = [w[0] + (z / self.temperature).log_softmax(1), w[1] + z.log_softmax(1), w[2] + uniform]
        return restore_argmax(match_dtype(torch.stack(parts).logsumexp(0), logits), logits)


class AffineModule(BufferModule):
    """A weight for each class, or a matrix, and a bias; on the logits or on the log-probabilities.

    A logit of −inf stays one, and counts as so much below the largest (``floor``) for the other classes.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, *, log_probs: bool, floor: float) -> None:
        super().__init__(weight=weight, bias=bias)
        self.log_probs, self.floor = log_probs, floor

    def inputs(self, logits: Tensor) -> Tensor:
        z = logits.to(self.weight.dtype)
        if self.log_probs:
            log_probs = z.log_softmax(1)
            return torch.where(log_probs == float("-inf"), torch.full_like(log_probs, self.floor), log_probs)
        return floor_logits(z, self.floor)

    def forward(self, logits: Tensor) -> Tensor:
        x = self.inputs(logits)
        scaled = x * self.weight if self.weight.dim() == 1 else x @ self.weight.T
        impossible = logits == float("-inf")
        return match_dtype((scaled + self.bias).masked_fill(impossible, float("-inf")), logits)


class LogOddsModule(BufferModule):
    """Two classes: the log-odds of class 1 become a log p₁ − b log p₀ + c."""

    coefficients: Tensor

    def __init__(self, a: float, b: float, c: float) -> None:
        super().__init__(coefficients=(a, b, c))
        self.min_odds = MIN_ODDS

    def forward(self, logits: Tensor) -> Tensor:
        log_probs = logits.to(self.coefficients.dtype).log_softmax(1).clamp(min=self.min_odds)
        a, b, c = self.coefficients[0], self.coefficients[1], self.coefficients[2]
        odds = a * log_probs[:, 1] - b * log_probs[:, 0] + c
        return match_dtype(torch.stack([torch.zeros_like(odds), odds], dim=1), logits)


class ProbabilityModule(BufferModule):
    """A map of the probability of each class, or one for all; then rows are scaled to sum 1.

    ``linear``: values (c, m) at knots (c, m); else values (c, m + 1) between them, each up to its right knot.
    """

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor, *, linear: bool, keeps_top: bool = False) -> None:
        super().__init__(knots=knots, values=values)
        self.linear, self.keeps_top = linear, keeps_top

    def forward(self, logits: Tensor) -> Tensor:
        probs = logits.to(self.knots.dtype).softmax(1)
        x = probs.T.reshape(self.knots.shape[0], -1).contiguous()
        if self.linear:
            y = interpolate(x, self.knots, self.values)
        else:
            y = self.values.gather(1, torch.searchsorted(self.knots, x))
        mapped = y.reshape(probs.shape[1], probs.shape[0]).T
        out = match_dtype((mapped / mapped.sum(1, keepdim=True)).log(), logits)
        return restore_argmax(out, logits) if self.keeps_top else out


class ConfidenceModule(BufferModule):
    """A map of the largest probability: each row is divided by the temperature that makes it so, within limits."""

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor, scale: float) -> None:
        super().__init__(knots=knots.unsqueeze(0), values=values.unsqueeze(0))
        self.least, self.most = scale / MAX_ROW_RATIO, scale * MAX_ROW_RATIO

    def forward(self, logits: Tensor) -> Tensor:
        probs = logits.to(self.knots.dtype).softmax(1)
        confidence = interpolate(probs.amax(1).unsqueeze(0), self.knots, self.values).squeeze(0)
        scale = scale_for_confidence(logits.to(self.knots.dtype), confidence).clamp(self.least, self.most)
        return scale_logits(logits, 1.0 / scale.unsqueeze(1))


class ScoreTemperatureModule(BufferModule):
    """1/T is a piecewise linear function of a score of each row: of its logits, or a second argument."""

    knots: Tensor
    scales: Tensor

    def __init__(self, knots: Tensor, scales: Tensor, score: str) -> None:
        super().__init__(knots=knots.unsqueeze(0), scales=scales.unsqueeze(0))
        self.score = score

    def forward(self, logits: Tensor, score: Tensor | None = None) -> Tensor:
        z = logits.to(self.knots.dtype)
        if self.score == "entropy":
            x = entropy(z.log_softmax(1))
        elif self.score == "logit_norm":
            x = logit_norm(z)
        else:
            assert score is not None
            x = score.to(z.dtype)
        return scale_logits(logits, 1.0 / interpolate(x.unsqueeze(0), self.knots, self.scales).T)


class DistanceTemperatureModule(BufferModule):
    """T = w₀ + w₁ d, d the distance of a row's features to the bank."""

    bank: Tensor
    weights: Tensor

    def __init__(self, bank: Tensor, k: int, w0: float, w1: float) -> None:
        super().__init__(bank=bank, weights=(w0, w1))
        self.k = k

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        distance = mean_distance(features, self.bank, self.k)
        return scale_logits(logits, (self.weights[0] + self.weights[1] * distance).unsqueeze(1))


class FeatureTemperatureModule(BufferModule):
    """log T is linear in the features, within limits."""

    weight: Tensor
    constants: Tensor  # intercept, least and greatest

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        c = self.constants
        log_t = torch.maximum(torch.minimum(c[0] + features.to(c.dtype) @ self.weight, c[2]), c[1])
        return scale_logits(logits, log_t.exp().unsqueeze(1))


class SetTemperatureModule(BufferModule):
    """One T for all rows of a call, from what they are like together; log T is linear in that, within limits.

    With axes (f, r), the features count; with ``same_prior``, the entropy of the mean prediction does.
    """

    weight: Tensor
    constants: Tensor
    centre: Tensor
    axes: Tensor
    variances: Tensor

    def __init__(
        self, weight: Tensor, constants: tuple[float, float, float], gaussian: tuple[Tensor, ...], same_prior: bool
    ) -> None:
        centre, axes, variances = gaussian or (torch.zeros(0),) * 3
        super().__init__(weight=weight, constants=constants, centre=centre, axes=axes, variances=variances)
        self.same_prior, self.has_gaussian = same_prior, len(gaussian) > 0

    def forward(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        c = self.constants
        z = logits.to(c.dtype)
        parts = [row_statistics(z).mean(0)]
        if self.has_gaussian:
            assert features is not None
            parts.append(log_mahalanobis(features, self.centre, self.axes, self.variances).mean().unsqueeze(0))
        if self.same_prior:
            parts.append(prior_entropy(z.softmax(1).mean(0).unsqueeze(0)))
        log_t = torch.maximum(torch.minimum(c[0] + torch.cat(parts) @ self.weight, c[2]), c[1])
        return scale_logits(logits, log_t.exp())
