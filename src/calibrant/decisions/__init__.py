"""Decisions: what may be done with predictions, with a promise that is stated and can be checked."""

from calibrant.decisions.prediction_sets import ConformalSets
from calibrant.decisions.set_methods import SET_METHODS, ConformityScore, SetMethod
from calibrant.decisions.set_scores import PartScores, Promise, SetGate, SetScores, score_sets

__all__ = [
    "SET_METHODS",
    "ConformalSets",
    "ConformityScore",
    "PartScores",
    "Promise",
    "SetGate",
    "SetMethod",
    "SetScores",
    "score_sets",
]
