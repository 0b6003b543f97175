"""Calibrators as JSON: a version, numbers, and arrays as lists, or as base64 if they are long. No pickle."""

import base64
import binascii
import math
import os
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from calibrant._digests import dump_record, parse_record
from calibrant._files import atomic_write, read_bytes
from calibrant._paths import check_path
from calibrant.errors import CorruptFileError, InvalidInputError

VERSION = 1
MAX_LISTED = 4096  # numbers; arrays of more are base64
DTYPES = ("float64", "float16")
DataclassT = TypeVar("DataclassT")


def encode(value: Any) -> Any:
    """JSON values; dataclasses as objects, tensors with shape and type."""
    if isinstance(value, Tensor):
        array = value.contiguous().numpy()
        described = {"shape": list(array.shape), "dtype": str(array.dtype)}
        if array.size <= MAX_LISTED:
            return described | {"values": array.flatten().tolist()}
        return described | {"base64": base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()}
    if is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def decode_fields(cls: type[DataclassT], record: Any) -> DataclassT:
    """The dataclass of encoded fields. Raises: InvalidInputError if one is missing, unknown or of another type."""
    hints = get_type_hints(cls)
    _check_kind(cls.__name__, record, dict)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(record.keys() - known.keys())
    missing = sorted(name for name, field in known.items() if name not in record and field.default is MISSING)
    if unknown or missing:
        raise InvalidInputError(f"it has no {missing[0]}" if missing else f"it has an unknown {unknown[0]}")
    return cls(**{name: _decode(name, value, hints[name]) for name, value in record.items()})


def _decode(name: str, value: Any, hint: Any) -> Any:
    options = get_args(hint) if NoneType in get_args(hint) else (hint,)
    if value is None and NoneType in options:
        return None
    kind = next(option for option in options if option is not NoneType)
    if kind is Tensor:
        return _tensor(name, value)
    if kind is float:
        if value not in ("inf", "-inf") and (
            isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value)
        ):
            raise InvalidInputError(f"{name} must be a number, got {value!r}")
        return float(value)
    if isinstance(kind, type) and is_dataclass(kind):
        return decode_fields(kind, value)
    if get_origin(kind) is tuple:
        _check_kind(name, value, list)
        return tuple(_decode(name, item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is dict:
        _check_kind(name, value, dict)
        return {key: _decode(name, item, get_args(kind)[1]) for key, item in value.items()}
    _check_kind(name, value, kind)
    return value


def _check_kind(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInputError(f"{name} must be of type {kind.__name__}, got {type(value).__name__}")


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, dict) or value.get("dtype") not in DTYPES or not isinstance(value.get("shape"), list):
        raise InvalidInputError(f"{name} must be an array")
    if "base64" in value:
        try:
            raw = base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise InvalidInputError(f"{name} must be base64") from None
        array = np.frombuffer(raw, dtype=np.dtype(value["dtype"]).newbyteorder("<")).astype(value["dtype"])
    else:
        array = np.array(value.get("values"), dtype=value["dtype"])
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite")
    return torch.from_numpy(array.reshape(value["shape"]))


def _described(kind: str) -> str:
    return f"{'an' if kind.startswith('e') else 'a'} {kind.replace('_', ' ')}"


def write_record(path: str | os.PathLike[str], record: dict[str, Any], kind: str = "calibrator") -> None:
    with atomic_write(path, _described(kind)) as file:
        file.write(dump_record({f"calibrant_{kind}": VERSION, **record}, indent=1))


def read_record(path: str | os.PathLike[str], kind: str = "calibrator") -> dict[str, Any]:
    """The content of a file. Raises: NoDataError, ResourceError, CorruptFileError."""
    record = parse_record(read_bytes(check_path("path", path)), os.fspath(path))
    version = record.get(f"calibrant_{kind}")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptFileError(f"{os.fspath(path)} is not {_described(kind)} of calibrant")
    if version > VERSION:
        raise CorruptFileError(
            f"{os.fspath(path)} was written by a newer calibrant (version {version} of the file; this one reads up to "
            f"{VERSION}); upgrade calibrant"
        )
    if not isinstance(record.get(kind), str):
        raise CorruptFileError(f"{os.fspath(path)} is damaged: it has no {kind}")
    return record
