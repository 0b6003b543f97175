"""Sets of the classes above a probability: which mean size holds which share of the labels, from two histograms."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import blocks

SET_COVERAGES = (80, 90, 95, 99)  # percent
MAX_LOSS, MIN_LOSS = 2.0**10, 2.0**-24  # of −log p; what is beyond falls into the outer bins
DROPPED = 16  # bits of a float32 −log p: bins are 0.8 % wide
BLOCK = 2**17  # numbers at a time, which stay in the cache


def _bits(loss: float) -> int:
    return int(np.float32(loss).view(np.int32)) >> DROPPED


FIRST = _bits(MIN_LOSS)
N_BINS = _bits(MAX_LOSS) - FIRST + 1


@dataclass(frozen=True, slots=True)
class SetSize:
    """The sets that hold a share of the labels, by conformal prediction with 1 − p (LAC, Sadinle et al. 2019).

    Args:
        coverage: The probability that the set of a new row like these holds its label.
        above: The classes of a larger probability are in the set.
        covered: The share of these rows whose set holds the label.
        mean_size: Mean number of classes in a set; below 1 where sets are empty.
    """

    coverage: float
    above: float
    covered: float
    mean_size: float


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityCounts:
    """Counts by −log p, the largest p first; bins are the same for all rows, and adding two is adding their rows."""

    classes: NDArray[np.int64]  # (N_BINS,) of the probabilities of all classes
    labels: NDArray[np.int64]  # (N_BINS,) of those of the labels

    @classmethod
    def empty(cls) -> Self:
        return cls(np.zeros(N_BINS, np.int64), np.zeros(N_BINS, np.int64))

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, predicted: Tensor, complement: Tensor) -> Self:
        """The counts of logits (n, k); ``complement`` is 1 − the probability of the predicted class.

        −log p is the distance of a logit to the largest one plus −log of the largest p, which keeps its digits where p
        rounds to 1.
        """
        counts = cls.empty()
        smallest_loss = -torch.log1p(-complement.double()).to(logits.dtype)
        for rows in blocks(*logits.shape, size=BLOCK):
            top = logits[rows].gather(1, predicted[rows].unsqueeze(1))
            loss = (top - logits[rows]).add_(smallest_loss[rows].unsqueeze(1)).float().clamp_(MIN_LOSS, MAX_LOSS)
            number = loss.view(torch.int32).bitwise_right_shift_(DROPPED).sub_(FIRST)
            of_label = number.gather(1, labels[rows].unsqueeze(1))
            for count, found in ((counts.classes, number), (counts.labels, of_label)):
                count += np.bincount(found.view(-1).numpy(), minlength=N_BINS)
        return counts

    def __add__(self, other: Self) -> Self:
        return type(self)(self.classes + other.classes, self.labels + other.labels)

    def set_sizes(self) -> tuple[SetSize, ...]:
        """The sets for each of `SET_COVERAGES` that so many rows allow.

        A set holds the classes down to the bin of the conformal quantile: the ⌈(n + 1)·coverage⌉-th largest of the n
        probabilities of the labels.
        """
        covered, inside = self.labels.cumsum(), self.classes.cumsum()
        n, found = int(covered[-1]), []
        for percent in SET_COVERAGES:
            rank = -(-(n + 1) * percent // 100)
            if rank <= n:
                last = int(np.searchsorted(covered, rank))
                end = np.array((last + 1 + FIRST) << DROPPED, np.int32).view(np.float32)
                above = 0.0 if last == N_BINS - 1 else float(np.exp(-float(end)))
                found.append(SetSize(percent / 100, above, int(covered[last]) / n, int(inside[last]) / n))
        return tuple(found)
