"""Marks of the parameters of a test."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_where(values: Iterable[Any], slow: Iterable[Any]) -> list[Any]:
    """The same values; those that take long are left out by make quick."""
    return [pytest.param(value, marks=pytest.mark.slow) if value in slow else value for value in values]
