"""Decisions on predictions with a stated promise: which rows to accept, and sets of classes that hold the label."""

from calibrant.decisions.adapting import adapt_threshold
from calibrant.decisions.certifying import certify
from calibrant.decisions.checking import CheckedRows, ThresholdCheck, check_threshold
from calibrant.decisions.prediction_sets import ConformalSets
from calibrant.decisions.scores import SCORES
from calibrant.decisions.set_methods import SET_METHODS, ConformityScore, SetMethod
from calibrant.decisions.set_scores import PartScores, Promise, SetGate, SetScores, score_sets
from calibrant.decisions.threshold import AcceptedRows, Threshold, apply_threshold, load_threshold
from calibrant.metrics.selection import SELECTORS

__all__ = [
    "SCORES",
    "SELECTORS",
    "SET_METHODS",
    "AcceptedRows",
    "CheckedRows",
    "ConformalSets",
    "ConformityScore",
    "PartScores",
    "Promise",
    "SetGate",
    "SetMethod",
    "SetScores",
    "Threshold",
    "ThresholdCheck",
    "adapt_threshold",
    "apply_threshold",
    "certify",
    "check_threshold",
    "load_threshold",
    "score_sets",
]
