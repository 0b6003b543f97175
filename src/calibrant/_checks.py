"""All input validation: each check returns its argument in the form that the rest of the package trusts."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import InvalidInputError, UnknownNameError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_GROUPS = 10_000  # with a scorecard each; a column of more values is more likely an id
MOST_CELLS = 2**25
MIN_SIDE = 8  # pixels of an image
PRIOR_TOLERANCE = 1e-3  # a prior printed with four digits, as the paper's, still sums to 1 this closely


def check_choice(argument: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if value in known:
        return value
    near = get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    raise UnknownNameError(f"unknown {argument} {value!r}; {hint}")


def check_tensor(argument: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise InvalidInputError(f"{argument} must be a tensor, got {type(value).__name__}")


def _is_a(kind: type, value: object) -> bool:
    """Whether this is a number of that kind, of Python or of numpy; mypy takes int and float for no kind of them."""
    return isinstance(value, kind)


def check_flag(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{argument} must be True or False, got {value!r}")


def check_path(argument: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise InvalidInputError(f"{argument} must be a path, got {value!r}")
    return os.fspath(value)


def check_whole(argument: str, value: int, least: int, most: int | None = None) -> int:
    if not _is_a(Integral, value) or value < least or (most is not None and value > most):
        rule = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidInputError(f"{argument} must be an integer {rule}, got {value}")
    return int(value)


def _at_least_float32(values: Tensor) -> Tensor:
    """On the CPU, out of the graph, half precision as float32."""
    values = values.detach().cpu()
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _check_real(argument: str, value: float, rule: str, holds: Callable[[float], bool]) -> float:
    if isinstance(value, bool) or not _is_a(Real, value):
        raise InvalidInputError(f"{argument} must be a number, got {value!r}")
    if not holds(value):
        raise InvalidInputError(f"{argument} must {rule}, got {value}")
    return float(value)


def check_number(argument: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> float:
    rule = f"be a finite number in [{least:g}, {most:g}]"
    return _check_real(argument, value, rule, lambda x: least <= x <= most and math.isfinite(x))


def check_positive(argument: str, value: float) -> float:
    return _check_real(argument, value, "be a positive number", lambda x: 0 < x < math.inf)


def check_fraction(argument: str, value: float) -> float:
    return _check_real(argument, value, "lie in [0, 1)", lambda x: 0 <= x < 1)


def check_level(level: float) -> float:
    return _check_real("level", level, "lie between 0 and 1", lambda x: 0 < x < 1)


def check_bounds(argument: str, bounds: Sequence[float]) -> tuple[float, float]:
    """A positive lower and a larger upper bound."""
    pair = isinstance(bounds, Sequence) and len(bounds) == 2 and all(isinstance(bound, Real) for bound in bounds)
    if not pair or not 0 < bounds[0] < bounds[1] < math.inf:
        raise InvalidInputError(f"{argument} must be two positive numbers, the lower first, got {bounds!r}")
    return float(bounds[0]), float(bounds[1])


def check_grid(argument: str, values: Sequence[float]) -> list[float]:
    """Positive numbers, at least one."""
    if not isinstance(values, Sequence) or len(values) == 0:
        raise InvalidInputError(f"{argument} must be positive numbers, got {values!r}")
    return [check_positive(argument, value) for value in values]


def _as_float64(argument: str, values: Sequence[float] | Tensor) -> Tensor:
    if isinstance(values, Tensor) and values.is_complex():
        raise InvalidInputError(f"{argument} must be real numbers, got {values.dtype}")
    try:
        return torch.as_tensor(values, dtype=torch.float64, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(f"{argument} must be numbers: {error}") from None


def _check_vector(argument: str, values: Sequence[float] | Tensor, n_classes: int | None = None) -> Tensor:
    """A copy of the numbers as float64, one dimension, all finite, and one for each class."""
    vector = _as_float64(argument, values)
    if vector.ndim != 1:
        raise InvalidInputError(f"{argument} must have one dimension, got shape {tuple(vector.shape)}")
    _check_values(argument, "be finite", vector, vector.isfinite(), "for class")
    if n_classes is not None and len(vector) != n_classes:
        raise InvalidInputError(f"{argument} must have one value for each of {n_classes} classes, got {len(vector)}")
    return vector


def _check_shares(argument: str, values: Sequence[float] | Tensor) -> Tensor:
    """The same, and none negative."""
    vector = _check_vector(argument, values)
    if (vector < 0).any():
        row = int(vector.argmin())
        raise InvalidInputError(f"{argument} must not be negative, got {vector[row]:g} for class {row}")
    return vector


def _first(mask: Tensor) -> tuple[int, ...]:
    """Where a mask is first true."""
    return tuple(mask.nonzero()[0].tolist())


def _check_values(argument: str, rule: str, values: Tensor, good: Tensor, *names: str) -> None:
    """Every value keeps the rule; the error names the first that does not, and its place in each named dimension."""
    if not good.all():
        place = _first(~good)
        where = ", ".join(f"{name} {at}" for name, at in zip(names, place, strict=False))
        raise InvalidInputError(f"{argument} must {rule}, got {float(values[place]):g} {where}")


def _place(mask: Tensor, first_row: int = 0) -> str:
    """The same in words."""
    place = _first(mask)
    return f"row {first_row + place[0]}" if len(place) == 1 else f"position {place}"


def check_prior(prior: Sequence[float] | Tensor) -> Tensor:
    """Class probabilities, float64, scaled to sum to 1 exactly."""
    vector = _check_shares("prior", prior)
    if len(vector) < 2:
        raise InvalidInputError(f"prior must have at least 2 classes, got {len(vector)}")
    if abs(float(vector.sum()) - 1) > PRIOR_TOLERANCE:
        raise InvalidInputError(f"prior must sum to 1, got a sum of {vector.sum():g}")
    if (vector > 0).sum() < 2:
        raise InvalidInputError(f"prior must not be all in one class, got 1 for class {int(vector.argmax())}")
    return vector / vector.sum()


def check_counts(counts: Sequence[float] | Tensor) -> Tensor:
    """The prior of samples counted per class."""
    vector = _check_shares("counts", counts)
    if not vector.sum() > 0:
        raise InvalidInputError("counts must not be all 0")
    return check_prior(vector / vector.sum())


def check_train_labels(labels: Sequence[int] | Tensor, n_classes: int, ignore_index: int) -> Tensor:
    """The prior of integer labels of any shape, those to be ignored left out."""
    check_whole("n_classes", n_classes, 2)
    try:
        flat = torch.as_tensor(labels).detach().flatten().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"labels must be integers: {error}") from None
    if flat.is_floating_point() or flat.is_complex() or flat.dtype == torch.bool:
        raise InvalidInputError(f"labels must be integers, got {flat.dtype}")
    flat = flat.long()
    check_label_range(flat, n_classes, ignore_index)
    kept = flat[flat != ignore_index]
    if len(kept) == 0:
        raise InvalidInputError("labels must not be empty")
    return check_counts(torch.bincount(kept, minlength=int(n_classes)))


def check_class_values(class_values: Sequence[float] | Tensor | None, n_classes: int) -> Tensor:
    """The value of each class, by default 0, 1, …, n_classes - 1."""
    if class_values is None:
        return torch.arange(n_classes, dtype=torch.float64, device="cpu")
    values = _check_vector("class_values", class_values, n_classes)
    if (values == values[0]).all():
        raise InvalidInputError(f"class_values must not all be equal, got {values[0]:g} for every class")
    if values.abs().max() > 1e100:
        raise InvalidInputError(f"class_values must not exceed 1e100, got {values[values.abs().argmax()]:g}")
    return values


def check_no_class_values(class_values: object) -> None:
    if class_values is not None:
        raise InvalidInputError("class_values have no meaning in the form 'prior', whose features are one-hot")


def check_class_weights(class_weights: Sequence[float] | Tensor, n_classes: int | None = None) -> Tensor:
    """How much a sample of each class counts, float64."""
    weights = _check_vector("class_weights", class_weights, n_classes)
    if (weights < 0).any() or not (weights > 0).any():
        row = int(weights.argmin())
        raise InvalidInputError(f"class_weights must not be negative, nor all 0, got {weights[row]:g} for class {row}")
    return weights


def check_features(features: Tensor, n_classes: int) -> Tensor:
    """A (n_classes, n_features) matrix, float64."""
    matrix = _as_float64("features", features)
    if matrix.ndim != 2 or len(matrix) != n_classes or matrix.shape[1] == 0:
        raise InvalidInputError(f"features must have shape ({n_classes}, n_features), got {tuple(matrix.shape)}")
    _check_values("features", "be finite", matrix, matrix.isfinite(), "for class", "column")
    if not matrix.any(0).all():
        (column,) = _first(~matrix.any(0))
        raise InvalidInputError(f"features must not be 0 for every class, as column {column} is")
    return matrix


def check_targets(targets: Sequence[float] | Tensor, n_constraints: int) -> Tensor:
    """A (n, n_constraints) matrix of target moments, float64; a single row may come alone."""
    matrix: Tensor = torch.atleast_2d(_as_float64("targets", targets))
    if matrix.ndim != 2 or matrix.shape[1] != n_constraints or len(matrix) == 0:
        shape = tuple(matrix.shape[1:]) if matrix.ndim == 2 else tuple(matrix.shape)
        raise InvalidInputError(f"targets must give {n_constraints} moments, got shape {shape}")
    if not matrix.isfinite().all():
        raise InvalidInputError(f"targets must be finite, got {matrix[~matrix.isfinite()][0]}")
    return matrix


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
        got = f"{int(labels[_first(bad)])} at {_place(bad, first_row)}"
        raise InvalidInputError(f"{argument} must lie in [0, {n_classes - 1}], got {got}")
    return ignore_index is None or not bool((labels == ignore_index).any())


def check_logits(logits: Tensor, labels: Tensor | None, ignore_index: int) -> tuple[float, float]:
    """Least and greatest logit; all are finite, except where integer labels say that they do not count."""
    if logits.numel() == 0:
        return 0.0, 0.0
    low, high = (float(bound) for bound in logits.detach().aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    bad = ~logits.detach().isfinite()
    if labels is not None:
        bad &= (labels != ignore_index).unsqueeze(1)
    if bad.any():
        row, label, *rest = _first(bad)
        where = f"row {row}, class {label}" + (f", position {tuple(rest)}" if rest else "")
        raise InvalidInputError(f"logits must be finite, got {logits[row, label, *rest].item()} at {where}")
    return low, high


def check_shapes(logits: Tensor, labels: Tensor) -> bool:
    """Whether the labels are soft, (n, k, …) as the logits; integer labels have no class dimension."""
    check_tensor("labels", labels)
    if logits.ndim < 2 or not logits.is_floating_point():
        what = f"shape {tuple(logits.shape)} of {logits.dtype}"
        raise InvalidInputError(f"logits must be floating point, (n, k) or (n, k, d1, …), got {what}")
    if logits.shape[1] < 2:
        raise InvalidInputError(f"logits must have at least 2 classes, got shape {tuple(logits.shape)}")
    soft = labels.is_floating_point()
    expected = logits.shape if soft else (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected or labels.dtype == torch.bool or labels.is_complex():
        rule = f"integers of shape {(len(logits), *logits.shape[2:])} or probabilities of shape {tuple(logits.shape)}"
        raise InvalidInputError(f"labels must be {rule}, got shape {tuple(labels.shape)} of {labels.dtype}")
    return soft


def check_soft_labels(labels: Tensor) -> None:
    """Probabilities (n, k, …) that sum to 1 over the classes, as closely as their type can."""
    totals = labels.sum(1, dtype=torch.float32)
    tolerance = max(1e-3, 2 * torch.finfo(labels.dtype).eps)
    wrong = ~((totals - 1).abs() <= tolerance)
    if wrong.any():
        raise InvalidInputError(f"labels must sum to 1, got {float(totals[_first(wrong)]):g} at {_place(wrong)}")
    _check_values("labels", "not be negative", labels, labels >= 0, "at row", "class")


def check_all_labelled(unknown: Tensor, argument: str = "predictions", purpose: str = "be scored") -> None:
    if unknown.any():
        got = f"{int(unknown.sum()):,} of {len(unknown):,} rows have none, the first is {_place(unknown)}"
        raise InvalidInputError(f"{argument} must have labels to {purpose}; {got}")


def check_predictions(argument: str, value: Any) -> Any:
    """Predictions, or what else has logits and labels of rows."""
    if not hasattr(value, "row_hashes"):
        raise InvalidInputError(f"{argument} must be Predictions, got {type(value).__name__}")
    return value


def check_names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not found or not all(isinstance(name, str) for name in found):
        raise InvalidInputError(f"{argument} must be names of columns, got {names!r}")
    return tuple(found)


def check_same_classes(
    method: str, n_classes: int, got: int, names: Sequence[str] | None = None, got_names: Sequence[str] | None = None
) -> None:
    if got != n_classes:
        raise InvalidInputError(f"predictions must have the {n_classes} classes that {method} was fitted on, got {got}")
    if names is not None and got_names is not None and names != got_names:
        pairs = zip(names, got_names, strict=True)
        what = next(f"class {k} was {a!r} and is {b!r}" for k, (a, b) in enumerate(pairs) if a != b)
        raise InvalidInputError(f"predictions must have the classes that {method} was fitted on; {what}")


def check_two_classes(method: str, n_classes: int) -> None:
    if n_classes != 2:
        raise InvalidInputError(f"{method} is for two classes, validation has {n_classes}")


def check_shape(argument: str, values: Tensor, shape: tuple[int | None, ...]) -> None:
    """Float64 numbers of this shape, any size where it says None."""
    fits = values.ndim == len(shape) and all(s in (None, got) for s, got in zip(shape, values.shape, strict=True))
    if not fits or values.dtype != torch.float64:
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InvalidInputError(f"{argument} must be float64 of shape ({wanted}), got {got}")


def check_rising(argument: str, values: Tensor) -> None:
    if bool((values.diff(dim=-1) < 0).any()):
        raise InvalidInputError(f"{argument} must not fall")


def check_within(argument: str, values: Tensor, low: float, high: float) -> None:
    if values.numel() == 0 or float(values.min()) < low or float(values.max()) > high:
        raise InvalidInputError(f"{argument} must lie in [{low:g}, {high:g}]")


def check_feature_count(method: str, n_features: int, got: int) -> None:
    if got != n_features:
        raise InvalidInputError(f"features must be the {n_features} that {method} knows, got {got}")


def check_folds(folds: int, n_rows: int) -> int:
    check_whole("folds", folds, 2)
    if folds > n_rows:
        raise InvalidInputError(f"folds must be at most the {n_rows} rows, got {folds}")
    return int(folds)


def check_known_features(method: str, features: Tensor | None, argument: str = "predictions") -> Tensor:
    if features is None:
        remedy = "give them with with_features(…), or --features FILE"
        raise InvalidInputError(f"{argument} must have features for {method}; {remedy}")
    return features


def check_likely_labels(logits: Tensor, labels: Tensor) -> None:
    """Labels (n,) that none of the rows calls impossible."""
    impossible = logits.gather(1, labels.unsqueeze(1)).squeeze(1) == -math.inf
    if impossible.any():
        got = f"0 for class {int(labels[_first(impossible)])} at {_place(impossible)}"
        raise InvalidInputError(f"labels must have a probability above 0, got {got}")


def check_group_count(by: str, n_groups: int, n_cells: int) -> None:
    """So many groups that their sums fit into memory; ``n_cells`` is the number of bins of all classes."""
    most = max(1, min(MOST_GROUPS, MOST_CELLS // n_cells))
    if n_groups > most:
        raise InvalidInputError(f"by must name a column of at most {most:,} values, got more in {by!r}")


def check_row_weights(weights: Tensor, n: int) -> Tensor:
    """How much each of n rows counts, float64."""
    check_tensor("weights", weights)
    if weights.shape != (n,) or weights.is_complex():
        raise InvalidInputError(f"weights must be {n} numbers, got {weights.dtype} of shape {tuple(weights.shape)}")
    vector = weights.detach().double().cpu()
    known = (vector >= 0) & vector.isfinite()
    _check_values("weights", "be finite and not negative", vector, known, "at row")
    usual = (vector == 0) | ((vector >= 1e-100) & (vector <= 1e100))
    _check_values("weights", "be 0 or lie in [1e-100, 1e100]", vector, usual, "at row")
    return vector


def check_counting(weights: Tensor) -> Tensor:
    """Which rows have a weight; some must."""
    counts = weights > 0
    if not counts.any():
        raise InvalidInputError(f"weights must not be all 0, as those of all {len(weights)} rows are")
    return counts


def check_outcomes(
    confidence: Tensor, correct: Tensor, weights: Tensor | None = None, n_bins: int = 1
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Confidences (n,) in [0, 1], at least float32, and whether each prediction was right; without rows of weight 0."""
    check_tensor("confidence", confidence)
    check_tensor("correct", correct)
    check_whole("n_bins", n_bins, 1)
    if confidence.ndim != 1 or confidence.shape != correct.shape or len(confidence) == 0:
        shapes = f"{tuple(confidence.shape)} and {tuple(correct.shape)}"
        raise InvalidInputError(f"confidence and correct must have the same shape (n,) with n > 0, got {shapes}")
    if correct.dtype != torch.bool or not confidence.is_floating_point():
        what = f"{confidence.dtype} and {correct.dtype}"
        raise InvalidInputError(f"confidence must be floating point and correct must be boolean, got {what}")
    confidence = _at_least_float32(confidence)
    low, high = confidence.aminmax()
    if not (low >= 0 and high <= 1):
        _check_values("confidence", "lie in [0, 1]", confidence, (confidence >= 0) & (confidence <= 1), "at row")
    return _counting_rows(confidence, correct.cpu(), weights)


def _counting_rows(a: Tensor, b: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Without the rows of weight 0."""
    if weights is None:
        return a, b, None
    weights = check_row_weights(weights, len(a))
    counts = check_counting(weights)
    return a[counts], b[counts], weights[counts]


def check_dense(argument: str, values: Tensor) -> None:
    """Predictions of at least 2 classes, (n, k) or (n, k, d1, …)."""
    if values.ndim < 2 or values.shape[1] < 2:
        raise InvalidInputError(f"{argument} must have shape (n, k) with k > 1, got {tuple(values.shape)}")


def check_has_mass(argument: str, logits: Tensor, first_row: int = 0) -> None:
    """Log-probabilities without NaN and +inf, and not −inf for every class of a row."""
    if logits.numel() == 0:
        return
    bad = ~logits.amax(1).isfinite()
    if not bad.any():
        return
    (row,) = _first(bad)
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
    array = probs.numpy()  # whose small operations start several times as fast as torch's
    sums = array.max(1) if total is None else probs.sum(1).numpy()
    least, most = (0.0, 1.0) if total is None else (total - tolerance, total + tolerance)
    if array.min() >= 0 and sums.min() >= least and sums.max() <= most:
        return
    bad = ~((probs >= 0) & (probs <= 1 + tolerance if total else probs <= 1))
    if bad.any():
        row, label = _first(bad)
        value = probs[row, label].item()
        where = f"row {first_row + row}" + (f", class {label}" if probs.shape[1] > 1 else "")
        rule = "not be NaN" if math.isnan(value) else "lie in [0, 1]"
        raise InvalidInputError(f"{argument} must {rule}, got {value:g} at {where}")
    row = int(((sums < least) | (sums > most)).nonzero()[0][0])
    raise InvalidInputError(f"{argument} must sum to {total:g}, got {sums[row]:g} at row {first_row + row}")


def check_integer_labels(argument: str, labels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Integer (or boolean) labels of this shape, as int64."""
    if labels.is_floating_point() or labels.is_complex():
        raise InvalidInputError(f"{argument} must be integers, got {labels.dtype}")
    if tuple(labels.shape) != tuple(shape):
        raise InvalidInputError(f"{argument} must have shape {tuple(shape)}, got {tuple(labels.shape)}")
    return labels.long()


def check_class_names(names: Sequence[str] | None, n_classes: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    found = tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        raise InvalidInputError(f"class_names must be strings, got {names!r}")
    if len(found) != n_classes:
        raise InvalidInputError(f"class_names must have one name for each of {n_classes} classes, got {len(found)}")
    return found


def check_columns(columns: "Mapping[str, Any] | pa.Table | None", n: int, reserved: Iterable[str]) -> "pa.Table":
    """Columns of n values, none of a reserved name."""
    import pyarrow as pa

    if columns is None or len(columns) == 0:
        return pa.table({"_": pa.nulls(n)}).drop_columns("_")
    if isinstance(columns, pa.Table):
        columns = dict(zip(columns.column_names, columns.columns, strict=True))
    arrays = {}
    for name, values in columns.items():
        if not isinstance(name, str) or name in reserved:
            raise InvalidInputError(f"columns must not be named {name!r}, which is reserved")
        try:
            plain = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
            arrays[name] = plain if isinstance(plain, pa.ChunkedArray | pa.Array) else pa.array(plain)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidInputError(f"columns must be lists of one type, not so in {name!r}: {error}") from None
        if len(arrays[name]) != n:
            raise InvalidInputError(f"columns must have {n} values, got {len(arrays[name])} in {name!r}")
    return pa.table(arrays)


def check_features16(features: Tensor, n: int, extent: Sequence[int]) -> Tensor:
    """Features (n, f) that float16 can hold."""
    if features.ndim != 2 or len(features) != n or extent:
        what = f"{tuple(features.shape)}" + (" for dense predictions" if extent else "")
        raise InvalidInputError(f"features must have shape ({n}, f), got {what}")
    halves = features.half()
    _check_values("features", "be finite in float16", features, halves.isfinite(), "at row", "column")
    return halves


def check_labelled(argument: str, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers (n, k), at least float32, with labels (n,) that are classes."""
    check_tensor(argument, values)
    check_tensor("labels", labels)
    check_dense(argument, values)
    if values.ndim != 2 or not values.is_floating_point() or len(values) == 0:
        what = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InvalidInputError(f"{argument} must be floating point of shape (n, k) with n > 0, got {what}")
    labels = check_integer_labels("labels", labels.detach().cpu(), (len(values),))
    check_label_range(labels, values.shape[1], None)
    return _at_least_float32(values), labels


def check_scored(logits: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows to be measured: logits (n, k), at least float32, with labels (n,) that are classes; without weight 0."""
    logits, labels = check_labelled("logits", logits, labels)
    check_has_mass("logits", logits)
    return _counting_rows(logits, labels, weights)


def check_same_rows(a: Tensor, b: Tensor, classes_a: int, classes_b: int) -> None:
    """Two models' predictions of the same rows have the same labels."""
    if len(a) != len(b) or classes_a != classes_b:
        got = f"{len(a)} rows of {classes_a} classes and {len(b)} of {classes_b}"
        raise InvalidInputError(f"a and b must be predictions of the same rows, got {got}")
    if not torch.equal(a, b):
        place = _first(a != b)
        got = f"labels {int(a[place])} and {int(b[place])} at row {place[0]}"
        raise InvalidInputError(f"a and b must be predictions of the same rows in the same order, got {got}")


def check_multilabel(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Finite logits (n, k), at least float32, and labels (n, k) of 0 and 1."""
    check_tensor("logits", logits)
    check_tensor("labels", labels)
    if logits.ndim != 2 or not logits.is_floating_point() or 0 in logits.shape:
        got = f"{logits.dtype}, {tuple(logits.shape)}"
        raise InvalidInputError(f"logits must be floating point of shape (n, k), got {got}")
    labels = labels.detach().cpu()
    if labels.is_floating_point() and bool(((labels == 0) | (labels == 1)).all()):
        labels = labels.long()  # as the losses of multi-label models take them
    labels = check_integer_labels("labels", labels, tuple(logits.shape))
    check_label_range(labels, 2, None)
    _check_values("logits", "be finite", logits, logits.isfinite(), "at row", "class")
    return _at_least_float32(logits), labels


def check_images(images: object) -> Tensor:
    """A batch of images as uint8 (n, c, h, w), from a tensor or a Pillow image."""
    batch = images if isinstance(images, Tensor) else _check_pillow(images)
    if batch.layout != torch.strided:
        raise InvalidInputError(f"images must be a dense tensor, got {batch.layout}")
    if batch.ndim not in (3, 4):
        raise InvalidInputError(f"images must be (n, c, h, w) or (c, h, w), got shape {tuple(batch.shape)}")
    batch = batch.detach() if batch.ndim == 4 else batch.detach()[None]
    n, channels, height, width = batch.shape
    if n == 0:
        raise InvalidInputError("images must not be an empty batch")
    if channels not in (1, 3):
        raise InvalidInputError(f"images must have 1 or 3 channels, (n, c, h, w), got {channels}")
    if min(height, width) < MIN_SIDE:
        raise InvalidInputError(f"images must have sides of at least {MIN_SIDE} pixels, got {height} x {width}")
    if batch.dtype == torch.uint8:
        return batch.contiguous()
    if batch.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise InvalidInputError(f"images must be uint8 or floating point in [0, 1], got {batch.dtype}")
    return _check_levels(batch)


def _check_levels(batch: Tensor) -> Tensor:
    """Images in [0, 1] as the nearest of 256 levels."""
    wrong = ~((batch >= 0) & (batch <= 1))
    if wrong.any():
        row, channel, y, x = _first(wrong)
        value = float(batch[row, channel, y, x])
        where = f"at image {row}, channel {channel}, row {y}, column {x}"
        raise InvalidInputError(f"images must lie in [0, 1], got {value:g} {where}; images of 0 to 255 must be uint8")
    wide = batch if batch.dtype == torch.float64 else batch.float()
    return wide.mul(255).round_().to(torch.uint8)


def _check_pillow(image: object) -> Tensor:
    from PIL import Image

    if not isinstance(image, Image.Image):
        raise InvalidInputError(f"images must be a tensor or a Pillow image, got {type(image).__name__}")
    if image.mode not in ("L", "RGB"):
        raise InvalidInputError(f"images must be in grey (L) or RGB, got mode {image.mode}; convert('RGB') makes it so")
    return torch.from_numpy(np.array(image)).view(*image.size[::-1], -1).permute(2, 0, 1)


def check_keys(keys: Sequence[int | str] | Tensor | None, n_images: int) -> Sequence[int | str]:
    """A key for each image, 0, 1, … where none are given."""
    if keys is None:
        return range(n_images)
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | Tensor | np.ndarray):
        raise InvalidInputError(f"keys must be a sequence of integers or words, got {type(keys).__name__}")
    known = np.atleast_1d(np.asarray(keys)).tolist() if isinstance(keys, Tensor | np.ndarray) else list(keys)
    if len(known) != n_images:
        raise InvalidInputError(f"keys must be one for each of {n_images} images, got {len(known)}")
    for row, key in enumerate(known):
        if not isinstance(key, str) and not _is_a(Integral, key):
            raise InvalidInputError(f"keys must be integers or words, got {key!r} at row {row}")
    return known
