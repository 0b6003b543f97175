"""Training: from the name of a data set to weights, and predictions of the clean and every shifted test."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant.training.predicting import predict, predict_model, predict_run
    from calibrant.training.run import train
    from calibrant.training.settings import Settings, read_settings

__all__ = ["Settings", "predict", "predict_model", "predict_run", "read_settings", "train"]

_HOMES = {
    "Settings": "settings",
    "predict": "predicting",
    "predict_model": "predicting",
    "predict_run": "predicting",
    "read_settings": "settings",
    "train": "run",
}


def __getattr__(name: str) -> object:
    # on first use: the help of the command line needs Settings, and must not wait for torch
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
