"""Check a threshold on labelled rows: did the promise hold?"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_all_labelled, check_instance
from calibrant._signatures import checked
from calibrant.decisions.threshold import Threshold, group_rows
from calibrant.errors import InvalidInputError
from calibrant.estimates.shift_tests import ShiftTest, shift_tests
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.sample_scores import predicted_class
from calibrant.metrics.selection import cost_limits
from calibrant.predictions import Predictions

PromiseKind = Literal["held", "broken", "undecided"]


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Whether the promise held for some rows.

    Args:
        name: Of the predictions, such as a file.
        group: The group; None for all rows.
        n_rows: Number of rows; with a target class, of those that are predicted as it.
        n_accepted: How many of them are accepted.
        n_errors: How many of these are wrong.
        value: The error of accepted rows, or the cost per row; None if it is an error and no row is accepted.
        low: The lower end of its interval.
        high: The upper end.
        bound: What was promised.
        verdict: "held" if the interval is at or below the bound, "broken" if it is above it, else "undecided".
    """

    name: str
    group: str | None
    n_rows: int
    n_accepted: int
    n_errors: int
    value: float | None
    low: float
    high: float
    bound: float
    verdict: PromiseKind


@dataclass(frozen=True)
class ThresholdCheck:
    """Whether a threshold's promise held, as `check_threshold` returns it.

    Args:
        rows: For all rows of each of the predictions, and for each group.
        confidence: The level of all intervals together.
        by: The column of the groups.
        tests: By name: whether and how the predictions differ from the reference, if there was one.
    """

    rows: tuple[CheckedRows, ...]
    confidence: float
    by: str | None = None
    tests: Mapping[str, tuple[ShiftTest, ...]] = field(default_factory=dict)

    @property
    def broken(self) -> tuple[CheckedRows, ...]:
        """The rows for which the promise is broken."""
        return tuple(row for row in self.rows if row.verdict == "broken")

    def to_dict(self) -> dict[str, Any]:
        """The check as JSON values.

        Returns:
            The dictionary.
        """
        return asdict(self)


@checked
def check_threshold(
    threshold: Threshold,
    tests: Predictions | Mapping[str, Predictions],
    *,
    by: str | None = None,
    reference: Predictions | None = None,
    allow_same_rows: bool = False,
) -> ThresholdCheck:
    """Check on labelled rows whether the promise of a threshold held.

    The intervals are Clopper and Pearson's, and hold together with the confidence of the threshold: the more files and
    groups, the wider. A promise that holds for all of them is called broken for any with a chance of 1 − confidence.

    Args:
        threshold: The threshold.
        tests: Labelled predictions, or several by name.
        by: A column whose groups are checked too; by default that of the threshold.
        reference: The validation rows: adds tests whether the predictions differ from them, for then nothing is
            promised.
        allow_same_rows: Whether tests may hold rows that the threshold was made from.

    Returns:
        The check.

    Raises:
        InvalidInputError: Labels are missing; or as for ``threshold(predictions)``.
        UnknownNameError: There is no such column.
    """
    named = {"predictions": tests} if isinstance(tests, Predictions) else dict(tests)
    if not named:
        raise InvalidInputError("tests must not be empty")
    by = threshold.by if by is None else by
    counted: list[tuple[str, str | None, float, int, int, int]] = []
    shifts = {}
    for name, rows in named.items():
        check_instance("tests", rows, Predictions)
        check_all_labelled(rows.labels == UNKNOWN, name, "check a threshold")
        if not allow_same_rows:
            threshold.rows.check_disjoint(rows)
        counted += [(name, *found) for found in _count(threshold, rows, by)]
        if reference is not None:
            shifts[name] = shift_tests(rows, reference)
    level = 1 - (1 - threshold.confidence) / len(counted)
    return ThresholdCheck(
        tuple(_verdict(threshold, level, *found) for found in counted), threshold.confidence, by, shifts
    )


def _count(threshold: Threshold, rows: Predictions, by: str | None) -> list[tuple[str | None, float, int, int, int]]:
    """Overall and of each group: its name, the promise, the numbers of rows, of accepted ones, and of errors."""
    accepted, predicted = threshold.accepts(rows), predicted_class(rows)
    wrong = accepted & (predicted != rows.labels)
    kept = torch.ones_like(accepted) if threshold.target_class is None else predicted == threshold.target_class
    numbers, names = group_rows(rows, by)
    masks: list[tuple[str | None, torch.Tensor]] = [(None, kept)]
    masks += [(name, kept & (numbers == i)) for i, name in enumerate(names) if by is not None]
    found = []
    for name, mask in masks:
        n, n_accepted, n_errors = (int((part & mask).sum()) for part in (kept, accepted, wrong))
        found.append((name, _promise(threshold, name), n, n_accepted, n_errors))
    return found


def _promise(threshold: Threshold, group: str | None) -> float:
    """The bound for a group; of costs, for one that has none of its own, and for all rows, the loosest one."""
    if threshold.max_error is not None:
        return threshold.max_error
    if group in threshold.groups:
        return threshold.groups[group].bound
    return max(found.bound for found in threshold.groups.values())


def _verdict(
    threshold: Threshold,
    level: float,
    name: str,
    group: str | None,
    bound: float,
    n: int,
    n_accepted: int,
    n_errors: int,
) -> CheckedRows:
    value: float | None
    if threshold.costs is None:
        value = n_errors / n_accepted if n_accepted else None
        low, high = clopper_pearson(n_errors, n_accepted, level)
    else:
        of_error, handing_over = threshold.costs
        value = (of_error * n_errors + handing_over * (n - n_accepted)) / n if n else None
        low, high = cost_limits(n, n_accepted, n_errors, (of_error, handing_over), (1 + level) / 2)
    verdict: PromiseKind = "held" if high <= bound else "broken" if low > bound else "undecided"
    return CheckedRows(name, group, n, n_accepted, n_errors, value, low, high, bound, verdict)
