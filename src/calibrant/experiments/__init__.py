"""Experiments: losses × seeds × data sets from one file, on this machine or a cluster, and their results."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant.experiments.config import Experiment, read_experiment
    from calibrant.experiments.folder import ExperimentFolder, RunKey
    from calibrant.experiments.run import run_experiment

__all__ = ["Experiment", "ExperimentFolder", "RunKey", "read_experiment", "run_experiment"]

_HOMES = {
    "Experiment": "config",
    "ExperimentFolder": "folder",
    "RunKey": "folder",
    "read_experiment": "config",
    "run_experiment": "run",
}


def __getattr__(name: str) -> object:
    # on first use: tables and figures need the folder alone, and neither torch nor the training code
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
