"""MaxEnt: moments of the class prior, and the Lagrange multipliers and Gibbs distributions that meet them."""

from calibrant.maxent.constraints import FORMS as FORMS
from calibrant.maxent.constraints import Constraints as Constraints
from calibrant.maxent.constraints import centered_moments as centered_moments
from calibrant.maxent.constraints import constraints as constraints
from calibrant.maxent.priors import read_prior as read_prior
from calibrant.maxent.solver import GIBBS as GIBBS
from calibrant.maxent.solver import Solution as Solution
from calibrant.maxent.solver import gibbs_distribution as gibbs_distribution
from calibrant.maxent.solver import one_hot_multipliers as one_hot_multipliers
from calibrant.maxent.solver import solve as solve
from calibrant.maxent.solver import solve_constraints as solve_constraints
from calibrant.maxent.solver import solve_moments as solve_moments
