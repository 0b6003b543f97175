"""Conditions such as ``ece > 0.05``, as --fail-if takes them: read and checked, without torch."""

import math
import re
from collections.abc import Collection

from calibrant._names import check_choice
from calibrant.errors import InvalidInputError


def parse_condition(text: str, names: Collection[str]) -> tuple[str, str, float]:
    """The name, the operator and the limit. Raises: InvalidInputError, UnknownNameError."""
    match = isinstance(text, str) and re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if not match or not math.isfinite(limit):
        raise InvalidInputError(f'a gate (--fail-if) must be a condition such as "ece > 0.05", got {text!r}')
    return check_choice("metric", match[1], names), match[2], limit
