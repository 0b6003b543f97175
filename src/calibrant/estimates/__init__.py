"""Estimates without labels: how accurate and how overconfident a model is on a target, and how the target differs."""

import os
from dataclasses import replace

import numpy as np

from calibrant._checks import check_instance
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.maps import MIN_SET_ROWS
from calibrant.calibrators.sets import MIN_SETS, SetTemperature
from calibrant.calibrators.store import read_record
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.estimates.base import KIND, Estimate, EstimateGate, Estimator, Quantity, split_sets
from calibrant.estimates.methods import ESTIMATORS, CalibratedConfidence, SetTemperatureEstimator
from calibrant.estimates.shift_tests import ShiftTest, shift_tests
from calibrant.predictions import Predictions

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "EstimateGate",
    "Estimator",
    "Quantity",
    "ShiftTest",
    "estimate",
    "fit_estimator",
    "load_estimator",
    "shift_tests",
]


@checked
def fit_estimator(reference: Predictions, method: str | None = None) -> Estimator:
    """Fit an estimator of accuracy without labels.

    Args:
        reference: Labelled rows that the model was not trained on, and better corrupted versions of them, with their
            type in the column corruption ("none" if not corrupted) and their strength in severity.
        method: A name in `ESTIMATORS`; by default set_temperature, or confidence for a reference without corrupted
            rows.

    Returns:
        The estimator.

    Raises:
        UnknownNameError: There is no such method.
        InvalidInputError: The reference has too few rows, or lacks labels.
        NotConvergedError: The estimator cannot be fitted to these rows.
    """
    if method is None:
        _, shifted = split_sets(reference)
        method = SetTemperatureEstimator.name if 1 + len(shifted) >= MIN_SETS else CalibratedConfidence.name
    return ESTIMATORS[check_choice("estimator", method, ESTIMATORS)].fit(reference)


@checked
def estimate(
    target: Predictions,
    reference: Predictions,
    *,
    method: str | None = None,
    calibrator: Calibrator | None = None,
    by: str | None = None,
    level: float = 0.9,
    allow_same_rows: bool = False,
) -> Estimate:
    """Estimate the accuracy and calibration of predictions without their labels.

    Args:
        target: At least 20 predictions. Labels are not used.
        reference: Labelled predictions of the same model, as `fit_estimator` takes them.
        method: A name in `ESTIMATORS`.
        calibrator: A fitted `SetTemperature`, in place of a fit to the reference.
        by: A column whose groups are estimated too, each as a set of its own.
        level: The level of the intervals.
        allow_same_rows: Whether target may hold rows of the reference.

    Returns:
        The estimate, with tests whether the target differs from the unshifted rows of the reference.

    Raises:
        UnknownNameError: There is no such method or column.
        InvalidInputError: There are too few rows, or target has other classes or features than the reference.
        NotConvergedError: The estimator cannot be fitted to the reference.
    """
    if calibrator is None:
        estimator = fit_estimator(reference, method)
    elif method in (None, SetTemperatureEstimator.name):
        check_instance("calibrator", calibrator, SetTemperature)
        estimator = SetTemperatureEstimator.of(calibrator)  # type: ignore[arg-type]
    else:
        raise InvalidInputError(f"calibrator is for the method set_temperature, got the method {method}")
    found = estimator(target, level=level, allow_same_rows=allow_same_rows)
    unshifted, _ = split_sets(reference)
    found = replace(found, tests=shift_tests(target, unshifted))
    if by is None:
        return found
    number, values = target.groups(by)
    rows = {str(value): target[np.flatnonzero(number == i)] for i, value in enumerate(values)}
    small = [name for name, part in rows.items() if len(part) < MIN_SET_ROWS]
    groups = {
        name: estimator(part, level=level, allow_same_rows=True) for name, part in rows.items() if name not in small
    }
    return replace(found, by=by, groups=groups, small_groups=tuple(small))


def load_estimator(path: str | os.PathLike[str]) -> Estimator:
    """Load an estimator.

    Args:
        path: A JSON file that `Estimator.save` wrote.

    Returns:
        The estimator.

    Raises:
        NoDataError: There is no such file.
        CorruptFileError: The file is not an estimator.
    """
    record = read_record(path, KIND)
    if record[KIND] not in ESTIMATORS:
        raise CorruptFileError(f"{os.fspath(path)} is damaged: there is no estimator {record[KIND]!r}")
    return ESTIMATORS[record[KIND]].from_record(record, path)
