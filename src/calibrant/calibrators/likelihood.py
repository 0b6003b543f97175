"""Negative log-likelihood of logits times a positive scale β = 1/T: value, slope and curvature, block by block.

With u = z − max z of a row, L(β) = log Σ_k exp(β u_k) − β u_y is convex in β, and so is any weighted sum over rows.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calibrant._arrays import blocks
from calibrant.calibrators.checks import check_likely_labels

SMALL_ELEMENTS = 2**20  # up to this many, shifted logits are kept from one evaluation to the next
FEW_CLASSES = 16  # a reduction over fewer than these runs faster when the classes come first
LOWEST = -1e15  # stands for −inf, so that 0 · u stays 0
Terms = tuple[Tensor, Tensor, Tensor]  # L(β) of each row, its slope and its curvature, float64


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Rows whose negative log-likelihood is wanted at many scales."""

    logits: Tensor  # (n, k)
    labels: Tensor  # (n,)
    weights: Tensor | None = None  # (n,) float64

    def __post_init__(self) -> None:
        check_likely_labels(self.logits, self.labels)

    @property
    def small(self) -> bool:
        return self.logits.numel() <= SMALL_ELEMENTS

    @property
    def _class_dim(self) -> int:
        return 0 if self.logits.shape[1] < FEW_CLASSES else 1

    @cached_property
    def top(self) -> Tensor:
        """(n,) the largest logit of each row."""
        return self.logits.amax(1)

    @cached_property
    def label_gap(self) -> Tensor:
        """(n,) float64: u of the label, 0 where it is the likeliest class."""
        if self.small:
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
        """For each row; a scale for all rows or for each."""
        if self.small:
            u = self._shifted[dtype]
            return _terms(u, torch.empty_like(u), self.label_gap, scale, self._class_dim)
        n, k = self.logits.shape
        found = torch.empty(3, n, dtype=torch.float64)
        first, *others = blocks(n, k)  # the largest is the first
        shifted, work = (self._buffer(first.stop, dtype) for _ in range(2))  # fresh memory costs more than arithmetic
        for rows in (first, *others):
            u = self._shift(rows, shifted)
            of_rows = scale if isinstance(scale, float) else scale[rows]
            room = work.narrow(1 - self._class_dim, 0, rows.stop - rows.start)
            terms = _terms(u, room, self.label_gap[rows], of_rows, self._class_dim)
            for part, values in zip(found, terms, strict=True):
                part[rows] = values
        return found[0], found[1], found[2]

    def sums(self, scale: float, dtype: torch.dtype = torch.float64) -> tuple[float, float, float, float]:
        """Weighted sums of value, slope and curvature, and of the squares of the weighted slopes."""
        value, slope, curvature = self.terms(scale, dtype)
        if self.weights is not None:
            value, slope, curvature = value * self.weights, slope * self.weights, curvature * self.weights
        return float(value.sum()), float(slope.sum()), float(curvature.sum()), float(slope @ slope)

    def subsample(self, n_rows: int) -> "Likelihood":
        """Every so many rows, about ``n_rows`` in all, to find the neighbourhood of an answer."""
        step = max(1, len(self.logits) // n_rows)
        weights = None if self.weights is None else self.weights[::step]
        return Likelihood(self.logits[::step], self.labels[::step], weights)


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
