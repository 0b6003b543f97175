"""Compare calibrators: fit each on validation and score it on test, also on corruptions it was not fitted on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.domains import clean_rows, shift_types
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.table import CALIBRATORS, calibrator_class
from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.metrics import score
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions


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


def compare_calibrators(
    validation: Predictions,
    test: Predictions,
    calibrators: Sequence[str] | None = None,
    *,
    by: str | None = None,
    metrics: Iterable[str] = ("nll", "ece"),
    shift: str = "corruption",
    level: float = 0.95,
    allow_same_rows: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Comparison]:
    """Fit calibrators on validation and score them on test.

    If validation holds corrupted rows, each calibrator with ``fits_shifts`` is fitted once for each type of corruption
    in test, without that type. The others are fitted to the clean rows, or in the same way if there are none.

    Args:
        validation: Labelled rows to fit on.
        test: Other labelled rows, to score. Calibrators that need a target use them without their labels.
        calibrators: Names in `CALIBRATORS`; by default all whose requirements these rows meet.
        by: A column of test to group by.
        metrics: Names in `METRICS`.
        shift: The column of corruption types.
        level: Confidence level of the intervals.
        allow_same_rows: Whether test may hold rows of validation.
        progress: Called with each calibrator's name.

    Returns:
        One comparison for each calibrator over all rows, and with ``by`` one for each group.

    Raises:
        InvalidInputError: Test holds rows of validation, or labels are missing.
        UnknownNameError: There is no such calibrator, metric or column.
    """
    check_validation(validation)
    check_validation(test, "test", "be measured")
    fits = LeaveOneShiftOut(validation, shift=shift)
    if not allow_same_rows:
        fits.check_disjoint(test)
    names = fits.usable_calibrators(test) if calibrators is None else calibrators
    for name in names:
        calibrator_class(name)
    wanted = check_metrics(tuple(metrics), test.n_classes)
    if by is not None:
        test.column(by)
    rows: list[Comparison] = []
    for name in names:
        if progress is not None:
            progress(name)
        try:
            calibrated = fits.calibrate(name, test)
        except CalibrantError as error:
            rows.append(Comparison(name, None, True, len(test), failure=str(error)))
            continue
        if by is None:
            rows.append(_comparison(name, None, True, score(calibrated, metrics=wanted), level))
            continue
        groups = score(calibrated, by=by, metrics=wanted)
        rows.append(_comparison(name, None, True, groups.overall, level))
        rows += [_comparison(name, group, False, card, level) for group, card in groups.items()]
    return rows


def _comparison(name: str, group: Any, overall: bool, card: Scorecard, level: float) -> Comparison:
    values = card.values()
    intervals = {metric: card.interval(metric, level=level) for metric, value in values.items() if value is not None}
    return Comparison(
        calibrator=name, group=group, overall=overall, n_rows=card.n_rows, values=values, intervals=intervals
    )


class LeaveOneShiftOut:
    """Fits of calibrators to validation rows, each without the type of corruption that it is applied to.

    A calibrator without ``fits_shifts`` is fitted to the clean rows, if there are any.

    Args:
        validation: Labelled rows, clean or corrupted.
        shift: The column of corruption types.
    """

    def __init__(self, validation: Predictions, *, shift: str = "corruption") -> None:
        self.validation, self.shift = validation, shift
        self.types = self._types(validation)
        self._clean = validation[clean_rows(validation, shift)] if self.types else validation
        self._fits: dict[tuple[str, Any], Calibrator | CalibrantError] = {}

    def calibrate(self, calibrator: str, test: Predictions) -> Predictions:
        """Calibrate each test row by a fit without its type of corruption.

        Args:
            calibrator: A name in `CALIBRATORS`.
            test: The rows. They are not checked against validation; `check_disjoint` does that.

        Returns:
            The calibrated rows.

        Raises:
            CalibrantError: The calibrator cannot be fitted, or cannot be applied to these rows.
        """
        cls = calibrator_class(calibrator)
        if self._fits_clean_rows(cls) or self.types.isdisjoint(self._types(test)):
            return self._fit(cls, None, test).calibrate(test)
        number, values = test.groups(self.shift)
        logits = torch.empty_like(test.logits)
        for i, value in enumerate(values):
            rows = torch.from_numpy(number == i)
            unseen = value if str(value) in self.types else None
            logits[rows] = self._fit(cls, unseen, test).calibrate(test[rows]).logits
        return replace(test, logits=logits)

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

    def usable_calibrators(self, test: Predictions) -> list[str]:
        """The calibrators whose requirements validation and test meet.

        Args:
            test: The rows to calibrate.

        Returns:
            Their names.
        """
        return [name for name, cls in CALIBRATORS.items() if self._is_usable(cls, test)]

    def _is_usable(self, cls: type[Calibrator], test: Predictions) -> bool:
        return (
            (self.validation.n_classes == 2 or not cls.two_classes_only)
            and (bool(self.types) or not cls.fits_shifts)
            and (all(rows.features is not None for rows in (self.validation, test)) or not cls.needs_features)
            and set(cls.needs_columns) <= set(self.validation.columns.column_names)
        )

    def _types(self, rows: Predictions) -> set[str]:
        return set(shift_types(rows, self.shift)) if self.shift in rows.columns.column_names else set()

    def _fits_clean_rows(self, cls: type[Calibrator]) -> bool:
        return not cls.fits_shifts and len(self._clean) > 0

    def _fit(self, cls: type[Calibrator], unseen: Any, target: Predictions) -> Calibrator:
        """The fit without one type of corruption, cached unless it depends on the target."""
        key = (cls.name, unseen)
        if key not in self._fits or cls.needs_target:
            try:
                self._fits[key] = cls.fit_for(target, self._rows(cls, unseen), shift=self.shift)
            except CalibrantError as error:
                self._fits[key] = error
        found = self._fits[key]
        if isinstance(found, CalibrantError):
            raise found
        return found

    def _rows(self, cls: type[Calibrator], unseen: Any) -> Predictions:
        if self._fits_clean_rows(cls):
            return self._clean
        if unseen is None:
            return self.validation
        known, types = self.validation.groups(self.shift)
        kept = self.validation[np.isin(known, [i for i, other in enumerate(types) if other != unseen])]
        if not self._types(kept):
            raise InvalidInputError(f"validation must hold types of corruption other than {unseen}, which test has")
        return kept
