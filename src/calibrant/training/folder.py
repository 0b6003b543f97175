"""The folder of a run, readable without our code; one process works in it, and every file in it is whole."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

import calibrant
from calibrant._files import alone, make_folder, replacing
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError
from calibrant.training.settings import Settings, validated


@dataclass(frozen=True)
class RunFolder:
    """Where the files of a run stand."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def last(self) -> Path:
        return self.path / "checkpoint" / "last.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "checkpoint" / "best.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / "weights.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.parquet"

    @property
    def done(self) -> Path:
        return self.path / "DONE"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    def prediction(self, name: str) -> Path:
        """The file of a split or shifted test."""
        return self.predictions / f"{name}.parquet"

    @property
    def is_done(self) -> bool:
        return self.done.exists() and self.metrics.is_file()

    @contextmanager
    def open(self, settings: Settings) -> Iterator[None]:
        """Work in the folder, alone; it is made, or its settings must be the same.

        Raises: NoDataError where it cannot be written; InvalidInputError where another process works in it, or it
        is the folder of another run.
        """
        for folder in (self.last.parent, self.predictions):
            make_folder(folder)
        with alone(self.path / ".lock", f"{self.path} is in use by another process"):
            self._agree(settings)
            self._sweep()
            yield

    def _agree(self, settings: Settings) -> None:
        if not self._is_begun():
            if self.config.exists():
                self.read_settings()  # lest it is another program's
            write_json(self.config, settings.model_dump(mode="json") | settings.identity)
        if not self.config.exists():
            raise InvalidInputError(f"{self.path} has files of a run, but no config.json: choose another folder")
        self.check_same(settings)
        if not self.done.exists():
            write_json(self.path / "environment.json", environment())

    def check_same(self, settings: Settings) -> None:
        """That the run that is here, if any is begun, has these settings."""
        if not self._is_begun():
            return
        begun = read_json(self.config)
        for name, value in settings.identity.items():
            if begun.get(name) != value:
                was = f"{self.path} was begun with {name} = {begun.get(name)!r}, not {value!r}"
                theirs = digest_of({key: begun.get(key) for key in settings.identity})
                hashes = f"configurations {theirs} and {digest_of(settings.identity)}"
                raise InvalidInputError(f"{was} ({hashes}): choose another folder")

    def _sweep(self) -> None:
        """Remove what a process was writing when it was killed."""
        for folder in (self.path, self.last.parent, self.predictions):
            for left in folder.glob(".*.tmp"):
                left.unlink()

    def _is_begun(self) -> bool:
        """Whether there is anything of a run that could be mixed up with another's."""
        files = (self.last, self.best, self.weights, self.metrics, self.done)
        return any(path.exists() for path in files) or any(self.predictions.glob("*.parquet"))

    def read_settings(self) -> Settings:
        """The settings of the run that is here."""
        if not self.config.is_file():
            raise NoDataError(f"{self.path} is not the folder of a run: it has no config.json")
        return validated(read_json(self.config), f"{self.config}: ")

    def append_log(self, record: dict[str, Any]) -> None:
        try:
            with self.log.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise NoDataError(f"{self.log} cannot be written: {error.strerror}") from None

    def rewrite_log(self, records: list[dict[str, Any]]) -> None:
        """As it was when the checkpoint was written that the run goes on from."""
        with replacing(self.log) as file:
            file.write("".join(json.dumps(record) + "\n" for record in records).encode())


def write_json(path: Path, record: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write((json.dumps(record, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CorruptFileError(f"{path} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise CorruptFileError(f"{path} must be an object, got {type(record).__name__}")
    return record


def digest_of(record: dict[str, Any]) -> str:
    """A short hash of a configuration."""
    return blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=6).hexdigest()


def environment() -> dict[str, Any]:
    """What the run is computed with; the same bytes can be expected where all of it is the same."""
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
