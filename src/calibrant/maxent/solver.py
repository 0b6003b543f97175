"""The solver: from the class prior to Lagrange multipliers and Gibbs distributions, in every form."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant._checks import check_flag, check_fraction
from calibrant._names import check_choice
from calibrant.errors import NotConvergedError
from calibrant.maxent.checks import check_features, check_no_class_values, check_prior, check_targets
from calibrant.maxent.constraints import FORMS, Constraints, centered_moments, class_features, constraints
from calibrant.maxent.dual import CenteredProblem, LinearProblem, MomentProblem, solve_dual

GIBBS = ("paper", "normalized")


def choose_gibbs(gibbs: str | None, form: str, features: Tensor | None) -> str:
    r"""The Gibbs distribution: the given one, or by default "normalized" for the form "prior" and "paper" for others.

    The moments of the prior form are probabilities, so its Gibbs distribution is the same in both, and λ differs by a
    constant. Signed terms do not depend on it, as :math:`\sum_j (p_j - c_j) = 0`. The other penalties make of it a cost
    of every probability that rises above the prior: with :math:`e^{-1-\lambda}` a network stays at the prior where it
    starts. "normalized" has the shortest λ, whose sum is 0.
    """
    check_choice("form", form, FORMS)
    if gibbs is not None:
        return check_choice("gibbs", gibbs, GIBBS)
    return "normalized" if form == "prior" and features is None else "paper"


@dataclass(frozen=True, slots=True)
class Solution:
    """Multipliers with the evidence that they solve the problem.

    Attributes:
        multipliers: (n_classes, n_constraints), float64.
        residual: The largest |moment − target| / |target| of any class and constraint; 0 for a closed form.
        n_steps: Newton steps of the slowest class.
    """

    multipliers: Tensor
    residual: float
    n_steps: int


def solve_moments(features: Tensor, targets: Tensor, *, gibbs: str = "paper") -> Solution:
    r"""Multipliers λ of the Gibbs distribution that has the target moments, row by row.

    Solves :math:`\sum_k e^{-1-\lambda\cdot f(k)} f(k) = c` (appendix A.3), or with ``gibbs="normalized"`` the same
    for :math:`e^{-\lambda\cdot f(k)} / Z`. Where the features leave λ undetermined, the shortest λ is returned.

    Args:
        features: (n_classes, n_constraints).
        targets: (n, n_constraints).
        gibbs: "paper" or "normalized".

    Returns:
        A row of multipliers for each row of targets.

    Raises:
        NotConvergedError: No distribution has these moments; the message names the row.
        InvalidInputError: An argument breaks its rule.
        UnknownNameError: There is no such Gibbs distribution.

    >>> features, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0]])
    >>> round(solve_moments(features, targets).multipliers.item(), 9)  # exp(-1 - λ) = 1
    -1.0
    """
    check_choice("gibbs", gibbs, GIBBS)
    features = check_features(features)
    return Solution(*solve_dual(LinearProblem.of(features, check_targets(targets, features.shape[1]), gibbs)))


def solve(
    prior: Sequence[float] | Tensor,
    form: str = "mean",
    *,
    class_values: Sequence[float] | Tensor | None = None,
    features: Tensor | None = None,
    gibbs: str | None = None,
    local: bool = True,
    label_smoothing: float = 0.0,
) -> Solution:
    r"""Lagrange multipliers of MaxEnt Loss for every class, from the class prior alone (appendix A.3).

    One row of multipliers per class y, shared by its global and local terms: the Gibbs distribution with those
    multipliers has the moments :math:`(c^G + c^L) / 2`. The published code stops its iteration early; this meets
    the exact root, to a relative residual of 1e-12 (where the multipliers are so large, beyond 1e4, that rounding
    their products exceeds that: to this rounding, 1e-8 at most).

    Args:
        prior: The probability of each class.
        form: "mean", "variance", "mean_variance" or "prior".
        class_values: The value of each class, by default 0, 1, …
        features: A matrix (n_classes, n_features) in place of the features of the form.
        gibbs: "paper" for :math:`e^{-1-\lambda\cdot f}`, "normalized" for the same divided by its sum; by default
            "normalized" for the form "prior", where λ is then the shortest, and "paper" for the others.
        local: False uses the global moments only.
        label_smoothing: α: the label vector t becomes (1 − α)·t + α/k.

    Returns:
        The multipliers with their residual.

    Raises:
        NotConvergedError: A class has no multipliers; the message names it.
        InvalidInputError: An argument breaks its rule.
        UnknownNameError: There is no such form or Gibbs distribution.

    >>> solution = solve([0.1] * 10, "mean", gibbs="normalized")
    >>> [round(float(x), 6) for x in solution.multipliers[[0, 4, 9], 0]]
    [0.315584, 0.03035, -0.315584]
    """
    gibbs = choose_gibbs(gibbs, form, features)
    check_flag("local", local)
    if form == "prior" and features is None:
        check_no_class_values(class_values)
        return _solve_one_hot(prior, gibbs, local=local, label_smoothing=label_smoothing)
    moments = constraints(
        prior, form, class_values=class_values, features=features, local=local, label_smoothing=label_smoothing
    )
    return solve_constraints(moments, gibbs)


def solve_constraints(moments: Constraints, gibbs: str) -> Solution:
    """Multipliers of every class for given constraints.

    Args:
        moments: The constraints, as `constraints` returns them.
        gibbs: "paper" or "normalized".

    Returns:
        The multipliers with their residual.

    Raises:
        NotConvergedError: A class has no multipliers; the message names it.
    """
    rows = slice(None) if moments.local else slice(1)  # without local moments every class has the same problem
    centers = None if moments.centers is None else moments.centers[rows]
    multipliers, residual, n_steps = solve_dual(_problem(moments.base, centers, moments.targets[rows], gibbs))
    return Solution(multipliers.expand(len(moments.base), -1).contiguous(), residual, n_steps)


def _problem(base: Tensor, centers: Tensor | None, targets: Tensor, gibbs: str) -> MomentProblem:
    if centers is None:
        return LinearProblem.of(base, targets, gibbs)
    return CenteredProblem.of(base[:, 0], centers, targets, gibbs)


def one_hot_multipliers(
    prior: Tensor, gibbs: str, *, local: bool, label_smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Multipliers of the prior form in closed form, without a matrix of n_classes².

    The one-hot moments of a distribution are its probabilities, so :math:`\lambda_{y,j} = -1 - \log c_{y,j}`, with c
    the midpoint of prior and label vector. Where normalized, λ is free up to a constant, and the shortest is taken.

    Args:
        prior: The probability of each class.
        gibbs: "paper" or "normalized".
        local: False uses the global moments only.
        label_smoothing: α: the label vector t becomes (1 − α)·t + α/k.

    Returns:
        ``others``, ``shifts`` and ``own``, (n_classes,) each: λ of class y is ``others[j] + shifts[y]`` for a class
        j ≠ y, and ``own[y]`` for y itself.

    Raises:
        NotConvergedError: A class has a prior of 0: its multiplier would be infinite.
    """
    n_classes = len(prior)
    off, on = label_smoothing / n_classes, 1 - label_smoothing + label_smoothing / n_classes
    target_others, target_own = ((prior + off) / 2, (prior + on) / 2) if local else (prior, prior)
    if (target_others <= 0).any():
        empty = int(target_others.argmin())
        reason = "its multiplier is infinite: leave the class out, or smooth the prior or the labels"
        raise NotConvergedError(f"no multipliers for class {empty}: its prior is 0, so {reason}")
    others, own = -target_others.log(), -target_own.log()
    if gibbs == "paper":
        return others - 1, torch.zeros_like(prior), own - 1
    shifts = -(others.sum() - others + own) / n_classes
    return others, shifts, own + shifts


def _solve_one_hot(prior: Sequence[float] | Tensor, gibbs: str, *, local: bool, label_smoothing: float) -> Solution:
    smoothing = check_fraction("label_smoothing", label_smoothing)
    others, shifts, own = one_hot_multipliers(check_prior(prior), gibbs, local=local, label_smoothing=smoothing)
    multipliers = (others + shifts[:, None]).diagonal_scatter(own)
    return Solution(multipliers, residual=0.0, n_steps=0)


def gibbs_distribution(
    prior: Sequence[float] | Tensor,
    form: str = "mean",
    *,
    targets: Sequence[float] | Tensor | None = None,
    class_values: Sequence[float] | Tensor | None = None,
    features: Tensor | None = None,
    gibbs: str = "normalized",
) -> Tensor:
    r"""The distribution of maximum entropy with the given moments (Fig. 2 of the paper).

    Args:
        prior: The probability of each class.
        form: "mean", "variance", "mean_variance" or "prior".
        targets: The moments of the form's features: :math:`(\mu,)` for the mean, :math:`(E v^2,)` for the variance
            form, :math:`(\mu, \sigma^2)` for both; by default those of the prior.
        class_values: The value of each class, by default 0, 1, …
        features: A matrix (n_classes, n_features) in place of the features of the form.
        gibbs: "paper" gives the measure :math:`e^{-1-\lambda\cdot f}` of appendix A.3, which need not sum to 1.

    Returns:
        One number for each class.

    Raises:
        NotConvergedError: No distribution has these moments.
        InvalidInputError: An argument breaks its rule.
        UnknownNameError: There is no such form or Gibbs distribution.

    >>> gibbs_distribution([0.25] * 4, "mean", targets=[1.0]).round(decimals=3).tolist()
    [0.421, 0.277, 0.182, 0.12]
    """
    check_choice("gibbs", gibbs, GIBBS)
    check_choice("form", form, FORMS)
    prior = check_prior(prior)
    if form == "prior" and features is None:
        check_no_class_values(class_values)
        wanted = prior if targets is None else check_targets(targets, len(prior))[0]
        if (wanted <= 0).any() or (gibbs == "normalized" and abs(float(wanted.sum()) - 1) > 1e-9):
            raise NotConvergedError("the targets of the form 'prior' are the distribution: positive, and of sum 1")
        return wanted
    base = class_features(len(prior), form, class_values, features)
    moments = (prior @ base)[None]
    centered = form == "mean_variance" and features is None
    if centered:
        moments = centered_moments(moments, moments[:, 0])
    if targets is not None:
        moments = check_targets(targets, base.shape[1])[:1]
    centers = moments[:, 0] if centered else None
    multipliers, _, _ = solve_dual(_problem(base, centers, moments, gibbs))
    if centered:
        base = torch.stack([base[:, 0], (base[:, 0] - moments[0, 0]) ** 2], dim=1)
    exponents = -(base @ multipliers[0])
    return exponents.softmax(0) if gibbs == "normalized" else (exponents - 1).exp()
