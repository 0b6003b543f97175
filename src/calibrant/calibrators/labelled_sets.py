"""The sets that set temperature is fitted to: statistics and best temperatures, by their own class mix and others."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import blocks
from calibrant.calibrators.checks import check_feature_count, check_has_features
from calibrant.calibrators.domains import clean_rows, sorted_groups
from calibrant.calibrators.maps import MIN_SET_ROWS
from calibrant.calibrators.set_statistics import (
    FeatureGaussians,
    fit_gaussians,
    held_out_distances,
    label_sums,
    row_noise,
    set_numbers,
    set_statistics,
)
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

N_MIXES, MIX_SHARE = 30, 0.1  # class mixes of each set in the fit beside its own, and the weight of all of them
CONCENTRATIONS = (1.0, 0.1)  # of the Dirichlet distributions they come from in turn: of many classes, of few
GRID = np.linspace(-2.4, 2.4, 33)  # of log T, relative to that of all rows
POOL_WEIGHT = 10.0  # in rows: all rows are added to each set, so that one without errors has a temperature too


@dataclass(frozen=True, eq=False)
class LabelledSets:
    """The sets of labelled rows. The first is the clean one, if any row is clean.

    What does not depend on the other sets is shared by the fits that leave out a type of corruption.

    Args:
        rows: The rows.
        columns: What defines the sets, the type of corruption first.
        reference: Rows with features to measure distances from; by default the clean rows, or all if none is clean.
        clean: (n,) whether a row is clean.
        gaussians: Of the features of the reference.
        noise: See `row_noise`: of the clean rows, or of all.
        number: (n,) the set of each row.
        part: (n,) the part of each row: the rows of one set that have one label.
        sums: (n_parts, d − 1 + k) of `row_values`.
    """

    rows: Predictions
    columns: tuple[str, ...]
    reference: Predictions | None
    clean: Tensor
    gaussians: FeatureGaussians
    noise: tuple[Tensor, Tensor]
    number: Tensor
    part: Tensor
    sums: Tensor

    @classmethod
    @one_thread()
    def of(cls, rows: Predictions, columns: tuple[str, ...], reference: Predictions | None) -> Self:
        """The sets that the columns define. Raises: InvalidInputError where they do not have the same features."""
        if reference is not None:
            known = check_has_features("set_temperature", reference.features, "reference")
            own = check_has_features("set_temperature", rows.features, "validation")
            check_feature_count("set_temperature", known.shape[1], own.shape[1])
        clean = clean_rows(rows, columns[0])
        number = torch.from_numpy(np.where(clean.numpy(), -1, set_numbers(rows, columns)))  # all clean rows are one set
        base = rows[clean] if clean.any() else rows
        gaussians = fit_gaussians(base if reference is None else reference)
        is_own = bool(gaussians) and reference is None and len(base) >= MIN_SET_ROWS
        noise = row_noise(base, gaussians, held_out_distances(base) if is_own else None)
        number = number.unique(return_inverse=True)[1]
        part = (number * rows.n_classes + rows.labels).unique(return_inverse=True)[1]
        # set by set: the bits of a product of matrices depend on the other rows in it
        sums = torch.cat([label_sums(rows[number == i], gaussians) for i in range(int(number.max()) + 1)])
        return cls(rows, columns, reference, clean, gaussians, noise, number, part, sums)

    def where(self, kept: Tensor) -> Self:
        """The sets of the rows that a mask selects. No set may be divided."""
        rows = self.rows[kept]
        if not self.clean.any():  # then the noise, and without reference the Gaussians, are of these rows alone
            return self.of(rows, self.columns, self.reference)
        parts, part = self.part[kept].unique(return_inverse=True)
        return replace(
            self,
            rows=rows,
            clean=self.clean[kept],
            number=self.number[kept].unique(return_inverse=True)[1],
            part=part,
            sums=self.sums[parts],
        )

    def __len__(self) -> int:
        return int(self.number.max()) + 1

    @cached_property
    def base(self) -> Predictions:
        """The clean rows; all rows if none is clean."""
        return self.rows[self.clean] if self.clean.any() else self.rows

    @property
    def left_out_together(self) -> NDArray[np.int64]:
        """(n_sets,) the group of each set in the cross-validation: its type; the set itself if all are of one type."""
        types = np.zeros(len(self), dtype=np.int64)
        types[self.number.numpy()] = sorted_groups(self.rows, self.columns[0])[0]
        return types if len(np.unique(types[bool(self.clean.any()) :])) > 1 else np.arange(len(types))

    def mixed(self, level: float) -> tuple[Tensor, Tensor, Tensor]:
        """Of each set, by its own class mix and then others: statistics, best log T (NaN if none), its information.

        Args:
            level: The log T of all rows, about which the others lie.
        """
        grid = level + GRID
        counts = torch.bincount(self.part).double()
        nll = nll_sums(self.rows, self.part, len(counts), grid)
        of_part = torch.zeros(len(counts), dtype=torch.int64).scatter(0, self.part, self.number)
        n_parts = torch.bincount(of_part).tolist()
        weights = [
            torch.cat([count.unsqueeze(0) / count.sum(), mixes]) / count
            for count, mixes in zip(counts.split(n_parts), random_mixes(tuple(n_parts)), strict=True)
        ]
        means = torch.cat([w @ sums for w, sums in zip(weights, self.sums.split(n_parts), strict=True)])
        of_mixes = torch.cat([w @ sums for w, sums in zip(weights, nll.split(n_parts), strict=True)])
        n_rows = 1 / torch.cat([w.square() @ c for w, c in zip(weights, counts.split(n_parts), strict=True)])
        pooled = of_mixes * n_rows.unsqueeze(1) + POOL_WEIGHT * nll.sum(0) / len(self.rows)
        minima, curvature = grid_minima(pooled / (n_rows.unsqueeze(1) + POOL_WEIGHT), grid)
        return set_statistics(means, n_rows, self.rows.n_classes), minima, curvature


@lru_cache(maxsize=2)
def random_mixes(n_labels: tuple[int, ...]) -> list[Tensor]:
    """(N_MIXES, c) shares of the labels of each set. Fits to as many sets of as many labels have the same ones."""
    generator = np.random.default_rng(0)
    return [
        torch.from_numpy(
            np.stack([generator.dirichlet(np.full(c, CONCENTRATIONS[i % len(CONCENTRATIONS)])) for i in range(N_MIXES)])
        )
        for c in n_labels
    ]


def nll_sums(predictions: Predictions, part: Tensor, n_parts: int, log_t: NDArray[np.float64]) -> Tensor:
    """(n_parts, g) sums of the NLL at temperatures over the rows of each part."""
    found = torch.zeros(n_parts, len(log_t), dtype=torch.float64)
    scales = torch.from_numpy(np.exp(-log_t)).unsqueeze(1)
    for rows in blocks(len(predictions), predictions.n_classes * len(log_t)):
        logits = predictions.logits[rows].double()
        shifted = logits - logits.amax(1, keepdim=True)
        of_label = shifted.gather(1, predictions.labels[rows].unsqueeze(1)).squeeze(1)
        # classes first: sums over the first dimension are vectorized, over ten classes of the last they are not
        mass = (shifted.T.contiguous().unsqueeze(1) * scales).exp_().sum(0)
        found.index_add_(0, part[rows], (mass.log_() - scales * of_label).clamp(max=1e6).T.contiguous())
    return found


def grid_minima(values: Tensor, grid: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """(m,) where functions (m, g) on a grid of equal steps are least, and their second derivatives there.

    NaN and 0 if the least value is the first or the last.
    """
    step = float(grid[1] - grid[0])
    at = values.argmin(1)
    inside = (at > 0) & (at < len(grid) - 1)
    near = values.gather(1, at.clamp(1, len(grid) - 2).unsqueeze(1) + torch.tensor([-1, 0, 1]))
    curvature = near[:, 0] - 2 * near[:, 1] + near[:, 2]
    offset = 0.5 * (near[:, 0] - near[:, 2]) / curvature.clamp(min=1e-300)
    minima = torch.from_numpy(grid)[at] + step * offset
    return torch.where(inside, minima, torch.nan), torch.where(inside, curvature / step**2, 0.0)
