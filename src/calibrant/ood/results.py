"""What an out-of-distribution score detects: the findings of one score, and of several on the same files."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import torch
from torch import Tensor

from calibrant._arrays import ArrayLike, floats
from calibrant._checks import check_level
from calibrant._files import check_output
from calibrant._parquet import open_parquet, write
from calibrant._paths import filesystem_of
from calibrant._signatures import checked
from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.ood.separation import (
    ScoreCounts,
    auroc,
    auroc_limits,
    average_precision,
    average_precision_limits,
    fpr_at_95_tpr,
    fpr_limits,
    tpr_threshold,
)

ROW_COLUMNS = (pa.field("outside", pa.bool_()), pa.field("row", pa.int64()))
WRITTEN_ROWS = 2**17  # at a time


@dataclass(frozen=True)
class Detection:
    """How well a score separates rows of known data, inside, from others, outside.

    Args:
        method: The name of the score.
        n_inside: The number of inside rows.
        n_outside: The number of outside rows.
        auroc: The probability that an outside row scores higher than an inside one; ties count half.
        aupr: The average precision with the outside rows as the positive class: the mean, over the outside rows, of the
            share of outside rows among all that score at least as high. A constant score has the share of outside rows
            in all rows.
        fpr_at_95_tpr: The share of the outside rows that are accepted where 95 % of the inside rows are: the positive
            class of these two rates is inside, as in the literature.
        threshold: The least score at or below which at least 95 % of the inside rows are; these are accepted.
        level: The level of the intervals.
        intervals: Those of auroc, aupr and fpr_at_95_tpr.
    """

    method: str
    n_inside: int
    n_outside: int
    auroc: float
    aupr: float
    fpr_at_95_tpr: float
    threshold: float
    level: float
    intervals: Mapping[str, tuple[float, float]]

    @classmethod
    @checked
    def of(cls, inside: ArrayLike, outside: ArrayLike, *, method: str = "score", level: float = 0.95) -> Self:
        """The findings of scores from anywhere; a higher score means more likely outside.

        Args:
            inside: (n,) scores of inside rows.
            outside: (m,) scores of outside rows.
            method: The name of the score.
            level: The level of the intervals.

        Returns:
            The findings.

        Raises:
            InvalidInputError: There are no rows, or a score is not finite.

        >>> found = Detection.of([0.1, 0.2, 0.2, 0.4], [0.2, 0.6])
        >>> found.auroc, found.aupr, found.fpr_at_95_tpr, found.threshold
        (0.75, 0.7, 0.5, 0.4)
        """
        check_level(level)
        counts = ScoreCounts.of(_check_scores("inside", inside), _check_scores("outside", outside))
        return cls(
            method=method,
            n_inside=counts.n_inside,
            n_outside=counts.n_outside,
            auroc=auroc(counts),
            aupr=average_precision(counts),
            fpr_at_95_tpr=fpr_at_95_tpr(counts),
            threshold=tpr_threshold(counts),
            level=level,
            intervals={
                "auroc": auroc_limits(counts, level),
                "aupr": average_precision_limits(counts, level),
                "fpr_at_95_tpr": fpr_limits(counts, level),
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values.

        Returns:
            The dictionary.
        """
        return {**vars(self), "intervals": {name: list(pair) for name, pair in self.intervals.items()}}


def _check_scores(argument: str, scores: ArrayLike) -> Tensor:
    values = floats(argument, scores).double()
    if values.ndim != 1 or len(values) == 0:
        raise InvalidInputError(f"{argument} must have shape (n,) with n > 0, got {tuple(values.shape)}")
    if not bool(values.isfinite().all()):
        row = int((~values.isfinite()).nonzero()[0])
        raise InvalidInputError(f"{argument} must be finite, got {float(values[row])} at row {row}")
    return values


@dataclass(frozen=True, eq=False)
class DetectionComparison:
    """The findings of several scores on the same rows.

    Args:
        detections: One for each score, that of the highest AUROC first.
        left_out: Why other scores cannot be computed, by name.
        inside: (n,) of the inside rows, by name.
        outside: (m,) of the outside rows, by name.
    """

    detections: tuple[Detection, ...]
    left_out: Mapping[str, str]
    inside: Mapping[str, Tensor] = field(repr=False)
    outside: Mapping[str, Tensor] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The findings as JSON values, without the scores of the rows.

        Returns:
            The dictionary.
        """
        return {"detections": [found.to_dict() for found in self.detections], "left_out": dict(self.left_out)}

    @checked
    def save_scores(self, path: str | os.PathLike[str]) -> None:
        """Write the scores of all rows to a Parquet file, atomically.

        Its columns are ``outside``, ``row`` (the number of the row among the inside or outside rows) and one for each
        score. A file of such scores is replaced, any other is not.

        Args:
            path: A path or an fsspec URL.

        Raises:
            InvalidInputError: There is a file of another kind.
            ResourceError: The file cannot be written.
        """
        check_scores_output(path)
        schema = pa.schema([*ROW_COLUMNS, *(pa.field(name, pa.float64()) for name in self.inside)])
        write(path, self._batches(schema), schema)

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for outside, scores in ((False, self.inside), (True, self.outside)):
            number = torch.arange(len(next(iter(scores.values()))))
            for rows in number.split(WRITTEN_ROWS):
                columns = [rows, *(values[rows] for values in scores.values())]
                arrays = [pa.array([outside] * len(rows)), *(pa.array(column.numpy()) for column in columns)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_scores_output(path: str | os.PathLike[str], inputs: Iterable[str] = ()) -> None:
    """Check that `save_scores` can write a file that is no input. Raises: InvalidInputError, ResourceError."""
    check_output(path, "a Parquet file", inputs)
    filesystem, name = filesystem_of(os.fspath(path))
    if not filesystem.isfile(name) or not filesystem.size(name):
        return
    try:
        with open_parquet(os.fspath(path), os.fspath(path)) as file:
            known = list(file.schema_arrow)[: len(ROW_COLUMNS)] == list(ROW_COLUMNS)
    except CalibrantError:
        known = False
    if not known:
        raise InvalidInputError(f"{os.fspath(path)} exists, and is of another kind: choose another name, or remove it")
