"""The curves of an audit as records: reliability, confidence histogram, risk and coverage."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.audits.verdict import accuracy_interval, sum_bins
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.exact import binomial_limits, clopper_pearson

RISK_COVERAGES = (0.95, 0.8, 0.5)  # at which the risk is stated
COVERAGE_TOLERANCE = 0.05  # how much smaller the coverage may be where ties prevent the exact one
MAX_CURVE_POINTS = 400
MIN_CURVE_ROWS = 20.0  # effective rows behind the first point of the risk-coverage curve
HIGH_CONFIDENCE = 0.9  # a common threshold


def reliability_records(bins: BinSums, level: float) -> list[dict[str, Any]]:
    """The non-empty confidence bins.

    ``interval`` is the Clopper-Pearson interval of the accuracy; ``band`` holds the accuracy of a calibrated model with
    probability ``level``.
    """
    n_bins = len(bins.total)
    records = []
    for b in np.flatnonzero(bins.total > 0).tolist():
        sums = bins[b]
        n = max(round(float(sums.effective)), 1)
        confidence = min(max(float(sums.mean_confidence), 0.0), 1.0)
        low, high = binomial_limits(n, confidence, level)
        records.append(
            {
                "low": b / n_bins,
                "high": (b + 1) / n_bins,
                "share": float(bins.mass[b]),
                "count": int(sums.count.sum()),
                "confidence": confidence,
                "accuracy": float(sums.accuracy),
                "interval": accuracy_interval(sums, level),
                "band": (low / n, high / n),
            }
        )
    return records


def histogram_records(histogram: BinSums) -> list[dict[str, Any]]:
    """The non-empty bins; shares are weighted, and relative to all rows."""
    n = len(histogram.total)
    shares = histogram.weight / histogram.weight.sum()
    return [
        {
            "low": b / n,
            "high": (b + 1) / n,
            "correct": int(histogram.count[b, 1]),
            "incorrect": int(histogram.count[b, 0]),
            "correct_share": float(shares[b, 1]),
            "incorrect_share": float(shares[b, 0]),
        }
        for b in np.flatnonzero(histogram.count.sum(1)).tolist()
    ]


def high_confidence_accuracy(histogram: BinSums, level: float) -> dict[str, Any] | None:
    """The accuracy of the rows with a confidence above 0.9, with its interval; None where there are no such rows."""
    sums = sum_bins(histogram[round(HIGH_CONFIDENCE * len(histogram.total)) :])
    if sums.total == 0:
        return None
    accuracy = {"accuracy": float(sums.accuracy), "interval": accuracy_interval(sums, level)}
    return {"threshold": HIGH_CONFIDENCE, "n_rows": int(sums.count.sum()), **accuracy}


def risk_records(histogram: BinSums, level: float) -> list[dict[str, Any]]:
    """The error rate of the most confident rows at each of `RISK_COVERAGES` that ties in the confidence allow."""
    coverage, error, n_effective = _cumulative(histogram)
    threshold = histogram.mean_confidence.flip(0).numpy()
    found = {}
    for wanted in RISK_COVERAGES:
        i = int(np.searchsorted(coverage, wanted + 1e-9, side="right")) - 1
        if i >= 0 and coverage[i] >= wanted - COVERAGE_TOLERANCE:
            n, risk = float(n_effective[i]), float(error[i])
            found[i] = {
                "coverage": float(coverage[i]),
                "threshold": float(threshold[i]),  # the smallest confidence that is kept
                "error": risk,
                "interval": clopper_pearson(risk * n, n, level),
            }
    return list(found.values())


def risk_coverage_records(histogram: BinSums) -> list[dict[str, Any]]:
    """The curve: evenly spaced over the coverage, from `MIN_CURVE_ROWS` rows up to a coverage of 1."""
    coverage, error, n_effective = _cumulative(histogram)
    first = min(int(np.searchsorted(n_effective, MIN_CURVE_ROWS)), len(coverage) - 1)
    wanted = np.linspace(coverage[first], 1.0, MAX_CURVE_POINTS)
    index = np.unique(np.minimum(np.searchsorted(coverage, wanted - 1e-12), len(coverage) - 1))
    return [{"coverage": float(coverage[i]), "error": float(error[i])} for i in index]


def _cumulative(histogram: BinSums) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Coverage, error rate and effective sample size of the most confident rows, for each number of histogram bins."""
    values = (histogram.total, histogram.weight[:, 0], histogram.squared)
    total, wrong, squared = (sums.flip(0).cumsum(0).numpy() for sums in values)
    return total / total[-1], wrong / total, total**2 / squared
