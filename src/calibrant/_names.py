"""Names from a fixed list: a check that suggests the nearest known name, without torch."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from calibrant.errors import UnknownNameError

MAX_TEXT = 100  # characters of a value in a message


def check_choice(argument: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if isinstance(value, str) and value in known:  # an array would be compared element by element
        return value
    raise UnknownNameError(f"unknown {argument} {value!r}; {suggestion(value, known)}")


def brief(value: object) -> str:
    """A value in a message; of a long text, as after a quote that stays open, its beginning."""
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]!r} … ({len(value):,} characters)"
    return repr(value)


def common_start(names: Collection[str]) -> str:
    """What all names begin with."""
    first, last = min(names, default=""), max(names, default="")
    return next((first[:place] for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


def suggestion(value: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them."""
    known = list(known)
    comparable = isinstance(value, str) and len(value) <= MAX_TEXT
    near = get_close_matches(value, known, n=1, cutoff=0.5) if comparable else []
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
