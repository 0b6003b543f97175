"""Experiments: losses × seeds × data sets from one file, on this machine or a cluster, and their results."""

from typing import TYPE_CHECKING

from calibrant._lazy import on_first_use

if TYPE_CHECKING:
    from calibrant.experiments.config import Experiment, read_experiment
    from calibrant.experiments.folder import ExperimentFolder, RunKey
    from calibrant.experiments.run import run_experiment

__all__ = ["Experiment", "ExperimentFolder", "RunKey", "read_experiment", "run_experiment"]

# on first use: tables and figures need the folder alone, and neither torch nor the training code
__getattr__ = on_first_use(
    __name__,
    {
        "Experiment": "config",
        "ExperimentFolder": "folder",
        "RunKey": "folder",
        "read_experiment": "config",
        "run_experiment": "run",
    },
)
