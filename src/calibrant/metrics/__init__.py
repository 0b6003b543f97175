"""Calibration metrics: functions of tensors, and scorecards that merge by addition."""

from calibrant.metrics.bins import (
    ReliabilityCurve,
    adaptive_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    overconfidence,
    reliability_curve,
    rms_calibration_error,
    underconfidence,
)
from calibrant.metrics.classwise import classwise_calibration_error
from calibrant.metrics.compare import Difference, compare
from calibrant.metrics.jackknife import brier_decomposition
from calibrant.metrics.means import (
    accuracy,
    brier_on_errors,
    brier_score,
    mean_confidence,
    mean_entropy,
    negative_log_likelihood,
    nll_on_errors,
)
from calibrant.metrics.multilabel import score_multilabel
from calibrant.metrics.murphy import BrierDecomposition
from calibrant.metrics.ranking import RiskCoverageCurve, area_under_risk_coverage, ks_error, risk_coverage_curve
from calibrant.metrics.sample_scores import top_label
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups, score
from calibrant.metrics.smooth import smooth_calibration_error
from calibrant.metrics.table import METRICS, Metric, Quantity

__all__ = [
    "METRICS",
    "BrierDecomposition",
    "Difference",
    "Groups",
    "Metric",
    "Quantity",
    "ReliabilityCurve",
    "RiskCoverageCurve",
    "Scorecard",
    "accuracy",
    "adaptive_calibration_error",
    "area_under_risk_coverage",
    "brier_decomposition",
    "brier_on_errors",
    "brier_score",
    "classwise_calibration_error",
    "compare",
    "debiased_calibration_error",
    "expected_calibration_error",
    "ks_error",
    "maximum_calibration_error",
    "mean_confidence",
    "mean_entropy",
    "negative_log_likelihood",
    "nll_on_errors",
    "overconfidence",
    "reliability_curve",
    "risk_coverage_curve",
    "rms_calibration_error",
    "score",
    "score_multilabel",
    "smooth_calibration_error",
    "top_label",
    "underconfidence",
]
