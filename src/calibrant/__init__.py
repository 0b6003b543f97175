"""calibrant: train, measure and calibrate classifiers, on the data they were trained for and under shift.

The public names load on first use: `import calibrant` and `calibrant --help` do not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant import (
        audits,
        calibrators,
        corruptions,
        decisions,
        errors,
        estimates,
        losses,
        maxent,
        metrics,
        monitors,
        predictions,
    )
    from calibrant.audits import Audit, Gate, audit
    from calibrant.calibrators import (
        CALIBRATORS,
        TemperatureScaling,
        choose,
        compare_calibrators,
        cross_fit,
        load_calibrator,
    )
    from calibrant.corruptions import CORRUPTIONS, CorruptedDataset, corrupt
    from calibrant.decisions import SET_METHODS, ConformalSets, score_sets
    from calibrant.estimates import ESTIMATORS, Estimate, estimate
    from calibrant.losses import LOSSES, MaxEntLoss
    from calibrant.maxent import gibbs_distribution, solve
    from calibrant.metrics import METRICS, Scorecard, compare, score, score_multilabel
    from calibrant.monitors import Monitor, monitor
    from calibrant.predictions import Predictions

__version__ = "0.1.0"

__all__ = [
    "CALIBRATORS",
    "CORRUPTIONS",
    "ESTIMATORS",
    "LOSSES",
    "METRICS",
    "SET_METHODS",
    "Audit",
    "ConformalSets",
    "CorruptedDataset",
    "Estimate",
    "Gate",
    "MaxEntLoss",
    "Monitor",
    "Predictions",
    "Scorecard",
    "TemperatureScaling",
    "audit",
    "audits",
    "calibrators",
    "choose",
    "compare",
    "compare_calibrators",
    "corrupt",
    "corruptions",
    "cross_fit",
    "decisions",
    "errors",
    "estimate",
    "estimates",
    "gibbs_distribution",
    "load_calibrator",
    "losses",
    "maxent",
    "metrics",
    "monitor",
    "monitors",
    "predictions",
    "score",
    "score_multilabel",
    "score_sets",
    "solve",
]

_HOMES = {
    name: f"calibrant.{module}"
    for module, names in {
        "audits": "Audit Gate audit",
        "calibrators": "CALIBRATORS TemperatureScaling choose compare_calibrators cross_fit load_calibrator",
        "corruptions": "CORRUPTIONS CorruptedDataset corrupt",
        "decisions": "SET_METHODS ConformalSets score_sets",
        "estimates": "ESTIMATORS Estimate estimate",
        "losses": "LOSSES MaxEntLoss",
        "maxent": "gibbs_distribution solve",
        "metrics": "METRICS Scorecard compare score score_multilabel",
        "monitors": "Monitor monitor",
        "predictions": "Predictions",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
