r"""Ratios and differences of mean scores, with intervals over seeds, types of shift and test images.

The runs of two losses share their seeds, their test sets and the images of these. An interval is for other seeds, other
types of shift and other images: each level of a factor is left out in turn, of all means of the contrast together.

.. math:: m_f = t_{0.975,\,n - 1} \sqrt{\frac{n - 1}{n} \sum_i (c_i - \overline{c})^2}

is the margin of the factor f, where :math:`c_i` is the contrast without level i of n: a seed, a type of
corruption with all its severities, or one of 20 groups of images. The margin of the interval is
:math:`\sqrt{\sum_f m_f^2}`. With three seeds a bootstrap is too narrow: benchmarks/contrast_coverage.py.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import stdtrit

from calibrant.errors import NoDataError
from calibrant.report.numbers import format_range, join_words
from calibrant.report.scores import SIGNIFICANCE, Score, ScoreKey, add_shifts, scores
from calibrant.report.style import ratio_decimals
from calibrant.runs import RAW, split_variant

SEEDS, TYPES, GROUPS = "seeds", "types of shift", "groups of images"  # the factors
WHY_WITHOUT = {SEEDS: "there is one", TYPES: "there is one", GROUPS: "it is not known of norms, nor of one group"}

ScoresByType = Mapping[str, Score]


class Contrast(NamedTuple):
    """A ratio or a difference of mean scores, with its 95 % interval."""

    value: float
    low: float | None  # None where it is unknown
    high: float | None
    levels: dict[str, int]  # of each factor whose noise is in the interval


class _Mean(NamedTuple):
    value: float
    without: dict[str, dict[int | str, float]]  # by factor and level; a factor of one level has none


def scores_by_type(rows: pa.Table, metrics: Sequence[str]) -> dict[ScoreKey, dict[str, Score]]:
    """The scores on each type of shift, with its severities together. rows: all shifted, or all unshifted."""
    rows = add_shifts(rows.filter(pc.is_in(rows["metric"], pa.array(metrics, pa.string()))))
    found: dict[ScoreKey, dict[str, Score]] = {}
    for (*key, corruption), score in scores(rows, *ScoreKey._fields, "corruption").items():
        found.setdefault(ScoreKey(*key), {})[corruption] = score
    return found


def contrast(
    above: Sequence[ScoresByType], below: Sequence[ScoresByType], *, ratio: bool = True, paired: bool = True
) -> Contrast | None:
    """The product of the means above over that of those below, or the sum of those above minus that of those below.

    Args:
        above: Scores of the same data set and metric.
        below: The same.
        ratio: Whether it is the ratio; its interval is symmetric for the logarithm.
        paired: Whether the means are over the common seeds, else each over its own. An ensemble has no seed.

    Returns:
        The contrast; None where a mean is undefined, or a ratio has one that is not positive.
    """
    terms = [*above, *below]
    signs = np.array([1.0] * len(above) + [-1.0] * len(below))
    if not all(terms) or any(score.mean is None for term in terms for score in term.values()):
        return None
    seeds = [set.intersection(*(set(score.per_seed) for score in term.values())) for term in terms]
    if paired:
        seeds = [set.intersection(*seeds)] * len(terms)
    if not all(seeds):
        return None
    means = [_mean(term, sorted(own)) for term, own in zip(terms, seeds, strict=True)]
    values = np.array([mean.value for mean in means])
    if not np.isfinite(values).all() or (ratio and values.min() <= 0):
        return None
    value, margins, levels = float(signs @ _scale(values, ratio)), [], {}
    for factor in (SEEDS, TYPES, GROUPS):
        names = sorted({level for mean in means for level in mean.without[factor]}, key=str)
        if not names or (factor == GROUPS and len({len(mean.without[GROUPS]) for mean in means}) > 1):
            continue
        without = np.array([[mean.without[factor].get(name, mean.value) for name in names] for mean in means])
        if ratio and without.min() <= 0:
            return Contrast(_unscale(value, ratio), None, None, {})
        levels[factor] = n = len(names)
        margins.append(
            stdtrit(n - 1, 1 - SIGNIFICANCE / 2) * math.sqrt((n - 1) * (signs @ _scale(without, ratio)).var())
        )
    margin = math.hypot(*margins)
    limits = [_unscale(value + sign * margin, ratio) if margins else None for sign in (-1, 1)]
    return Contrast(_unscale(value, ratio), limits[0], limits[1], levels)


def _scale(values: NDArray[np.float64], ratio: bool) -> NDArray[np.float64]:
    return np.log(values) if ratio else values


def _unscale(value: float, ratio: bool) -> float:
    return math.exp(value) if ratio else value


def _mean(scores: ScoresByType, seeds: Sequence[int]) -> _Mean:
    """The mean over types, each weighted with its test sets, and over these seeds."""
    values = np.array([[score.per_seed[seed] for score in scores.values()] for seed in seeds])
    weights = np.array([score.n_tests for score in scores.values()], float)
    by_seed, by_type, total = values @ weights / weights.sum(), values.mean(0) * weights, weights.sum()
    n = len(seeds)
    without: dict[str, dict[int | str, float]] = {
        SEEDS: dict(zip(seeds, (by_seed.sum() - by_seed) / (n - 1), strict=True)) if n > 1 else {},
        TYPES: dict(zip(scores, (by_type.sum() - by_type) / (total - weights), strict=True))
        if len(weights) > 1
        else {},
        GROUPS: {},
    }
    groups = [[score.jackknife.get(seed, ()) for score in scores.values()] for seed in seeds]
    if len({len(group) for line in groups for group in line}) == 1 and len(groups[0][0]) > 1:
        without[GROUPS] = dict(enumerate(weights @ np.mean(groups, axis=0) / total))
    return _Mean(float(by_seed.mean()), without)


def reference_of(key: ScoreKey) -> ScoreKey:
    """The score that others are relative to: of cross-entropy, without a calibrator, on the same data set and model."""
    return key._replace(loss="cross_entropy", variant="", label_smoothing=0.0, calibrator=RAW)


def ratios_to_cross_entropy(rows: pa.Table, metrics: Sequence[str]) -> dict[ScoreKey, Contrast]:
    """The mean scores over shifted test sets, each divided by that of cross-entropy.

    Raises:
        NoDataError: There is no run of cross-entropy.
    """
    found = scores_by_type(rows.filter(rows["shifted"]), metrics)
    if not any(key == reference_of(key) for key in found):
        raise NoDataError("rows have no run of cross_entropy on shifted test sets, which scores are relative to")
    ratios = {
        key: contrast([own], [found.get(reference_of(key), {})], paired=not split_variant(key.variant)[1])
        for key, own in found.items()
    }
    return {key: ratio for key, ratio in ratios.items() if ratio is not None}


def ratio_text(ratio: Contrast, metric: str) -> str:
    """For example "0.60 (0.52–0.69)"; 1 of what is compared with itself."""
    if ratio[:3] == (1.0, 1.0, 1.0):
        return "1"
    decimals = ratio_decimals(metric)
    limits = "" if ratio.low is None else f" ({ratio.low:.{decimals}f}–{ratio.high:.{decimals}f})"
    return f"{ratio.value:.{decimals}f}{limits}"


def interval_notes(found: Sequence[Contrast], keys: Iterable[ScoreKey] = ()) -> Iterator[str]:
    """What the intervals of ratios are, and what noise is not in them. keys: of the scores."""
    yield "Ratios of means over the same seeds and test sets; below 1 is lower than what it is compared with."
    levels = {factor: [ratio.levels[factor] for ratio in found if factor in ratio.levels] for factor in WHY_WITHOUT}
    noise = [f"{format_range(counts)} {factor}" for factor, counts in levels.items() if counts]
    if noise:
        yield (
            f"In parentheses the 95 % interval, with the noise of {join_words(noise)}: each of them is left out in "
            "turn, of all means together, and the margins of Student's t are added as squares."
        )
    for factor, counts in levels.items():
        if len(counts) < len(found):
            yield f"{'Some' if counts else 'All'} intervals are without the noise of {factor}: {WHY_WITHOUT[factor]}."
    if any(split_variant(key.variant)[1] for key in keys):
        yield "An ensemble is one run: of seeds, its interval has the noise of what it is compared with alone."
