"""Constraints: the global and local moments of each class, from the class prior."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant._checks import check_flag, check_fraction
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError
from calibrant.maxent.checks import check_class_values, check_features, check_prior

FORMS = ("mean", "variance", "mean_variance", "prior")


@dataclass(frozen=True, slots=True)
class Constraints:
    r"""Features :math:`f_n(k)` of the classes and the moments of each class y; all float64.

    The features are the columns of ``base``, except in the mean + variance form: there ``base`` holds the class
    values :math:`v_k` and their squares, and the second feature of class y is :math:`(v_k - \mu_y)^2` with
    :math:`\mu_y` in ``centers``.

    Attributes:
        base: (n_classes, n_constraints), the features.
        centers: (n_classes,), μ_y of the mean + variance form.
        global_moments: (n_classes, n_constraints), c^G of each class.
        local_moments: (n_classes, n_constraints), c^L of each class; c^G again where ``local`` is False.
        local: Whether there are local moments.
    """

    base: Tensor
    centers: Tensor | None
    global_moments: Tensor
    local_moments: Tensor
    local: bool

    @property
    def targets(self) -> Tensor:
        """The moments that the multipliers of class y reproduce: the midpoint of both (appendix A.3)."""
        return (self.global_moments + self.local_moments) / 2


def class_features(
    n_classes: int, form: str, class_values: Sequence[float] | Tensor | None, features: Tensor | None
) -> Tensor:
    """Columns of class features, ``(n_classes, n_constraints)`` float64: the user's, or those of the form."""
    check_choice("form", form, FORMS)
    if class_values is not None and features is not None:
        raise InvalidInputError("give either class_values or features")
    if features is not None:
        return check_features(features, n_classes)
    values = check_class_values(class_values, n_classes)
    match form:
        case "mean":
            return values[:, None]
        case "variance":
            return values[:, None] ** 2
        case "mean_variance":
            return torch.stack([values, values**2], dim=1)
        case _:
            return torch.eye(n_classes, dtype=torch.float64, device="cpu")


def constraints(
    prior: Sequence[float] | Tensor,
    form: str = "mean",
    *,
    class_values: Sequence[float] | Tensor | None = None,
    features: Tensor | None = None,
    local: bool = True,
    label_smoothing: float = 0.0,
) -> Constraints:
    r"""Global and local moments of every class, Eq. (3)-(5) of the paper.

    Global moments :math:`c^G = \sum_k \pi_k f(k)` come from the prior π, local ones :math:`c^L = \sum_k t_k f(k)`
    from the label vector t of class y, one-hot or smoothed. In the mean + variance form both are taken around
    :math:`\mu_y = (\mu_G + \mu_{Ly}) / 2`.

    Args:
        prior: The probability of each class.
        form: "mean", "variance", "mean_variance" or "prior".
        class_values: The value of each class, by default 0, 1, …
        features: A matrix (n_classes, n_features) in place of the features of the form.
        local: False uses the global moments only.
        label_smoothing: α: the label vector t becomes (1 − α)·t + α/k.

    Returns:
        The features and the moments of every class.

    Raises:
        InvalidInputError: An argument breaks its rule.
        UnknownNameError: There is no such form.

    >>> constraints([0.5, 0.25, 0.25], "mean").targets.flatten().tolist()  # mean 0.75, and 0, 1, 2 of the labels
    [0.375, 0.875, 1.375]
    """
    prior = check_prior(prior)
    check_flag("local", local)
    smoothing = check_fraction("label_smoothing", label_smoothing)
    base = class_features(len(prior), form, class_values, features)
    global_moments = (prior @ base).expand_as(base)
    local_moments = (1 - smoothing) * base + smoothing * base.mean(0) if local else global_moments
    if form != "mean_variance" or features is not None:
        return Constraints(base, None, global_moments, local_moments, local)
    centers = (global_moments[:, 0] + local_moments[:, 0]) / 2
    return Constraints(
        base, centers, centered_moments(global_moments, centers), centered_moments(local_moments, centers), local
    )


def centered_moments(moments: Tensor, centers: Tensor) -> Tensor:
    r"""From :math:`(E v, E v^2)` in the last dimension to :math:`(E v, E (v - \mu)^2)`.

    Args:
        moments: (…, 2).
        centers: (…), μ.

    Returns:
        (…, 2).
    """
    mean, square = moments.unbind(-1)
    return torch.stack([mean, square - centers * (2 * mean - centers)], dim=-1)
