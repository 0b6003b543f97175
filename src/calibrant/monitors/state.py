"""The state of a monitor in one JSON file, which is replaced whole."""

import base64
import os
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_columns
from calibrant._digests import dump_record, parse_record
from calibrant._files import atomic_write, read_bytes
from calibrant.errors import CorruptFileError
from calibrant.monitors.evidence import Alarm, EProcess
from calibrant.monitors.questions import Evidence
from calibrant.monitors.rows import FeatureScale
from calibrant.monitors.windows import Window
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from calibrant.monitors import Monitor

VERSION_KEY, VERSION = "calibrant_monitor", 1
ARRAY = {"dtype", "shape", "base64"}


def write_state(path: str | os.PathLike[str], monitor: "Monitor") -> None:
    """Write the state atomically. Raises: InvalidInputError, ResourceError."""
    record = {VERSION_KEY: VERSION, **_encode(monitor.state())}
    with atomic_write(path, "a monitor") as file:
        file.write(dump_record(record))


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of the monitor that wrote a file. Raises: NoDataError, ResourceError, CorruptFileError."""
    record = parse_record(read_bytes(path), os.fspath(path))
    if record.pop(VERSION_KEY, None) != VERSION:
        raise CorruptFileError(f"{os.fspath(path)} is not the state of a monitor of this version of calibrant")
    try:
        found: dict[str, Any] = _decode(record)
        evidence = found["evidence"]
        for process in evidence["processes"].values():
            process["alarm"] = process["alarm"] and Alarm(*process["alarm"])
        processes = {name: EProcess(**process) for name, process in evidence["processes"].items()}
        scale = found["feature_scale"]
        return found | {
            "evidence": Evidence(**evidence | {"processes": processes}),
            "feature_scale": scale and FeatureScale(**scale),
            "windows": {int(number): Window(**window) for number, window in found["windows"].items()},
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFileError(f"{os.fspath(path)} is damaged: {error}") from None


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        dtype = value.dtype.descr if value.dtype.names else value.dtype.str
        return {"dtype": dtype, "shape": value.shape, "base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, Predictions):  # the sample of a window
        halves = None if value.features is None else value.features.numpy()
        return {"logits": _encode(value.logits.numpy()), "features": _encode(halves), "class_names": value.class_names}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    return value


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == ARRAY:
        dtype = np.dtype(
            [tuple(each) for each in value["dtype"]] if isinstance(value["dtype"], list) else value["dtype"]
        )
        return np.frombuffer(base64.b64decode(value["base64"]), dtype).reshape(value["shape"]).copy()
    decoded = {key: _decode(item) for key, item in value.items()}
    if decoded.keys() == {"logits", "features", "class_names"}:
        logits, names, halves = torch.from_numpy(decoded["logits"]), decoded["class_names"], decoded["features"]
        return Predictions(
            logits,
            torch.full((len(logits),), UNKNOWN),
            check_columns(None, len(logits), ()),
            None if halves is None else torch.from_numpy(halves),
            names and tuple(names),
        )
    return decoded
