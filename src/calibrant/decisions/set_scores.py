"""Scores of prediction sets: coverage with exact intervals, by size, class and group; sums that merge by addition."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv

from calibrant._arrays import UNKNOWN, first_null
from calibrant._checks import check_all_classes, check_all_labelled, check_level
from calibrant._names import SET_SCORES
from calibrant._signatures import checked
from calibrant.audits.gates import Gate
from calibrant.decisions.prediction_sets import COLUMN, KEY
from calibrant.errors import InvalidInputError
from calibrant.estimates.base import Quantity
from calibrant.metrics.checks import check_group_count
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.scoring import batches_of
from calibrant.predictions import Predictions
from calibrant.scan import Scan

N_LIKELY = 2000  # coverages of equal probability, in place of an integral over their distribution
Counts: TypeAlias = NDArray[np.int64]
K = TypeVar("K")


class SetGate(Gate):
    """A condition such as ``coverage < 0.88`` on scores of prediction sets."""

    names: ClassVar[Collection[str]] = SET_SCORES


class Promise(NamedTuple):
    """For which coverage sets were made, from how many rows.

    Attributes:
        coverage: The coverage.
        effective_rows: The number of rows of the fit, less if they were weighted.
    """

    coverage: float
    effective_rows: float

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self | None:
        """From the metadata of predictions; None if they have none."""
        record = metadata.get(KEY)
        values = [record.get(name) for name in cls._fields] if isinstance(record, dict) else []
        coverage, rows = (value if isinstance(value, float) else 0.0 for value in values or (0.0, 0.0))
        return cls(coverage, rows) if 0 < coverage < 1 <= rows < math.inf else None

    def p_value(self, found: "SetScores") -> float:
        """The probability that as few sets hold the label, if the rows are like those of the fit.

        The coverage of sets that were fitted to n rows is itself random, of the distribution Beta(r, n + 1 − r) with
        r = (n + 1) · coverage (Vovk 2012). This is exact for scores without ties and thresholds that all rows share.
        """
        r = (self.effective_rows + 1) * self.coverage
        likely = betaincinv(r, self.effective_rows + 1 - r, (np.arange(N_LIKELY) + 0.5) / N_LIKELY)
        return float(bdtr(int(found.sizes[1].sum()), found.n_rows, likely).mean())


class PartScores(NamedTuple):
    """The scores of a part of the rows.

    Attributes:
        n_rows: The number of rows.
        coverage: The share of sets that hold the label; the intervals of all parts hold together (Bonferroni).
        mean_size: The mean size of the sets.
    """

    n_rows: int
    coverage: Quantity
    mean_size: float

    def to_dict(self) -> dict[str, Any]:
        """The scores as JSON values."""
        return {**self._asdict(), "coverage": self.coverage._asdict()}


@dataclass(frozen=True, eq=False)
class SetScores:
    """How often prediction sets hold the label, and how large they are.

    Args:
        sizes: (2, k + 1), the number of rows, and of those whose set holds the label, by the size of the set.
        classes: (3, k), the same by label, and the total size of the sets.
        level: The level of the intervals; those of groups, of classes and of sizes hold together (Bonferroni).
        promise: The coverage for which the sets were made, if the metadata of all rows say so.
        class_names: The names of the classes.
        by: The column of the groups.
        groups: The scores of each group, by the value of the column.
    """

    sizes: Counts
    classes: Counts
    level: float
    promise: Promise | None = None
    class_names: tuple[str, ...] | None = None
    by: str | None = None
    groups: Mapping[str, "SetScores"] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return int(self.sizes[0].sum())

    @property
    def coverage(self) -> Quantity:
        """The share of sets that hold the label, with Clopper and Pearson's exact interval."""
        return share(int(self.sizes[1].sum()), self.n_rows, self.level)

    @property
    def mean_size(self) -> float:
        return float(self.sizes[0] @ np.arange(self.sizes.shape[1])) / self.n_rows

    @property
    def empty(self) -> float:
        """The share of sets without a class."""
        return float(self.sizes[0, 0]) / self.n_rows

    @property
    def single(self) -> float:
        """The share of sets of one class."""
        return float(self.sizes[0, 1]) / self.n_rows

    @property
    def by_size(self) -> dict[int, PartScores]:
        """The scores of the sets of each size that occurs."""
        totals = self.sizes[0] * np.arange(self.sizes.shape[1])
        return self._parts(range(len(totals)), np.vstack([self.sizes, totals]))

    @property
    def by_class(self) -> dict[str, PartScores]:
        """The scores of the rows of each class that occurs."""
        return self._parts(self.class_names or tuple(map(str, range(self.classes.shape[1]))), self.classes)

    def _parts(self, names: Sequence[K], counts: Counts) -> dict[K, PartScores]:
        found = {name: part.tolist() for name, part in zip(names, counts.T, strict=True) if part[0]}
        level = joint_level(self.level, len(found))
        return {name: PartScores(n, share(held, n, level), total / n) for name, (n, held, total) in found.items()}

    @property
    def worst_class(self) -> tuple[str, Quantity]:
        """The class of the least coverage."""
        return least({name: part.coverage for name, part in self.by_class.items()})

    @property
    def worst_group(self) -> tuple[str, Quantity] | None:
        """The group of the least coverage; None without groups."""
        return least({name: group.coverage for name, group in self.groups.items()}) if self.groups else None

    @property
    def gated(self) -> dict[str, float | None]:
        """The values that a gate may be about."""
        group = self.worst_group
        values = (self.coverage.value, self.mean_size, self.empty, self.single, self.worst_class[1].value)
        return dict(zip(SET_SCORES, (*values, group and group[1].value), strict=True))

    @checked
    def failed(self, gates: Sequence[str]) -> list[str]:
        """The conditions, such as "coverage < 0.88", that are true.

        Args:
            gates: Conditions on coverage, mean_size, empty, single, worst_class or worst_group.

        Returns:
            Those that are true, with the value.

        Raises:
            InvalidInputError: A gate is about the worst group, and there are no groups.
            UnknownNameError: There is no such quantity.
        """
        found, values = [], self.gated
        for gate in map(SetGate.parse, gates):
            value = values[gate.metric]
            if value is None:
                raise InvalidInputError(f"the gate {gate} needs groups: name their column with by (--by)")
            if gate.holds(value):
                found.append(f"{gate} ({gate.metric} = {value:.6g})")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The scores as JSON values; a coverage has value, low and high.

        Returns:
            The dictionary.
        """
        worst = {"worst_class": self.worst_class, "worst_group": self.worst_group}
        return {
            **{name: getattr(self, name) for name in ("n_rows", "level", "mean_size", "empty", "single")},
            "coverage": self.coverage._asdict(),
            "promise": self.promise and {**self.promise._asdict(), "p_value": self.promise.p_value(self)},
            **{name: pair and {"name": pair[0], **pair[1]._asdict()} for name, pair in worst.items()},
            "by_size": {str(size): part.to_dict() for size, part in self.by_size.items()},
            "by_class": {name: part.to_dict() for name, part in self.by_class.items()},
            "by": self.by,
            "groups": {name: group.to_dict() for name, group in self.groups.items()},
        }

    def __add__(self, other: Self) -> Self:
        """The scores of the rows of both, of the same classes, and groups of the same column."""
        groups = dict(self.groups)
        for name, group in other.groups.items():
            groups[name] = groups[name] + group if name in groups else group
        return replace(
            self,
            sizes=self.sizes + other.sizes,
            classes=self.classes + other.classes,
            promise=self.promise if self.promise == other.promise else None,
            class_names=self.class_names or other.class_names,
            groups=groups,
        )


@checked
def score_sets(
    predictions: Predictions | Iterable[Predictions],
    *,
    by: str | None = None,
    column: str = COLUMN,
    level: float = 0.95,
) -> SetScores:
    """Score prediction sets: how often they hold the label, and how large they are.

    Args:
        predictions: Labelled predictions with sets, as `ConformalSets` adds them; a scan of files, or batches.
        by: A column whose groups are scored too.
        column: The column of the sets: lists of distinct class indices, which may come from any program.
        level: The level of the intervals.

    Returns:
        The scores.

    Raises:
        InvalidInputError: There is no row, a row has no label, or a set is no list of distinct classes.
        UnknownNameError: There is no such column.

    >>> rows = Predictions.from_probs([[0.6, 0.4]] * 3, [0, 1, 1], columns={"prediction_set": [[0], [0, 1], []]})
    >>> found = score_sets(rows)
    >>> round(found.coverage.value, 3), found.mean_size, found.by_class["1"].n_rows
    (0.667, 1.0, 2)
    """
    check_level(level)
    total: SetScores | None = None
    if isinstance(predictions, Scan):
        predictions.check_labels()
    for batch in batches_of(predictions, [column] if by is None else [column, by]):
        if total is not None and batch.n_classes != total.classes.shape[1]:
            raise InvalidInputError(f"predictions must have one number of classes, got {batch.n_classes}")
        if len(batch):
            found = batch_scores(batch, by, column, level)
            total = found if total is None else total + found
    if total is None:
        raise InvalidInputError("predictions must have at least one row")
    check_group_count(by or "", len(total.groups), total.sizes.size)
    joint = joint_level(level, len(total.groups))
    return replace(total, groups={name: replace(group, level=joint) for name, group in sorted(total.groups.items())})


def batch_scores(batch: Predictions, by: str | None, column: str, level: float) -> SetScores:
    """The scores of at least one row, and of its groups."""
    check_all_classes("predictions", batch, "score prediction sets")
    check_all_labelled(batch.labels == UNKNOWN)
    labels, sizes, held = batch.labels.numpy(), *check_sets(batch, column)
    promise = Promise.of(batch.metadata) if column == COLUMN else None

    def scores(rows: Counts | slice) -> SetScores:
        parts, k = (labels[rows], sizes[rows], held[rows]), batch.n_classes
        return SetScores(*count_sets(*parts, k), level, promise, batch.class_names)

    if by is None:
        return scores(slice(None))
    number, values = batch.groups(by)
    check_group_count(by, len(values), 2 * batch.n_classes)
    groups = np.split(np.argsort(number, kind="stable"), np.bincount(number).cumsum()[:-1])
    found = {str(value): scores(rows) for value, rows in zip(values, groups, strict=True)}
    return replace(scores(slice(None)), by=by, groups=found)


def count_sets(labels: Counts, sizes: Counts, held: NDArray[np.bool_], n_classes: int) -> tuple[Counts, Counts]:
    """The counts of `SetScores`, by size and by class."""
    by_size = [np.bincount(part, minlength=n_classes + 1) for part in (sizes, sizes[held])]
    by_class = [np.bincount(part, minlength=n_classes) for part in (labels, labels[held])]
    total = np.bincount(labels, sizes, n_classes).astype(np.int64)
    return np.stack(by_size), np.stack([*by_class, total])


def check_sets(batch: Predictions, column: str) -> tuple[Counts, NDArray[np.bool_]]:
    """(n,) the size of each row's set, and whether it holds the label. Raises: InvalidInputError."""
    lists = batch.column(column).combine_chunks()
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        raise InvalidInputError(f"column {column!r} must have lists of class indices, got {kind}")
    if lists.null_count:
        raise InvalidInputError(f"column {column!r} must not be null, got null at row {first_null(lists)}")
    sizes = np.diff(lists.offsets.to_numpy())
    row, values = np.repeat(np.arange(len(sizes)), sizes), lists.flatten()
    bad = pc.fill_null(pc.or_(pc.less(values, 0), pc.greater_equal(values, batch.n_classes)), True)
    if pc.any(bad).as_py():
        position = int(bad.to_numpy(zero_copy_only=False).argmax())
        rule, got = f"lie in [0, {batch.n_classes - 1}]", values[position].as_py()
        raise InvalidInputError(f"column {column!r} must {rule}, got {got} at row {row[position]}")
    place = np.sort(row * batch.n_classes + values.to_numpy())
    twice = place[:-1][place[1:] == place[:-1]]
    if len(twice):
        where, label = divmod(int(twice[0]), batch.n_classes)
        raise InvalidInputError(f"column {column!r} must have distinct classes, got {label} twice at row {where}")
    hits = row[values.to_numpy() == batch.labels.numpy()[row]]
    return sizes.astype(np.int64), np.bincount(hits, minlength=len(sizes)) > 0


def joint_level(level: float, n: int) -> float:
    """The level of each of n intervals that hold together with at least this level."""
    return 1 - (1 - level) / max(1, n)


def share(part: float, whole: float, level: float) -> Quantity:
    """A share of rows, with Clopper and Pearson's limits."""
    return Quantity(part / whole, *clopper_pearson(part, whole, level))


def least(coverages: Mapping[str, Quantity]) -> tuple[str, Quantity]:
    return min(coverages.items(), key=lambda item: item[1].value)
