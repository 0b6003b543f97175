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
        ensembles,
        errors,
        estimates,
        losses,
        maxent,
        metrics,
        monitors,
        ood,
        predictions,
        reading,
    )
    from calibrant.audits import Audit, Gate, audit
    from calibrant.calibrators import (
        CALIBRATORS,
        TemperatureScaling,
        choose,
        compare_calibrators,
        cross_fit,
        decompose,
        load_calibrator,
    )
    from calibrant.corruptions import CORRUPTIONS, CorruptedDataset, corrupt
    from calibrant.decisions import SET_METHODS, ConformalSets, Threshold, certify, load_threshold, score_sets
    from calibrant.ensembles import average
    from calibrant.estimates import ESTIMATORS, Estimate, estimate
    from calibrant.losses import LOSSES, MaxEntLoss
    from calibrant.maxent import gibbs_distribution, solve
    from calibrant.metrics import METRICS, Scorecard, compare, score, score_multilabel
    from calibrant.monitors import Monitor, monitor
    from calibrant.ood import OOD_SCORES, Detection, compare_ood_scores, detection, ood_score
    from calibrant.predictions import Predictions
    from calibrant.reading import read

__version__ = "0.1.0"

__all__ = [
    "CALIBRATORS",
    "CORRUPTIONS",
    "ESTIMATORS",
    "LOSSES",
    "METRICS",
    "OOD_SCORES",
    "SET_METHODS",
    "Audit",
    "ConformalSets",
    "CorruptedDataset",
    "Detection",
    "Estimate",
    "Gate",
    "MaxEntLoss",
    "Monitor",
    "Predictions",
    "Scorecard",
    "TemperatureScaling",
    "Threshold",
    "audit",
    "audits",
    "average",
    "calibrators",
    "certify",
    "choose",
    "compare",
    "compare_calibrators",
    "compare_ood_scores",
    "corrupt",
    "corruptions",
    "cross_fit",
    "decisions",
    "decompose",
    "detection",
    "ensembles",
    "errors",
    "estimate",
    "estimates",
    "gibbs_distribution",
    "load_calibrator",
    "load_threshold",
    "losses",
    "maxent",
    "metrics",
    "monitor",
    "monitors",
    "ood",
    "ood_score",
    "predictions",
    "read",
    "reading",
    "score",
    "score_multilabel",
    "score_sets",
    "solve",
]

_HOMES = {
    name: f"calibrant.{module}"
    for module, names in {
        "audits": "Audit Gate audit",
        "calibrators": "CALIBRATORS TemperatureScaling choose compare_calibrators cross_fit decompose load_calibrator",
        "corruptions": "CORRUPTIONS CorruptedDataset corrupt",
        "decisions": "SET_METHODS ConformalSets Threshold certify load_threshold score_sets",
        "ensembles": "average",
        "estimates": "ESTIMATORS Estimate estimate",
        "losses": "LOSSES MaxEntLoss",
        "maxent": "gibbs_distribution solve",
        "metrics": "METRICS Scorecard compare score score_multilabel",
        "monitors": "Monitor monitor",
        "ood": "OOD_SCORES Detection compare_ood_scores detection ood_score",
        "predictions": "Predictions",
        "reading": "read",
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
