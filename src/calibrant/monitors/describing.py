"""What is said of a window without labels: estimates, and tests against the reference, from a sample of its rows."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from calibrant._arrays import UNKNOWN
from calibrant.calibrators.maps import MIN_SET_ROWS
from calibrant.errors import NotConvergedError
from calibrant.estimates import Estimator, fit_estimator, shift_tests
from calibrant.monitors.windows import Describe
from calibrant.predictions import Predictions

MAX_REFERENCE_ROWS = 10_000  # of the least hashes, in the tests of every window


def describer(reference: Predictions, clean: Predictions) -> Describe:
    """A function of a sample of rows, whose result is JSON: label-free estimates, and shift tests.

    Args:
        reference: What the estimator is fitted to, with corrupted rows if there are any.
        clean: Its rows without corruption, which the sample is compared with.

    Returns:
        The function. It estimates nothing from fewer than 20 rows, or where no estimator can be fitted.
    """
    estimator = _estimator(reference, clean)
    few = clean[np.argsort(clean.row_hashes[0], kind="stable")[:MAX_REFERENCE_ROWS]]

    def describe(sample: Predictions) -> dict[str, Any]:
        estimate = None
        if estimator is not None and len(sample) >= MIN_SET_ROWS:
            estimate = estimator(sample, allow_same_rows=True).to_dict()
        found = {"estimate": estimate, "shift": [asdict(test) for test in shift_tests(sample, few)]}
        described: dict[str, Any] = json.loads(json.dumps(found))  # tuples become lists, as in a state that was read
        return described

    return describe


def _estimator(reference: Predictions, clean: Predictions) -> Estimator | None:
    if len(clean) < MIN_SET_ROWS or bool((reference.labels == UNKNOWN).any()):
        return None
    try:
        return fit_estimator(reference)
    except NotConvergedError:  # as on rows that are all correct
        return None
