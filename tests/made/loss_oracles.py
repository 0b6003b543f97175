"""The losses by their definitions: slow loops over float64 numbers that share nothing with the package."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Oracle = Callable[["Batch", Any], list[float]]
MIN_SHARE = 1e-12  # the logarithm of a smaller share is cut off somewhere: no number of the definition


@dataclass(frozen=True)
class Row:
    """One sample: its logits and what softmax makes of them."""

    logits: list[float]
    log_probs: list[float]
    probs: list[float]

    @classmethod
    def of(cls, logits: Sequence[float]) -> "Row":
        greatest = max(logits)
        total = math.fsum(math.exp(z - greatest) for z in logits)
        log_probs = [z - greatest - math.log(total) for z in logits]
        return cls(list(logits), log_probs, [math.exp(z - greatest) / total for z in logits])

    @property
    def predicted(self) -> int:
        return self.logits.index(max(self.logits))

    @property
    def confidence(self) -> float:
        return max(self.probs)

    @property
    def entropy(self) -> float:
        return math.fsum(-p * log_p for p, log_p in sorted(zip(self.probs, self.log_probs, strict=True)))

    def others(self, label: int) -> float:
        """1 - p of the label, without cancellation."""
        return math.fsum(p for k, p in enumerate(self.probs) if k != label)


@dataclass(frozen=True)
class Batch:
    """Rows with the label vector of each, as given and smoothed, its class and its weight."""

    rows: list[Row]
    labels: list[list[float]]
    smoothed: list[list[float]]
    classes: list[int]
    weights: list[float]
    label_smoothing: float

    @property
    def n_classes(self) -> int:
        return len(self.rows[0].logits)

    @property
    def total(self) -> float:
        return math.fsum(self.weights)

    def right(self, i: int) -> bool:
        return self.rows[i].predicted == self.classes[i]


def batch_of(
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
    ignore_index: int = -100,
) -> Batch:
    n_classes = logits.shape[1]
    vectors, weights = [], []
    for label in labels:
        ignored = labels.ndim == 1 and label == ignore_index
        if labels.ndim == 2:
            vector = [float(t) for t in label]
        else:
            vector = [float(k == (0 if ignored else label)) for k in range(n_classes)]
        vectors.append(vector)
        per_class = class_weights if class_weights is not None else [1.0] * n_classes
        weights.append(0.0 if ignored else math.fsum(t * w for t, w in zip(vector, per_class, strict=True)))
    return Batch(
        rows=[Row.of([float(z) for z in row]) for row in logits],
        labels=vectors,
        smoothed=[[(1 - label_smoothing) * t + label_smoothing / n_classes for t in vector] for vector in vectors],
        classes=[vector.index(max(vector)) for vector in vectors],
        weights=weights,
        label_smoothing=label_smoothing,
    )


def reduced(values: list[float], batch: Batch, reduction: str) -> np.ndarray:
    weighted = [w * value if w else 0.0 for w, value in zip(batch.weights, values, strict=True)]
    if reduction == "none":
        return np.array(weighted)
    if reduction == "sum":
        return np.array(math.fsum(weighted))
    return np.array(math.fsum(weighted) / batch.total if batch.total else 0.0)


def expected(value: Callable[[Row, int], float]) -> Oracle:
    """A loss per sample, in expectation over the smoothed label vector."""

    def values(batch: Batch, _: Any) -> list[float]:
        return [
            math.fsum(t * value(row, k) for k, t in enumerate(vector) if t)
            for row, vector in zip(batch.rows, batch.smoothed, strict=True)
        ]

    return values


def focal_value(row: Row, label: int, gamma: float) -> float:
    return -(row.others(label) ** gamma) * row.log_probs[label]


def focal(gamma: float = 1.0) -> Oracle:
    return expected(lambda row, label: focal_value(row, label, gamma))


def inverse_focal(gamma: float = 2.0) -> Oracle:
    return expected(lambda row, label: -((1 + row.probs[label]) ** gamma) * row.log_probs[label])


def poly(epsilon: float = 1.0) -> Oracle:
    return expected(lambda row, label: -row.log_probs[label] + epsilon * row.others(label))


def flsd(gamma_low: float = 5.0, gamma_high: float = 3.0, threshold: float = 0.2) -> Oracle:
    def value(row: Row, label: int) -> float:
        return focal_value(row, label, gamma_low if row.probs[label] < threshold else gamma_high)

    return expected(value)


def dual_focal(gamma: float = 5.0) -> Oracle:
    def value(row: Row, label: int) -> float:
        below = [p for p, z in zip(row.probs, row.logits, strict=True) if z < row.logits[label]]
        return -((1 - row.probs[label] + max(below, default=0.0)) ** gamma) * row.log_probs[label]

    return expected(value)


def mbls(margin: float = 10.0, weight: float = 0.1) -> Oracle:
    def value(row: Row, label: int) -> float:
        excess = [max(0.0, max(row.logits) - z - margin) for z in row.logits]
        return -row.log_probs[label] + weight * math.fsum(excess) / len(excess)

    return expected(value)


def label_relaxation(alpha: float = 0.1) -> Oracle:
    def value(row: Row, label: int) -> float:
        if row.probs[label] >= 1 - alpha:
            return 0.0
        kept = (1 - alpha) * (math.log(1 - alpha) - row.log_probs[label])
        return kept + alpha * math.log(alpha / row.others(label))

    return expected(value)


def with_term(part: Oracle, weight: float, term: Callable[[Batch], float]) -> Oracle:
    """A loss per sample plus a multiple of one number of the whole batch."""

    def values(batch: Batch, criterion: Any) -> list[float]:
        if not batch.total:
            return [0.0] * len(batch.rows)
        whole = term(batch)
        return [value + weight * whole for value in part(batch, criterion)]

    return values


def counted(batch: Batch) -> list[int]:
    return [i for i, weight in enumerate(batch.weights) if weight > 0]


def accuracy_versus_uncertainty(batch: Batch, threshold: float) -> float:
    good = bad = 0.0
    for i in counted(batch):
        row, right = batch.rows[i], batch.right(i)
        certain = row.entropy <= threshold
        by_outcome = row.confidence if right else row.others(row.predicted)
        by_entropy = 1 - math.tanh(row.entropy) if certain else math.tanh(row.entropy)
        if right == certain:
            good += batch.weights[i] * by_outcome * by_entropy
        else:
            bad += batch.weights[i] * by_outcome * by_entropy
    return good / (good + bad) if good + bad else 0.0


def avuc(beta: float = 3.0, threshold: float | None = None) -> Oracle:
    def term(batch: Batch) -> float:
        if threshold is not None:
            score = accuracy_versus_uncertainty(batch, threshold)
        else:
            entropies = [batch.rows[i].entropy for i in counted(batch)]
            thresholds = np.linspace(min(entropies), max(entropies), 21)
            curve = [accuracy_versus_uncertainty(batch, float(t)) for t in thresholds]
            score = math.fsum((left + right) / 2 / 20 for left, right in pairwise(curve))
        return -math.log(score) if score > MIN_SHARE else math.inf

    return with_term(focal(0.0), beta, term)


def soft_avuc(beta: float = 1.0, temperature: float = 0.01, kappa: float = 0.1, gamma: float = 1.0) -> Oracle:
    def uncertain(relative: float) -> float:
        if relative <= 0:
            return 0.0
        if relative >= 1:
            return 1.0
        odds = math.log(relative) + math.log(1 - kappa) - math.log(1 - relative) - math.log(kappa)
        scaled = odds / temperature
        return 1 / (1 + math.exp(-scaled)) if scaled > -700 else 0.0

    def term(batch: Batch) -> float:
        good = bad = 0.0
        for i in counted(batch):
            entropy = batch.rows[i].entropy
            degree = uncertain(entropy / math.log(batch.n_classes))
            certain = batch.weights[i] * (1 - degree) * (1 - math.tanh(entropy))
            doubtful = batch.weights[i] * degree * math.tanh(entropy)
            good += certain if batch.right(i) else doubtful
            bad += doubtful if batch.right(i) else certain
        return math.log(1 + bad / good) if good > MIN_SHARE * bad else math.inf

    return with_term(focal(gamma), beta, term)


def mmce(weight: float = 2.0, width: float = 0.4) -> Oracle:
    def term(batch: Batch) -> float:
        total = 0.0
        for i in counted(batch):
            for j in counted(batch):
                r_i, r_j = batch.rows[i].confidence, batch.rows[j].confidence
                gaps = (batch.right(i) - r_i) * (batch.right(j) - r_j)
                total += batch.weights[i] * batch.weights[j] * gaps * math.exp(-abs(r_i - r_j) / width)
        return math.sqrt(max(total, 0.0)) / batch.total

    return with_term(focal(0.0), weight, term)


def mdca(weight: float = 1.0, gamma: float = 0.0) -> Oracle:
    def term(batch: Batch) -> float:
        total = 0.0
        for k in range(batch.n_classes):
            gaps = [batch.weights[i] * (batch.rows[i].probs[k] - batch.smoothed[i][k]) for i in counted(batch)]
            total += abs(math.fsum(gaps)) / batch.total
        return total / batch.n_classes

    return with_term(focal(gamma), weight, term)


def skewed_prior(n_classes: int) -> list[float]:
    """No two classes alike and none at the middle, so that a mix-up of classes shows."""
    raw = [1 + (3 * k + 1) % n_classes + 0.25 * k for k in range(n_classes)]
    return [value / sum(raw) for value in raw]


def moment(distribution: Sequence[float], feature: Sequence[float]) -> float:
    return math.fsum(p * f for p, f in zip(distribution, feature, strict=True))


def smoothed_one_hot(label: int, n_classes: int, label_smoothing: float) -> list[float]:
    return [(1 - label_smoothing) * (k == label) + label_smoothing / n_classes for k in range(n_classes)]


def constraint_features(
    prior: Sequence[float],
    label: int,
    form: str,
    *,
    label_smoothing: float = 0.0,
    local: bool = True,
    class_values: Sequence[float] | None = None,
    features: Sequence[Sequence[float]] | None = None,
) -> list[list[float]]:
    """The features f_n of a label's class: one list over the classes for each constraint n."""
    n_classes = len(prior)
    values = [float(k) for k in range(n_classes)] if class_values is None else list(class_values)
    if features is not None:
        return [[float(row[n]) for row in features] for n in range(len(features[0]))]
    if form == "mean":
        return [values]
    if form == "variance":
        return [[v**2 for v in values]]
    if form == "prior":
        return [[float(k == n) for k in range(n_classes)] for n in range(n_classes)]
    center = moment(prior, values)
    if local:
        center = (center + moment(smoothed_one_hot(label, n_classes, label_smoothing), values)) / 2
    return [values, [(v - center) ** 2 for v in values]]


def maxent(
    form: str = "mean",
    *,
    gamma: float = 1.0,
    penalty: str = "absolute",
    local: bool = True,
    class_values: Sequence[float] | None = None,
    features: Sequence[Sequence[float]] | None = None,
) -> Oracle:
    """Focal loss plus moment penalties for the prior `skewed_prior`; the multipliers are the criterion's."""
    cost = {
        "absolute": lambda lam, gap: abs(lam) * abs(gap),
        "signed": lambda lam, gap: lam * gap,
        "signed_as_printed": lambda lam, gap: lam * gap,
        "squared": lambda lam, gap: lam**2 * gap**2,
    }[penalty]

    def values(batch: Batch, criterion: Any) -> list[float]:
        prior = skewed_prior(batch.n_classes)
        multipliers = criterion.multipliers.double().tolist()
        results = focal(gamma)(batch, criterion)
        for i, row in enumerate(batch.rows):
            label = batch.classes[i]
            wanted = constraint_features(
                prior,
                label,
                form,
                label_smoothing=batch.label_smoothing,
                local=local,
                class_values=class_values,
                features=features,
            )
            for lam, feature in zip(multipliers[label], wanted, strict=True):
                predicted = moment(row.probs, feature)
                results[i] += cost(lam, predicted - moment(prior, feature))
                if local:
                    results[i] += cost(lam, predicted - moment(batch.smoothed[i], feature))
        return results

    return values


ORACLES: dict[str, Oracle] = {
    "cross_entropy": focal(0.0),
    "focal": focal(),
    "inverse_focal": inverse_focal(),
    "poly": poly(),
    "avuc": avuc(),
    "soft_avuc": soft_avuc(),
    "maxent_mean": maxent("mean"),
    "maxent_variance": maxent("variance"),
    "maxent_mean_variance": maxent("mean_variance"),
    "maxent_prior": maxent("prior"),
    "flsd": flsd(),
    "dual_focal": dual_focal(),
    "mmce": mmce(),
    "mdca": mdca(),
    "mbls": mbls(),
    "label_relaxation": label_relaxation(),
}
