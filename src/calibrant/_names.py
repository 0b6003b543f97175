"""Names from a fixed list: a check that suggests the nearest known name, without torch."""

from collections.abc import Iterable
from difflib import get_close_matches

from calibrant.errors import UnknownNameError


def check_choice(argument: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if isinstance(value, str) and value in known:  # an array would be compared element by element
        return value
    raise UnknownNameError(f"unknown {argument} {value!r}; {suggestion(value, known)}")


def suggestion(value: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them."""
    known = list(known)
    near = get_close_matches(value, known, n=1, cutoff=0.5) if isinstance(value, str) else []
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
