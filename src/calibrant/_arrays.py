"""Conversion of lists, numpy and Arrow arrays to tensors and back, to logits, and to hashes of rows."""

from collections.abc import Iterator
from tokenize import TokenError
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._checks import (
    PRIOR_TOLERANCE,
    check_boolean_labels,
    check_fits_int64,
    check_has_mass,
    check_probabilities,
    check_tensor,
    check_values,
)
from calibrant._paths import first_line
from calibrant.errors import InvalidInputError

ArrayLike: TypeAlias = Any  # torch.Tensor, pyarrow.Array, or an argument of numpy.asarray
Hashes: TypeAlias = NDArray[np.uint64]
HASHED_WORDS = 2**15  # at a time: they stay in the cache
FEW_WORDS = 16  # sums over fewer are faster when rows run along the last dimension
UNKNOWN = -1  # the label of a row whose label is not known
MAX_LISTS = 64  # in each other: the dimensions that numpy can have
BLOCK_ELEMENTS = 2**18  # in a block of rows, by default


def blocks(n: int, width: int, *, size: int = BLOCK_ELEMENTS) -> Iterator[slice]:
    """Slices that cover ``n`` rows in order, each of at most ``size`` numbers where a row has ``width``.

    A block has at least one row.

    >>> list(blocks(5, 3, size=6))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, size // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Values of the CPU on a device. The host does not wait for the copy, except on MPS, where it might read others."""
    return values.to(device, non_blocking=device.type != "mps")


def count_keys(keys: Tensor, n_keys: int) -> Tensor:
    """How often each integer below ``n_keys`` occurs, int64. torch.bincount reads the keys: the host waits for that."""
    counts = torch.zeros(n_keys, dtype=torch.int64, device=keys.device)
    return counts.index_add_(0, keys, counts.new_ones(1).expand(len(keys)))


def sum_of(values: Tensor) -> float:
    """The sum of all values in float64, in an order that the number of threads does not change, as it does torch's."""
    return float(values.numpy().sum(dtype=np.float64))


def load_npy(file: Any, *, mmap: bool = False) -> NDArray[Any]:
    """The array of a .npy file, never unpickled. Raises: OSError, or ValueError whatever is wrong with the content."""
    try:
        array = np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (EOFError, MemoryError, OverflowError, RecursionError, TokenError, BadZipFile) as error:
        raise ValueError(str(error) or "its header is damaged") from None
    if not isinstance(array, np.ndarray):
        raise ValueError("it is an archive of arrays")
    return array


def floats(argument: str, values: ArrayLike) -> Tensor:
    """Numbers as a float32 or float64 tensor on the CPU; half precision becomes float32."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(values, pa.Array):
        if not pa.types.is_floating(values.type):
            return list_matrix(values, argument, 0, None)
        values = values.to_numpy(zero_copy_only=False)
    tensor = to_tensor(argument, "numbers", values)
    if tensor.dtype == torch.bool:
        raise InvalidInputError(f"{argument} must be numbers, got {tensor.dtype}")
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def integers(labels: ArrayLike, n_classes: int) -> Tensor:
    """Labels as a tensor on the CPU, UNKNOWN where an Arrow array is null."""
    labels = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else labels
    if isinstance(labels, pa.Array):
        return label_column(labels, "labels", n_classes, 0)
    tensor = to_tensor("labels", "integers", labels)
    if tensor.dtype == torch.bool:
        check_boolean_labels("labels", n_classes)
    return tensor.long() if tensor.numel() == 0 else tensor  # an empty list has no type


def to_tensor(argument: str, what: str, values: ArrayLike) -> Tensor:
    """Real numbers as a tensor on the CPU, out of the graph."""
    if _is_masked(values):  # numpy.asarray would take what the mask hides
        raise InvalidInputError(f"{argument} must be {what}, got masked values")
    try:
        tensor = values if isinstance(values, Tensor) else as_tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        reason = str(error).partition(". ")[0]  # torch goes on with all types that it knows
        raise InvalidInputError(f"{argument} must be {what}: {reason}") from None
    check_tensor(argument, tensor)
    return tensor.detach().cpu()


def _is_masked(values: object, depth: int = 0) -> bool:
    """Whether an array, or one in lists of lists, has a mask that hides values."""
    if not isinstance(values, list | tuple):
        return bool(np.ma.is_masked(values))
    kinds = set(map(type, values))
    nested = depth < MAX_LISTS and any(issubclass(kind, list | tuple | np.ma.MaskedArray) for kind in kinds)
    return nested and any(_is_masked(each, depth + 1) for each in values)


def label_column(column: pa.Array, argument: str, n_classes: int, first_row: int) -> Tensor:
    """Labels as int64, UNKNOWN where they are null; booleans are the labels of two classes."""
    kind = column.type
    if pa.types.is_null(kind):
        return torch.full((len(column),), UNKNOWN)
    if pa.types.is_boolean(kind):
        check_boolean_labels(argument, n_classes)
    elif not pa.types.is_integer(kind):
        raise InvalidInputError(f"{argument} must be integers, got {kind}")
    if pa.types.is_uint64(kind):
        check_fits_int64(argument, as_tensor(column.fill_null(0).to_numpy()), first_row)
    column = column.cast(pa.int64())
    unknown = column.fill_null(0).to_numpy() == UNKNOWN
    if unknown.any():
        row = first_row + int(np.flatnonzero(unknown)[0])
        raise InvalidInputError(f"{argument} must be null where not known, got {UNKNOWN} at row {row}")
    return as_tensor(column.fill_null(UNKNOWN).to_numpy())


def list_matrix(column: pa.Array, name: str, first_row: int, n_columns: int | None) -> Tensor:
    """The (n, k) numbers of a list column whose lists have one length."""
    if column.null_count:
        raise InvalidInputError(f"{name} must not be null, got null at row {first_row + first_null(column)}")
    if pa.types.is_fixed_size_list(column.type):
        length = column.type.list_size
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = np.diff(column.offsets.to_numpy())
        length = n_columns if n_columns is not None else int(lengths[0]) if len(lengths) else 0
        if (lengths != length).any():
            row = int(np.flatnonzero(lengths != length)[0])
            raise InvalidInputError(
                f"{name} must have {length} numbers in every row, got {lengths[row]} at row {first_row + row}"
            )
    else:
        raise InvalidInputError(f"{name} must be lists of numbers, got {column.type}")
    values = column.flatten()
    if values.null_count:
        position = first_null(values)
        where = f"row {first_row + position // length}, class {position % length}"
        raise InvalidInputError(f"{name} must not be null, got null at {where}")
    if not pa.types.is_floating(values.type):
        raise InvalidInputError(f"{name} must be floating point, got {values.type}")
    return floats(name, values.to_numpy(zero_copy_only=False).reshape(len(column), length))


def first_null(column: pa.Array) -> int:
    return int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Shares memory where numpy and torch both allow it, copies otherwise."""
    shared = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if shared else array.copy())


def two_classes(kind: str, positive: Tensor, argument: str, first_row: int) -> tuple[str, Tensor]:
    """From the log-odds of class 1, or its probabilities, the same of both classes: their kind, and (n, 2) numbers."""
    if tuple(positive.shape[1:]) not in ((), (1,)) or positive.ndim == 0:
        raise InvalidInputError(f"{argument} must have shape (n,) or (n, 1), got {tuple(positive.shape)}")
    positive = positive.reshape(-1)
    if kind == "positive_logits":
        rule = "be less than infinity" if bool((positive == torch.inf).any()) else "not be NaN"
        check_values(argument, rule, positive, positive < torch.inf, "at row", first_row=first_row)
        return "logits", torch.stack([torch.zeros_like(positive), positive], dim=1)
    check_probabilities(argument, positive.unsqueeze(1), first_row, total=None)
    return "probs", torch.stack([1 - positive, positive], dim=1)


def sum_tolerance(values: ArrayLike) -> float:
    """How far the sum of probabilities of this type may be from 1."""
    half = isinstance(values, Tensor) and values.dtype in (torch.float16, torch.bfloat16)
    return 2 * torch.finfo(values.dtype).eps if half else PRIOR_TOLERANCE


def as_logits(kind: str, values: Tensor, argument: str, first_row: int, tolerance: float = PRIOR_TOLERANCE) -> Tensor:
    """Checked log-probabilities up to a constant, from logits, log-probabilities or probabilities."""
    if kind in ("logits", "log_probs"):
        check_has_mass(argument, values, first_row)
        if kind == "log_probs":
            check_probabilities(f"exp({argument})", values.exp(), first_row, total=1.0, tolerance=tolerance)
        return values.contiguous()
    check_probabilities(argument, values, first_row, total=1.0, tolerance=tolerance)
    return values.log()


def as_float32(logits: Tensor) -> Tensor:
    """As float32; a row that is too large for it is shifted, which does not change its probabilities."""
    if logits.dtype == torch.float32:
        return logits
    single = logits.float()
    beyond = ~single.amax(1).isfinite() if len(single) else torch.zeros(0, dtype=torch.bool)
    if beyond.any():
        rows = logits[beyond]
        single[beyond] = (rows - rows.amax(1, keepdim=True)).float()
    return single


def as_lists(matrix: Tensor) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.contiguous().numpy().reshape(-1)), matrix.shape[1])


def row_hashes(logits: Tensor, labels: Tensor) -> tuple[Hashes, Hashes]:
    """Two 64-bit hashes of each row: of its logits (in float32), and of its logits and label."""
    n, n_words = len(logits), (logits.shape[1] + 1) // 2
    first, second = _splitmix64(np.arange(1, 2 * n_words + 1, dtype=np.uint64)).reshape(2, -1) | np.uint64(1)
    low, high = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    few = n_words < FEW_WORDS
    factors = (first[:, None], second[:, None]) if few else (first, second)
    for rows in blocks(n, n_words, size=HASHED_WORDS):
        words = _pack_pairs(as_float32(logits[rows]))
        words = words.T.copy() if few else words
        for total, factor in zip((low, high), factors, strict=True):
            words = words * factor
            words ^= words >> np.uint64(32)
            total[rows] = words.sum(0 if few else 1, dtype=np.uint64)
    return _splitmix64(low), _splitmix64(high ^ _splitmix64(labels.numpy().astype(np.uint64) + second[0]))


def _pack_pairs(rows: Tensor) -> Hashes:
    """The bits of two float32 numbers in one word, the last with a zero where their number is odd."""
    bits = (rows + 0.0).contiguous().numpy().view(np.uint32)  # + 0.0: −0 becomes 0
    if bits.shape[1] % 2:
        bits = np.pad(bits, ((0, 0), (0, 1)))
    return bits.view(np.uint64)


def _splitmix64(x: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(hashes: Hashes, seed: int) -> Tensor:
    """(n,) float64 in [0, 1), a pseudo-random function of each hash and the seed."""
    bits = _splitmix64(hashes ^ _splitmix64(np.array([seed], dtype=np.uint64)))
    return torch.from_numpy((bits >> np.uint64(11)) * 2.0**-53)


def python_values(name: str, column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column; InvalidInputError where it has a year or time zone that Python lacks."""
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidInputError(f"column {name!r} cannot be grouped by: {first_line(error)}") from None
    return values


def value_hashes(name: str, column: pa.ChunkedArray) -> Hashes:
    """A 64-bit hash of each value of a column, of its text: 7 and 7.0 are equal, and so are all nulls and NaN.

    Raises:
        InvalidInputError: The column has a type without text, such as lists, or a time zone that is not known.
    """
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    try:
        texts = column.cast(pa.large_binary() if binary else pa.large_string()).combine_chunks()
    except pa.ArrowNotImplementedError:
        raise InvalidInputError(f"column {name!r} cannot be grouped by: its type is {column.type}") from None
    except pa.ArrowException as error:
        raise InvalidInputError(f"column {name!r} cannot be grouped by: {first_line(error)}") from None
    texts = texts.fill_null(b"nan" if binary else "nan")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    bytes_of_texts, lengths = np.frombuffer(data or b"", np.uint8), np.diff(ends)
    factors = _splitmix64(np.arange(1, int(lengths.max(initial=0)) + 1, dtype=np.uint64)) | np.uint64(1)
    totals = np.empty(len(texts), np.uint64)
    for rows in blocks(len(texts), int(lengths.mean()) if len(texts) else 0, size=HASHED_WORDS):
        first, last = ends[rows.start], ends[rows.stop]
        characters = bytes_of_texts[first:last].astype(np.uint64) + np.uint64(1)
        starts = ends[rows.start : rows.stop + 1] - first
        place = np.arange(len(characters)) - np.repeat(starts[:-1], lengths[rows])
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(characters * factors[place], dtype=np.uint64)])
        totals[rows] = np.diff(sums[starts])
    return _splitmix64(totals)


def check_distinct(source: str, name: str, column: pa.ChunkedArray) -> Hashes:
    """The hashes of ids, none of which may occur twice. Raises: InvalidInputError."""
    if column.null_count:
        raise InvalidInputError(f"{source} must have an id in every row, got {column.null_count} nulls in {name!r}")
    hashes = value_hashes(name, column)
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if len(same):
        raise InvalidInputError(
            f"{source} must have every id once, got {id_text(column, order[same].min())} twice in {name!r}"
        )
    return hashes


def id_text(column: pa.ChunkedArray, row: Any) -> str:
    """An id as a message shows it."""
    return repr(column[int(row)].as_py())
