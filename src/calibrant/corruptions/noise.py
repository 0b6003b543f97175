"""Gaussian, shot, impulse and speckle noise, drawn for each value of an image."""

from functools import lru_cache

import numpy as np
import torch
from scipy.special import pdtr
from torch import Tensor

from calibrant.corruptions.draws import uniforms_of

CELL_BITS = 11  # the guide table of the cumulative distribution has 2¹¹ cells
WORD_BITS = 32 - CELL_BITS  # bits of a word that give its position in its cell
COUNT_SHIFT = WORD_BITS + 1
MAX_COUNTED = 2 ** (31 - COUNT_SHIFT) - 1


def gaussian_noise(images: Tensor, scale: float, normals: Tensor) -> Tensor:
    """⌊x + 255 · scale · N(0, 1)⌋, clipped."""
    return to_bytes(images + normals.mul(255 * scale))


def speckle_noise(images: Tensor, scale: float, normals: Tensor) -> Tensor:
    """⌊x + x · scale · N(0, 1)⌋, clipped."""
    return to_bytes(normals.mul(scale).add_(1).mul_(images))


def impulse_noise(images: Tensor, amount: float, words: Tensor) -> Tensor:
    """Each value, with probability amount, replaced by 0 or by 255."""
    reach = round(amount / 2 * 2**32) - 2**31
    salt, kept = words > -reach, words >= reach
    return images.maximum(salt.view(torch.uint8).mul_(255)).mul_(kept)


def shot_noise(images: Tensor, photons: float, words: Tensor) -> Tensor:
    """⌊255 · Poisson(photons · x / 255) / photons⌋, clipped, by inversion of the distribution at a uniform number.

    There are 256 rates, hence the inverse is a guide table: a cell holds the count at its lower end and the position
    where it grows by one. Cells in the tails hold more than one step; their values are searched.
    """
    guide, lifted_steps, levels = _shot_tables(photons, images.device)
    index = (words >> WORD_BITS).add_(2 ** (CELL_BITS - 1)).add_(images.int().mul_(2**CELL_BITS))
    cell = guide.index_select(0, index.flatten()).view_as(words)
    position = words.bitwise_and(2**WORD_BITS - 1)
    counts = (cell >> COUNT_SHIFT).add_(position >= (cell & (2**COUNT_SHIFT - 1)))
    many = (cell < 0).nonzero(as_tuple=True)
    rates = images[many]
    found = torch.searchsorted(lifted_steps, uniforms_of(words[many]).add_(rates))
    counts[many] = found.sub_(rates.long().mul_(len(levels))).clamp_(0, len(levels) - 1).to(torch.int32)
    return levels.index_select(0, counts.flatten()).view_as(images)


def to_bytes(values: Tensor) -> Tensor:
    """Values in levels, clipped to 0..255 in place and floored."""
    return values.clamp_(0, 255).to(torch.int32).to(torch.uint8)


@lru_cache(maxsize=16)
def _shot_tables(photons: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The guide (256 · cells,) int32, the steps (256 · counts,) float64, and the level of each count, uint8.

    An entry of the guide is count · 2²² + the first position in the cell, 0..2²¹, where the count is one more; it is
    negative where the count grows by more than one, or needs more bits. x is added to the cumulative probabilities of
    rate x: all rates are one increasing table. Counts from photons on are white.
    """
    counts = np.arange(int(np.ceil(photons)) + 1)
    steps = pdtr(counts, photons * np.arange(256)[:, None] / 255)
    steps[:, -1] = 1
    edges = np.arange(2**CELL_BITS + 1) * 2**WORD_BITS  # the words that begin the cells, counted from 0
    begins = np.ceil(steps * 2.0**32 - 0.5)  # the first word whose uniform number is beyond the step
    at_edges = np.stack([np.searchsorted(row, edges, side="right") for row in begins])
    low, growth = at_edges[:, :-1], np.diff(at_edges, axis=1)
    inside = np.take_along_axis(begins, np.minimum(low, len(counts) - 1), axis=1) - edges[:-1]
    guide = low * 2**COUNT_SHIFT + np.where(growth == 1, inside, 2**WORD_BITS).astype(np.int64)
    guide = np.where((growth > 1) | (low >= MAX_COUNTED), -1, guide)
    levels = np.minimum(255 * counts / photons, 255).astype(np.uint8)
    lifted_steps = (steps + np.arange(256)[:, None]).ravel()
    tables = guide.astype(np.int32).ravel(), lifted_steps, levels
    return tuple(torch.from_numpy(table).to(device) for table in tables)  # type: ignore[return-value]
