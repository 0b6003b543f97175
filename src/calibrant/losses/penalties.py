"""Penalties on the distance of a prediction's moments from the global and local moments of its class."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.maxent import Constraints, Solution
from calibrant.maxent.constraints import centered_moments

HALF = (torch.float16, torch.bfloat16)
ROUNDING = 2.0**-21  # of a moment, as a part of the largest feature: a few units in the last place of float32

# Both terms of a constraint in one. With the target c = (c^G + c^L)/2 midway between both moments and the half spread
# h = |c^G − c^L|/2, the gap g = E − c has
# |E − c^G| + |E − c^L| = 2 max(|g|, h) and (E − c^G)² + (E − c^L)² = 2 (g² + h²).
# A cost maps gap, half spread and weight to the weighted penalty and its slope in the gap.
Cost = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def absolute(gap: Tensor, half_spread: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """w·max(|g|, h): no slope between both moments, where one term gains what the other loses."""
    excess = torch.relu(gap.abs() - half_spread)  # no slope at the edge, in autograd too
    return weight * (half_spread + excess), weight * (gap * excess).sign()


def signed(gap: Tensor, half_spread: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """w·g: the terms as the paper prints them."""
    return weight * gap, weight


def squared(gap: Tensor, half_spread: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """w·(g² + h²): pulls towards the midpoint from everywhere."""
    pull = weight * gap
    return torch.addcmul(pull * gap, weight, half_spread.square()), 2 * pull


# The cost of each penalty, and the weight of one term from its multiplier λ; a negative weight would reward a gap.
PENALTIES: dict[str, tuple[Cost, Callable[[Tensor], Tensor]]] = {
    "absolute": (absolute, torch.abs),
    "squared": (squared, torch.square),
    "signed": (signed, torch.clone),
    "signed_as_printed": (signed, torch.clone),
}
# The moments, global moments and local moments of each sample, all minus the penalty's origin, and the weights of the
# constraints; all (n, n_constraints)
SampleMoments = tuple[Tensor, Tensor, Tensor, Tensor]


class FixedPrecisionModule(nn.Module):
    """A module whose buffers move to its device, but keep their dtype when the module is converted."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = {name: buffer for name, buffer in self.named_buffers(recurse=False) if buffer.is_floating_point()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = getattr(self, name)
            setattr(self, name, new.to(old.dtype) if old.is_meta else old.to(new.device))
        return self


class Penalty(FixedPrecisionModule, ABC):
    """The cost of the constraints; its constants are buffers."""

    origin: Tensor
    multipliers: Tensor
    rounding: Tensor  # (n_constraints,), added to the spreads: a moment at its target is then never beyond it

    def __init__(self, penalty: str, *, local: bool) -> None:
        super().__init__()
        self.name = penalty
        self.cost, self.term_weight = PENALTIES[penalty]
        self.local = local

    def weight(self, multipliers: Tensor) -> Tensor:
        """The weight of the global and local terms together, or of the global term alone."""
        return self.term_weight(multipliers) * (2 if self.local else 1)

    @abstractmethod
    def moments(self, probs: Tensor, labels: Tensor, classes: Tensor) -> SampleMoments:
        """The moments of predictions (n, k) and their targets, for labels (n,) or (n, k) and their classes."""

    def forward(self, probs: Tensor, labels: Tensor, classes: Tensor) -> Tensor:
        """One value per sample, (n,)."""
        return self.costs(*self.moments(probs, labels, classes))[0].sum(1)

    def costs(
        self, moments: Tensor, global_moments: Tensor, local_moments: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The weighted penalty of each constraint, and its slope in the moment."""
        gap = moments - (global_moments + local_moments) / 2
        half_spread = (global_moments - local_moments).abs() / 2 + self.rounding
        return self.cost(gap, half_spread, weights)


class MomentPenalty(Penalty):
    """Constraints on a few moments; all forms but the prior form."""

    features: Tensor  # (n_constraints, n_classes)
    terms: Tensor  # (3 n_constraints, n_classes): the targets, half spreads and weights
    global_moments: Tensor  # (n_constraints, n_classes)
    centers: Tensor | None  # (n_classes,)
    origin: Tensor  # (n_constraints,), subtracted from all moments: float32 resolves small differences of small numbers

    def __init__(self, constraints: Constraints, solution: Solution, penalty: str) -> None:
        super().__init__(penalty, local=constraints.local)
        base, centers = constraints.base, constraints.centers
        origin = (base.amin(0) + base.amax(0)) / 2
        if centers is not None:
            values, centers = base[:, 0] - origin[0], centers - origin[0]
            base = torch.stack([values, values**2], dim=1)
            origin[1] = 0  # (v − μ)² is the same from any origin
        features = base if centers is not None else base - origin
        rounding = ROUNDING * features.abs().amax(0)
        half_spreads = (constraints.global_moments - constraints.local_moments).abs() / 2 + rounding
        terms = [constraints.targets - origin, half_spreads, self.weight(solution.multipliers)]
        tables = {
            "features": features,
            "terms": torch.cat(terms, dim=1),
            "global_moments": constraints.global_moments - origin,
        }
        for name, table in tables.items():
            self.register_buffer(name, table.T.float().contiguous())
        self.register_buffer("centers", None if centers is None else centers.float())
        self.register_buffer("origin", origin.float())
        self.register_buffer("rounding", rounding.float())
        self.register_buffer("multipliers", solution.multipliers.float())

    def moments(self, probs: Tensor, labels: Tensor, classes: Tensor) -> SampleMoments:
        dtype = probs.dtype
        features, global_moments = self.features.to(dtype), self._rows(self.global_moments, classes, dtype)
        targets, _, weights = self._rows(self.terms, classes, dtype).chunk(3, dim=1)
        if not self.local:
            local_moments = global_moments
        elif labels.is_floating_point():
            local_moments = self._centered(labels @ features.T, classes)
        else:
            local_moments = 2 * targets - global_moments
        moments = self._centered(probs @ features.T, classes)
        return moments, global_moments, local_moments, weights

    @staticmethod
    def _rows(table: Tensor, classes: Tensor, dtype: torch.dtype) -> Tensor:
        return table.to(dtype)[:, classes].T

    def _centered(self, moments: Tensor, classes: Tensor) -> Tensor:
        return moments if self.centers is None else centered_moments(moments, self.centers.to(moments.dtype)[classes])

    def value_and_slopes(self, moments: list[Tensor], classes: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Penalty (n,) of the moments (n,) of each feature under integer labels, and its slope in each of them."""
        if self.centers is not None:
            mean, square = moments
            center = self.centers.index_select(0, classes)
            moments = [mean, square - center * (2 * mean - center)]
        terms, n = self.terms.index_select(1, classes).unbind(), len(moments)
        of_each = zip(moments, terms[:n], terms[n : 2 * n], terms[2 * n :], strict=True)
        costs, slopes = zip(*(self.cost(moment - target, *others) for moment, target, *others in of_each), strict=True)
        if self.centers is not None:
            slopes = (slopes[0] - 2 * center * slopes[1], slopes[1])
        return sum(costs[1:], start=costs[0]), list(slopes)


class OneHotPenalty(Penalty):
    """Constraints on the probability of every class: the prior form. Its tables grow with n_classes, not its square."""

    prior: Tensor  # (n_classes,), and so are the others
    others: Tensor
    shifts: Tensor
    own: Tensor

    def __init__(self, prior: Tensor, multipliers: tuple[Tensor, Tensor, Tensor], penalty: str, *, local: bool) -> None:
        super().__init__(penalty, local=local)
        for name, table in zip(("prior", "others", "shifts", "own"), (prior, *multipliers), strict=True):
            self.register_buffer(name, table.float())
        self.register_buffer("origin", torch.zeros_like(self.prior))
        self.register_buffer("rounding", ROUNDING * self.prior)

    @property
    def multipliers(self) -> Tensor:  # type: ignore[override]
        return self._multipliers_of(torch.arange(len(self.prior), device=self.prior.device))

    def _multipliers_of(self, classes: Tensor) -> Tensor:
        column = classes[:, None]
        return (self.others + self.shifts[column]).scatter(1, column, self.own[column])

    def moments(self, probs: Tensor, labels: Tensor, classes: Tensor) -> SampleMoments:
        dtype = probs.dtype
        global_moments = self.prior.to(dtype).expand_as(probs)
        if not self.local:
            local_moments = global_moments
        elif labels.is_floating_point():
            local_moments = labels
        else:
            local_moments = F.one_hot(classes, probs.shape[1]).to(dtype)
        return probs, global_moments, local_moments, self.weight(self._multipliers_of(classes)).to(dtype)
