"""The folder of a run: one process at a time, always with the same settings."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

import calibrant
from calibrant._digests import dump_record, parse_record
from calibrant._files import atomic_write, check_folder, hold_lock, make_folder, read_error
from calibrant._parquet import check_bytes
from calibrant.data.verify import is_published
from calibrant.errors import InvalidInputError
from calibrant.models import read_tensors
from calibrant.runs import REMOVE_IT, RunFolder, remedy
from calibrant.training.settings import MODEL_CODE, Settings, validate_settings


@contextmanager
def open_run_folder(run: RunFolder, settings: Settings) -> Iterator[None]:
    """Create the folder of a run, or check that it has the same settings, and lock it.

    Raises: ResourceError where it cannot be written or another process uses it; InvalidInputError where it belongs to
    a run of other settings, or to an experiment.
    """
    check_folder(run.path, "a run")
    for folder in (run.path, run.last.parent, run.predictions):
        make_folder(folder)
    with hold_lock(run.lock, f"{run.path} is in use by another process"):
        _check_config(run, settings)
        check_files(run)
        yield


def check_files(run: RunFolder) -> None:
    """Raises: CorruptFileError where a file of a finished run has other bytes than were written; it may be missing."""
    with remedy(REMOVE_IT):
        run.check_sizes()
        if run.is_done:
            read_tensors(run.weights)
            for path in sorted(run.predictions.glob("*.parquet")):
                check_bytes(path)


def _check_config(run: RunFolder, settings: Settings) -> None:
    if not run.config.exists():
        if run.is_started or run.log.exists() or run.environment.exists():
            raise InvalidInputError(f"{run.path} has files of a run, but no config.json: choose another folder")
    elif missing := settings.identity.keys() - read_json(run.config).keys():
        lacking = f"has no {min(missing)}: it is not that of a run, or of an earlier version of calibrant"
        raise InvalidInputError(f"{run.config} {lacking}: choose another folder")
    if not run.is_started:
        write_json(run.config, settings.model_dump(mode="json") | settings.identity)
    check_same_settings(run, settings)
    if not run.done.exists():
        write_json(run.environment, environment() | {"data_as_published": is_published(settings.data, settings.root)})


def check_same_settings(run: RunFolder, settings: Settings) -> None:
    """Raises: InvalidInputError where the folder has a run of other settings."""
    if not run.is_started:
        return
    config = read_json(run.config)
    for name, value in settings.identity.items():
        if config.get(name) != value:
            was = f"{run.path} was started with {name} = {config.get(name)!r}, not {value!r}"
            theirs = config_digest({key: config.get(key) for key in settings.identity})
            hashes = f"configurations {theirs} and {config_digest(settings.identity)}"
            raise InvalidInputError(f"{was} ({hashes}): choose another folder")


def read_run_settings(run: RunFolder) -> Settings:
    """The settings of the run in the folder."""
    run.check_config()
    values = {name: value for name, value in read_json(run.config).items() if name != MODEL_CODE}
    return validate_settings(values, f"{run.config}: ")


def write_json(path: Path, record: dict[str, Any]) -> None:
    with atomic_write(path) as file:
        file.write(dump_record(record, indent=2))


def read_json(path: Path) -> dict[str, Any]:
    try:
        return parse_record(path.read_bytes(), path)
    except OSError as error:
        raise read_error(path, error) from None


def config_digest(record: dict[str, Any]) -> str:
    """A short hash of a configuration."""
    return blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=6).hexdigest()


def environment() -> dict[str, Any]:
    """Versions and hardware; results are bit-for-bit the same only where all of these are."""
    return {
        "calibrant": calibrant.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
