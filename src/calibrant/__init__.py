"""calibrant: train, measure and mend classifiers so that their probabilities stay honest when the data shift.

The public names load on first use, so that `import calibrant` and `calibrant --help` never wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant import errors, losses, maxent, metrics, predictions
    from calibrant.losses import LOSSES, MaxEntLoss
    from calibrant.maxent import gibbs_distribution, solve
    from calibrant.metrics import METRICS, Scorecard, compare, score, score_multilabel
    from calibrant.predictions import Predictions

__version__ = "0.1.0"

__all__ = [
    "LOSSES",
    "METRICS",
    "MaxEntLoss",
    "Predictions",
    "Scorecard",
    "compare",
    "errors",
    "gibbs_distribution",
    "losses",
    "maxent",
    "metrics",
    "predictions",
    "score",
    "score_multilabel",
    "solve",
]

_HOMES = {
    "LOSSES": "calibrant.losses",
    "METRICS": "calibrant.metrics",
    "MaxEntLoss": "calibrant.losses",
    "Predictions": "calibrant.predictions",
    "Scorecard": "calibrant.metrics",
    "compare": "calibrant.metrics",
    "gibbs_distribution": "calibrant.maxent",
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
