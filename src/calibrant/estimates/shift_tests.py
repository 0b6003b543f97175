"""Shift tests: does a target differ from a reference in confidence, entropy, predicted classes and features?"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import chdtrc
from torch import Tensor

from calibrant._arrays import as_float32, blocks
from calibrant._checks import check_all_classes, check_same_class_names
from calibrant._signatures import checked
from calibrant.calibrators.maps import row_statistics
from calibrant.errors import InvalidInputError
from calibrant.metrics.exact import holm
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

FloatArray = NDArray[np.float64]
MAX_EXACT_PAIRS = 100_000  # rows of the target × rows of the reference, for an exact Kolmogorov-Smirnov test
MIN_EXPECTED = 5.0  # rows of a class on either side, for the distribution of χ²
MAX_FEATURE_ROWS = 500  # of either side: the time and memory of all distances
PERMUTATIONS = 999


@dataclass(frozen=True, slots=True)
class ShiftTest:
    """One respect in which a target may differ from a reference.

    Args:
        name: What was compared: confidence, entropy, class_mix or features.
        effect: How far apart the two are, from 0 (the same) to 1 (nothing in common), however many rows there are.
            Confidence and entropy: the largest difference between the two cumulative distributions
            (Kolmogorov-Smirnov). Class mix: the share of the rows that would have to change their predicted class
            (total variation). Features: √(energy distance / twice the mean distance between the two), about half the
            mean shift of a feature in standard deviations.
        noise_floor: The mean effect of as many rows that do not differ.
        p_value: p-value of the hypothesis that the two do not differ, corrected for the number of tests (Holm).
        statistic: What the p-value is of; it grows with the number of rows. Confidence and entropy: effect ·
            √(n m / (n + m)). Class mix: χ². Features: energy distance · n m / (n + m).
    """

    name: str
    effect: float
    noise_floor: float
    p_value: float
    statistic: float


@checked
@one_thread()
def shift_tests(target: Predictions, reference: Predictions) -> tuple[ShiftTest, ...]:
    """Two-sample tests of a target against a reference, which need no labels.

    Read the effect first. With few rows, a large effect may be chance: compare it with its noise floor. With many rows,
    any difference is significant, however small. The p-values hold for independent rows, with any number of ties; for
    all tests together, the chance that any is below 0.05 is at most 5 % if nothing differs.

    Args:
        target: The rows in question. Labels are not used.
        reference: Rows to compare with, such as those of validation. Labels are not used.

    Returns:
        The tests of confidence, entropy and class mix, and of features where both have them. Features are compared on
        at most 500 rows of each, drawn by a seed that the rows determine.

    Raises:
        InvalidInputError: One of the two has no rows, or they differ in classes or in the number of features.

    >>> reference = Predictions.from_positive_probs([0.1, 0.3, 0.7, 0.9] * 25)
    >>> target = Predictions.from_positive_probs([0.1, 0.2, 0.3, 0.9] * 25)
    >>> for test in shift_tests(target, reference):
    ...     print(f"{test.name}: effect {test.effect:.2f}, p-value {test.p_value:.2g}")
    confidence: effect 0.25, p-value 0.0075
    entropy: effect 0.25, p-value 0.0075
    class_mix: effect 0.25, p-value 0.00078
    """
    _check_comparable(target, reference)
    seed = [int(rows.row_hashes[0].sum(dtype=np.uint64)) for rows in (target, reference)]
    random = np.random.default_rng(seed)
    (entropy, confidence), (entropy0, confidence0) = (_row_statistics(rows) for rows in (target, reference))
    tests = [
        _kolmogorov_smirnov("confidence", confidence, confidence0),
        _kolmogorov_smirnov("entropy", entropy, entropy0),
        _class_mix(target, reference, random),
    ]
    if target.features is not None and reference.features is not None:
        x, y = (_sample(rows, random) for rows in (target, reference))
        tests.append(_energy(x, y, random))
    corrected = holm([test.p_value for test in tests])
    return tuple(replace(test, p_value=p) for test, p in zip(tests, corrected, strict=True))


def _check_comparable(target: Predictions, reference: Predictions) -> None:
    for argument, rows in (("target", target), ("reference", reference)):
        if len(rows) == 0:
            raise InvalidInputError(f"{argument} must have at least one row")
        check_all_classes(argument, rows, "test for a shift")
    if target.n_classes != reference.n_classes:
        raise InvalidInputError(
            f"target must have the {reference.n_classes} classes of reference, got {target.n_classes}"
        )
    check_same_class_names("reference", reference.class_names, "target", target.class_names)
    if target.features is None or reference.features is None:
        return
    wanted, got = reference.features.shape[1], target.features.shape[1]
    if wanted != got:
        raise InvalidInputError(f"target must have the {wanted} features of reference, got {got}")


def _row_statistics(predictions: Predictions) -> FloatArray:
    """(2, n) entropy and confidence of each row; logits as a file has them, so that equal rows are ties."""
    logits = predictions.logits
    found = [row_statistics(as_float32(logits[rows]).double()) for rows in blocks(*logits.shape)]
    return torch.cat(found).T.numpy()


def _kolmogorov_smirnov(name: str, x: FloatArray, y: FloatArray) -> ShiftTest:
    """Exact for few rows; ties make the p-value larger than it need be, never smaller."""
    from scipy.stats import ks_2samp

    n, m = len(x), len(y)
    result = ks_2samp(x, y, method="exact" if n * m <= MAX_EXACT_PAIRS else "asymp")
    root = math.sqrt(n * m / (n + m))
    floor = min(1.0, math.sqrt(math.pi / 2) * math.log(2) / root)  # the mean of Kolmogorov's distribution
    effect = float(result.statistic)
    return ShiftTest(name, effect, floor, float(result.pvalue), root * effect)


def _class_mix(target: Predictions, reference: Predictions, random: np.random.Generator) -> ShiftTest:
    """χ² of the predicted classes; if some are rare, with its distribution over permutations of the rows."""
    counts = np.stack([np.bincount(r.logits.argmax(1), minlength=r.n_classes) for r in (target, reference)])
    counts = counts[:, counts.sum(0) > 0]
    (n, m), total = counts.sum(1).tolist(), counts.sum(0)
    share = total / (n + m)

    def chi_square(of_target: NDArray[np.int64]) -> FloatArray:
        found: FloatArray = ((of_target - n * share) ** 2 / share).sum(-1) * (n + m) / (n * m)
        return found

    statistic = float(chi_square(counts[0]))
    if min(n, m) * share.min() >= MIN_EXPECTED:
        p_value = float(chdtrc(len(share) - 1, statistic)) if len(share) > 1 else 1.0
    else:
        drawn = chi_square(random.multivariate_hypergeometric(total, n, PERMUTATIONS, method="marginals"))
        p_value = _permutation_p_value(statistic, drawn)
    floor = np.sqrt(share * (1 - share) * (1 / n + 1 / m) * 2 / math.pi).sum() / 2  # of normal differences
    effect = float(np.abs(counts[0] / n - counts[1] / m).sum() / 2)
    return ShiftTest("class_mix", effect, min(1.0, float(floor)), p_value, statistic)


def _sample(predictions: Predictions, random: np.random.Generator) -> Tensor:
    """Features of at most `MAX_FEATURE_ROWS` rows; the order of the rows does not matter."""
    features: Tensor = predictions.features  # type: ignore[assignment]
    order = np.lexsort((features.mean(1, dtype=torch.float32).numpy(), predictions.row_hashes[0]))
    chosen = np.sort(random.permutation(len(order))[:MAX_FEATURE_ROWS])
    return features[torch.from_numpy(order[chosen])].double()


def _energy(x: Tensor, y: Tensor, random: np.random.Generator) -> ShiftTest:
    """The energy distance (Székely & Rizzo 2013), with its distribution over permutations of the rows."""
    n, m = len(x), len(y)
    rows = torch.cat([x, y])
    distances = torch.cdist(rows, rows).numpy()
    of_row, total = distances.sum(1), distances.sum()
    first = np.zeros((1 + PERMUTATIONS, n + m))  # who is of the target: as it is, then permuted
    first[:, :n] = 1.0
    first[1:] = random.permuted(first[1:], axis=1)
    within_x = ((first @ distances) * first).sum(1)
    sum_x = first @ of_row
    between = (sum_x - within_x) / (n * m)
    energy = 2 * between - within_x / n**2 - (total - 2 * sum_x + within_x) / m**2
    effect = np.sqrt(np.divide(energy, 2 * between, out=np.zeros_like(energy), where=between > 0).clip(0.0, 1.0))
    scale = n * m / (n + m)
    p_value = _permutation_p_value(energy[0], energy[1:])
    return ShiftTest("features", float(effect[0]), float(effect[1:].mean()), p_value, float(scale * energy[0]))


def _permutation_p_value(statistic: float, drawn: FloatArray) -> float:
    """The share of statistics as large, the given one among them; equal ones may differ by rounding."""
    return float((1 + (drawn >= statistic - 1e-9 * abs(statistic)).sum()) / (1 + len(drawn)))
