"""Scores that say how sure a prediction is: the larger, the surer."""

from collections.abc import Callable

import torch
from torch import Tensor

from calibrant._arrays import as_float32, blocks
from calibrant._checks import check_all_classes, check_values
from calibrant._names import check_choice
from calibrant.calibrators.maps import entropy
from calibrant.predictions import Predictions


def _margin(log_probs: Tensor) -> Tensor:
    first, second = log_probs.exp().topk(2, dim=1).values.unbind(1)
    return first - second


SCORES: dict[str, Callable[[Tensor], Tensor]] = {  # of log-probabilities (n, k)
    "confidence": lambda log_probs: log_probs.amax(1).exp(),
    "margin": _margin,
    "entropy": lambda log_probs: -entropy(log_probs),
}


def score_values(predictions: Predictions, score: str) -> Tensor:
    """(n,) float64: a score of the table, of logits as a file has them; or a column of finite numbers."""
    if score in SCORES and predictions.top_label:
        if score != "confidence":
            check_all_classes("predictions", predictions, f"have the score {score}")
        return predictions.logits.double().softmax(1)[:, 1]
    if score in SCORES:
        logits, found = predictions.logits, torch.empty(len(predictions), dtype=torch.float64)
        for rows in blocks(*logits.shape):
            found[rows] = SCORES[score](as_float32(logits[rows]).double().log_softmax(1))
        return found
    columns = predictions.columns.column_names
    check_choice("score", score, [*SCORES, *columns])
    values = predictions.numbers("score", score)
    check_values("score", "be finite", values, values.isfinite(), "at row")
    return values
