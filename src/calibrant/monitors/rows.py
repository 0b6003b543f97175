"""The rows of a monitor: what is kept of each prediction, in arrays of a few bytes per row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import value_hashes
from calibrant._paths import first_line
from calibrant.errors import InvalidInputError
from calibrant.metrics.sample_scores import sample_scores, top_class
from calibrant.monitors.evidence import Floats, Integers
from calibrant.predictions import Predictions

Rows: TypeAlias = NDArray[np.void]
KEPT = [("window", "i8"), ("id", "u8"), ("unit", "u8"), ("confidence", "f8"), ("predicted", "i4"), ("label", "i4")]
ROW = np.dtype([*KEPT, ("entropy", "f8"), ("distance", "f8")])
WAITING = np.dtype(KEPT)  # of a row that waits for its label
MICROSECONDS = {"w": 604_800_000_000, "d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000}
FIRST_TIME, LAST_TIME = np.array(["0001-01-01", "9999-12-31"], "datetime64[us]").astype(np.int64).tolist()


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """The mean and the standard deviation of each feature of the reference."""

    mean: Floats
    scale: Floats

    @classmethod
    def fit(cls, features: Tensor) -> Self:
        deviation, mean = torch.std_mean(features.double(), dim=0, correction=0)
        return cls(mean.numpy(), deviation.clamp_min(1e-6).numpy())

    def distance(self, features: Tensor) -> Floats:
        """The mean square of the standardized features of each row, about 1 for those of the reference."""
        standard = (features.double().numpy() - self.mean) / self.scale
        found: Floats = np.einsum("nf,nf->n", standard, standard) / len(self.mean)
        return found


def score_rows(predictions: Predictions, scale: FeatureScale | None, cluster: str | None, salt: str) -> Rows:
    """The rows of predictions; a cluster is one unit, and another one in another file, by the salt."""
    rows = np.zeros(len(predictions), ROW)
    scores, _ = sample_scores(predictions.logits, predictions.labels.clamp(min=0))
    rows["confidence"], rows["entropy"] = scores.confidence.numpy(), scores.entropy.numpy()
    rows["predicted"], rows["label"] = top_class(predictions.logits).numpy(), predictions.labels.numpy()
    if cluster is not None:
        rows["unit"] = value_hashes(cluster, predictions.column(cluster)) ^ np.uint64(int(salt[:16], 16))
    if scale is not None:
        features = predictions.features
        if features is None or features.shape[1] != len(scale.mean):
            got = "none" if features is None else str(features.shape[1])
            raise InvalidInputError(f"predictions must have the {len(scale.mean)} features of the reference, got {got}")
        rows["distance"] = scale.distance(features)
    return rows


def labelled_units(rows: Rows, clustered: bool) -> tuple[Floats, Floats]:
    """Confidence and correctness of labelled rows, or the means over the rows of each cluster."""
    correct = (rows["label"] == rows["predicted"]).astype(np.float64)
    confidence, correct = (
        unit_means(rows["unit"], rows["confidence"], correct) if clustered else (rows["confidence"], correct)
    )
    return confidence, correct


def unit_means(units: NDArray[np.uint64], *columns: Floats) -> list[Floats]:
    """The means of columns over the rows of each unit, in order of appearance."""
    _, first, unit, size = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    return [(np.bincount(unit, column) / size)[order] for column in columns]


def first_rows(rows: Rows, clustered: bool) -> Integers:
    """The number of each row, or of the first row of its cluster."""
    if not clustered:
        return np.arange(len(rows))
    _, first, unit = np.unique(rows["unit"], return_index=True, return_inverse=True)
    return first[unit]


def by_window(windows: Integers) -> Iterator[tuple[int, Integers]]:
    """Each window, and the numbers of its rows in their order."""
    order = np.argsort(windows, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(windows[order])) + 1):
        if len(rows):
            yield int(windows[rows[0]]), rows


def parse_every(every: str | int) -> tuple[int, bool]:
    """The length of a window: in microseconds (True) or in rows (False).

    >>> parse_every("12h"), parse_every("1000")
    ((43200000000, True), (1000, False))
    """
    text = str(every).strip()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(digits) :]
    number = int(digits) if digits.isdecimal() and len(digits) < 10 else 0
    if isinstance(every, bool) or number < 1 or (unit and unit not in MICROSECONDS):
        units = ", ".join(MICROSECONDS)
        raise InvalidInputError(f"every must be a number of rows, or of {units} such as 1d or 12h, got {every!r}")
    return (number * MICROSECONDS[unit], True) if unit else (number, False)


def row_times(predictions: Predictions, name: str) -> Integers:
    """The times of a column, in microseconds since 1970 (UTC). Text is read as ISO 8601."""
    column: Any = predictions.column(name)
    if column.null_count:
        raise InvalidInputError(f"time must not be null, got {column.null_count} nulls in {name!r}")
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    try:
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            raise pa.ArrowInvalid(f"its type is {column.type}")
        if not pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us"))
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    except pa.ArrowException as error:
        raise InvalidInputError(f"time must be a column of times, got {name!r}: {first_line(error)}") from None
    found: Integers = column.cast(pa.int64()).to_numpy()
    if len(found) and not (found.min() >= FIRST_TIME and found.max() < LAST_TIME):
        raise InvalidInputError(f"time must lie in the years 1 to 9999, got others in {name!r}")
    return found
