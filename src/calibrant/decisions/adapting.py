"""A threshold for shifted rows without labels: an estimate by adapted probabilities, which promises nothing."""

from dataclasses import replace

import torch

from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.history import calibrators_of
from calibrant.decisions.certifying import distinct_scores, value_above
from calibrant.decisions.scores import score_values
from calibrant.decisions.threshold import AcceptedRows, Threshold, group_rows
from calibrant.errors import InvalidInputError
from calibrant.metrics.sample_scores import predicted_class
from calibrant.predictions import Predictions


@checked
def adapt_threshold(threshold: Threshold, target: Predictions, calibrator: Calibrator) -> Threshold:
    """Estimate the threshold for shifted rows without labels, by probabilities that are adapted to them.

    A row is taken to be wrong with probability 1 − adapted confidence: rows are accepted, the most confident first, as
    long as the mean of this over accepted rows is at most max_error; with costs, as long as this times the cost of an
    error is at most that of handing over (Chow 1970). It is right as far as the adapted confidences are.

    Args:
        threshold: A threshold of `certify`.
        target: Predictions as the threshold takes them, of one kind of shift. Labels are not used.
        calibrator: What adapts them, such as `SetTemperature`.

    Returns:
        A threshold of the confidence with ``certified`` False, for predictions that the calibrator has calibrated; its
        bound is the estimated error, or cost per row.

    Raises:
        InvalidInputError: The target has no rows, other classes, or another calibration than the threshold's rows.
    """
    if len(target) == 0:
        raise InvalidInputError("target must have at least one row")
    threshold.accepts(target)  # checks that it could be applied
    adapted = calibrator(target)
    numbers, names = group_rows(adapted, threshold.by)
    kept = torch.ones(len(adapted), dtype=torch.bool)
    if threshold.target_class is not None:
        kept = predicted_class(adapted) == threshold.target_class
    confidence = score_values(adapted, "confidence")
    groups = {name: _estimate(threshold, confidence[kept & (numbers == i)]) for i, name in enumerate(names)}
    return replace(threshold, groups=groups, score="confidence", certified=False, calibrators=calibrators_of(adapted))


def _estimate(threshold: Threshold, confidence: torch.Tensor) -> AcceptedRows:
    scores, rows, _ = distinct_scores(confidence.numpy(), torch.zeros_like(confidence, dtype=torch.bool).numpy())
    n, ends, errors = len(confidence), rows.cumsum(), (rows * (1 - scores)).cumsum()
    if threshold.costs is None:
        n_groups = int((errors / ends <= threshold.max_error).sum())
    else:
        of_error, handing_over = threshold.costs
        n_groups = int((of_error * (1 - scores) <= handing_over).sum())
    n_accepted, wrong = (int(ends[n_groups - 1]), float(errors[n_groups - 1])) if n_groups else (0, 0.0)
    bound = wrong / max(1, n_accepted)
    if threshold.costs is not None:
        bound = (of_error * wrong + handing_over * (n - n_accepted)) / max(1, n)
    return AcceptedRows(value_above(scores, n_groups), bound, n, n_accepted)
