"""MaxEnt: moments of the class prior, and the Lagrange multipliers and Gibbs distributions that meet them."""

from calibrant.maxent.constraints import FORMS, Constraints, constraints
from calibrant.maxent.priors import read_prior
from calibrant.maxent.solver import GIBBS, Solution, gibbs_distribution, solve, solve_moments

__all__ = [
    "FORMS",
    "GIBBS",
    "Constraints",
    "Solution",
    "constraints",
    "gibbs_distribution",
    "read_prior",
    "solve",
    "solve_moments",
]
