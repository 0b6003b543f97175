"""Metrics that are means over rows: accuracy, NLL, Brier score, entropy; over all rows or over the errors alone."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from scipy.special import gammaincinv, ndtri, stdtrit
from torch import Tensor

from calibrant._arrays import sum_of
from calibrant.errors import UndefinedMetricError
from calibrant.metrics.checks import check_scored
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.sample_scores import SampleScores, sample_scores

MEAN_COLUMNS = ("correct", "confidence", "complement", "nll", "brier", "entropy", "expected_nll", "expected_brier")
MAX_BRIER = 2.0
MIN_EFFECTIVE_ROWS = 1.5  # with fewer, a mean has no variance to speak of


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """Sums over all rows [0] and over the errors [1]; adding two of them is adding their data."""

    count: Tensor  # (2,) int64
    weight: Tensor  # (2,) float64: Σw
    squared: Tensor  # (2,) float64: Σw²
    sums: Tensor  # (2, columns, 3) float64: Σwx, Σw²x, Σw²x²

    def __getitem__(self, index: int) -> Self:
        """Of sums with a first dimension of groups, those of a group."""
        return type(self)(*(getattr(self, name)[index] for name in self.__slots__))

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def value(self, column: str, *, errors: bool = False) -> float:
        """Mean of a column; UndefinedMetricError where there is no error to average over."""
        if errors and self.weight[1] == 0:
            raise UndefinedMetricError(
                f"{column}_on_errors is undefined: none of {int(self.count[0]):,} rows is an error"
            )
        which = int(errors)
        return float(self.sums[which, MEAN_COLUMNS.index(column), 0] / self.weight[which])

    def interval(self, column: str, level: float, *, errors: bool = False) -> tuple[float, float]:
        """Clopper and Pearson's interval of an accuracy; of other means the limits of `gamma_limits`.

        These are for positive numbers with a long right tail. A confidence, and a Brier score of errors, have their
        tail on the left: the limits are those of the difference from the largest possible value.
        """
        mean, which = self.value(column, errors=errors), int(errors)
        if not math.isfinite(mean):
            return mean, mean
        if not math.isfinite(mean * mean):  # logits of 1e300 have no variance in float64
            return 0.0, math.inf
        effective = float(self.weight[which] ** 2 / self.squared[which])
        if column == "correct":
            return clopper_pearson(mean * effective, effective, level)
        if column == "confidence":
            low, high = self.interval("complement", level)
            return 1 - high, 1 - low
        largest = {"complement": 1.0, "brier": MAX_BRIER}.get(column, math.inf)
        if effective < MIN_EFFECTIVE_ROWS:
            return 0.0, largest
        weight = float(self.weight[which])
        _, first, second = self.sums[which, MEAN_COLUMNS.index(column)].tolist()
        squares = max(second - 2 * mean * first + mean**2 * float(self.squared[which]), 0.0)
        variance = squares / weight**2 * effective / (effective - 1)
        variance *= float(stdtrit(effective - 1, (1 + level) / 2) / ndtri((1 + level) / 2)) ** 2
        mirrored = errors and column == "brier"
        mean = MAX_BRIER - mean if mirrored else mean
        rare = mean + variance * effective / mean if mean > 0 else 0.0  # Σx²/Σx: a row that the sum depends on
        if column in ("nll", "brier"):
            expected = self.expected_error(column)
            rare = max(rare, MAX_BRIER - expected if mirrored else expected)
        low, high = gamma_limits(mean, variance, rare / effective, level)
        high = min(high, largest)
        return (MAX_BRIER - high, MAX_BRIER - low) if mirrored else (low, high)

    def expected_error(self, column: str) -> float:
        """The NLL or Brier score that an error has by the model's own probabilities."""
        complement = self.value("complement")
        certain = {"nll": math.inf, "brier": MAX_BRIER}[column]  # an error of a model that excludes errors
        return self.value(f"expected_{column}") / complement if complement > 0 else certain


def gamma_limits(mean: float, variance: float, rare: float, level: float) -> tuple[float, float]:
    """Limits of a mean of positive numbers from the gamma distribution of its variance (Fay and Feuer 1997).

    With many rows they are normal. With few that matter they are those of a rare outcome: the upper limit counts one
    more such row than was seen, which adds ``rare`` to the mean.

    >>> [round(limit, 3) for limit in gamma_limits(0.0, 0.0, 1.0, 0.95)]  # of a Poisson count of 0
    [0.0, 3.689]
    """
    tail = (1 - level) / 2
    low = mean if variance <= 0 or mean <= 0 else float(gammaincinv(mean**2 / variance, tail)) * variance / mean
    if not math.isfinite(rare * rare):
        return min(low, mean), math.inf
    mean, variance = mean + rare, variance + rare**2
    high = mean if variance <= 0 else float(gammaincinv(mean**2 / variance, 1 - tail)) * variance / mean
    return min(low, mean), high


def means(rows: SampleScores, weights: Tensor | None) -> Means:
    errors = (~rows.correct).nonzero().squeeze(1)
    count = torch.tensor([len(rows.correct), len(errors)])
    columns = [getattr(rows, name).double() for name in MEAN_COLUMNS]
    if weights is None:
        sums = torch.stack([_powers(columns), _powers([column[errors] for column in columns])])
        return Means(count, count.double(), count.double(), sums)
    some = weights[errors]
    weight, squared = (
        torch.tensor([sum_of(power) for power in powers], dtype=torch.float64)
        for powers in ((weights, some), (weights.square(), some.square()))
    )
    sums = torch.stack([_powers(columns, weights), _powers([column[errors] for column in columns], some)])
    return Means(count, weight, squared, sums)


def group_means(rows: SampleScores, weights: Tensor | None, groups: Tensor, n_groups: int) -> Means:
    """The sums of each group of rows, of fields with a first dimension of groups; ``groups`` numbers them."""
    slot = 2 * groups + ~rows.correct

    def sums(values: Tensor) -> Tensor:
        correct, errors = torch.bincount(slot, values, 2 * n_groups).view(-1, 2).unbind(1)
        return torch.stack([correct + errors, errors], dim=1)

    count = torch.bincount(slot, minlength=2 * n_groups).view(-1, 2)
    count[:, 0] += count[:, 1]
    powers = []
    for x in (getattr(rows, name).double() for name in MEAN_COLUMNS):
        wx = x if weights is None else weights * x
        total = sums(wx)
        powers.append(torch.stack([total, total if weights is None else sums(wx * weights), sums(wx * wx)], dim=2))
    w, squared = (count.double(), count.double()) if weights is None else (sums(weights), sums(weights.square()))
    return Means(count, w, squared, torch.stack(powers, dim=2))


def _powers(columns: list[Tensor], weights: Tensor | None = None) -> Tensor:
    """(columns, 3): Σwx, Σw²x and Σw²x² of each."""
    powers = []
    for x in columns:
        wx = x if weights is None else weights * x
        total = sum_of(wx)
        powers.append([total, total if weights is None else sum_of(wx * weights), sum_of(wx * wx)])
    return torch.tensor(powers, dtype=torch.float64)


def _mean_of(column: str, logits: Tensor, labels: Tensor, weights: Tensor | None, *, errors: bool = False) -> Tensor:
    logits, labels, weights = check_scored(logits, labels, weights)
    rows, _ = sample_scores(logits, labels)
    return torch.tensor(means(rows, weights).value(column, errors=errors), dtype=torch.float64)


def accuracy(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Proportion of rows whose predicted class, the first of the largest logits, is the label.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    tensor(0.5000, dtype=torch.float64)
    """
    return _mean_of("correct", logits, labels, weights)


def mean_confidence(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Mean of the largest probability.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.
    """
    return _mean_of("confidence", logits, labels, weights)


def negative_log_likelihood(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Negative log-likelihood (NLL): the mean of :math:`-\log p_y`; infinite where a label has probability 0.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> negative_log_likelihood(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.6931, dtype=torch.float64)
    """
    return _mean_of("nll", logits, labels, weights)


def brier_score(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Brier score: the mean of :math:`\sum_k (1[k = y] - p_k)^2`, a sum over the classes.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> brier_score(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000, dtype=torch.float64)
    """
    return _mean_of("brier", logits, labels, weights)


def nll_on_errors(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """NLL of the misclassified rows, as in the paper's appendix.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.
        UndefinedMetricError: There is no error.
    """
    return _mean_of("nll", logits, labels, weights, errors=True)


def brier_on_errors(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Brier score of the misclassified rows.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.
        UndefinedMetricError: There is no error.
    """
    return _mean_of("brier", logits, labels, weights, errors=True)


def mean_entropy(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Mean of the entropy :math:`-\sum_k p_k \log p_k`, in nats; the values of the labels do not matter.

    Args:
        logits: (n, k) logits.
        labels: (n,) classes.
        weights: (n,) row weights; 1 by default.

    Returns:
        A float64 scalar.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> mean_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.6931, dtype=torch.float64)
    """
    return _mean_of("entropy", logits, labels, weights)
