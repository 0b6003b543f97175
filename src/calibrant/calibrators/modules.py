"""Calibrators as modules of logits, which script, export and run after a model.

They compute in the type of their buffers and return float32, or float64 for logits of that type. ``module.float()`` is
for devices without float64; the edges of step functions are then rounded to float32.
"""

import math

import torch
from torch import Tensor, nn

from calibrant.calibrators import maps
from calibrant.errors import InvalidInputError

MAX_ROW_RATIO = 3.0  # 1/T of a row, relative to that of all rows, lies within this factor
MIN_LOG_PROB = -1e5  # in place of log 0


class BufferModule(nn.Module):
    """A module whose constants are float64 buffers."""

    def __init__(self, **values: Tensor | float | tuple[float, ...]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float64).clone())


class ClipModule(BufferModule):
    """Probabilities are raised to at least ``clip``, and rescaled to sum 1."""

    min_log_prob: Tensor

    def __init__(self, clip: float) -> None:
        super().__init__(min_log_prob=math.log(clip))

    def forward(self, logits: Tensor) -> Tensor:
        log_probs = logits.to(self.min_log_prob.dtype).log_softmax(1)
        return maps.match_dtype(torch.maximum(log_probs, self.min_log_prob).log_softmax(1), logits)


def clipping(clip: float | None) -> nn.Module:
    """What clips logits (n, k), or leaves them as they are."""
    return nn.Identity() if clip is None else ClipModule(clip)


class LogitsModule(nn.Module):
    """Checks the shape of logits (n, k); with ``dense``, logits (n, k, …) are rows of classes along dim 1."""

    def __init__(self, rows: nn.Module, n_classes: int, *, dense: bool, clip: float | None = None) -> None:
        super().__init__()
        self.rows, self.n_classes, self.dense, self.clip = rows, n_classes, dense, clipping(clip)

    def forward(self, logits: Tensor) -> Tensor:
        if logits.dim() < 2 or logits.shape[1] != self.n_classes or not (logits.dim() == 2 or self.dense):
            dense = f" or (n, {self.n_classes}, …)" if self.dense else ""
            raise InvalidInputError(f"logits must be of shape (n, {self.n_classes}){dense}, got {list(logits.shape)}")
        moved = logits.movedim(1, -1)
        calibrated: Tensor = self.rows(self.clip(moved.reshape(-1, self.n_classes)))
        return calibrated.reshape(moved.shape).movedim(-1, 1)


class PairModule(nn.Module):
    """Checks the shape of logits (n, k), which come with features or a score for each row."""

    def __init__(self, rows: nn.Module, n_classes: int, *, clip: float | None = None) -> None:
        super().__init__()
        self.rows, self.n_classes, self.clip = rows, n_classes, clipping(clip)

    def forward(self, logits: Tensor, other: Tensor) -> Tensor:
        if logits.dim() != 2 or logits.shape[1] != self.n_classes or logits.shape[0] != other.shape[0]:
            got = f"{list(logits.shape)}, and {list(other.shape)} for the second argument"
            raise InvalidInputError(f"logits must be of shape (n, {self.n_classes}) with n rows beside them, got {got}")
        calibrated: Tensor = self.rows(self.clip(logits), other)
        return calibrated


class IdentityModule(nn.Module):
    """The identity."""

    def forward(self, logits: Tensor) -> Tensor:
        return maps.match_dtype(logits, logits)


class TemperatureModule(BufferModule):
    """One temperature for all rows."""

    temperature: Tensor

    def forward(self, logits: Tensor) -> Tensor:
        return maps.scale_logits(logits, self.temperature)


class MixtureModule(BufferModule):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K."""

    temperature: Tensor
    weights: Tensor

    def forward(self, logits: Tensor) -> Tensor:
        z = logits.to(self.weights.dtype)
        top = z.amax(1, keepdim=True)
        z = torch.where((top / self.temperature).isfinite(), z, z - top)
        w = self.weights.log()
        uniform = torch.zeros_like(z).log_softmax(1)
        parts = [w[0] + (z / self.temperature).log_softmax(1), w[1] + z.log_softmax(1), w[2] + uniform]
        return maps.restore_argmax(maps.match_dtype(torch.stack(parts).logsumexp(0), logits), logits)


class AffineModule(BufferModule):
    """A weight for each class, or a matrix, and a bias; on the logits or on the log-probabilities.

    A logit of −inf stays −inf; for the other classes it counts as ``floor``, relative to the largest logit.
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
        return maps.floor_logits(z, self.floor)

    def forward(self, logits: Tensor) -> Tensor:
        x = self.inputs(logits)
        scaled = x * self.weight if self.weight.dim() == 1 else x @ self.weight.T
        found = (scaled + self.bias).masked_fill(logits == float("-inf"), float("-inf"))
        top = found.amax(1, keepdim=True)
        beyond = top.isfinite() & ~maps.match_dtype(top, logits).isfinite()  # rows too large for float32 are shifted
        return maps.match_dtype(torch.where(beyond, found - top, found), logits)


class LogOddsModule(BufferModule):
    """Two classes: the log-odds of class 1 become a log p₁ − b log p₀ + c."""

    coefficients: Tensor

    def __init__(self, a: float, b: float, c: float) -> None:
        super().__init__(coefficients=(a, b, c))
        self.min_log_prob = MIN_LOG_PROB

    def forward(self, logits: Tensor) -> Tensor:
        log_probs = logits.to(self.coefficients.dtype).log_softmax(1).clamp(min=self.min_log_prob)
        a, b, c = self.coefficients[0], self.coefficients[1], self.coefficients[2]
        odds = a * log_probs[:, 1] - b * log_probs[:, 0] + c
        return maps.match_dtype(torch.stack([torch.zeros_like(odds), odds], dim=1), logits)


class ProbabilityModule(BufferModule):
    """A function of the probability of each class, or one for all; then rows are normalized to sum 1.

    ``linear``: values (c, m) at knots (c, m); else values (c, m + 1) between them, each up to its right knot.
    """

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor, *, linear: bool, keeps_argmax: bool = False) -> None:
        super().__init__(knots=knots, values=values)
        self.linear, self.keeps_argmax = linear, keeps_argmax

    def forward(self, logits: Tensor) -> Tensor:
        probs = logits.to(self.knots.dtype).softmax(1)
        x = probs.T.reshape(self.knots.shape[0], -1).contiguous()
        if self.linear:
            y = maps.interpolate(x, self.knots, self.values)
        else:
            y = self.values.gather(1, maps.n_below(self.knots, x))
        mapped = y.reshape(probs.shape[1], probs.shape[0]).T
        out = maps.match_dtype((mapped / mapped.sum(1, keepdim=True)).log(), logits)
        return maps.restore_argmax(out, logits) if self.keeps_argmax else out


class VennAbersModule(BufferModule):
    """Two classes: p₁ / (1 − p₀ + p₁), with p₀ and p₁ step functions of the log-odds of class 1."""

    lower_knots: Tensor
    lower: Tensor
    upper_knots: Tensor
    upper: Tensor

    def bounds(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """p₀ and p₁ of each row. At a knot, p₀ has its right value and p₁ its left one."""
        odds = maps.log_odds(logits.to(self.upper.dtype))
        lower = self.lower[maps.n_below(self.lower_knots, odds, equal=True)]
        return lower, self.upper[maps.n_below(self.upper_knots, odds)]

    def forward(self, logits: Tensor) -> Tensor:
        lower, upper = self.bounds(logits)
        return maps.match_dtype(torch.stack([(1.0 - lower).log(), upper.log()], dim=1), logits)


class ConfidenceModule(BufferModule):
    """A function of the confidence: each row is divided by the temperature that attains it, within limits."""

    knots: Tensor
    values: Tensor

    def __init__(self, knots: Tensor, values: Tensor, scale: float) -> None:
        super().__init__(knots=knots.unsqueeze(0), values=values.unsqueeze(0))
        self.least, self.most = scale / MAX_ROW_RATIO, scale * MAX_ROW_RATIO

    def forward(self, logits: Tensor) -> Tensor:
        probs = logits.to(self.knots.dtype).softmax(1)
        confidence = maps.interpolate(probs.amax(1).unsqueeze(0), self.knots, self.values).squeeze(0)
        scale = maps.scale_for_confidence(logits.to(self.knots.dtype), confidence).clamp(self.least, self.most)
        return maps.scale_logits(logits, 1.0 / scale.unsqueeze(1))


class ScoreTemperatureModule(BufferModule):
    """1/T is piecewise linear in a score of each row: computed from its logits, or the second argument."""

    knots: Tensor
    scales: Tensor

    def __init__(self, knots: Tensor, scales: Tensor, score: str) -> None:
        super().__init__(knots=knots.unsqueeze(0), scales=scales.unsqueeze(0))
        self.score = score

    def forward(self, logits: Tensor, score: Tensor | None = None) -> Tensor:
        z = logits.to(self.knots.dtype)
        if self.score == "entropy":
            x = maps.entropy(z.log_softmax(1))
        elif self.score == "logit_norm":
            x = maps.logit_norm(z)
        else:
            assert score is not None
            x = score.to(z.dtype)
        return maps.scale_logits(logits, 1.0 / maps.interpolate(x.unsqueeze(0), self.knots, self.scales).T)


class DistanceTemperatureModule(BufferModule):
    """T = w₀ + w₁ d, d the distance of a row's features to the bank, within limits."""

    bank: Tensor
    constants: Tensor  # w₀, w₁, minimum and maximum of d

    def __init__(self, bank: Tensor, k: int, constants: tuple[float, float, float, float]) -> None:
        super().__init__(bank=bank, constants=constants)
        self.k = k

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        c = self.constants
        distance = torch.maximum(torch.minimum(maps.mean_distance(features, self.bank, self.k), c[3]), c[2])
        return maps.scale_logits(logits, (c[0] + c[1] * distance).unsqueeze(1))


class FeatureTemperatureModule(BufferModule):
    """log T is linear in the features, within limits."""

    weight: Tensor
    constants: Tensor  # intercept, minimum and maximum

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        c = self.constants
        log_t = torch.maximum(torch.minimum(c[0] + features.to(c.dtype) @ self.weight, c[2]), c[1])
        return maps.scale_logits(logits, log_t.exp().unsqueeze(1))


class SetTemperatureModule(BufferModule):
    """One T for all rows of a call; log T is a cubic polynomial of statistics of the set, within limits.

    The statistics include distances of features with ``gaussians``. See `maps.cubic_of_set` for the others.
    """

    weight: Tensor
    limits: Tensor  # of log T: its value at the origin, minimum and maximum
    scale: Tensor
    precision: Tensor
    noise: Tensor
    mean: Tensor
    axes: Tensor
    variances: Tensor
    class_means: Tensor
    class_axes: Tensor
    class_variances: Tensor
    factors: Tensor

    def __init__(self, gaussians: tuple[Tensor, ...], factors: Tensor, **values: Tensor | tuple[float, ...]) -> None:
        names = ("mean", "axes", "variances", "class_means", "class_axes", "class_variances")
        super().__init__(**dict(zip(names, gaussians or (torch.zeros(0),) * 6, strict=True)), **values)
        self.register_buffer("factors", factors)
        self.has_gaussians = len(gaussians) > 0

    def forward(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        z = logits.to(self.weight.dtype)
        n_rows = torch.ones_like(z[:, :1]).sum(0)
        parts = [maps.row_statistics(z).mean(0)]
        if self.has_gaussians:
            assert features is not None
            of_all = maps.log_mahalanobis(features, self.mean, self.axes, self.variances)
            of_class = maps.log_mahalanobis(features, self.class_means, self.class_axes, self.class_variances)
            parts.append(torch.stack([of_all.mean(), of_class.mean()]))
        parts.append(maps.prior_entropy(z.softmax(1).mean(0).unsqueeze(0), n_rows))
        statistics = torch.cat(parts).unsqueeze(0)
        cubic = maps.cubic_of_set(statistics, n_rows, self.scale, self.precision, self.noise, self.factors)
        least, most = self.limits[1], self.limits[2]
        log_t = torch.maximum(torch.minimum(self.limits[0] + cubic @ self.weight, most), least)
        return maps.scale_logits(logits, log_t.exp())
