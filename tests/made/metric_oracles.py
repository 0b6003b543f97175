"""Every metric written from its definition in plain loops over float64 numbers: slow, and unlike the library."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

ClassRow = tuple[list[float], int, float]  # probabilities, label, weight
OutcomeRow = tuple[float, bool, float]  # confidence, correct, weight
Oracle = Callable[[list[ClassRow], int], float | None]  # (rows, n_bins); None where the metric is undefined
OutcomeOracle = Callable[[list[OutcomeRow], int], float]


def class_rows(
    logits: Sequence[Sequence[float]], labels: Sequence[int], weights: Sequence[float] | None = None
) -> list[ClassRow]:
    """Softmax row by row; a logit of −inf has probability 0."""
    rows: list[ClassRow] = []
    for i, row in enumerate(logits):
        top = max(row)
        powers = [math.exp(z - top) for z in row]
        total = math.fsum(powers)
        rows.append(([p / total for p in powers], int(labels[i]), 1.0 if weights is None else float(weights[i])))
    return rows


def argmax(probs: Sequence[float]) -> int:
    """The first of the largest."""
    best = 0
    for k, p in enumerate(probs):
        if p > probs[best]:
            best = k
    return best


def top_outcomes(rows: list[ClassRow]) -> list[OutcomeRow]:
    return [(probs[argmax(probs)], argmax(probs) == label, weight) for probs, label, weight in rows]


def positive_outcomes(rows: list[ClassRow]) -> list[OutcomeRow]:
    """P(y = 1), and whether y = 1."""
    return [(probs[1], label == 1, weight) for probs, label, weight in rows]


def total_weight(rows: Sequence[tuple[object, object, float]]) -> float:
    return math.fsum(weight for _, _, weight in rows)


def weighted_mean(pairs: Sequence[tuple[float, float]]) -> float:
    """Mean of (value, weight) over rows of positive weight."""
    kept = [(value, weight) for value, weight in pairs if weight > 0]
    return math.fsum(value * weight for value, weight in kept) / math.fsum(weight for _, weight in kept)


# Bins


def width_bin(confidence: float, n_bins: int, dtype: type[np.floating] = np.float64) -> int:
    """Index of the bin (low, high] that holds the confidence; 0 joins the first."""
    for b in range(n_bins):
        if confidence <= float(dtype((b + 1) / n_bins)):
            return b
    raise AssertionError(f"{confidence} is no confidence")


def width_bins(
    rows: list[OutcomeRow], n_bins: int, dtype: type[np.floating] = np.float64
) -> dict[int, list[OutcomeRow]]:
    bins: dict[int, list[OutcomeRow]] = {}
    for row in rows:
        bins.setdefault(width_bin(row[0], n_bins, dtype), []).append(row)
    return bins


def mass_bins(rows: list[OutcomeRow], n_bins: int) -> dict[int, list[OutcomeRow]]:
    """A group of equal confidences whose first 0-based rank is i goes to bin max(ceil(i·n_bins/n) − 1, 0)."""
    total = sum(Fraction(weight) for _, _, weight in rows)
    bins: dict[int, list[OutcomeRow]] = {}
    for confidence in {row[0] for row in rows}:
        rank = sum((Fraction(weight) for other, _, weight in rows if other < confidence), Fraction(0))
        index = max(math.ceil(rank * n_bins / total) - 1, 0)
        bins.setdefault(index, []).extend(row for row in rows if row[0] == confidence)
    return bins


def gaps(bins: dict[int, list[OutcomeRow]]) -> list[tuple[float, float, float]]:
    """(weight, mean confidence − accuracy, accuracy) of every bin that holds weight."""
    found: list[tuple[float, float, float]] = []
    for members in bins.values():
        weight = total_weight(members)
        if weight > 0:
            confidence = math.fsum(r * w for r, _, w in members) / weight
            accuracy = math.fsum(w for _, c, w in members if c) / weight
            found.append((weight, confidence - accuracy, accuracy))
    return found


def binned(
    rows: list[OutcomeRow], n_bins: int, *, equal_mass: bool = False, dtype: type[np.floating] = np.float64
) -> dict[str, float]:
    """All metrics that come from one set of bins."""
    found = gaps(mass_bins(rows, n_bins) if equal_mass else width_bins(rows, n_bins, dtype))
    n = total_weight(rows)
    return {
        "ece": math.fsum(w / n * abs(gap) for w, gap, _ in found),
        "overconfidence": math.fsum(w / n * max(gap, 0.0) for w, gap, _ in found),
        "underconfidence": math.fsum(w / n * max(-gap, 0.0) for w, gap, _ in found),
        "mce": max(abs(gap) for _, gap, _ in found),
        "rmsce": math.sqrt(math.fsum(w / n * gap * gap for w, gap, _ in found)),
    }


def equal_width(key: str) -> OutcomeOracle:
    return lambda rows, n_bins: binned(rows, n_bins)[key]


def adaptive(rows: list[OutcomeRow], n_bins: int) -> float:
    return binned(rows, n_bins, equal_mass=True)["ece"]


def debiased(rows: list[OutcomeRow], n_bins: int) -> float:
    """Kumar et al. 2019: squared gaps minus the variance of their bins; a bin of fewer than 2 rows gives 0."""
    n = total_weight(rows)
    square = 0.0
    for weight, gap, accuracy in gaps(mass_bins(rows, n_bins)):
        if weight >= 2:
            square += weight / n * (gap * gap - accuracy * (1 - accuracy) / (weight - 1))
    return math.sqrt(max(square, 0.0))


# Without bins


def ks(rows: list[OutcomeRow], n_bins: int = 0) -> float:
    n = total_weight(rows)
    largest = 0.0
    for threshold in {row[0] for row in rows}:
        largest = max(largest, abs(math.fsum(w * (c - r) for r, c, w in rows if r <= threshold)) / n)
    return largest


def reflected_gaussian(nodes: np.ndarray, centre: float, width: float) -> np.ndarray:
    """The Gaussian around the centre folded into [0, 1]: images at ±centre + 2m within ten widths."""
    reach = math.ceil(10 * width / 2) + 1
    density = np.zeros_like(nodes)
    for m in range(-reach, reach + 1):
        for image in (2 * m + centre, 2 * m - centre):
            if -10 * width < image < 1 + 10 * width:
                density += np.exp(-(((nodes - image) / width) ** 2) / 2)
    return density / (width * math.sqrt(2 * math.pi))


def midpoints(confidences: Sequence[float], width: float, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and their shares of [0, 1], so many per width: around the confidences, or everywhere if that is less."""
    marks = {0.0, 1.0}
    for centre in confidences:
        marks |= {min(max(centre + j * width, 0.0), 1.0) for j in range(-9, 10)}
    if len(marks) * width > 1:
        marks = set(np.linspace(0, 1, math.ceil(1 / width) + 1).tolist())
    cuts = np.array(sorted(marks))
    lengths = np.diff(cuts)
    nodes = cuts[:-1, None] + lengths[:, None] * (np.arange(n_nodes) + 0.5) / n_nodes
    return nodes.ravel(), np.repeat(lengths / n_nodes, n_nodes)


def smoothed(residuals: dict[float, float], width: float, n_nodes: int = 60) -> float:
    """∫|Σ k(t, r) residual| dt for residuals summed over equal confidences r."""
    nodes, shares = midpoints(list(residuals), width, n_nodes)
    curve = np.zeros_like(nodes)
    for centre, size in residuals.items():
        curve += size * reflected_gaussian(nodes, centre, width)
    return float(np.sum(np.abs(curve) * shares))


def smooth(rows: list[OutcomeRow], n_bins: int = 0) -> float:
    """The width at which the smoothed error equals the width: bisection, as the first falls and the second grows."""
    n = total_weight(rows)
    residuals: dict[float, float] = {}
    for r, c, w in rows:
        residuals[r] = residuals.get(r, 0.0) + w * (r - c) / n
    residuals = {r: size for r, size in residuals.items() if abs(size) > 1e-15}
    if not residuals:
        return 0.0
    low, high = 0.0, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        if smoothed(residuals, middle) > middle:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def risk_coverage(rows: list[OutcomeRow], n_bins: int = 0) -> float:
    """Error rate of the i most confident, averaged over i; the errors of a tie are spread evenly over its ranks."""
    errors, covered, risks = 0.0, 0, []
    for confidence in sorted({r for r, _, w in rows if w > 0}, reverse=True):
        tied = [(c, w) for r, c, w in rows if r == confidence]
        n_ranks = round(math.fsum(w for _, w in tied))
        incorrect = math.fsum(w for c, w in tied if not c)
        for rank in range(1, n_ranks + 1):
            risks.append((errors + incorrect * rank / n_ranks) / (covered + rank))
        errors, covered = errors + incorrect, covered + n_ranks
    return math.fsum(risks) / len(risks)


# Of all classes


def accuracy(rows: list[ClassRow], n_bins: int = 0) -> float:
    return weighted_mean([(float(argmax(probs) == label), w) for probs, label, w in rows])


def confidence(rows: list[ClassRow], n_bins: int = 0) -> float:
    return weighted_mean([(max(probs), w) for probs, _, w in rows])


def surprise(probs: Sequence[float], label: int) -> float:
    return -math.log(probs[label]) if probs[label] > 0 else math.inf


def square_distance(probs: Sequence[float], label: int) -> float:
    return math.fsum((p - (k == label)) ** 2 for k, p in enumerate(probs))


def over_all(score: Callable[[Sequence[float], int], float]) -> Oracle:
    return lambda rows, n_bins: weighted_mean([(score(probs, label), w) for probs, label, w in rows])


def over_errors(score: Callable[[Sequence[float], int], float]) -> Oracle:
    def mean(rows: list[ClassRow], n_bins: int) -> float | None:
        incorrect = [(score(probs, label), w) for probs, label, w in rows if argmax(probs) != label and w > 0]
        return weighted_mean(incorrect) if incorrect else None

    return mean


def entropy(probs: Sequence[float], label: int = 0) -> float:
    return -math.fsum(p * math.log(p) for p in probs if p > 0)


def classwise(rows: list[ClassRow], n_bins: int) -> float:
    """(1/K) Σ_k ECE of P(y = k); K is the number of columns."""
    n_classes = len(rows[0][0])
    errors = [binned([(probs[k], label == k, w) for probs, label, w in rows], n_bins)["ece"] for k in range(n_classes)]
    return math.fsum(errors) / n_classes


def of_outcomes(oracle: OutcomeOracle, outcomes: Callable[[list[ClassRow]], list[OutcomeRow]] = top_outcomes) -> Oracle:
    return lambda rows, n_bins: oracle(outcomes(rows), n_bins)


OUTCOME_ORACLES: dict[str, OutcomeOracle] = {
    "ece": equal_width("ece"),
    "overconfidence": equal_width("overconfidence"),
    "underconfidence": equal_width("underconfidence"),
    "mce": equal_width("mce"),
    "rmsce": equal_width("rmsce"),
    "adaece": adaptive,
    "l2ce": debiased,
    "kse": ks,
    "smece": smooth,
    "aurc": risk_coverage,
}

POSITIVE = ("ece", "mce", "rmsce", "adaece", "l2ce", "kse", "smece")

ORACLES: dict[str, Oracle] = {
    "accuracy": accuracy,
    "confidence": confidence,
    "cece": classwise,
    "nll": over_all(surprise),
    "brier": over_all(square_distance),
    "nll_on_errors": over_errors(surprise),
    "brier_on_errors": over_errors(square_distance),
    "entropy": over_all(entropy),
    **{name: of_outcomes(oracle) for name, oracle in OUTCOME_ORACLES.items()},
    **{f"{name}_positive": of_outcomes(OUTCOME_ORACLES[name], positive_outcomes) for name in POSITIVE},
}
