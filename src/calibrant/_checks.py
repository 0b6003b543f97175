"""Input validation that several packages share."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import InvalidInputError, ResourceError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
UNORDERED = (str, bytes, set, frozenset, Mapping)  # or one value, as text is
CONTROL_GROUP = Path("/sys/fs/cgroup")  # of a container, as seen inside it
MAX_BINS = 10_000  # of the confidence: with more, rows hardly ever share one
MAX_JOBS = 1024  # processes or threads of one machine
MAX_CLASSES = 1_000_000
MAX_IMAGE_SIZE = 4096  # the side, in pixels
PRIOR_TOLERANCE = 1e-3  # from 1, of the sum of a prior printed with four digits


def check_instance(argument: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidInputError(f"{argument} must be {names}, got {type(value).__name__}")


def check_tensor(argument: str, value: object) -> None:
    """A tensor whose numbers are there to be read: real, dense and in memory."""
    if not isinstance(value, Tensor):
        raise InvalidInputError(f"{argument} must be a tensor, got {type(value).__name__}")
    if value.is_nested or value.layout != torch.strided or value.is_meta or value.is_quantized:
        kind = "nested" if value.is_nested else "meta" if value.is_meta else value.dtype if value.is_quantized else None
        raise InvalidInputError(f"{argument} must be a dense tensor, got {kind or value.layout}")
    if value.is_complex():
        raise InvalidInputError(f"{argument} must be real numbers, got {value.dtype}")


def is_a(kind: type, value: object) -> bool:
    """Isinstance for numbers.Integral and Real, which mypy does not accept for int and float."""
    return isinstance(value, kind)


def check_integer(argument: str, value: int, minimum: int, maximum: int | None = None) -> int:
    is_integer = is_a(Integral, value) and not isinstance(value, bool)
    if not is_integer or value < minimum or (maximum is not None and value > maximum):
        rule = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise InvalidInputError(f"{argument} must be an integer {rule}, got {value}")
    return int(value)


def check_n_bins(n_bins: int) -> int:
    return check_integer("n_bins", n_bins, 1, MAX_BINS)


def check_memory(what: str, n_bytes: int) -> None:
    """Raise where this machine, container or process has less memory; where that is not known, do not."""
    limits: list[int] = []
    with suppress(ImportError, ValueError, AttributeError):  # of other systems than Unix
        import resource

        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits += [] if limit == resource.RLIM_INFINITY else [limit]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of version 2 and 1
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int((CONTROL_GROUP / name).read_text()))
    if limits and n_bytes > min(limits):
        has = f"this machine, container or process has {min(limits) / 1e9:,.1f} GB"
        raise ResourceError(f"{what} needs {n_bytes / 1e9:,.1f} GB of memory, {has}")


def check_flag(argument: str, value: bool) -> bool:
    """True or False, and not what merely counts as one of them, such as the text "no"."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"{argument} must be True or False, got {value!r}")
    return bool(value)


def _check_real(argument: str, value: float, rule: str, holds: Callable[[float], bool]) -> float:
    if isinstance(value, bool) or not is_a(Real, value):
        raise InvalidInputError(f"{argument} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not holds(number):
        raise InvalidInputError(f"{argument} must {rule}, got {value}")
    return number


def check_number(argument: str, value: float, *, minimum: float = -math.inf, maximum: float = math.inf) -> float:
    bounded = math.isfinite(minimum) or math.isfinite(maximum)
    rule = "be a finite number" + (f" in [{minimum:g}, {maximum:g}]" if bounded else "")
    return _check_real(argument, value, rule, lambda x: minimum <= x <= maximum and math.isfinite(x))


def check_positive(argument: str, value: float) -> float:
    return _check_real(argument, value, "be a positive number", lambda x: 0 < x < math.inf)


def check_fraction(argument: str, value: float) -> float:
    return _check_real(argument, value, "lie in [0, 1)", lambda x: 0 <= x < 1)


def check_level(level: float) -> float:
    return _check_real("level", level, "lie between 0.001 and 0.999999", lambda x: 0.001 <= x <= 0.999999)


def first_true(mask: Tensor) -> tuple[int, ...]:
    """The index of the first true entry."""
    return tuple(mask.nonzero()[0].tolist())


def check_values(argument: str, rule: str, values: Tensor, good: Tensor, *names: str, first_row: int = 0) -> None:
    """Raise where a value is not good; the message names the first, and its index in each named dimension."""
    if not good.all():
        index = first_true(~good)
        numbers = (first_row + index[0], *index[1:])
        where = ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=False))
        raise InvalidInputError(f"{argument} must {rule}, got {float(values[index]):g} {where}")


def first_position(mask: Tensor, first_row: int = 0) -> str:
    """The index of the first true entry, as text."""
    index = first_true(mask)
    return f"row {first_row + index[0]}" if len(index) == 1 else f"position {index}"


def check_label_range(
    labels: Tensor,
    n_classes: int,
    ignore_index: int | None,
    unknown: int | None = None,
    *,
    argument: str = "labels",
    first_row: int = 0,
) -> bool:
    """Whether every integer label is a class or ``unknown`` (True), or some are ``ignore_index`` (False)."""
    if labels.numel() == 0:
        return True
    low, high = (int(bound) for bound in labels.aminmax())
    if low >= 0 and high < n_classes and not (ignore_index is not None and low <= ignore_index <= high):
        return True
    bad = (labels < 0) | (labels >= n_classes)
    for allowed in (ignore_index, unknown):
        if allowed is not None:
            bad &= labels != allowed
    if bad.any():
        got = f"{int(labels[first_true(bad)])} at {first_position(bad, first_row)}"
        raise InvalidInputError(f"{argument} must lie in [0, {n_classes - 1}], got {got}")
    return ignore_index is None or not bool((labels == ignore_index).any())


def check_all_labelled(unknown: Tensor, argument: str = "predictions", purpose: str = "be scored") -> None:
    if unknown.any():
        raise InvalidInputError(f"{argument} must have labels to {purpose}, got none at {first_position(unknown)}")


class HasTopLabel(Protocol):
    """Predictions, or a scan of them."""

    @property
    def top_label(self) -> bool: ...


def check_all_classes(argument: str, rows: HasTopLabel, purpose: str) -> None:
    """Rows with the probabilities of all classes."""
    if rows.top_label:
        got = "got only the confidence of the predicted class"
        raise InvalidInputError(f"{argument} must have the probabilities of all classes to {purpose}, {got}")


def check_same_kind(first: str, rows: HasTopLabel, second: str, others: HasTopLabel) -> None:
    """Both of all classes, or both of the confidence alone."""
    if rows.top_label != others.top_label:
        kinds = ("the probabilities of all classes", "only the confidence of the predicted class")
        raise InvalidInputError(f"{first} has {kinds[rows.top_label]}, {second} {kinds[others.top_label]}")


def check_confidence(argument: str, confidence: Tensor, first_row: int = 0) -> None:
    """Confidences (n,) in [0, 1]."""
    bad = ~((confidence >= 0) & (confidence <= 1))
    if bad.any():
        value = confidence[first_true(bad)].item()
        rule = "not be NaN" if math.isnan(value) else "lie in [0, 1]"
        advice = ": divide percentages by 100" if 1 + PRIOR_TOLERANCE < value <= 100 else ""
        where = first_position(bad, first_row)
        raise InvalidInputError(f"{argument} must {rule}, got {_beyond_one(value)} at {where}{advice}")


def _beyond_one(value: float) -> str:
    """A number that is no probability, with all digits where it is 1 but for rounding."""
    return repr(value) if f"{value:g}" == "1" else f"{value:g}"


def check_column_names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not found or not all(isinstance(name, str) for name in found):
        raise InvalidInputError(f"{argument} must be names of columns, got {names!r}")
    return tuple(found)


def check_dense(argument: str, values: Tensor) -> None:
    """Predictions of at least 2 classes, (n, k) or (n, k, d1, …)."""
    if values.ndim < 2 or values.shape[1] < 2:
        one = argument in ("logits", "probs") and tuple(values.shape[1:]) in ((), (1,))
        advice = f": of class 1 of two, they are for from_positive_{argument}" if one else ""
        raise InvalidInputError(f"{argument} must have shape (n, k) with k > 1, got {tuple(values.shape)}{advice}")


def check_has_mass(argument: str, logits: Tensor, first_row: int = 0) -> None:
    """Log-probabilities without NaN and +inf, and not −inf for every class of a row."""
    if logits.numel() == 0:
        return
    bad = ~logits.amax(1).isfinite()
    if not bad.any():
        return
    (row,) = first_true(bad)
    wrong = (logits[row].isnan() | (logits[row] == math.inf)).nonzero()
    if len(wrong) == 0:
        raise InvalidInputError(f"{argument} must give some class a probability, got none at row {first_row + row}")
    label = int(wrong[0])
    rule = "not be NaN" if logits[row, label].isnan() else "be less than infinity"
    got = f"got {logits[row, label].item()} at row {first_row + row}, class {label}"
    raise InvalidInputError(f"{argument} must {rule}, {got}")


def check_probabilities(
    argument: str, probs: Tensor, first_row: int, *, total: float | None, tolerance: float = PRIOR_TOLERANCE
) -> None:
    """Probabilities (n, k) in [0, 1], and of this sum in every row."""
    if probs.numel() == 0:
        return
    array = probs.numpy()  # small operations start several times faster than in torch
    sums = array.max(1) if total is None else probs.sum(1).numpy()
    least, most = (0.0, 1.0) if total is None else (total - tolerance, total + tolerance)
    if array.min() >= 0 and sums.min() >= least and sums.max() <= most:
        return
    bad = ~((probs >= 0) & (probs <= 1 + tolerance if total else probs <= 1))
    if bad.any():
        row, label = first_true(bad)
        value = probs[row, label].item()
        where = f"row {first_row + row}" + (f", class {label}" if probs.shape[1] > 1 else "")
        rule = "not be NaN" if math.isnan(value) else "lie in [0, 1]"
        raise InvalidInputError(f"{argument} must {rule}, got {_beyond_one(value)} at {where}")
    row = int(((sums < least) | (sums > most)).nonzero()[0][0])
    raise InvalidInputError(f"{argument} must sum to {total:g}, got {sums[row]:g} at row {first_row + row}")


def check_distributions(argument: str, probs: Tensor, first_row: int = 0) -> Tensor:
    """Distributions over classes (n, k), such as soft labels, as float64 of sum 1."""
    probs = probs.detach().cpu().double()
    check_probabilities(argument, probs, first_row, total=1.0)
    return probs / probs.sum(1, keepdim=True)


def check_integer_labels(argument: str, labels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Integer (or boolean) labels of this shape, as int64."""
    if labels.is_floating_point() or labels.is_complex():
        raise InvalidInputError(f"{argument} must be integers, got {labels.dtype}")
    if tuple(labels.shape) != tuple(shape):
        raise InvalidInputError(f"{argument} must have shape {tuple(shape)}, got {tuple(labels.shape)}")
    check_fits_int64(argument, labels)
    return labels.long()


def check_fits_int64(argument: str, labels: Tensor, first_row: int = 0) -> None:
    """Raise where an unsigned label would become another number as int64."""
    if labels.dtype == torch.uint64 and (beyond := labels.long() < 0).any():
        got = f"{labels[first_true(beyond)].item()} at {first_position(beyond, first_row)}"
        raise InvalidInputError(f"{argument} must be less than 2^63, got {got}")


def check_boolean_labels(argument: str, n_classes: int) -> None:
    """Booleans are the labels 0 and 1 of two classes; for more they are rather something else, such as ``correct``."""
    if n_classes != 2:
        raise InvalidInputError(f"{argument} must be integers for {n_classes} classes, got booleans")


def in_order(argument: str, what: str, values: Iterable[T]) -> Iterator[T]:
    """Several values in an order that the caller chose: not a set or a mapping, nor one text."""
    if not isinstance(values, UNORDERED):
        with suppress(TypeError, RuntimeError):  # not iterable, or a nested tensor
            return iter(values)
    raise InvalidInputError(f"{argument} must be {what} in order, got {type(values).__name__}")


def check_class_names(names: Sequence[str] | None, n_classes: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    found = tuple(in_order("class_names", "strings", names))
    if not all(isinstance(name, str) for name in found):
        raise InvalidInputError(f"class_names must be strings, got {names!r}")
    if len(found) != n_classes:
        raise InvalidInputError(f"class_names must have one name for each of {n_classes} classes, got {len(found)}")
    if (twice := repeated_name(found)) is not None:
        raise InvalidInputError(f"class_names must be distinct, got {twice!r} more than once")
    return found


def check_same_class_names(first: str, names: Sequence[str] | None, second: str, others: Sequence[str] | None) -> None:
    """Names of the same classes, in one order, where both are known; ``first`` and ``second`` say whose they are."""
    if names is None or others is None or tuple(names) == tuple(others):
        return
    pairs = enumerate(zip(names, others, strict=False))
    what = next((f"class {k} is {b!r}, not {a!r}" for k, (a, b) in pairs if a != b), f"it has {len(others)} classes")
    same = "; the names are the same: match_names (--match-names) reorders them" if set(names) == set(others) else ""
    raise InvalidInputError(f"{second} must have the class names of {first}: {what}{same}")


def repeated_name(names: Sequence[str]) -> str | None:
    """The first name that occurs more than once."""
    return None if len(set(names)) == len(names) else next(name for name in names if names.count(name) > 1)


def check_columns(columns: "Mapping[str, Any] | pa.Table | None", n: int, reserved: Iterable[str]) -> "pa.Table":
    """Columns of n values, none of a reserved name."""
    import pyarrow as pa

    if columns is None:
        columns = {}
    if isinstance(columns, pa.Table):
        pairs = list(zip(columns.column_names, columns.columns, strict=True))
    elif isinstance(columns, Mapping) or (hasattr(columns, "columns") and hasattr(columns, "items")):  # a data frame
        pairs = list(columns.items())
    else:
        raise InvalidInputError(f"columns must be a mapping of names to values, got {type(columns).__name__}")
    for name, _ in pairs:
        if not isinstance(name, str) or name in reserved:
            raise InvalidInputError(f"columns must not be named {name!r}, which is reserved")
    if (twice := repeated_name([name for name, _ in pairs])) is not None:
        raise InvalidInputError(f"columns must have distinct names, got {twice!r} more than once")
    arrays = {name: _check_column(name, values, n) for name, values in pairs}
    return pa.table(arrays or {"_": pa.nulls(n)}).select(list(arrays))


def _check_column(name: str, values: Any, n: int) -> "pa.Array | pa.ChunkedArray":
    import pyarrow as pa

    if isinstance(values, UNORDERED):
        raise InvalidInputError(f"columns must have values in order, got {type(values).__name__} in {name!r}")
    if isinstance(values, Tensor):
        check_tensor(f"column {name!r}", values)
    try:
        values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        array = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, LookupError, OverflowError) as error:
        raise InvalidInputError(f"columns must have values of one type, got others in {name!r}: {error}") from None
    if len(array) != n:
        raise InvalidInputError(f"columns must have {n} values, got {len(array)} in {name!r}")
    return plain_texts(array)


def plain_texts(column: "pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
    """Texts as one type, whatever the writer: categories, large texts and views as strings."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column


def check_features16(features: Tensor, n: int, extent: Sequence[int], first_row: int = 0) -> Tensor:
    """Features (n, f) that float16 can hold."""
    if features.ndim != 2 or len(features) != n or features.shape[1] == 0 or extent:
        what = f"{tuple(features.shape)}" + (" for dense predictions" if extent else "")
        raise InvalidInputError(f"features must have shape ({n}, f) with f > 0, got {what}")
    halves = features.half()
    good = halves.isfinite()
    check_values("features", "be finite in float16", features, good, "at row", "column", first_row=first_row)
    return halves
