"""MaxEnt: moments of the class prior, and the Lagrange multipliers and Gibbs distributions that meet them."""

from calibrant.maxent.constraints import FORMS, Constraints, centered_moments, constraints
from calibrant.maxent.priors import read_prior
from calibrant.maxent.solver import (
    GIBBS,
    Solution,
    gibbs_distribution,
    one_hot_multipliers,
    solve,
    solve_constraints,
    solve_moments,
)

__all__ = [
    "FORMS",
    "GIBBS",
    "Constraints",
    "Solution",
    "centered_moments",
    "constraints",
    "gibbs_distribution",
    "one_hot_multipliers",
    "read_prior",
    "solve",
    "solve_constraints",
    "solve_moments",
]
