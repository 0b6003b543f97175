"""Features from a second file: a .npy array (never unpickled), or the column `features` of a Parquet file."""

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from calibrant._arrays import list_matrix, load_npy
from calibrant._checks import check_features16
from calibrant._files import read_error
from calibrant._parquet import open_parquet
from calibrant._paths import filesystem_of, first_line
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError


def read_features(url: str) -> Tensor:
    """(n, f) features in the order of the predictions. Raises: NoDataError, ResourceError, CorruptFileError."""
    try:
        features = _read_npy(url) if url.endswith(".npy") else _read_parquet(url)
        check_features16(features, len(features), ())
    except InvalidInputError as error:
        raise CorruptFileError(f"{url}: {error}") from None
    except CalibrantError:
        raise
    except (FileNotFoundError, PermissionError) as error:
        raise read_error(url, error) from None
    except (ValueError, OSError, EOFError, MemoryError, pa.ArrowException) as error:
        raise CorruptFileError(f"{url} cannot be read as features: {first_line(error)}") from None
    return features


def _read_npy(url: str) -> Tensor:
    filesystem, path = filesystem_of(url)
    with filesystem.open(path, "rb") as file:
        array = load_npy(file)
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(f"features must be real numbers, got {array.dtype}")
    return torch.from_numpy(array.astype(np.float32))


def _read_parquet(url: str) -> Tensor:
    file = open_parquet(url, url)
    names = file.schema_arrow.names
    if names.count("features") != 1:
        raise CorruptFileError(f"{url} must have one column features, its columns are {', '.join(names)}")
    column = file.read(columns=["features"]).column("features")
    return list_matrix(column.combine_chunks(), "features", 0, None)
