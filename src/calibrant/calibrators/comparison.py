"""Do calibrators help: every method fitted on validation and measured on test, also where the test has shifted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.domains import CLEAN, clean_rows, shift_types
from calibrant.calibrators.leakage import Rows, Watch
from calibrant.calibrators.table import CALIBRATORS, calibrator_class
from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.metrics import score
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import check_metrics
from calibrant.predictions import Predictions


@dataclass(frozen=True)
class Comparison:
    """A method's metrics on the test rows of a group, or why it has none."""

    method: str
    group: Any  # a value of ``by``
    whole: bool  # whether these are all rows
    n_rows: int
    values: dict[str, float | None] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    failure: str | None = None


def compare_calibrators(
    validation: Predictions,
    test: Predictions,
    methods: Sequence[str] | None = None,
    *,
    by: str | None = None,
    metrics: Iterable[str] = ("nll", "ece"),
    shift: str = "corruption",
    level: float = 0.95,
    allow_same_rows: bool = False,
    report: Callable[[str], None] | None = None,
) -> list[Comparison]:
    """One row for each method, of all test rows, and with ``by`` one for each value of that column.

    methods: names in `CALIBRATORS`, by default all that fit these data, with the unlabelled test rows as the target of
    transcal. Where validation holds corrupted rows (column ``shift``), the methods that are made for them are measured
    on types that they have not seen: for each type of test, validation is taken without it. The others are fitted to
    its clean rows, or in the same way where it has none. report: called with each method's name.

    Raises: InvalidInputError where test holds rows of validation, unless ``allow_same_rows``.
    """
    check_validation(validation)
    check_validation(test, "test", "be measured")
    if not allow_same_rows:
        watch = Watch(Rows.of(validation))
        watch.see(test)
        watch.check()
    names = usable_methods(validation, test, shift) if methods is None else methods
    for name in names:
        calibrator_class(name)
    wanted = check_metrics(tuple(metrics), test.n_classes)
    if by is not None:
        test.column(by)
    rows: list[Comparison] = []
    for name in names:
        if report is not None:
            report(name)
        try:
            mended = fit_and_mend(name, validation, test, shift)
        except CalibrantError as error:
            rows.append(Comparison(name, None, True, len(test), failure=str(error)))
            continue
        if by is None:
            rows.append(_compared(name, None, True, score(mended, metrics=wanted), level))
            continue
        groups = score(mended, by=by, metrics=wanted)
        rows.append(_compared(name, None, True, groups.overall, level))
        rows += [_compared(name, group, False, card, level) for group, card in groups.items()]
    return rows


def _compared(name: str, group: Any, whole: bool, card: Scorecard, level: float) -> Comparison:
    values = card.values()
    intervals = {metric: card.interval(metric, level=level) for metric, value in values.items() if value is not None}
    return Comparison(name, group, whole, card.n_rows, values, intervals)


def usable_methods(validation: Predictions, test: Predictions, shift: str) -> list[str]:
    """All methods whose columns and features are there."""
    columns = set(validation.columns.column_names)
    shifted = shift in columns and bool(shift_types(validation, shift))
    needs = {
        "platt": validation.n_classes == 2,
        "beta": validation.n_classes == 2,
        "perturbed_temperature": shifted,
        "set_temperature": shifted and "severity" in columns,
        "domain_temperature": "domain" in columns,
        "density_aware": validation.features is not None and test.features is not None,
    }
    return [name for name in CALIBRATORS if needs.get(name, True)]


def fit_and_mend(name: str, validation: Predictions, test: Predictions, shift: str) -> Predictions:
    """Test, mended by a method that has not seen the types of corruption that it meets there."""
    both = shift in validation.columns.column_names and shift in test.columns.column_names
    seen = set(shift_types(validation, shift)) & set(shift_types(test, shift)) if both else set()
    if not seen or _fits_clean_rows(name, validation, shift):
        return fit_unseen(name, validation, shift, target=test).mend(test)
    number, values = test.groups(shift)
    logits = torch.empty_like(test.logits)
    for i, value in enumerate(values):
        rows = torch.from_numpy(number == i)
        logits[rows] = fit_unseen(name, validation, shift, value, target=test).mend(test[rows]).logits
    return Predictions(logits, test.labels, test.columns, test.features, test.class_names, test.metadata)


def fit_unseen(
    name: str, validation: Predictions, shift: str, unseen: Any = None, *, target: Predictions | None = None
) -> Calibrator:
    """A method that has not seen one type of corruption: it is fitted to validation without it.

    One that is not made for corrupted rows is fitted to the clean ones, if there are any. target: the unlabelled rows
    that transcal looks at.
    """
    options_of: dict[str, dict[str, Any]] = {
        "transcal": {"target": target},
        "perturbed_temperature": {"shift": shift},
        "set_temperature": {"sets": (shift, "severity")},
    }
    if _fits_clean_rows(name, validation, shift):
        validation = validation[clean_rows(validation, shift)]
    elif unseen not in CLEAN:
        validation = _without(validation, shift, unseen)
    return calibrator_class(name).fit(validation, **options_of.get(name, {}))


def _fits_clean_rows(name: str, validation: Predictions, shift: str) -> bool:
    there = shift in validation.columns.column_names
    return there and not calibrator_class(name).fits_shifts and bool(clean_rows(validation, shift).any())


def _without(validation: Predictions, shift: str, unseen: Any) -> Predictions:
    known, types = validation.groups(shift)
    kept = validation[np.isin(known, [i for i, other in enumerate(types) if other != unseen])]
    if not shift_types(kept, shift):
        raise InvalidInputError(f"validation must hold types of corruption other than {unseen}, which test has")
    return kept
