"""Optional dependencies of commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from calibrant.errors import MissingExtraError

MODULES = {"report": "altair", "train": "pydantic"}  # of what an extra installs


@contextmanager
def needs_extras(purpose: str, *extras: str) -> Iterator[None]:
    """Turn a failing import into an error that names the extras to install, before any other library is imported."""
    try:
        if not all(find_spec(MODULES[extra]) for extra in extras):
            raise ImportError
        yield
    except ImportError:
        raise MissingExtraError(purpose, *extras) from None
