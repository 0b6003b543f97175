"""Weights in safetensors files, which cannot contain code."""

import json
import os
from collections.abc import Mapping
from mmap import ACCESS_READ, mmap
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from calibrant._digests import UNSEALED, is_sealed, parse_record, seal
from calibrant._files import atomic_write, read_error
from calibrant._signatures import checked
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError
from calibrant.models.base import Classifier

TENSORS_METADATA_KEY = "calibrant"  # of our record in the header of a file
COUNTER = ".num_batches_tracked"  # of batch normalisation, which training does not need; old files lack it
SEAL_KEY = "seal"  # of the digest of the file, first in our record
# The header is JSON after 8 bytes of its length, and begins with our record, as text.
SEAL_START = 8 + len(rf'{{"__metadata__":{{"{TENSORS_METADATA_KEY}":"{{\"{SEAL_KEY}\": \"')


@checked
def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Write tensors and a JSON record to a file, atomically.

    Args:
        path: The file.
        tensors: Tensors by name.
        record: A record that JSON can hold.

    Raises:
        ResourceError: the file cannot be written.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({SEAL_KEY: None} | dict(record) | {SEAL_KEY: UNSEALED.decode()}, allow_nan=False)
    with atomic_write(path) as file:
        file.write(seal(save(plain, {TENSORS_METADATA_KEY: text}), SEAL_START))


@checked
def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of a file.

    Args:
        path: A safetensors file.

    Returns:
        The tensors by name, and the record that `write_tensors` wrote, if any.

    Raises:
        NoDataError: the file is not there.
        CorruptFileError: it is not a safetensors file, or `write_tensors` wrote other bytes.
        ResourceError: the system refuses to read it.
    """
    try:
        with open(path, "rb") as raw, mmap(raw.fileno(), 0, access=ACCESS_READ) as content:
            sealed = is_sealed(content, path, SEAL_START)
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(TENSORS_METADATA_KEY, "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        record = parse_record(text.encode(), path)
    except CorruptFileError:
        raise
    except FileNotFoundError:
        raise NoDataError(f"{path} is not there") from None
    except PermissionError as error:
        raise read_error(path, error) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as safetensors: {error}") from None
    if record and not sealed:
        raise CorruptFileError(f"{path} is damaged: it has no digest, with which calibrant writes such files")
    return tensors, {name: value for name, value in record.items() if name != SEAL_KEY}


@checked
def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load the weights of a model from a file; a last layer for another number of classes is left as it is.

    Args:
        model: The model, which is changed.
        path: A safetensors file.

    Returns:
        The record of the file.

    Raises:
        InvalidInputError: any other weight is missing, unknown or of another shape.
        NoDataError: the file is not there.
        CorruptFileError: it is not a safetensors file.
    """
    tensors, record = read_tensors(path)
    own = model.state_dict()
    last = _last_layer(model)
    others = {name for name in last if name in tensors and tensors[name].shape != own[name].shape}
    if others:
        tensors |= {name: own[name] for name in last}
    for name, tensor in own.items():
        if name not in tensors and name.endswith(COUNTER):
            tensors[name] = tensor
        if name not in tensors:
            raise InvalidInputError(f"{path} has no weight {name!r} of the model")
        if tensors[name].shape != tensor.shape:
            got = f"{tuple(tensors[name].shape)}, not {tuple(tensor.shape)}"
            raise InvalidInputError(f"{path} is of another model: its {name!r} is {got}")
    unknown = [name for name in tensors if name not in own]
    if unknown:
        raise InvalidInputError(f"{path} is of another model: {unknown[0]!r} is no weight of this one")
    with torch.no_grad():
        model.load_state_dict(tensors)
    return record


def _last_layer(model: nn.Module) -> list[str]:
    """The names of the weights of the last layer."""
    if not isinstance(model, Classifier):
        return []
    own = {id(parameter) for parameter in model.head.parameters()}
    return [name for name, parameter in model.named_parameters() if id(parameter) in own]
