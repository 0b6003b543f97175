"""calibrant: train, measure and mend classifiers so that their probabilities stay honest when the data shift.

The public names load on first use, so that `import calibrant` and `calibrant --help` never wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant import audits, calibrators, corruptions, errors, losses, maxent, metrics, predictions
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
    from calibrant.losses import LOSSES, MaxEntLoss
    from calibrant.maxent import gibbs_distribution, solve
    from calibrant.metrics import METRICS, Scorecard, compare, score, score_multilabel
    from calibrant.predictions import Predictions

__version__ = "0.1.0"

__all__ = [
    "CALIBRATORS",
    "CORRUPTIONS",
    "LOSSES",
    "METRICS",
    "Audit",
    "CorruptedDataset",
    "Gate",
    "MaxEntLoss",
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
    "errors",
    "gibbs_distribution",
    "load_calibrator",
    "losses",
    "maxent",
    "metrics",
    "predictions",
    "score",
    "score_multilabel",
    "solve",
]

_HOMES = {
    "Audit": "calibrant.audits",
    "CALIBRATORS": "calibrant.calibrators",
    "CORRUPTIONS": "calibrant.corruptions",
    "CorruptedDataset": "calibrant.corruptions",
    "Gate": "calibrant.audits",
    "LOSSES": "calibrant.losses",
    "METRICS": "calibrant.metrics",
    "MaxEntLoss": "calibrant.losses",
    "Predictions": "calibrant.predictions",
    "Scorecard": "calibrant.metrics",
    "TemperatureScaling": "calibrant.calibrators",
    "audit": "calibrant.audits",
    "choose": "calibrant.calibrators",
    "compare": "calibrant.metrics",
    "compare_calibrators": "calibrant.calibrators",
    "corrupt": "calibrant.corruptions",
    "cross_fit": "calibrant.calibrators",
    "gibbs_distribution": "calibrant.maxent",
    "load_calibrator": "calibrant.calibrators",
    "score": "calibrant.metrics",
    "score_multilabel": "calibrant.metrics",
    "solve": "calibrant.maxent",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
