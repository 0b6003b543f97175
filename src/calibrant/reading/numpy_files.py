"""Arrays of .npy and .npz files, never unpickled, as the columns of a table."""

import os
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._arrays import load_npy
from calibrant._checks import check_memory
from calibrant._files import open_to_read
from calibrant._paths import filesystem_of, first_line
from calibrant.errors import CorruptFileError, InvalidInputError

MAX_RATIO, MIN_BOMB = 100, 2**30  # a larger archive of more than 100 times its size holds no predictions
Arrays = dict[str, NDArray[Any]]


def read_npy(path: str, label: str | None) -> Arrays:
    """The array of a .npy file by the stem of its name, and that of the labels, if there is one.

    Raises: NoDataError, ResourceError, CorruptFileError, InvalidInputError.
    """
    arrays = {_stem(each): _load(each) for each in (path, label) if each is not None}
    if label is not None and len(arrays) == 1:
        raise InvalidInputError(f"{path} and {label} must have different names")
    return _checked(path, arrays)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _load(path: str) -> NDArray[Any]:
    with open_to_read(filesystem_of(path)[1]):  # the errors of the system
        pass
    try:
        return load_npy(filesystem_of(path)[1], mmap=True)
    except ValueError as error:
        raise _refusal(path, "", error) from None


def read_npz(path: str) -> Arrays:
    """The arrays of a .npz file by their names. Raises: as `read_npy`."""
    with open_to_read(filesystem_of(path)[1]) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                size, packed = sum(i.file_size for i in archive.infolist()), os.fstat(file.fileno()).st_size
                if size > max(MIN_BOMB, MAX_RATIO * packed):
                    raise InvalidInputError(f"{path} holds {size:,} bytes in {packed:,}: no predictions do")
                check_memory(path, size)
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                arrays = {}
                for name, member in zip(names, archive.namelist(), strict=True):
                    with archive.open(member) as content:
                        arrays[name] = _member(path, name, content)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise CorruptFileError(f"{path} is damaged, or is not an .npz file: {first_line(error)}") from None
    return _checked(path, arrays)


def _member(path: str, name: str, content: Any) -> NDArray[Any]:
    try:
        return np.lib.format.read_array(content, allow_pickle=False)
    except (ValueError, MemoryError, OverflowError) as error:
        raise _refusal(path, f" {name}", error) from None


def _refusal(path: str, name: str, error: Exception) -> CorruptFileError | InvalidInputError:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        advice = "save numbers, or names as numpy.asarray(names, dtype=str)"
        return InvalidInputError(f"{path}{name} holds Python objects, which are never unpickled: {advice}")
    return CorruptFileError(f"{path}{name} is damaged, or is not an array of numpy: {first_line(error)}")


def _checked(path: str, arrays: Arrays) -> Arrays:
    """Arrays of one or two dimensions with one number of rows."""
    for name, array in arrays.items():
        if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0) or array.dtype.kind not in "fiubUS":
            got = f"{array.dtype} of shape {array.shape}"
            raise InvalidInputError(f"{path}: {name} must be numbers or texts of shape (n,) or (n, k), got {got}")
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) != 1:
        text = ", ".join(f"{size} in {name}" for name, size in sizes.items()) or "no array"
        raise InvalidInputError(f"{path} must have arrays of one number of rows, got {text}")
    return {name: array[:, 0] if _is_column(array) else array for name, array in arrays.items()}


def _is_column(array: NDArray[Any]) -> bool:
    """Whether an array is one column, as Keras and scikit-learn give those of labels: (n, 1)."""
    return array.ndim == 2 and array.shape[1] == 1
