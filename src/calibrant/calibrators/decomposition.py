"""A proper score split into what recalibration removes and what remains: calibration error and refinement error.

Berta, Holzmüller, Jordan and Bach, "Rethinking Early Stopping: Refine, Then Calibrate" (2025).
"""

import math
from dataclasses import dataclass

import torch
from scipy.special import stdtrit
from torch import Tensor

from calibrant._checks import check_level
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.base import check_validation
from calibrant.calibrators.checks import check_likely_labels
from calibrant.calibrators.choice import PROPER_SCORES, cross_fit, mean_and_error, row_scores
from calibrant.predictions import Predictions


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """A mean over rows.

    Args:
        value: The mean.
        interval: Its confidence interval.
    """

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A proper score as the sum of a calibration and a refinement error.

    Args:
        score: "nll" or "brier".
        calibrator: The calibrator that recalibrated the rows.
        n_rows: Number of rows.
        level: Confidence level of the intervals.
        total: The score.
        calibration: What recalibration removes of it. Below 0 where the fits to the other folds made it worse.
        refinement: What remains.
    """

    score: str
    calibrator: str
    n_rows: int
    level: float
    total: ScoreTerm
    calibration: ScoreTerm
    refinement: ScoreTerm


@checked
def decompose(
    predictions: Predictions,
    score: str = "nll",
    *,
    calibrator: str = "temperature",
    folds: int = 5,
    cluster: str | None = None,
    level: float = 0.95,
) -> Decomposition:
    """Split a proper score into calibration error and refinement error.

    The calibration error is the score minus the score of the same rows, each recalibrated by a fit to the other folds.
    On average it is at most what the best recalibration would remove: a calibrator that cannot express that one, or
    that few rows do not determine, removes less. All calibrators are fitted by what they minimize, also for "brier".

    Args:
        predictions: Labelled rows that the model was not trained on.
        score: "nll" or "brier".
        calibrator: A name in `CALIBRATORS`.
        folds: Number of folds.
        cluster: A column; rows that share its value share a fold and are not independent.
        level: Confidence level of the intervals, which are Student's, of differences paired by rows.

    Returns:
        The score and its two terms, with intervals.

    Raises:
        InvalidInputError: There are fewer rows, or clusters, than folds, or a label has an NLL of infinity.
        UnknownNameError: There is no such score, calibrator or column.
        NotConvergedError: A fold cannot be fitted.
    """
    check_choice("proper score", score, PROPER_SCORES)
    check_level(level)
    check_validation(predictions)
    if score == "nll":
        check_likely_labels(predictions.logits, predictions.labels, "")
    crossed = cross_fit(predictions, calibrator, folds=folds, cluster=cluster)
    before, after = row_scores(predictions, score), row_scores(crossed.predictions, score)
    groups = torch.arange(len(before)) if cluster is None else torch.from_numpy(predictions.groups(cluster)[0])
    terms = (_term(values, groups, level) for values in (before, before - after, after))
    return Decomposition(score, calibrator, len(before), level, *terms)


def _term(values: Tensor, groups: Tensor, level: float) -> ScoreTerm:
    mean, error = mean_and_error(values, groups)
    half = error * float(stdtrit(int(groups.max()), (1 + level) / 2)) if math.isfinite(error) else math.inf
    return ScoreTerm(mean, (mean - half, mean + half))
