"""Compare calibrators: fit each on validation and score it on test, also on corruptions it was not fitted on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_column_names, check_instance, check_same_class_names, check_same_kind
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.domains import clean_rows, shift_types
from calibrant.calibrators.labelled_sets import LabelledSets
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.sets import SetTemperature, fit_to_sets
from calibrant.calibrators.table import CALIBRATORS, calibrator_class
from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.metrics import score
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import no_labels
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions

SEVERITY = "severity"  # the column that with the type of corruption defines a set


@dataclass(frozen=True)
class Comparison:
    """A calibrator's metrics on the test rows, or on a group of them, or why it has none.

    Args:
        calibrator: Its name.
        group: A value of ``by``.
        overall: Whether the metrics are of all rows.
        n_rows: Number of rows.
        values: The metrics; None where one is undefined.
        intervals: Their confidence intervals.
        failure: Why the calibrator cannot be fitted or applied.
    """

    calibrator: str
    group: Any
    overall: bool
    n_rows: int
    values: dict[str, float | None] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values.

        Returns:
            The dictionary.
        """
        plain = self.group is None or isinstance(self.group, str | int | float | bool)
        intervals = {name: list(pair) for name, pair in self.intervals.items()}
        return asdict(self) | {"group": self.group if plain else str(self.group), "intervals": intervals}


@checked
def compare_calibrators(
    validation: Predictions,
    test: Predictions,
    calibrators: Sequence[str] | None = None,
    *,
    by: str | None = None,
    metrics: str | Iterable[str] | None = None,
    shift: str = "corruption",
    sets: Sequence[str] | None = None,
    reference: Predictions | None = None,
    level: float = 0.95,
    allow_same_rows: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Comparison]:
    """Fit calibrators on validation and score them on test.

    If validation holds corrupted rows, each calibrator with ``fits_shifts`` is fitted once for each type of corruption
    in test, without that type. The others are fitted to the clean rows, or in the same way if there are none.

    Args:
        validation: Labelled rows to fit on.
        test: Other rows, to score where they have a label. Calibrators that need a target use them without labels.
        calibrators: Names in `CALIBRATORS`; by default all, or those of the confidence where test has no more.
        by: A column of test to group by.
        metrics: Names in `METRICS`; by default nll and ece, or ece where test has the confidence alone.
        shift: The column of corruption types.
        sets: Columns of test that define the sets of `SetTemperature`; by default those of ``shift``, severity and
            ``by`` that test has, but not a ``by`` that the labels decide, such as the class.
        reference: Rows with features to measure distances from, for the calibrators with this option.
        level: Confidence level of the intervals.
        allow_same_rows: Whether test may hold rows of validation.
        progress: Called with each calibrator's name.

    Returns:
        One comparison for each calibrator over all rows, and with ``by`` one for each group. A calibrator whose
        requirements these rows do not meet has one with the reason.

    Raises:
        InvalidInputError: Test holds rows of validation, has other classes or no label, or validation lacks labels.
        UnknownNameError: There is no such calibrator, metric or column.
    """
    check_validation(validation, of_confidence=True)
    check_instance("test", test, Predictions)
    check_same_kind("validation", validation, "test", test)
    labelled = test.labels != UNKNOWN
    if not labelled.any():
        raise no_labels(test)
    if test.n_classes != validation.n_classes:
        raise InvalidInputError(
            f"test must have the {validation.n_classes} classes of validation, got {test.n_classes}"
        )
    check_same_class_names("validation", validation.class_names, "test", test.class_names)
    fits = LeaveOneShiftOut(validation, shift=shift, reference=reference)
    if not allow_same_rows:
        fits.check_disjoint(test)
    names = calibrators
    if names is None:
        names = [name for name, cls in CALIBRATORS.items() if cls.of_confidence or not test.top_label]
    for name in names:
        calibrator_class(name)
    metrics = default_metrics(test) if metrics is None else metrics
    wanted = check_metrics(metrics, test.n_classes, top_label=test.top_label)
    columns = default_sets(test, shift, by) if sets is None else check_column_names("sets", sets)
    for column in columns:
        test.column(column)
    rows: list[Comparison] = []
    for name in names:
        if progress is not None:
            progress(name)
        try:
            calibrated = fits.calibrate(name, test, sets=columns)
        except CalibrantError as error:
            rows.append(Comparison(name, None, True, int(labelled.sum()), failure=str(error)))
            continue
        if by is None:
            rows.append(_comparison(name, None, True, score(calibrated, metrics=wanted), level))
            continue
        groups = score(calibrated, by=by, metrics=wanted)
        rows.append(_comparison(name, None, True, groups.overall, level))
        rows += [_comparison(name, group, False, card, level) for group, card in groups.items()]
    return rows


def default_metrics(test: Predictions) -> tuple[str, ...]:
    """What calibrators are compared by."""
    return ("ece",) if test.top_label else ("nll", "ece")


def _comparison(name: str, group: Any, overall: bool, card: Scorecard, level: float) -> Comparison:
    values = card.values()
    intervals = {metric: card.interval(metric, level=level) for metric, value in values.items() if value is not None}
    return Comparison(
        calibrator=name, group=group, overall=overall, n_rows=card.n_rows, values=values, intervals=intervals
    )


def default_sets(test: Predictions, shift: str, by: str | None) -> tuple[str, ...]:
    """The columns of shift, severity and by that test has, without a ``by`` that the labels decide."""
    wanted = [shift, SEVERITY, *([] if by is None or _labels_decide(test, by) else [by])]
    return tuple(name for name in dict.fromkeys(wanted) if name in test.columns.column_names)


def _labels_decide(test: Predictions, column: str) -> bool:
    """Whether no label occurs with two values of the column, as in a column of class names."""
    known = test[test.labels != UNKNOWN]
    pairs = np.unique(np.stack([known.labels.numpy(), known.groups(column)[0]]), axis=1)
    return len(pairs[0]) == len(np.unique(pairs[0]))


class LeaveOneShiftOut:
    """Fits of calibrators to validation rows, each without the type of corruption that it is applied to.

    A calibrator without ``fits_shifts`` is fitted to the clean rows, if there are any.

    Args:
        validation: Labelled rows, clean or corrupted.
        shift: The column of corruption types.
        reference: Rows with features to measure distances from, for the calibrators with this option.
    """

    @checked
    def __init__(
        self, validation: Predictions, *, shift: str = "corruption", reference: Predictions | None = None
    ) -> None:
        self.validation, self.shift, self.reference = validation, shift, reference
        self.types = self._types(validation)
        self._clean = validation[clean_rows(validation, shift)] if self.types else validation
        self._fits: dict[tuple[str, Any], Calibrator | CalibrantError] = {}

    @checked
    def calibrate(self, calibrator: str, test: Predictions, *, sets: Sequence[str] = ()) -> Predictions:
        """Calibrate each test row by a fit without its type of corruption.

        Args:
            calibrator: A name in `CALIBRATORS`.
            test: The rows. They are not checked against validation; `check_disjoint` does that.
            sets: Columns of test that define the sets of `SetTemperature`; by default those of the fit.

        Returns:
            The calibrated rows.

        Raises:
            CalibrantError: The calibrator cannot be fitted, or cannot be applied to these rows.
        """
        cls = calibrator_class(calibrator)
        sets = sets if isinstance(sets, tuple) and not sets else check_column_names("sets", sets)
        if self._fits_clean_rows(cls) or self.types.isdisjoint(self._types(test)):
            return _with_sets(self._fit(cls, None, test), sets).calibrate(test)
        number, values = test.groups(self.shift)
        logits = torch.empty_like(test.logits)
        for i, value in enumerate(values):
            rows = torch.from_numpy(number == i)
            unseen = value if str(value) in self.types else None
            logits[rows] = _with_sets(self._fit(cls, unseen, test), sets).calibrate(test[rows]).logits
        return replace(test, logits=logits)

    @checked
    def check_disjoint(self, test: Predictions) -> None:
        """Check that test holds no rows of validation.

        Args:
            test: The rows.

        Raises:
            InvalidInputError: It holds some.
        """
        self._sketch.check_disjoint(test)

    @cached_property
    def _sketch(self) -> RowSketch:
        return RowSketch.of(self.validation)

    def _types(self, rows: Predictions) -> set[str]:
        return set(shift_types(rows, self.shift)) if self.shift in rows.columns.column_names else set()

    def _fits_clean_rows(self, cls: type[Calibrator]) -> bool:
        return not cls.fits_shifts and len(self._clean) > 0

    def _fit(self, cls: type[Calibrator], unseen: Any, target: Predictions) -> Calibrator:
        """The fit without one type of corruption, cached unless it depends on the target."""
        if cls.fits_shifts and self.shift not in self.validation.columns.column_names:
            hint = "name the column of its corruptions or domains with shift (--shift)"
            raise InvalidInputError(f"validation has no column {self.shift!r}: {hint}")
        key = (cls.name, unseen)
        if key not in self._fits or cls.needs_target:
            try:
                self._fits[key] = self._new_fit(cls, unseen, target)
            except CalibrantError as error:
                self._fits[key] = error
        found = self._fits[key]
        if isinstance(found, CalibrantError):
            raise found
        return found

    def _new_fit(self, cls: type[Calibrator], unseen: Any, target: Predictions) -> Calibrator:
        if cls is SetTemperature:  # its fits share the statistics of sets
            return fit_to_sets(self._sets if unseen is None else self._sets.where(self._others(unseen)))
        return cls.fit(self._rows(cls, unseen), **self._options(cls, target))

    @cached_property
    def _sets(self) -> LabelledSets:
        check_validation(self.validation)
        severity = [SEVERITY] if SEVERITY in self.validation.columns.column_names else []
        return LabelledSets.of(self.validation, (self.shift, *severity), self.reference)

    def _options(self, cls: type[Calibrator], target: Predictions) -> dict[str, Any]:
        """What its fit takes of the shift, the target and the reference."""
        known = {"shift": self.shift, "target": target, "reference": self.reference}
        return {name: value for name, value in known.items() if name in cls.options()}

    def _rows(self, cls: type[Calibrator], unseen: Any) -> Predictions:
        if self._fits_clean_rows(cls):
            return self._clean
        if unseen is None:
            return self.validation
        return self.validation[self._others(unseen)]

    def _others(self, unseen: Any) -> Tensor:
        """(n,) whether a row of validation is of another type. Raises: InvalidInputError if there is no other."""
        if self.types <= {str(unseen)}:
            raise InvalidInputError(f"validation must hold types of corruption other than {unseen}, which test has")
        known, types = self.validation.groups(self.shift)
        return torch.from_numpy(np.isin(known, [i for i, other in enumerate(types) if other != unseen]))


def _with_sets(calibrator: Calibrator, sets: Sequence[str]) -> Calibrator:
    return calibrator.with_sets(sets) if sets and isinstance(calibrator, SetTemperature) else calibrator
