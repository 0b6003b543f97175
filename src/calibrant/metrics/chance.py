"""Chance: how accurate a constant prediction may be, and a model that has learned nothing."""

import math

CHANCE_MARGIN = 3  # standard errors above the share of the most frequent class


def chance_limit(majority: float, n_rows: int) -> float:
    """The accuracy up to which a model is at chance: p + 3 √(p (1 − p)/n), p the share of the most frequent class.

    >>> round(chance_limit(0.1, 1000), 4)
    0.1285
    """
    return majority + CHANCE_MARGIN * math.sqrt(majority * (1 - majority) / n_rows)
