"""Whether predictions are correct: a column of truths, or a prediction and its label compared."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from calibrant._arrays import UNKNOWN, ArrayLike, as_tensor, to_tensor
from calibrant._paths import first_line
from calibrant.errors import InvalidInputError
from calibrant.reading.labels import MISSING, NAN, LabelReader

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class _CorrectReader(LabelReader):
    """Labels of two classes that say what a column of truths may hold."""

    def _advice(self, value: Any) -> str:
        return super()._advice(value) if value in NAN or value != value else ": it must be true or false, or 1 or 0"


def correct_array(correct: ArrayLike) -> pa.Array:
    """A column of whether each prediction is correct, (n,), from any array or a list with None."""
    if isinstance(correct, pa.ChunkedArray):
        return correct.combine_chunks()
    if isinstance(correct, pa.Array):
        return correct
    if isinstance(correct, list | tuple) and any(value is None for value in correct):
        try:
            return pa.array(correct)
        except pa.ArrowException as error:
            raise InvalidInputError(f"correct must be booleans, or 0 and 1: {first_line(error)}") from None
    values = to_tensor("correct", "booleans, or 0 and 1", correct)
    if values.ndim != 1:
        raise InvalidInputError(f"correct must have shape (n,), got {tuple(values.shape)}")
    return pa.array(values.numpy())


def read_correct(name: str, column: pa.Array, first_row: int = 0, *, nan_is_unknown: bool = False) -> Tensor:
    """1 where the column says true, 0 where false, −1 where it does not say.

    Raises: InvalidInputError with the first row of another value.
    """
    return _CorrectReader(name, 2, None, numbered=True, nan_is_unknown=nan_is_unknown).read(column, first_row)


def match_labels(
    names: tuple[str, str], predicted: pa.Array, label: pa.Array, first_row: int, *, texts: bool, nan_is_unknown: bool
) -> Tensor:
    """1 where the prediction is the label, 0 where not, −1 where the label is not known.

    Two texts that are both numbers are compared as numbers, as 3 and 3.0; not with ``texts``.

    Args:
        names: The columns of the predictions and of the labels, for messages.

    Raises:
        InvalidInputError: A row has no prediction although its label is known, or its label is NaN.
    """
    given, wanted = (_as_text(*pair) for pair in zip(names, (predicted, label), strict=True))
    unknown = pc.is_in(wanted, pa.array([None, *MISSING]))
    nan = pc.is_in(wanted, pa.array(NAN))
    if nan_is_unknown:
        unknown, nan = pc.or_(unknown, nan), pc.and_(nan, False)
    missing = pc.and_not(pc.is_in(given, pa.array([None, "", *NAN])), unknown)
    for name, bad, advice in (
        (names[1], nan, ": type --nan-is-unknown if it is not known yet"),
        (names[0], missing, ", whose label is known"),
    ):
        if pc.any(bad).as_py():
            row = first_row + int(np.flatnonzero(bad.to_numpy(zero_copy_only=False))[0])
            raise InvalidInputError(f"{name} must be a class, got none at row {row}{advice}")
    same = pc.fill_null(pc.equal(given, wanted), False).to_numpy(zero_copy_only=False).copy()
    if not texts:
        other = np.flatnonzero(~same)
        pair = [column.take(pa.array(other)) for column in (given, wanted)]
        numbers = pc.and_(*(pc.fill_null(pc.match_substring_regex(column, NUMBER), False) for column in pair))
        first, second = (column.filter(numbers).cast(pa.float64()).to_numpy() for column in pair)
        same[other[numbers.to_numpy(zero_copy_only=False)]] = first == second
    return as_tensor(np.where(unknown.to_numpy(zero_copy_only=False), UNKNOWN, same.astype(np.int64)))


def _as_text(name: str, column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except (pa.ArrowException, NotImplementedError) as error:
        raise InvalidInputError(f"{name} must be texts or numbers, got {column.type}: {first_line(error)}") from None
