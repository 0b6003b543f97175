"""Training: from the name of a data set to weights, and predictions of the clean and every shifted test."""

from typing import TYPE_CHECKING

from calibrant._lazy import on_first_use

if TYPE_CHECKING:
    from calibrant.training.predicting import predict, predict_model, predict_run
    from calibrant.training.run import train
    from calibrant.training.settings import Settings, read_settings

__all__ = ["Settings", "predict", "predict_model", "predict_run", "read_settings", "train"]

# on first use: the help of the command line needs Settings, and must not wait for torch
__getattr__ = on_first_use(
    __name__,
    {
        "Settings": "settings",
        "predict": "predicting",
        "predict_model": "predicting",
        "predict_run": "predicting",
        "read_settings": "settings",
        "train": "run",
    },
)
