"""A threshold above which rows are accepted: what was promised of it, JSON on disk, and its use on new predictions."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, final

import torch
from torch import Tensor

from calibrant._checks import check_class_names, check_integer, check_level, check_same_kind, repeated_name
from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.calibrators.apply import write_batches
from calibrant.calibrators.checks import check_same_classes
from calibrant.calibrators.history import calibrators_of, check_same_calibrators
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.store import decode_fields, encode, read_record, write_record
from calibrant.decisions.scores import score_values
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.sample_scores import predicted_class
from calibrant.predictions import Predictions
from calibrant.scan import Scan

KIND = "threshold"  # of the JSON file, and the key of what `apply_threshold` writes
ACCEPTED = "accepted"  # the column
OVERALL = "overall"  # the group of all rows where there is no column of groups


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """The threshold of all rows or of one group, and the rows that it was made from.

    Args:
        value: Rows of a larger score are accepted: all for −inf, none for inf.
        bound: The promise: an upper bound of the error of accepted rows, or of the expected cost per row. After
            adaptation, an estimate.
        n_rows: Number of rows.
        n_accepted: How many of them are accepted.
        n_errors: How many of these are wrong; None if it is not known.
        least_rows: The smallest number of rows with which anything could be promised, none of them wrong.
        rows_needed: If none is accepted: about how many rows it would take at the error of the surest ones; None where
            these are wrong too often.
    """

    value: float
    bound: float
    n_rows: int
    n_accepted: int
    n_errors: int | None = None
    least_rows: int = 1
    rows_needed: int | None = None

    @property
    def share(self) -> float:
        """The share of rows that are accepted."""
        return self.n_accepted / max(1, self.n_rows)

    @checked
    def share_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Clopper and Pearson's interval of the share of rows that are accepted.

        Args:
            level: Its level.

        Returns:
            The limits.
        """
        return clopper_pearson(self.n_accepted, self.n_rows, check_level(level))


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Threshold:
    """Which rows to accept, made by `certify`; ``threshold(test)`` adds the column accepted.

    Args:
        groups: The threshold of each group by its value as text, or of all rows as "overall".
        score: A name in `SCORES`, or a column.
        by: The column of the groups.
        max_error: The promised largest error of accepted rows.
        costs: The costs of an error and of handing over, if these are minimized.
        confidence: The probability that the promise holds for all groups.
        certified: Whether the promise is proven; False after adaptation.
        method: A name in `SELECTORS`.
        target_class: The class whose predictions may be accepted; None for all.
        calibrators: The calibrators of the rows that it was made from, the last first; empty without any.
        n_classes: Number of classes.
        class_names: Their names, if validation had them.
        rows: Hashes of the validation rows.
        top_label: Whether validation had only the confidence of the predicted class.
    """

    groups: dict[str, AcceptedRows]
    score: str
    by: str | None
    max_error: float | None
    costs: tuple[float, ...] | None
    confidence: float
    certified: bool
    method: str
    target_class: int | None
    calibrators: tuple[str, ...]
    n_classes: int
    class_names: tuple[str, ...] | None
    rows: RowSketch
    top_label: bool = False

    @checked
    def __call__(self, predictions: Predictions, *, allow_same_rows: bool = False) -> Predictions:
        """Decide which rows to accept.

        Args:
            predictions: Rows of the same classes, calibrated in the same way. Labels are not needed.
            allow_same_rows: Whether to decide on rows that the threshold was made from.

        Returns:
            The same rows with a column of booleans, accepted. Rows of groups that validation lacks are not accepted.

        Raises:
            InvalidInputError: The rows are those of validation, have other classes or another calibration, or have a
                column accepted.
            UnknownNameError: The column of groups or scores is missing.
        """
        if not allow_same_rows:
            self.rows.check_disjoint(predictions)
        return self.decide(predictions)

    def decide(self, predictions: Predictions) -> Predictions:
        """The same without checking for rows of validation."""
        found = predictions.with_columns({ACCEPTED: self.accepts(predictions)})
        return replace(found, metadata={**predictions.metadata, KIND: self.record})

    def accepts(self, predictions: Predictions) -> Tensor:
        """(n,) which rows are accepted. Raises: as `__call__`, for other classes, calibration or columns."""
        names, got = self.class_names, predictions.class_names
        check_same_kind("validation of the threshold", self, "predictions", predictions)
        check_same_classes("the threshold", self.n_classes, predictions.n_classes, names, got)
        check_same_calibrators(self.calibrators, calibrators_of(predictions))
        numbers, groups = group_rows(predictions, self.by)
        values = [self.groups[name].value if name in self.groups else math.inf for name in groups]
        accepted = score_values(predictions, self.score) > torch.tensor(values, dtype=torch.float64)[numbers]
        if self.target_class is not None:
            accepted &= predicted_class(predictions) == self.target_class
        return accepted

    @property
    def record(self) -> dict[str, Any]:
        """What the metadata of predictions say of the threshold."""
        return {"score": self.score, "certified": self.certified, "made_from": self.rows.fingerprint}

    def to_dict(self) -> dict[str, Any]:
        """The threshold as JSON values, without the hashes of rows.

        Returns:
            The dictionary; each group has also the share accepted, with its 95 % interval.
        """
        found = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "rows"}
        found["groups"] = {
            name: {**asdict(group), "share": group.share, "share_interval": group.share_interval()}
            for name, group in self.groups.items()
        }
        return found

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, atomically.

        Args:
            path: The file to write.
        """
        parameters = {item.name: getattr(self, item.name) for item in fields(self)}
        write_record(path, encode({KIND: self.score, "parameters": parameters}), KIND)


@checked
def load_threshold(path: str | os.PathLike[str]) -> Threshold:
    """Load a threshold.

    Args:
        path: A JSON file that `Threshold.save` or `calibrant certify` wrote.

    Returns:
        The threshold.

    Raises:
        NoDataError: There is no such file.
        CorruptFileError: The file is not a threshold.
    """
    record = read_record(path, KIND)
    try:
        found = decode_fields(Threshold, record["parameters"])
        check_class_names(found.class_names, check_integer("n_classes", found.n_classes, 2))
        if (found.max_error is None) == (found.costs is None):
            raise InvalidInputError("it must have either max_error or costs")
        return found
    except (CalibrantError, KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{os.fspath(path)} is damaged: {first_line(error)}") from None


@checked
def apply_threshold(
    threshold: Threshold,
    scan: Scan,
    output: str | os.PathLike[str],
    *,
    allow_same_rows: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[int, int]:
    """Decide on the rows of a scan and write them, with all of their columns, to one Parquet file.

    A file that an earlier call wrote is replaced atomically, another one is not. Batches are read one at a time.

    Args:
        threshold: The threshold.
        scan: The predictions, from `Predictions.scan`. Labels are not needed.
        output: The file to write.
        allow_same_rows: Whether to decide on rows that the threshold was made from.
        progress: Called after each batch with the number of bytes read.

    Returns:
        The number of rows, and how many of them are accepted.

    Raises:
        InvalidInputError: As for ``threshold(predictions)``; or the output is a file of the scan, or one that no
            threshold wrote. No file is then written.
    """
    n_accepted = 0

    def decided(batch: Predictions, _: int) -> Predictions:
        nonlocal n_accepted
        found = threshold.decide(batch)
        n_accepted += int(found.column(ACCEPTED).to_numpy().sum())
        return found

    known = None if allow_same_rows else threshold.rows
    n_rows = write_batches(decided, scan, output, key=KIND, fitted_on=known, progress=progress)
    return n_rows, n_accepted


def group_rows(predictions: Predictions, by: str | None) -> tuple[Tensor, Sequence[str]]:
    """The number of each row's group, and the names of the groups: their values as text."""
    if by is None:
        return torch.zeros(len(predictions), dtype=torch.int64), (OVERALL,)
    numbers, values = predictions.groups(by)
    names = tuple(map(str, values))
    if (twice := repeated_name(names)) is not None:
        raise InvalidInputError(f"by must have values of different text, got {twice!r} twice in {by!r}")
    return torch.from_numpy(numbers), names
