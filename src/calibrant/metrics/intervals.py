r"""Confidence intervals and noise floors of calibration errors, from their tallies alone.

A calibration error is a norm f(g) of gaps g (accuracy less confidence, cell by cell) and what is observed is g plus
noise. A norm of noise is positive, so the plain percentile interval never holds 0, not even for a perfect model. We
draw two kinds of noise from the tally: of outcomes that follow the confidences (a perfect model), and of rows drawn
anew (the Poisson bootstrap). Then

- the **noise floor** is the mean of f over outcomes that follow the confidences;
- the **lower limit** takes every gap of less than three standard deviations to be nothing but noise, and subtracts
  what noise then adds: it is above 0 for a perfect model one time in twenty;
- the **upper limit** takes every gap as it is, and subtracts noise only where gaps are so small that it hides them.

Where each gap is either nothing or plain to see, the interval covers the true error as often as its level says;
between the two it is wider (`docs/metrics.md`), and so it is where fewer than 20 rows are wrong, or right.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, ndtri, xlog1py, xlogy

from calibrant.metrics.cells import strata
from calibrant.metrics.exact import share_limits
from calibrant.metrics.smooth import Floats, cosines, fixed_width, smoothed
from calibrant.metrics.tally import Tally

N_DRAWS = 1000
N_STRATA = 256  # groups of cells that are drawn together where a metric needs the order of confidences
N_WIDTHS = 256  # points at which smoothed gaps are compared
FAR = 1e6  # so many times a gap, noise does not change its sign
SIGNIFICANT = 3.0  # standard deviations from which a gap is taken to be more than noise
RARE = 20  # effective rows, right or wrong, below which draws of rows do not know how rare these are

Norm = Callable[[Floats], Floats]  # of gaps (…, m), over the last dimension
Noise = tuple[Floats, Floats, Floats]  # the gaps (m,), draws of a perfect model (b, m), of rows anew (b, m)


def gaps(bins: Tally, seed: int, n_draws: int = N_DRAWS) -> Noise:
    """The gaps of a tally, and draws of their noise."""
    generator = np.random.default_rng(seed)
    filled = bins[bins.total > 0]
    total, right = filled.total.numpy(), filled.weight[:, 1].numpy()
    confidence = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0)
    n = total.sum()
    gap = (right - total * confidence) / n
    rows = np.maximum(np.rint(filled.effective.numpy()), 1)  # equally weighted rows that tell as much
    unit = total / rows
    half = total / n / 2  # half a row more of either outcome: rows that are all right do not know that for certain
    perfect = (
        (generator.binomial(rows.astype(np.int64), confidence, (n_draws, len(rows))) - rows * confidence) * unit / n
    )
    rates = right / unit + half, np.maximum(total - right, 0.0) / unit + half
    drawn_right, drawn_wrong = (generator.poisson(rate, (n_draws, len(rows))) * unit for rate in rates)
    drawn = drawn_right * (1 - confidence) - drawn_wrong * confidence
    sizes = np.maximum((drawn_right + drawn_wrong).sum(1, keepdims=True), unit.min())
    centre = (rates[0] * (1 - confidence) - rates[1] * confidence) * unit
    return gap, perfect, drawn / sizes - centre / (n + (unit * total).sum() / n)


def mapped(noise: Noise, function: Norm) -> Noise:
    """The same for a linear function of the gaps."""
    gap, perfect, anew = noise
    return function(gap), function(perfect), function(anew)


def interval(
    observed: float, noise: Noise, norm: Norm, level: float, *, of_one_sign: bool = False
) -> tuple[float, float]:
    """Limits of a norm of gaps; ``of_one_sign`` where the norm looks at gaps of one sign only."""
    gap, perfect, anew = noise
    spread = np.maximum(anew.std(0), perfect.std(0))
    plain = np.abs(gap) > SIGNIFICANT * spread
    base = np.where(plain, gap, 0.0)
    added = norm(base + np.where(plain, anew, perfect)) - norm(base)
    low = lower_limit(observed, *np.quantile(added, [(1 - level) / 2, level, (1 + level) / 2]))
    redrawn = norm(gap + anew)
    reach = redrawn.mean() - np.quantile(redrawn, (1 - level) / 2)
    # Where gaps are small, their signs change in the draws, and the norm varies less than it would for larger ones;
    # but then the draws also tell how much noise adds to it.
    afar = FAR * (base if of_one_sign else gap)
    reach_afar = np.quantile(norm(afar + anew) - norm(afar), (1 + level) / 2)
    reach = max(reach, reach_afar - (0.0 if of_one_sign else redrawn.mean() - norm(gap)))
    return low, min(observed + float(reach), 1.0)


def largest_interval(observed: float, noise: Noise, level: float) -> tuple[float, float]:
    """Limits of the largest absolute gap: the lower one from a band that holds for all gaps at once."""
    gap, perfect, anew = noise
    spread = np.maximum(np.maximum(anew.std(0), perfect.std(0)), 1e-12)
    band = float(np.quantile((np.abs(perfect) / spread).max(1), level))
    low = float((np.abs(gap) - band * spread).max())
    return max(low, 0.0), interval(observed, noise, largest, level)[1]


def holding_gap(limits: tuple[float, float], cells: Tally, norm: Norm, level: float) -> tuple[float, float]:
    """Limits of a calibration error; where right or wrong rows are rare, wide enough to hold those of the whole gap.

    With few wrong rows, draws of rows miss the true error far more often than the level says. The limits of accuracy
    less confidence over all rows are exact, and of rows in one bin the error is a norm of that.
    """
    total, right = float(cells.total.sum()), float(cells.weight[..., 1].sum())
    effective, accuracy = total**2 / float(cells.squared.sum()), right / total
    if min(accuracy, 1 - accuracy) * effective >= RARE:
        return limits
    confidence = float(cells.confidence.sum()) / total
    low, high = (limit - confidence for limit in share_limits(accuracy * effective, effective, level))
    least, *ends = norm(np.array([[min(max(0.0, low), high)], [low], [high]])).tolist()
    return min(limits[0], least), max(limits[1], *ends)


def largest_possible(bins: Tally, norm: Norm, scaled: Callable[[Noise, Tally], Noise] | None = None) -> float:
    """The norm where all rows of a bin are right, or all are wrong, whichever is further from their confidence."""
    filled = bins[bins.total > 0]
    confidence, mass = np.clip(filled.mean_confidence.numpy(), 0.0, 1.0), filled.mass.numpy()
    wrong, right = -confidence * mass, (1 - confidence) * mass
    ends = np.stack([wrong, right, np.where(confidence > 0.5, wrong, right)])
    noise = ends, ends, ends
    return float(norm((noise if scaled is None else scaled(noise, bins))[0]).max())


def lower_limit(observed: float, least: float, one_sided: float, two_sided: float) -> float:
    """What is left when noise has been subtracted: the one-sided quantile of it at 0, the two-sided one far from 0.

    Between, over the range of the noise, the quantile changes evenly; the limit solves θ + q(θ) = observed.
    """
    reach = max(two_sided - least, 1e-300)
    near = (observed - one_sided) / (1 + (two_sided - one_sided) / reach)
    return max(float(near if near < reach else observed - two_sided), 0.0)


def floor(noise: Noise, norm: Norm) -> float:
    """Expected norm of the gaps of a perfect model with these confidences."""
    return float(norm(noise[1]).mean())


def absolute_sum(gap: Floats) -> Floats:
    return np.asarray(np.abs(gap).sum(-1))


def negative_sum(gap: Floats) -> Floats:
    return np.asarray(np.maximum(-gap, 0.0).sum(-1))


def positive_sum(gap: Floats) -> Floats:
    return np.asarray(np.maximum(gap, 0.0).sum(-1))


def largest(gap: Floats) -> Floats:
    return np.asarray(np.abs(gap).max(-1))


def root_sum(gap: Floats) -> Floats:
    return np.asarray(np.sqrt((gap**2).sum(-1)))


def per_mass(noise: Noise, bins: Tally) -> Noise:
    """Gaps divided by the mass of their bin: accuracy less confidence."""
    mass = bins.mass[bins.total > 0].numpy()
    return mapped(noise, lambda gap: gap / mass)


def per_root_mass(noise: Noise, bins: Tally) -> Noise:
    """Gaps whose squares, summed, are the mean squared gap."""
    root = np.sqrt(bins.mass[bins.total > 0].numpy())
    return mapped(noise, lambda gap: gap / root)


def cumulative(cells: Tally, seed: int) -> Noise:
    """Cumulative gaps, from the least confident on."""
    return mapped(gaps(strata(cells, N_STRATA), seed), lambda gap: np.cumsum(gap, -1))


def ks_interval(cells: Tally, observed: float, seed: int, level: float) -> tuple[float, float]:
    """Limits of the largest cumulative gap, of which the groups see a little less than the cells.

    The lower one subtracts the largest cumulative noise: a band of even width around all cumulative gaps.
    """
    noise = cumulative(cells, seed)
    coarse = float(largest(noise[0]))
    band = max(float(np.quantile(largest(drawn), level)) for drawn in noise[1:])
    high = interval(coarse, noise, largest, level)[1]
    return max(observed - band, 0.0) if coarse > band else 0.0, min(high + observed - coarse, 1.0)


def smooth_interval(cells: Tally, observed: float, seed: int, level: float) -> tuple[float, float]:
    """Limits of the smooth ECE: of the norm at its width, divided by what a change of width gives back."""
    groups = strata(cells, N_STRATA)
    if observed == 0:
        return interval(0.0, gaps(groups, seed), absolute_sum, level)
    weights = kernel(groups, observed)
    noise = mapped(gaps(groups, seed), lambda gap: gap @ weights)
    middle, share = float(absolute_sum(noise[0])), share_of_width(cells, observed)
    low, high = interval(middle, noise, absolute_sum, level)
    return max(observed - (middle - low) * share, 0.0) if low > 0 else 0.0, min(observed + (high - middle) * share, 1.0)


def share_of_width(cells: Tally, width: float) -> float:
    """How much of a change of the norm at a fixed width is left when the width follows."""
    transform = cosines(cells.gap.numpy(), cells.mean_confidence.numpy())
    step = 0.05 * width
    fall = np.abs(smoothed(transform, width - step)).sum() - np.abs(smoothed(transform, width + step)).sum()
    return 1 / (1 + max(float(fall), 0.0) / (2 * step))


def smooth_floor(cells: Tally, seed: int) -> float:
    """The smooth ECE of a perfect model: the mean over draws."""
    groups = strata(cells, N_STRATA)
    _, perfect, _ = gaps(groups, seed, n_draws=100)
    position = groups.mean_confidence.numpy()
    return float(np.mean([fixed_width(cosines(gap, position)) for gap in perfect]))


def kernel(groups: Tally, width: float) -> Floats:
    """(m, points): what a gap in each group adds to the smoothed gaps, whose absolute sum is the error."""
    edges, position = np.linspace(0.0, 1.0, N_WIDTHS + 1), groups.mean_confidence.numpy()[:, None]
    images = [sign * position + shift for sign in (-1, 1) for shift in (-4, -2, 0, 2, 4)]
    mass = np.sum([ndtr((edges - image) / width) for image in images], axis=0)
    return np.diff(mass, axis=1)


def debiased_floor(bins: Tally, seed: int) -> float:
    """The debiased error of a perfect model: half of the time it is 0."""
    filled = bins[bins.total > 0]
    mass, rows = filled.mass.numpy(), filled.rows.sum(-1).numpy()
    _, perfect, _ = gaps(bins, seed)
    difference = perfect / mass
    accuracy = np.clip(filled.mean_confidence.numpy() + difference, 0.0, 1.0)
    chance = accuracy * (1 - accuracy) / np.maximum(rows - 1, 1e-9)
    squared = np.where(rows > 2 - 1e-9, mass * (difference**2 - chance), 0.0).sum(1)
    return float(np.sqrt(np.maximum(squared, 0.0)).mean())


def classwise_floor(classes: Tally) -> float:
    """The sum over classes and bins of the mean absolute gap of a perfect model."""
    return float(_perfect_deviation(classes).sum())


def classwise_noise(classes: Tally) -> float:
    """What noise adds to the classwise error where gaps that are no more than noise are taken for none."""
    gap, variance = _class_gaps(classes), np.maximum(_anew_variance(classes), _perfect_variance(classes))
    return float(_perfect_deviation(classes)[np.abs(gap) <= SIGNIFICANT * np.sqrt(variance)].sum())


def classwise_interval(
    classes: Tally, observed: float, seed: int, level: float, *, exclusive: bool
) -> tuple[float, float]:
    """The limits of `interval` for a sum over so many gaps that it is nearly normal.

    The classes of a row are not independent: what one class has too much, the others have too little. A row's
    likeliest class (its bins above ½) and its label otherwise (below) are taken together; of two classes, either says
    all. Classes that do not exclude each other are taken to vary together, which is the widest.
    """
    if exclusive and len(classes.total) == 2:
        return holding_gap(
            interval(observed, gaps(classes[1], seed), absolute_sum, level), classes[1], absolute_sum, level
        )
    gap = _class_gaps(classes)
    perfect, anew = _perfect_variance(classes), _anew_variance(classes)
    plain = np.abs(gap) > SIGNIFICANT * np.sqrt(np.maximum(anew, perfect))
    chance = np.where(plain, 0.0, _perfect_deviation(classes))
    noise = chance.sum()
    shared = _shared_variance(classes, gap, anew, plain)

    def deviation(variances: Floats) -> float:
        if not exclusive:
            return float(np.sqrt(variances.sum(1)).sum())
        return float(np.sqrt(variances.sum() + shared))

    spread = deviation(np.where(plain, anew, np.maximum(perfect - chance**2, 0.0)))
    low = lower_limit(observed, *(noise + ndtri([(1 - level) / 2, level, (1 + level) / 2]) * spread))
    high = observed + float(ndtri((1 + level) / 2)) * deviation(anew)
    down, up = _rare_reach(classes, level, exclusive=exclusive)
    return min(low, max(observed - down, 0.0)), min(max(high, observed + up), 1.0)


def _rare_reach(classes: Tally, level: float, *, exclusive: bool) -> tuple[float, float]:
    """How far down and up a classwise error may be that rests on few surprises; (0, 0) where there are enough.

    A surprise is a row that is of a class in whose bin few are, or not of one in whose bin most are. A wrong row of
    exclusive classes is two of them, each of which moves the gap of its class by a row.
    """
    n_classes = len(classes.total)
    together = 2 if exclusive else n_classes  # surprises that come at once, at most
    total, squared = float(classes.total.sum()) / n_classes, float(classes.squared.sum()) / n_classes
    share, effective = float(classes.weight.amin(-1).sum()) / together / total, total**2 / squared
    if share * effective >= RARE:
        return 0.0, 0.0
    low, high = share_limits(min(share, 1.0) * effective, effective, level)
    return (share - low) * together / n_classes, (high - share) * together / n_classes


def _class_gaps(classes: Tally) -> Floats:
    return ((classes.weight[..., 1] - classes.confidence) / classes.total.sum()).numpy()


def _perfect_variance(classes: Tally) -> Floats:
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    return (classes.squared * confidence * (1 - confidence) / classes.total.sum() ** 2).numpy()


def _perfect_deviation(classes: Tally) -> Floats:
    """Mean absolute deviation of a binomial count from its mean (De Moivre): 2 m (1 − p) P(m), m = ⌊np⌋ + 1."""
    p = torch.nan_to_num(classes.mean_confidence).clamp(0, 1).numpy()
    n = np.maximum(np.rint(classes.effective.numpy()), 1)
    m = np.floor(n * p) + 1
    possible = np.minimum(m, n)
    log_chance = gammaln(n + 1) - gammaln(possible + 1) - gammaln(n - possible + 1)
    log_chance += xlogy(possible, p) + xlog1py(n - possible, -p)
    deviation = np.where(m <= n, 2 * m * (1 - p) * np.exp(log_chance), 0.0)
    return np.asarray(deviation * classes.total.numpy() / n / float(classes.total.sum()))


def _anew_variance(classes: Tally) -> Floats:
    confidence = torch.nan_to_num(classes.mean_confidence).clamp(0, 1)
    accuracy = torch.nan_to_num(classes.accuracy)
    second = accuracy * (1 - confidence) ** 2 + (1 - accuracy) * confidence**2
    return (classes.squared * second / classes.total.sum() ** 2).numpy()


def _shared_variance(classes: Tally, gap: Floats, variance: Floats, plain: NDArray[np.bool_]) -> float:
    """Twice the covariance of the absolute gaps above ½ with those below, from their signs."""
    sign = np.where(plain, np.sign(gap), 0.0)
    middle = (gap.shape[1] + 1) // 2
    labelled = classes.weight[:, :middle, 1].numpy()
    below = float((sign[:, :middle] * labelled).sum() / max(labelled.sum(), 1e-300))
    return max(-2.0 * below * float((sign[:, middle:] * variance[:, middle:]).sum()), 0.0)
