"""What is said of a window without labels: estimates, and tests against the reference, from a sample of its rows."""

from dataclasses import asdict

import numpy as np

from calibrant.estimates import shift_tests
from calibrant.monitors.windows import Describe
from calibrant.predictions import Predictions

MAX_REFERENCE_ROWS = 10_000  # of the least hashes, in the tests of every window


def describer(reference: Predictions) -> Describe:
    """A function of a sample of rows, whose results are JSON: label-free estimates, and shift tests."""
    few = reference[np.argsort(reference.row_hashes[0], kind="stable")[:MAX_REFERENCE_ROWS]]

    def describe(sample: Predictions) -> dict[str, object]:
        return {"estimate": None, "shift": [asdict(test) for test in shift_tests(sample, few)]}

    return describe
