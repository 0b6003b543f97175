"""Hypotheses about the true gaps of bins, with outcomes drawn under each: what intervals are made of.

An interval of a calibration error holds its values under all hypotheses that the observed error does not contradict.
The hypotheses lie on rays that start at calibration. The first ray goes through the gaps of a smooth fit: a logistic
regression of the outcomes on the log-odds of the confidence, plus the gaps that deviate from it significantly. The
second ray goes the opposite way, for rows whose outcomes do not tell the direction.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy.special import expit, logit, ndtri

from calibrant.metrics.bin_sums import BinSums, Float64Array

N_DRAWS = 600
SIGNIFICANT = 3.0  # standard deviations from which a gap is taken to be more than noise
REACH = 6.0  # standard deviations of the sum of all gaps that a ray goes on beyond the fit
RARE_REACH = 16.0  # the same in outcomes, for rows without variance
N_LEVELS = (14, 9)  # hypotheses on the first and on the second ray
MAX_LOGIT = 14.0
TAIL_SHARE = 0.8  # of the tails of an interval; the rest is for the direction of the ray, which is estimated
USUAL = 0.16  # quantile one standard deviation below the middle
RARE_ROWS = 30.0  # outcomes with fewer expected rows are drawn as counts, others as normal deviates

Limits: TypeAlias = tuple[float, float]
Statistic: TypeAlias = Callable[[Float64Array], Float64Array]  # of gaps (…, m): one value each


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """True gaps of the bins, and gaps that were drawn under them."""

    gap: Float64Array  # (m,) mass times (mean confidence − accuracy)
    drawn: Float64Array  # (draws, m)


@dataclass(frozen=True, eq=False)
class Bins:
    """The bins that are not empty, as numbers of independent rows."""

    effective: Float64Array  # (m,) effective sample sizes
    rows: Float64Array  # (m,) the same as whole numbers, at least 1, from which outcomes are drawn
    correct: Float64Array  # (m,) of these, not rounded
    confidence: Float64Array  # (m,) means
    mass: Float64Array  # (m,) of sum 1

    @classmethod
    def of(cls, sums: BinSums) -> "Bins":
        filled = sums[sums.total > 0]
        effective = filled.effective.numpy()
        rows = np.maximum(np.rint(effective), 1.0)
        confidence = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0)
        return cls(effective, rows, filled.accuracy.numpy() * rows, confidence, filled.mass.numpy())

    @property
    def stretch(self) -> Float64Array:
        """(m,) by what the noise of the whole numbers of rows is too small: 1 for rows without weights or clusters."""
        return np.sqrt(self.rows / self.effective)

    @property
    def gap(self) -> Float64Array:
        return self.mass * (self.confidence - self.correct / self.rows)

    def accuracy(self, gap: Float64Array) -> Float64Array:
        return np.asarray(np.clip(self.confidence - gap / self.mass, 0.0, 1.0))

    def deviation(self, gap: Float64Array) -> Float64Array:
        """(m,) standard deviations of the gaps where these are the true ones."""
        accuracy = self.accuracy(gap)
        return np.asarray(self.mass * np.sqrt(accuracy * (1 - accuracy) / self.effective))


def draw_gaps(bins: Bins, gaps: Sequence[Float64Array], seed: int, n_draws: int = N_DRAWS) -> Iterator[Float64Array]:
    """For each of these true gaps (n_draws, m) gaps of as many rows in each bin; all use the same random numbers."""
    outcomes = np.random.default_rng(seed).standard_normal((n_draws, len(bins.mass)))
    for gap in gaps:
        accuracy = bins.accuracy(gap)
        drawn = gap - bins.deviation(gap) * outcomes
        rare = bins.rows * np.minimum(accuracy, 1 - accuracy) < RARE_ROWS
        if rare.any():
            rows = bins.rows[rare].astype(np.int64)
            counts = np.random.default_rng([seed, 1]).binomial(rows, accuracy[rare], (n_draws, len(rows)))
            noise = bins.mass[rare] * (accuracy[rare] - counts / rows)
            drawn[:, rare] = gap[rare] + bins.stretch[rare] * noise
        yield drawn


def ray_gaps(bins: Bins) -> list[list[Float64Array]]:
    """The true gaps (m,) of the hypotheses on each ray, from calibration outwards."""
    shift, residual = _smooth_fit(bins)
    fitted = _gaps(bins, shift, residual, 1.0)
    scale = float(np.sqrt((np.maximum(bins.deviation(fitted), bins.deviation(0 * fitted)) ** 2).sum()))
    reach = REACH * scale + RARE_REACH / float(bins.rows.sum())
    size = float(np.abs(fitted).sum())
    ends = [(1.0, max(size - reach, 0.0), size + reach, N_LEVELS[0]), (-1.0, 0.0, reach, N_LEVELS[1])]
    found = []
    for sign, low, high, n_levels in ends:
        steps, sizes = _sizes(bins, shift, residual, sign)
        levels = low + _spread(n_levels) * (min(high, sizes[-1]) - low)
        reached = np.unique(np.interp(np.append(levels, 0.0), sizes, steps))
        found.append([_gaps(bins, shift, residual, sign * t) for t in reached])
    return found


def _spread(n: int) -> Float64Array:
    """Numbers from 0 to 1, dense at the ends: near calibration, and where all rows are correct, each outcome counts."""
    return np.asarray((1 - np.cos(np.linspace(0.0, np.pi, n))) / 2)


@lru_cache(maxsize=4)
def rays(sums: BinSums, seed: int) -> tuple[tuple[Hypothesis, ...], ...]:
    """The rays of hypotheses with draws."""
    bins = Bins.of(sums)
    return tuple(tuple(map(Hypothesis, gaps, draw_gaps(bins, gaps, seed))) for gaps in ray_gaps(bins))


def _smooth_fit(bins: Bins) -> tuple[Float64Array, Float64Array]:
    """Shift of the log-odds of each bin by a logistic regression, and the significant deviations of gaps from it.

    The regression has an intercept and a slope, with a standard normal prior around 0 and 1.
    """
    x = np.clip(logit(bins.confidence), -MAX_LOGIT, MAX_LOGIT)
    inputs = np.stack([np.ones_like(x), x], axis=1)
    beta = np.zeros(2)
    for _ in range(20):
        probability = expit(x + inputs @ beta)
        slope = inputs.T @ (bins.correct - bins.rows * probability) - beta
        hessian = inputs.T @ (inputs * (bins.rows * probability * (1 - probability))[:, None]) + np.eye(2)
        step = np.linalg.solve(hessian, slope)
        beta = beta + step / max(1.0, float(np.abs(step).max()))
    shift = inputs @ beta
    if float(np.abs(shift).max()) < 1e-9:  # the outcomes tell no direction
        shift = -1e-9 * np.where(x == 0, 1.0, x)
    gap = _gaps(bins, shift, 0 * shift, 1.0)
    residual = bins.gap - gap
    return shift, np.where(np.abs(residual) > SIGNIFICANT * bins.deviation(gap), residual, 0.0)


def _gaps(bins: Bins, shift: Float64Array, residual: Float64Array, t: float) -> Float64Array:
    """The true gaps at one point of a ray."""
    x = np.clip(logit(bins.confidence), -MAX_LOGIT, MAX_LOGIT)
    gap = bins.mass * (expit(x) - expit(np.clip(x + t * shift, -700, 700))) + t * residual
    return bins.mass * (bins.confidence - bins.accuracy(gap))


def _sizes(bins: Bins, shift: Float64Array, residual: Float64Array, sign: float) -> tuple[Float64Array, Float64Array]:
    """Steps on a ray, and the sum of the absolute gaps at each."""
    farthest = max(1e4, 100 / float(np.abs(shift).max()))  # where all rows are correct, or none
    steps = np.concatenate([[0.0], np.geomspace(1e-7 * farthest, farthest, 80)])
    sizes = np.array([np.abs(_gaps(bins, shift, residual, sign * t)).sum() for t in steps])
    return steps, np.maximum.accumulate(sizes)


def invert(
    gaps: Sequence[Float64Array], at_least: Float64Array, at_most: Float64Array, distance: Float64Array, level: float
) -> list[Float64Array]:
    """The first and the last gaps on a ray that the observed estimate does not contradict; empty where there are none.

    The estimate contradicts gaps if a tail of the distribution that it has under them begins with it: ``at_least`` and
    ``at_most`` are the probabilities of the tails. Calibration has one tail, so it is rejected with probability
    0.8 (1 − level); with the distance from it, the tails become those of a two-sided interval.
    """
    tail = TAIL_SHARE * (1 - level) / 2
    upper = tail * (1 + np.clip(1 - distance, 0.0, 1.0))
    first = _crossing(_normal(at_least) - ndtri(upper), gaps)
    last = _crossing((_normal(at_most) - ndtri(tail))[::-1], gaps[::-1])
    return [] if first is None or last is None else [first, last]


def _normal(probability: Float64Array) -> Float64Array:
    """Normal quantiles: between hypotheses they are nearly linear."""
    return np.asarray(ndtri(np.clip(probability, 0.2 / N_DRAWS, 1 - 0.2 / N_DRAWS)))


def invert_drawn(
    ray: Sequence[Hypothesis], observed: float, estimate: Statistic, level: float, *, gap: Float64Array | None = None
) -> list[Float64Array]:
    """`invert` where the distribution of the estimate is that of the drawn gaps.

    An estimate that is unusually small even for a calibrated model does not make the interval shorter: for the last
    gaps it counts as one standard deviation below what such a model has. With the observed ``gap``, as on the second
    ray, the last gaps are those that the sum of the gaps in the direction of the ray does not contradict: the estimate
    does not know the sign.
    """
    estimates = np.array([estimate(hypothesis.drawn) for hypothesis in ray])
    slack = 1e-9 * (1 + abs(observed))
    usual = max(observed, float(np.quantile(estimates[0], USUAL)))
    at_most = (estimates <= usual + slack).mean(1)
    if gap is not None:
        sign = np.sign(ray[-1].gap)
        at_most = np.array([(hypothesis.drawn @ sign <= gap @ sign + slack).mean() for hypothesis in ray])
    means = estimates.mean(1)
    distance = (means - means[0]) / max(4 * float(estimates[0].std()), 1e-12)
    at_least = (estimates >= observed - slack).mean(1)
    return invert([hypothesis.gap for hypothesis in ray], at_least, at_most, distance, level)


def _crossing(margin: Float64Array, gaps: Sequence[Float64Array]) -> Float64Array | None:
    """The gaps where the margin becomes positive, by linear interpolation."""
    accepted = np.flatnonzero(margin >= 0)
    if len(accepted) == 0:
        return None
    i = int(accepted[0])
    share = 0.0 if i == 0 else min(max(margin[i] / (margin[i] - margin[i - 1]), 0.0), 1.0)
    return gaps[i] + share * (gaps[i - 1] - gaps[i])


def limits_of(found: Iterable[Float64Array], truth: Callable[[Float64Array], float]) -> Limits:
    """The smallest and the largest true error of these gaps; anything is possible where there are none."""
    errors = [truth(gap) for gap in found] or [0.0, 1.0]
    return min(errors), min(max(errors), 1.0)
