"""The curves of an audit as records: reliability with its limits, confidences by outcome, risk against coverage."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.audits.verdict import accuracy_limits, summed
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.exact import binomial_limits, clopper_pearson

KEPT = (0.95, 0.8, 0.5)  # shares of the rows of which the error is said
NEAR = 0.05  # how much less may be kept where equal confidences stay together
N_POINTS = 400  # of a curve that is drawn
MIN_ROWS = 20.0  # effective rows from which on a share of errors is drawn
SURE = 0.9  # a confidence that people threshold at

Record = dict[str, Any]


def reliability(bins: BinSums, level: float) -> list[Record]:
    """The bins of confidences that have rows.

    ``interval`` is Clopper and Pearson's of the accuracy, ``band`` where the accuracy of a calibrated model would be.
    """
    n_bins = len(bins.total)
    mass = bins.mass
    return [
        {"low": b / n_bins, "high": (b + 1) / n_bins, "strength": float(mass[b]), **_bin(bins[b], level)}
        for b in range(n_bins)
        if bins.total[b] > 0
    ]


def _bin(rows: BinSums, level: float) -> Record:
    whole = max(round(float(rows.effective)), 1)
    confidence = min(max(float(rows.mean_confidence), 0.0), 1.0)
    low, high = binomial_limits(whole, confidence, level)
    return {
        "count": int(rows.count.sum()),
        "confidence": confidence,
        "accuracy": float(rows.accuracy),
        "interval": accuracy_limits(rows, level),
        "band": (low / whole, high / whole),
    }


def bars(histogram: BinSums) -> list[Record]:
    """The histogram of confidences, without empty bars; shares are of the weight of all rows."""
    n = len(histogram.total)
    total = float(histogram.weight.sum())
    return [
        {
            "low": b / n,
            "high": (b + 1) / n,
            "correct": int(histogram.count[b, 1]),
            "incorrect": int(histogram.count[b, 0]),
            "correct_share": float(histogram.weight[b, 1]) / total,
            "incorrect_share": float(histogram.weight[b, 0]) / total,
        }
        for b in range(n)
        if histogram.count[b].sum() > 0
    ]


def sure_rows(histogram: BinSums, level: float) -> Record | None:
    """The rows with a confidence above 0.9, and the exact limits of their accuracy; None where there are none."""
    rows = summed(histogram[round(SURE * len(histogram.total)) :])
    if rows.total == 0:
        return None
    accuracy = {"accuracy": float(rows.accuracy), "interval": accuracy_limits(rows, level)}
    return {"confidence": SURE, "n_rows": int(rows.count.sum()), **accuracy}


def risk(cells: BinSums, level: float) -> list[Record]:
    """What is left when only the most confident rows are kept: near the shares `KEPT` that equal confidences allow."""
    coverage, error, effective = _cumulative(cells)
    threshold = cells.mean_confidence.flip(0).numpy()
    found = {}
    for share in KEPT:
        place = int(np.searchsorted(coverage, share + 1e-9, side="right")) - 1
        if place >= 0 and coverage[place] >= share - NEAR:
            n, risk = float(effective[place]), float(error[place])
            found[place] = {
                "coverage": float(coverage[place]),
                "threshold": float(threshold[place]),  # the least confidence that is kept
                "error": risk,
                "interval": clopper_pearson(risk * n, n, level),
            }
    return list(found.values())


def risk_points(cells: BinSums) -> list[Record]:
    """The curve: evenly over the coverage, from the first point that rests on enough rows, and always with the last."""
    coverage, error, effective = _cumulative(cells)
    first = min(int(np.searchsorted(effective, MIN_ROWS)), len(coverage) - 1)
    wanted = np.linspace(coverage[first], 1.0, N_POINTS)
    places = np.unique(np.minimum(np.searchsorted(coverage, wanted - 1e-12), len(coverage) - 1))
    return [{"coverage": float(coverage[place]), "error": float(error[place])} for place in places]


def _cumulative(cells: BinSums) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Coverage, error and effective rows, from the most confident rows on."""
    sums = (cells.total, cells.weight[:, 0], cells.squared)
    total, wrong, squared = (values.flip(0).cumsum(0).numpy() for values in sums)
    return total / total[-1], wrong / total, total**2 / squared
