"""Negative log-likelihood of logits times a positive scale β = 1/T: value, slope and curvature, block by block.

With u = z − max z of a row, L(β) = log Σ_k exp(β u_k) − β u_y is convex in β, and so is any weighted sum over rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant._checks import check_likely_labels

CACHED_ELEMENTS = 2**20  # below this, shifted logits are kept from one evaluation to the next
BLOCK_ELEMENTS = 2**16
FEW_CLASSES = 16  # a reduction over fewer than these runs faster when the classes come first
LEAST = -1e15  # stands for −inf, so that 0 · u stays 0


class Terms(NamedTuple):
    """L(β) of each row and its first two derivatives."""

    value: Tensor
    slope: Tensor
    curvature: Tensor


class Block(NamedTuple):
    rows: slice
    shifted: Tensor  # u, (b, k), or (k, b) where classes come first
    label: Tensor  # (b,) u of the label


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Rows whose negative log-likelihood is wanted at many scales."""

    logits: Tensor  # (n, k)
    labels: Tensor  # (n,)
    weights: Tensor | None = None  # (n,) float64

    def __post_init__(self) -> None:
        check_likely_labels(self.logits, self.labels)

    @property
    def class_dim(self) -> int:
        return 0 if self.logits.shape[1] < FEW_CLASSES else 1

    def blocks(self, dtype: torch.dtype) -> Iterator[Block]:
        if self.logits.numel() <= CACHED_ELEMENTS:
            block = self._cached
            yield block if dtype == torch.float64 else Block(block.rows, block.shifted.to(dtype), block.label.to(dtype))
            return
        step = max(1, BLOCK_ELEMENTS // self.logits.shape[1])
        for start in range(0, len(self.logits), step):
            yield self._block(slice(start, start + step), dtype)

    @cached_property
    def _cached(self) -> Block:
        return self._block(slice(0, len(self.logits)), torch.float64)

    def _block(self, rows: slice, dtype: torch.dtype) -> Block:
        logits = self.logits[rows]
        logits = (logits.T.contiguous() if self.class_dim == 0 else logits).to(dtype)
        shifted = (logits - logits.amax(self.class_dim, keepdim=True)).clamp_(min=LEAST)
        label = shifted.gather(self.class_dim, self.labels[rows].unsqueeze(self.class_dim)).squeeze(self.class_dim)
        return Block(rows, shifted, label)

    def terms(self, scale: float | Tensor, dtype: torch.dtype = torch.float64) -> Terms:
        """For each row, float64; a scale for all rows or for each."""
        found = [Terms(*(part.double() for part in self._terms(block, scale))) for block in self.blocks(dtype)]
        return Terms(*(torch.cat(parts) if len(found) > 1 else parts[0] for parts in zip(*found, strict=True)))

    def _terms(self, block: Block, scale: float | Tensor) -> Terms:
        u, dim = block.shifted, self.class_dim
        beta = scale if isinstance(scale, float) else scale[block.rows].to(u.dtype)
        mass = (u * (beta if isinstance(beta, float) or dim == 0 else beta.unsqueeze(1))).exp_()
        total = mass.sum(dim)
        mass *= u
        mean = mass.sum(dim) / total
        mass *= u
        square = mass.sum(dim) / total
        return Terms(total.log() - beta * block.label, mean - block.label, square - mean * mean)

    def sums(self, scale: float, dtype: torch.dtype = torch.float64) -> tuple[float, float, float, float]:
        """Weighted sums of value, slope and curvature, and of the squared slopes with squared weights."""
        value, slope, curvature = self.terms(scale, dtype)
        if self.weights is not None:
            value, slope, curvature = value * self.weights, slope * self.weights, curvature * self.weights
        return float(value.sum()), float(slope.sum()), float(curvature.sum()), float(slope @ slope)

    def thinned(self, n_rows: int) -> "Likelihood":
        """Every so many rows, about ``n_rows`` in all, to find the neighbourhood of an answer."""
        step = max(1, len(self.logits) // n_rows)
        weights = None if self.weights is None else self.weights[::step]
        return Likelihood(self.logits[::step], self.labels[::step], weights)
