"""The one scale β = 1/T that minimises the negative log-likelihood: Newton on its monotone slope, within a bracket."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant.calibrators.likelihood import Likelihood
from calibrant.errors import NotConvergedError

BOUNDS = (1e-4, 1e4)  # of the temperature, unless told
WIDE_BOUNDS = (1e-8, 1e8)  # of a change of units
MAX_SCALE_STEPS = 200
LEAP = math.log(8.0)  # no step multiplies or divides T by more
COARSE_ROWS, COARSE_TOLERANCE = 1024, 0.05  # steps in log T: a sample of the rows finds the neighbourhood,
SINGLE_TOLERANCE = 2e-3  # float32 comes closer,
DOUBLE_TOLERANCE = 1e-5  # and what is left after a Newton step is of the order of its square


@dataclass(frozen=True, slots=True)
class TemperatureSolution:
    """A temperature, with the evidence that no other is likelier."""

    temperature: float
    nll: float  # mean over rows
    slope: float  # of the mean NLL in log T
    standard_error: float | None  # of T, robust: it does not assume that the scaled model is true; none at a bound
    at_bound: bool = False


def solve_temperature(rows: Likelihood, bounds: tuple[float, float], *, clip: bool = False) -> TemperatureSolution:
    """The minimiser within the bounds of T. Raises: NotConvergedError where it lies beyond them, unless ``clip``."""
    low, high = -math.log(bounds[1]), -math.log(bounds[0])  # of log β
    position = high if _all_correct(rows) else _solve(rows, low, high)
    beta = math.exp(position)
    value, slope, curvature, square = rows.sums(beta)
    if slope == 0 and curvature == 0 and not clip and _indifferent(rows):
        raise NotConvergedError("no temperature is best: every row gives all of its classes equal logits")
    at_bound = position in (low, high) or not curvature > 0
    if at_bound and not clip:
        raise NotConvergedError(_beyond(rows, position == high, bounds))
    total = float(len(rows.logits)) if rows.weights is None else float(rows.weights.sum())
    error = None if at_bound else math.sqrt(square) / curvature / beta**2
    return TemperatureSolution(1 / beta, value / total, abs(beta * slope) / total, error, at_bound)


def natural_scale(logits: Tensor, labels: Tensor) -> float:
    """The 1/T that brings logits to the scale of log-probabilities; 1 where there is no best one."""
    if bool((logits.gather(1, labels.unsqueeze(1)) == -math.inf).any()):
        return 1.0
    scale = solve_temperature(Likelihood(logits, labels), WIDE_BOUNDS, clip=True)
    return 1.0 if scale.at_bound else 1 / scale.temperature


def _solve(rows: Likelihood, low: float, high: float) -> float:
    """Where log β has the minimum, or the bound next to it."""
    position = min(max(0.0, low), high)
    if len(rows.logits) > 4 * COARSE_ROWS:
        position = _descend(rows.subsample(COARSE_ROWS), position, low, high, torch.float32, COARSE_TOLERANCE)
    position = _descend(rows, position, low, high, torch.float32, SINGLE_TOLERANCE)
    return _descend(rows, position, low, high, torch.float64, DOUBLE_TOLERANCE)


def _descend(rows: Likelihood, position: float, low: float, high: float, dtype: torch.dtype, tolerance: float) -> float:
    """Log β where the slope is 0, or the end of the bracket that it points to."""
    ends, visited = (low, high), {position}
    for _ in range(MAX_SCALE_STEPS):
        beta = math.exp(position)
        _, slope, curvature, _ = rows.sums(beta, dtype)
        if slope == 0 or position == (ends[0] if slope > 0 else ends[1]):
            return position
        low, high = (low, position) if slope > 0 else (position, high)
        newton = -slope / (beta * curvature) if curvature > 0 else math.copysign(math.inf, -slope)
        target = position + max(-LEAP, min(LEAP, newton))
        if not low < target < high:
            end = low if slope > 0 else high
            target = (low + high) / 2 if end in visited else end
        move, position = target - position, target
        visited.add(position)
        if abs(move) <= tolerance:
            return position
    raise NotConvergedError(f"no temperature was found in {MAX_SCALE_STEPS} steps")


def _indifferent(rows: Likelihood) -> bool:
    return bool((rows.logits == rows.logits[:, :1]).all())


def _all_correct(rows: Likelihood) -> bool:
    """Whether no label is less likely than another class, so that the slope tends to 0 and has no root."""
    return bool((rows.label_gap == 0).all())


def _beyond(rows: Likelihood, colder: bool, bounds: tuple[float, float]) -> str:
    """Why the optimum lies outside the bounds, and what to do."""
    if colder and _all_correct(rows):
        return (
            f"no temperature is best: all {len(rows.labels):,} predictions are correct, so the likelihood grows "
            "without end as T goes to 0; fit on rows that the model has not seen, or on more of them"
        )
    if not colder and rows.terms(1e-12)[1].sum() >= 0:  # at 0 itself, classes of probability 0 would count
        return (
            "no temperature is best: the labels do not follow the logits, so the likelihood grows without end as T "
            "goes to infinity; are the labels those of these rows, in the same order?"
        )
    return (
        f"the best temperature lies {'below the lower' if colder else 'above the upper'} bound of {bounds[0]:g} … "
        f"{bounds[1]:g}; widen bounds, or look at the logits' scale"
    )
