"""Negative log-likelihood of logits times a scale β = 1/T, and the temperature that minimizes it.

With u = z − max z of a row, L(β) = log Σ_k exp(β u_k) − β u_y is convex in β, and so is any weighted sum over rows.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from calibrant._arrays import blocks, sum_of
from calibrant.calibrators.checks import check_likely_labels
from calibrant.errors import NotConvergedError

CACHED_ELEMENTS = 2**20  # up to this many, shifted logits are kept from one evaluation to the next
CLASS_FIRST = 16  # a reduction over fewer classes runs faster when the classes come first
LOWEST = -1e15  # in place of −inf: 0 · u stays 0
Terms = tuple[Tensor, Tensor, Tensor]  # L(β) of each row, its slope and its curvature, float64

BOUNDS = (1e-4, 1e4)  # of the temperature, by default
WIDE_BOUNDS = (1e-8, 1e8)  # of a change of units
MAX_SCALE_STEPS = 200
MAX_LOG_STEP = math.log(8.0)  # no step multiplies or divides T by more
COARSE_ROWS, COARSE_TOLERANCE = 1024, 0.05  # steps in log T, first on a subsample,
SINGLE_TOLERANCE = 2e-3  # then in float32,
DOUBLE_TOLERANCE = 1e-5  # then in float64; the error after a Newton step is of the order of its square

LEVEL = 0.95  # of the interval of a temperature
MIN_SKEWNESS = 1e-6  # at less, nothing needs a correction
MAX_OFFSET = 20.0  # an interval that extends further in log T has no end
LINEAR_OFFSET = 0.01  # so near to the optimum, r is linear in log T to about 1 %
OFFSET_TOLERANCE = 0.01  # the error after a Newton step is of the order of its square


class Likelihood:
    """The negative log-likelihood of rows at many scales.

    Args:
        logits: (n, k).
        labels: (n,).
        weights: (n,) float64.
    """

    def __init__(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        check_likely_labels(logits, labels)
        self.logits, self.labels, self.weights = logits, labels, weights
        self._cached = logits.numel() <= CACHED_ELEMENTS
        self._class_dim = 0 if logits.shape[1] < CLASS_FIRST else 1

    @cached_property
    def top(self) -> Tensor:
        """(n,) the largest logit of each row."""
        return self.logits.amax(1)

    @cached_property
    def label_gap(self) -> Tensor:
        """(n,) float64: u of the label, 0 where it is the likeliest class."""
        if self._cached:
            return self._shifted[torch.float64].gather(dim := self._class_dim, self.labels.unsqueeze(dim)).squeeze(dim)
        return self.logits.gather(1, self.labels.unsqueeze(1)).squeeze(1).double() - self.top.double()

    @cached_property
    def _has_zeros(self) -> bool:
        return float(self.logits.min()) == -math.inf

    @cached_property
    def _shifted(self) -> dict[torch.dtype, Tensor]:
        """All of u, in both precisions."""
        logits = (self.logits.T.contiguous() if self._class_dim == 0 else self.logits).double()
        u = (logits - logits.amax(self._class_dim, keepdim=True)).clamp_(min=LOWEST)
        return {torch.float64: u, torch.float32: u.float()}

    def _buffer(self, n_rows: int, dtype: torch.dtype) -> Tensor:
        k = self.logits.shape[1]
        return torch.empty((k, n_rows) if self._class_dim == 0 else (n_rows, k), dtype=dtype)

    def _shift(self, rows: slice, buffer: Tensor) -> Tensor:
        """Rows of u, written into a buffer."""
        logits = self.logits[rows]
        u = buffer.narrow(1 - self._class_dim, 0, len(logits))
        u.copy_(logits.T if self._class_dim == 0 else logits)
        u -= self.top[rows].to(u.dtype).unsqueeze(self._class_dim)
        return u.clamp_(min=LOWEST) if self._has_zeros else u

    def terms(self, scale: float | Tensor, dtype: torch.dtype = torch.float64) -> Terms:
        """Value, slope and curvature of each row, at one scale for all rows or one for each."""
        if self._cached:
            u = self._shifted[dtype]
            return _terms(u, torch.empty_like(u), self.label_gap, scale, self._class_dim)
        n, k = self.logits.shape
        found = torch.empty(3, n, dtype=torch.float64)
        first, *others = blocks(n, k)  # the largest is the first
        shifted, work = (self._buffer(first.stop, dtype) for _ in range(2))  # fresh memory costs more than arithmetic
        for rows in (first, *others):
            u = self._shift(rows, shifted)
            row_scale = scale if isinstance(scale, float) else scale[rows]
            room = work.narrow(1 - self._class_dim, 0, rows.stop - rows.start)
            terms = _terms(u, room, self.label_gap[rows], row_scale, self._class_dim)
            for part, values in zip(found, terms, strict=True):
                part[rows] = values
        return found[0], found[1], found[2]

    def weighted_terms(self, scale: float, dtype: torch.dtype = torch.float64) -> Terms:
        """Value, slope and curvature of each row, times its weight."""
        value, slope, curvature = self.terms(scale, dtype)
        if self.weights is None:
            return value, slope, curvature
        return value * self.weights, slope * self.weights, curvature * self.weights

    def sums(self, scale: float, dtype: torch.dtype = torch.float64) -> tuple[float, float, float]:
        """Weighted sums of value, slope and curvature."""
        value, slope, curvature = self.weighted_terms(scale, dtype)
        return sum_of(value), sum_of(slope), sum_of(curvature)

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(len(self.logits)) if self.weights is None else sum_of(self.weights)

    def subsample(self, n_rows: int) -> "Likelihood":
        """Every so many rows, about ``n_rows`` in all."""
        step = max(1, len(self.logits) // n_rows)
        weights = None if self.weights is None else self.weights[::step]
        return Likelihood(self.logits[::step], self.labels[::step], weights)

    def all_correct(self) -> bool:
        """Whether no label is less likely than another class: the slope tends to 0 and has no root."""
        return bool((self.label_gap == 0).all())


def _terms(u: Tensor, work: Tensor, label_gap: Tensor, scale: float | Tensor, dim: int) -> Terms:
    """Of rows whose classes are along ``dim``; ``work`` is overwritten."""
    factor = scale if isinstance(scale, float) else scale.to(u.dtype).unsqueeze(dim)
    mass = torch.mul(u, factor, out=work).exp_()
    total = mass.sum(dim)
    mass *= u
    mean = mass.sum(dim) / total
    mass *= u
    square = mass.sum(dim) / total
    return total.double().log() - scale * label_gap, mean.double() - label_gap, (square - mean * mean).double()


@dataclass(frozen=True, slots=True)
class TemperatureSolution:
    """A temperature, with the evidence that no other is likelier."""

    temperature: float
    nll: float  # mean over rows
    slope: float  # of the mean NLL in log T
    information: float  # Σ c, c the curvature of a row's NLL in log T
    variance: float  # Σ s² with the slope s of a row's NLL in log 1/T
    skewness: float  # Σ s³ / (Σ s²)^(3/2), in [−1, 1]
    influential_rows: float  # (Σ s²)² / Σ s⁴: how many rows the sum Σ s² rests on
    at_bound: bool = False

    @property
    def standard_error(self) -> float | None:
        """Of T, by the sandwich estimator; None at a bound."""
        return None if self.at_bound else self.temperature * math.sqrt(self.variance) / self.information


def solve_temperature(
    rows: Likelihood, bounds: tuple[float, float] = BOUNDS, *, clip: bool = False
) -> TemperatureSolution:
    """The minimizer within the bounds of T. Raises: NotConvergedError if it lies beyond them, unless ``clip``."""
    low, high = -math.log(bounds[1]), -math.log(bounds[0])  # of log β
    position = high if rows.all_correct() else _minimize(rows, low, high)
    beta = math.exp(position)
    value, slopes, curvatures = rows.weighted_terms(beta)
    slope, curvature = sum_of(slopes), sum_of(curvatures)
    equal_logits = slope == 0 and curvature == 0 and bool((rows.logits == rows.logits[:, :1]).all())
    if equal_logits and not clip:
        raise NotConvergedError("no temperature is best: every row gives all of its classes equal logits")
    at_bound = position in (low, high) or not curvature > 0
    if at_bound and not clip:
        raise NotConvergedError(_bound_message(rows, position == high, bounds))
    square = slopes.square()
    variance = sum_of(square)
    return TemperatureSolution(
        temperature=1 / beta,
        nll=sum_of(value) / rows.total,
        slope=abs(beta * slope) / rows.total,
        information=beta**2 * curvature,
        variance=beta**2 * variance,
        skewness=sum_of(slopes * square) / variance**1.5 if variance > 0 else 0.0,
        influential_rows=variance**2 / sum_of(square.square()) if variance > 0 else 0.0,
        at_bound=at_bound,
    )


def temperature_interval(rows: Likelihood, solution: TemperatureSolution) -> tuple[float, float]:
    """The 95 % confidence interval of T, for independent rows, whatever the truth: temperature scaling is rarely it.

    The signed root r = ±√(2 (L(T) − L(T̂)) Σ c / Σ s²) of the likelihood ratio is about Student's t, if the slopes s are
    not skewed. The interval is −q ≤ r + a (r²/3 + 1/6) + a² r³/27 ≤ q: a transformation by the skewness a (Hall 1992,
    for a mean) and the quantile q at 2 influential_rows − 1 degrees of freedom (Satterthwaite's rule for Σ s²).
    """
    quantile = float(stdtrit(max(1.0, 2 * solution.influential_rows - 1), (1 + LEVEL) / 2))
    low, high = (_log_offset(rows, solution, _inverse_hall(q, solution.skewness)) for q in (-quantile, quantile))
    return solution.temperature * math.exp(-high), solution.temperature * math.exp(-low)


def _inverse_hall(value: float, a: float) -> float:
    """The r of which ``value`` is the transformation: ((1 + a r/3)³ − 1)/a + a/6."""
    return 3 / a * (float(np.cbrt(1 + a * (value - a / 6))) - 1) if abs(a) > MIN_SKEWNESS else value


def _log_offset(rows: Likelihood, solution: TemperatureSolution, root: float) -> float:
    """log(T̂/T) where the signed root of the likelihood ratio is ``root``; ±inf where it never is.

    Newton's method, safeguarded by bisection: the root is nearly linear in log T.
    """
    n = len(rows.labels)
    ratio = solution.variance / solution.information * (n / (n - 1) if n > 1 else math.inf)
    wanted, sign = abs(root), math.copysign(1.0, root)
    distance = wanted * math.sqrt(ratio / solution.information)  # if it were linear
    if distance < LINEAR_OFFSET:
        return sign * distance
    near, far = 0.0, MAX_OFFSET
    distance = min(distance, far)
    for _ in range(MAX_SCALE_STEPS):
        scale = math.exp(sign * distance) / solution.temperature
        value, slope, _ = rows.sums(scale)
        found = math.sqrt(max(0.0, 2 * (value - solution.nll * rows.total) / ratio))
        near, far = (distance, far) if found < wanted else (near, distance)
        if near == MAX_OFFSET:
            return sign * math.inf
        gradient = abs(slope) * scale / (ratio * found) if found > 0 else 0.0
        target = distance + (wanted - found) / gradient if gradient > 0 else math.inf
        if not near < target < far:
            target = far if far == MAX_OFFSET else (near + far) / 2
        move, distance = abs(target - distance), target
        if move <= OFFSET_TOLERANCE * distance:
            return sign * distance
    raise NotConvergedError(f"no interval of the temperature was found in {MAX_SCALE_STEPS} steps")


def natural_scale(logits: Tensor, labels: Tensor) -> float:
    """The 1/T that brings logits to the scale of log-probabilities; 1 if there is no best one."""
    if bool((logits.gather(1, labels.unsqueeze(1)) == -math.inf).any()):
        return 1.0
    solution = solve_temperature(Likelihood(logits, labels), WIDE_BOUNDS, clip=True)
    return 1.0 if solution.at_bound else 1 / solution.temperature


def _minimize(rows: Likelihood, low: float, high: float) -> float:
    """The log β of the minimum, or the bound next to it."""
    position = min(max(0.0, low), high)
    if len(rows.logits) > 4 * COARSE_ROWS:
        position = _descend(rows.subsample(COARSE_ROWS), position, low, high, torch.float32, COARSE_TOLERANCE)
    position = _descend(rows, position, low, high, torch.float32, SINGLE_TOLERANCE)
    return _descend(rows, position, low, high, torch.float64, DOUBLE_TOLERANCE)


def _descend(rows: Likelihood, position: float, low: float, high: float, dtype: torch.dtype, tolerance: float) -> float:
    """Log β where the slope is 0, or the end of the bracket that it points to: Newton, safeguarded by bisection."""
    ends, visited = (low, high), {position}
    for _ in range(MAX_SCALE_STEPS):
        beta = math.exp(position)
        _, slope, curvature = rows.sums(beta, dtype)
        if slope == 0 or position == (ends[0] if slope > 0 else ends[1]):
            return position
        low, high = (low, position) if slope > 0 else (position, high)
        newton = -slope / (beta * curvature) if curvature > 0 else math.copysign(math.inf, -slope)
        target = position + max(-MAX_LOG_STEP, min(MAX_LOG_STEP, newton))
        if not low < target < high:
            end = low if slope > 0 else high
            target = (low + high) / 2 if end in visited else end
        move, position = target - position, target
        visited.add(position)
        if abs(move) <= tolerance:
            return position
    raise NotConvergedError(f"no temperature was found in {MAX_SCALE_STEPS} steps")


def _bound_message(rows: Likelihood, below: bool, bounds: tuple[float, float]) -> str:
    """Why the optimum lies outside the bounds, and what to do."""
    if below and rows.all_correct():
        return (
            f"no temperature is best: all {len(rows.labels):,} predictions are correct, so the likelihood grows "
            "without end as T goes to 0; fit on rows that the model was not trained on, or on more of them"
        )
    if not below and rows.sums(1e-12)[1] >= 0:  # at 0 itself, classes of probability 0 would count
        return (
            "no temperature is best: the labels do not follow the logits, so the likelihood grows without end as T "
            "goes to infinity; are the labels those of these rows, in the same order?"
        )
    return (
        f"the best temperature lies {'below the lower' if below else 'above the upper'} bound of {bounds[0]:g} … "
        f"{bounds[1]:g}; widen bounds, or check the scale of the logits"
    )
