"""Small sweeps: their files, what they leave behind, and back-ends whose processes are forks, with all loaded."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa

from calibrant.experiments import ExperimentFolder, run_experiment
from calibrant.experiments.run import ExperimentPlan, ExperimentResult, plan_experiment

sys.path.append(str(Path(__file__).parents[1] / "training"))  # for training_run, with its children and moments

SETTINGS: dict[str, Any] = {"data": "digits", "model": "mlp", "epochs": 2, "batch_size": 256, "shifts": ["fog-3"]}
TOP: dict[str, Any] = {"metrics": ["accuracy", "ece", "nll"], "intervals": ["ece"], "calibrators": ["temperature"]}
TWO: dict[str, Any] = {"loss": ["cross_entropy", "focal"]}
SHORT: dict[str, Any] = {"epochs": 1}
LONG: dict[str, Any] = {"epochs": 6, "checkpoint_minutes": 0.0}  # a checkpoint after every step
SHIFTED: dict[str, Any] = {
    "settings": {"epochs": 1, "shifts": ["spatter-2"]},
    "calibrators": ["temperature", "perturbed_temperature"],
    "calibration_shifts": ["fog"],
}
NAMES = ("digits-mlp-cross_entropy-0", "digits-mlp-focal-0")  # of the runs of TWO
PATIENCE = 300  # seconds after which something hangs

Values = Mapping[str, Any]


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_of(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def write_sweep(path: Path, *grids: Values, settings: Values | None = None, **top: Any) -> Path:
    """An experiment file with these grids, of runs that take less than a second."""
    tables = [("", {**TOP, **top}), ("[settings]", {**SETTINGS, **(settings or {})})]
    tables += [("[[grid]]", dict(grid)) for grid in grids]
    lines = [line for head, values in tables for line in (head, *(f"{k} = {toml_of(v)}" for k, v in values.items()))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    return path


def sweep(folder: Path, *grids: Values, **options: Any) -> ExperimentResult:
    """Run a sweep, whose file stands beside its folder."""
    return run_experiment(write_sweep(folder.with_suffix(".toml"), *grids, **options), output=folder)


def plan_of(folder: Path, *grids: Values, only: Mapping[str, str] | None = None, **options: Any) -> ExperimentPlan:
    return plan_experiment(write_sweep(folder.with_suffix(".toml"), *grids, **options), output=folder, only=only)


# What a sweep leaves behind


def read_rows(folder: Path) -> pa.Table:
    return ExperimentFolder(folder).read_rows()


def read_curves(folder: Path) -> pa.Table:
    return ExperimentFolder(folder).read_curves()


def check_same(folder: Path, other: Path) -> None:
    """That rows and curves are the same, in the same order."""
    assert read_rows(folder).num_rows > 0
    assert read_rows(folder).equals(read_rows(other))
    assert read_curves(folder).equals(read_curves(other))


def cut(path: Path) -> None:
    """What is left of a file when the machine went down as it was copied."""
    path.write_bytes(path.read_bytes()[:-60])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def contents(folder: Path, *patterns: str) -> dict[str, tuple[int, bytes]]:
    """When the files were written, and their bytes."""
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    assert found
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE} s"
        Event().wait(0.02)


# Processes that are forked where they would be spawned: they do the same, and need not load the libraries


class ForkContext:
    """What `get_context("spawn")` returns, as `ProcessBackend` uses it; a fork closes what it should not have."""

    def __init__(self) -> None:
        self.fork = get_context("fork")
        self.ours: list[Connection] = []

    def Pipe(self) -> tuple[Connection, Connection]:  # noqa: N802 - the name in multiprocessing
        ours, theirs = self.fork.Pipe()
        self.ours.append(ours)
        return ours, theirs

    def Process(self, *, target: Callable[..., None], args: tuple[Any, ...]) -> Any:  # noqa: N802
        ours = list(self.ours)

        def alone() -> None:
            for pipe in ours:
                if not pipe.closed:
                    pipe.close()
            target(*args)

        return self.fork.Process(target=alone)
