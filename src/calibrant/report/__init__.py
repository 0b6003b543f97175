"""Tables, figures and pages of audits, estimates, monitors and experiments."""

from typing import TYPE_CHECKING

from calibrant._lazy import on_first_use

if TYPE_CHECKING:
    from calibrant.report.claims import make_claims
    from calibrant.report.combinations import make_combinations
    from calibrant.report.experiment import write_experiment
    from calibrant.report.formats import render
    from calibrant.report.paper import make_table

__all__ = ["make_claims", "make_combinations", "make_table", "render", "write_experiment"]

# loaded on first use: numbers and tables of text need neither torch nor altair
__getattr__ = on_first_use(
    __name__,
    {
        "make_claims": "claims",
        "make_combinations": "combinations",
        "make_table": "paper",
        "render": "formats",
        "write_experiment": "experiment",
    },
)
