"""Tables, figures and pages of audits, estimates, monitors and experiments."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant.report.claims import make_claims
    from calibrant.report.combinations import make_combinations
    from calibrant.report.experiment import write_experiment
    from calibrant.report.formats import render
    from calibrant.report.paper import make_table

__all__ = ["make_claims", "make_combinations", "make_table", "render", "write_experiment"]

_HOMES = {
    "make_claims": "claims",
    "make_combinations": "combinations",
    "make_table": "paper",
    "render": "formats",
    "write_experiment": "experiment",
}


def __getattr__(name: str) -> object:
    # loaded on first use: numbers and tables of text need neither torch nor altair
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
