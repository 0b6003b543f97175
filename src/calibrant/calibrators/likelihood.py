"""Negative log-likelihood of logits times a positive scale β = 1/T: value, slope and curvature, block by block.

With u = z − max z of a row, L(β) = log Σ_k exp(β u_k) − β u_y is convex in β, and so is any weighted sum over rows.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant._checks import check_likely_labels

SMALL_ELEMENTS = 2**20  # up to this many, shifted logits are kept from one evaluation to the next
BLOCK_ELEMENTS = 2**18
FEW_CLASSES = 16  # a reduction over fewer than these runs faster when the classes come first
LEAST = -1e15  # stands for −inf, so that 0 · u stays 0


class Terms(NamedTuple):
    """L(β) of each row and its first two derivatives, float64."""

    value: Tensor
    slope: Tensor
    curvature: Tensor


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

    @cached_property
    def top(self) -> Tensor:
        """(n,) the largest logit of each row."""
        return self.logits.amax(1)

    @cached_property
    def label_gap(self) -> Tensor:
        """(n,) float64: u of the label, 0 where it is the likeliest class."""
        return self.logits.gather(1, self.labels.unsqueeze(1)).squeeze(1).double() - self.top.double()

    @cached_property
    def _has_zeros(self) -> bool:
        return float(self.logits.min()) == -math.inf

    @cached_property
    def _shifted(self) -> Tensor:
        """All of u, float64, classes first where they are few."""
        dim = self._class_dim
        u = (self.logits.T.contiguous() if dim == 0 else self.logits).double() - self.top.double().unsqueeze(dim)
        return u.clamp_(min=LEAST)

    @property
    def _class_dim(self) -> int:
        return 0 if self.small and self.logits.shape[1] < FEW_CLASSES else 1

    def terms(self, scale: float | Tensor, dtype: torch.dtype = torch.float64) -> Terms:
        """For each row; a scale for all rows or for each. Small sets are computed in float64 whatever is asked."""
        if self.small:
            return _terms(self._shifted, torch.empty_like(self._shifted), self.label_gap, scale, self._class_dim)
        n, k = self.logits.shape
        found = torch.empty(3, n, dtype=torch.float64)
        step = max(1, BLOCK_ELEMENTS // k)
        shifted, work = (torch.empty(step, k, dtype=dtype) for _ in range(2))  # fresh memory costs more than arithmetic
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            u = shifted[: rows.stop - start].copy_(self.logits[rows])
            u -= self.top[rows].to(dtype).unsqueeze(1)
            if self._has_zeros:
                u.clamp_(min=LEAST)
            of_rows = scale if isinstance(scale, float) else scale[rows].to(dtype)
            parts = _terms(u, work[: len(u)], self.label_gap[rows], of_rows, 1)
            for part, values in zip(found, parts, strict=True):
                part[rows] = values
        return Terms(*found)

    def sums(self, scale: float, dtype: torch.dtype = torch.float64) -> tuple[float, float, float, float]:
        """Weighted sums of value, slope and curvature, and of the squares of the weighted slopes."""
        value, slope, curvature = self.terms(scale, dtype)
        if self.weights is not None:
            value, slope, curvature = value * self.weights, slope * self.weights, curvature * self.weights
        return float(value.sum()), float(slope.sum()), float(curvature.sum()), float(slope @ slope)

    def thinned(self, n_rows: int) -> "Likelihood":
        """Every so many rows, about ``n_rows`` in all, to find the neighbourhood of an answer."""
        step = max(1, len(self.logits) // n_rows)
        weights = None if self.weights is None else self.weights[::step]
        return Likelihood(self.logits[::step], self.labels[::step], weights)


def _terms(u: Tensor, work: Tensor, label_gap: Tensor, scale: float | Tensor, dim: int) -> Terms:
    """Of rows whose classes are along ``dim``; ``work`` is overwritten."""
    factor = scale if isinstance(scale, float) else scale.unsqueeze(dim)
    mass = torch.mul(u, factor, out=work).exp_()
    total = mass.sum(dim)
    mass *= u
    mean = mass.sum(dim) / total
    mass *= u
    square = mass.sum(dim) / total
    per_row = scale if isinstance(scale, float) else scale.double()
    return Terms(total.double().log() - per_row * label_gap, mean.double() - label_gap, (square - mean * mean).double())
