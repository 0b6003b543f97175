"""The modules of probmetrics, which import numba for solvers that no test calls."""

import importlib
import importlib.util
import sys
import types
import warnings
from typing import Any

PARTS = ("calibrators", "calibrators.factory", "distributions", "metrics", "splitters")


def probmetrics_module(name: str) -> Any:
    """The module ``probmetrics.name``; where numba is not installed, its decorator does nothing meanwhile."""
    missing = "numba" not in sys.modules and importlib.util.find_spec("numba") is None
    if missing:
        numba: Any = types.ModuleType("numba")
        numba.njit = lambda *given, **options: given[0] if given else lambda function: function
        sys.modules["numba"] = numba
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch says of its own parts
            for part in PARTS:
                importlib.import_module(f"probmetrics.{part}")
    finally:
        if missing:
            del sys.modules["numba"]
    return importlib.import_module(f"probmetrics.{name}")
