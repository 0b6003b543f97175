"""Optional dependencies of commands."""

from collections.abc import Iterator
from contextlib import contextmanager

from calibrant.errors import MissingExtraError


@contextmanager
def needs_extras(purpose: str, *extras: str) -> Iterator[None]:
    """Turn a failing import into an error that names the extras to install."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(purpose, *extras) from None
