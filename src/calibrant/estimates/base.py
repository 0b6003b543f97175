"""The contract of estimators, and what they find: accuracy and calibration of predictions without labels."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from calibrant._arrays import UNKNOWN, blocks
from calibrant._checks import check_all_classes, check_class_names, check_integer, check_level, in_order
from calibrant._names import ESTIMATED
from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.audits.gates import Gate
from calibrant.calibrators.base import check_validation
from calibrant.calibrators.checks import check_same_classes
from calibrant.calibrators.domains import clean_rows, shift_types
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.maps import MIN_SET_ROWS
from calibrant.calibrators.set_regression import LEVELS, weighted_quantiles
from calibrant.calibrators.set_statistics import set_numbers
from calibrant.calibrators.store import decode_fields, encode, write_record
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError
from calibrant.estimates.shift_tests import ShiftTest
from calibrant.predictions import Predictions

KIND = "estimator"  # of the JSON file
SETS = ("corruption", "severity")  # columns: the type of shift, "none" if there is none, and its strength
ShiftedSets: TypeAlias = list[tuple[str, Predictions]]  # the type of shift of each


class EstimateGate(Gate):
    """A condition such as ``accuracy < 0.8`` on an estimate."""

    names: ClassVar[Collection[str]] = ESTIMATED


class Quantity(NamedTuple):
    """A value with an interval.

    Attributes:
        value: The estimate.
        low: The lower end.
        high: The upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """What can be said of predictions without their labels.

    Args:
        method: The name of the estimator in `ESTIMATORS`.
        n_rows: The number of rows.
        level: The level of the intervals.
        accuracy: The estimated accuracy.
        confidence: The mean confidence of the predictions, which is known.
        gap: Confidence − accuracy: positive if the predictions are overconfident.
        ece: The estimated calibration error of the predictions as they are, if the method calibrates.
        ece_after: The calibration error that is to be expected after adaptation by the method's calibrator.
        temperature: The temperature that adaptation would take, if the method has one.
        recall: The estimated recall of each class, if the method calibrates; None for a class of less than one
            expected row.
        shifts: The types of shift whose errors the intervals include. Without any, they hold only if the target is as
            the reference.
        unlike: Whether the target is far outside what the estimator was fitted to; then no interval is to be believed.
        labels_ignored: Whether the target had labels, which were not looked at.
        tests: Whether and how the target differs from the reference.
        class_names: The names of the classes.
        by: The column of the groups.
        groups: The estimates of groups of rows, each as a set of its own, by the value of the column.
        small_groups: Groups of fewer than 20 rows, which have none.
    """

    method: str
    n_rows: int
    level: float
    accuracy: Quantity
    confidence: float
    gap: Quantity
    ece: Quantity | None = None
    ece_after: Quantity | None = None
    temperature: Quantity | None = None
    recall: tuple[Quantity | None, ...] = ()
    shifts: tuple[str, ...] = ()
    unlike: bool = False
    labels_ignored: bool = False
    tests: tuple[ShiftTest, ...] = ()
    class_names: tuple[str, ...] | None = None
    by: str | None = None
    groups: Mapping[str, "Estimate"] = field(default_factory=dict)
    small_groups: tuple[str, ...] = ()

    def failed(self, gates: Sequence[str]) -> list[str]:
        """The conditions, such as "accuracy < 0.8", that are true of the estimated values.

        Args:
            gates: Conditions on accuracy, confidence, gap, ece, ece_after or temperature.

        Returns:
            Those that are true, with the value.

        Raises:
            InvalidInputError: The method does not estimate the quantity.
            UnknownNameError: There is no such quantity.
        """
        found = []
        for gate in map(EstimateGate.parse, in_order("gates", "conditions", gates)):
            value = getattr(self, gate.metric)
            if value is None:
                raise InvalidInputError(
                    f"the gate {gate} cannot be decided: {self.method} does not estimate {gate.metric}"
                )
            number = value.value if isinstance(value, Quantity) else value
            if gate.holds(number):
                found.append(f"{gate} ({gate.metric} = {number:.6g})")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The estimate as JSON values; a quantity has value, low and high.

        Returns:
            The dictionary.
        """
        found: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            found[item.name] = value._asdict() if isinstance(value, Quantity) else value
        names = self.class_names or range(len(self.recall))
        found["recall"] = {str(k): q and q._asdict() for k, q in zip(names, self.recall, strict=False)}
        found["tests"] = [asdict(test) for test in self.tests]
        found["groups"] = {name: group.to_dict() for name, group in self.groups.items()}
        return found

    @checked
    def save_html(
        self, path: str | os.PathLike[str], *, command: Sequence[str] = (), now: datetime | None = None
    ) -> None:
        """Write the estimate as a page: one HTML file that loads nothing from a network.

        Args:
            path: A file ending in .html, which is replaced atomically.
            command: The command line to show.
            now: The time to show, by default the current one.

        Raises:
            InvalidInputError: The path is not an .html file.
            ResourceError: The folder does not exist, or the file cannot be written.
            MissingExtraError: The extra report is not installed.
        """
        from calibrant.report.estimate_page import write_estimate

        write_estimate(path, self, command=command, now=now)


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimator(ABC):
    """An estimator of accuracy without labels, made by `fit`.

    Args:
        n_classes: Number of classes.
        class_names: Their names, if the reference had them.
        rows: Hashes of the reference: its accuracy needs no estimate.
        n_rows: The number of rows of the reference.
        shifts: The types of shift in the reference.
        errors: (101,) quantiles of the absolute error of the accuracy on shifted sets whose type was left out of the
            fit; empty without shifted sets.
    """

    name: ClassVar[str]  # in the table ESTIMATORS, on the command line and in files

    n_classes: int
    class_names: tuple[str, ...] | None = None
    rows: RowSketch
    n_rows: int
    shifts: tuple[str, ...]
    errors: Tensor

    @classmethod
    @checked
    def fit(cls, reference: Predictions) -> Self:
        """Fit to labelled rows, and measure the error on shifted sets of types left out.

        Args:
            reference: Labelled rows that the model was not trained on; better with corrupted versions of them. The
                columns corruption ("none" if not corrupted) and severity define the shifted sets; without the first,
                all rows are unshifted.

        Returns:
            The estimator.

        Raises:
            InvalidInputError: There are no unshifted rows, or fewer than 20, or labels are missing.
            NotConvergedError: The estimator cannot be fitted to these rows.
        """
        check_validation(reference, "reference", "fit an estimator")
        clean, shifted = split_sets(reference)
        shared: dict[str, Any] = {
            "n_classes": reference.n_classes,
            "class_names": reference.class_names,
            "rows": RowSketch.of(reference),
            "n_rows": len(reference),
            "shifts": tuple(sorted({kind for kind, _ in shifted})),
            "errors": torch.zeros(0, dtype=torch.float64),
        }
        found = cls(**cls._parameters(clean, shifted), **shared)
        return replace(found, errors=found._left_out_errors(clean, shifted))

    def _left_out_errors(self, clean: Predictions, shifted: ShiftedSets) -> Tensor:
        errors = []
        for left_out in self.shifts:
            own = [rows for kind, rows in shifted if kind == left_out]
            fitted = replace(self, **self._parameters(clean, [item for item in shifted if item[0] != left_out]))
            errors += [abs(fitted._accuracy_of(rows) - accuracy(rows)) for rows in own]
        values = torch.tensor(errors, dtype=torch.float64)
        return weighted_quantiles(values, torch.ones_like(values), LEVELS) if errors else values

    @classmethod
    @abstractmethod
    def _parameters(cls, clean: Predictions, shifted: ShiftedSets) -> dict[str, Any]:
        """The fields of the class."""

    @abstractmethod
    def _accuracy_of(self, target: Predictions) -> float:
        """The estimated accuracy, without an interval."""

    @checked
    def __call__(self, target: Predictions, *, level: float = 0.9, allow_same_rows: bool = False) -> Estimate:
        """Estimate the accuracy and calibration of predictions.

        The interval of the accuracy combines the sampling of the rows with the error on shifted sets of types left
        out of the fit.

        Args:
            target: At least 20 rows of the classes of the reference. Labels are not used.
            level: The level of the intervals.
            allow_same_rows: Whether to estimate on rows of the reference.

        Returns:
            The estimate.

        Raises:
            InvalidInputError: There are fewer rows, they have other classes or features, or are those of the reference.
        """
        check_level(level)
        check_all_classes("target", target, "estimate accuracy")
        if len(target) < MIN_SET_ROWS:
            raise InvalidInputError(f"target must have at least {MIN_SET_ROWS} rows, got {len(target)}")
        check_same_classes("reference", self.n_classes, target.n_classes, self.class_names, target.class_names)
        if not allow_same_rows:
            self.rows.check_disjoint(target)
        return self._estimate(target, level)

    def _estimate(self, target: Predictions, level: float) -> Estimate:
        value = min(max(self._accuracy_of(target), 0.0), 1.0)
        error = float(np.interp(level, LEVELS, self.errors)) if len(self.errors) else 0.0
        return self._combine(target, level, Quantity(value, value - error, value + error))

    def _combine(self, target: Predictions, level: float, of_method: Quantity, **found: Any) -> Estimate:
        """The estimate with an accuracy whose interval so far is that of the method's error."""
        accuracy, confidence = with_sampling(of_method, len(target), level), mean_confidence(target)
        return Estimate(
            method=self.name,
            n_rows=len(target),
            level=level,
            accuracy=accuracy,
            confidence=confidence,
            gap=Quantity(*(confidence - end for end in (accuracy.value, accuracy.high, accuracy.low))),
            shifts=self.shifts,
            labels_ignored=bool((target.labels != UNKNOWN).any()),
            class_names=self.class_names or target.class_names,
            **found,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, atomically.

        Args:
            path: The file to write.
        """
        parameters = {item.name: getattr(self, item.name) for item in fields(self)}
        write_record(path, encode({KIND: self.name, "parameters": parameters}), KIND)

    @classmethod
    def from_record(cls, record: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """The estimator of a file's content; ``path`` is for the error message."""
        try:
            found = decode_fields(cls, record["parameters"])
            check_class_names(found.class_names, check_integer("n_classes", found.n_classes, 2))
            return found
        except (CalibrantError, KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{os.fspath(path)} is damaged: {first_line(error)}") from None


def set_columns(reference: Predictions) -> list[str]:
    """The columns that define its shifted sets; none if it has no column of types of shift."""
    present = [name for name in SETS if name in reference.columns.column_names]
    return present if SETS[0] in present else []


def split_sets(reference: Predictions) -> tuple[Predictions, ShiftedSets]:
    """The rows that are not shifted, and the shifted sets of at least 20 rows with their types."""
    clean, shifted, columns = reference, [], set_columns(reference)
    if columns:
        unshifted = clean_rows(reference, columns[0])
        clean, rest = reference[unshifted], reference[~unshifted]
        numbers = torch.from_numpy(set_numbers(rest, columns)) if len(rest) else unshifted[:0].long()
        parts = [rest[numbers == number] for number in numbers.unique()]
        shifted = [(shift_types(part, columns[0])[0], part) for part in parts if len(part) >= MIN_SET_ROWS]
    if len(clean) < MIN_SET_ROWS:
        rule = f"reference must have at least {MIN_SET_ROWS} rows that are not shifted"
        raise InvalidInputError(f"{rule}, got {len(clean)}")
    return clean, shifted


def accuracy(rows: Predictions) -> float:
    return float((rows.logits.argmax(1) == rows.labels).double().mean())


def mean_confidence(rows: Predictions, temperature: float = 1.0) -> float:
    """The mean confidence of logits divided by a temperature."""
    total = 0.0
    for part in blocks(*rows.logits.shape):
        total += float((rows.logits[part].double() / temperature).softmax(1).amax(1).sum())
    return total / len(rows)


def with_sampling(found: Quantity, n_rows: float, level: float) -> Quantity:
    """A share, with an interval of the method's error, as that of a sample of rows."""
    value, low, high = found
    noise = float(ndtri(0.5 + level / 2)) * math.sqrt(max(value * (1 - value), 1 / n_rows) / n_rows)
    return Quantity(
        value, max(0.0, value - math.hypot(value - low, noise)), min(1.0, value + math.hypot(high - value, noise))
    )
