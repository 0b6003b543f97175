"""Decisions on predictions with a stated promise: which rows to accept, and which to hand over."""

from calibrant.decisions.adapting import adapt_threshold
from calibrant.decisions.certifying import certify
from calibrant.decisions.checking import CheckedRows, ThresholdCheck, check_threshold
from calibrant.decisions.scores import SCORES
from calibrant.decisions.threshold import AcceptedRows, Threshold, apply_threshold, load_threshold
from calibrant.metrics.selection import SELECTORS

__all__ = [
    "SCORES",
    "SELECTORS",
    "AcceptedRows",
    "CheckedRows",
    "Threshold",
    "ThresholdCheck",
    "adapt_threshold",
    "apply_threshold",
    "certify",
    "check_threshold",
    "load_threshold",
]
