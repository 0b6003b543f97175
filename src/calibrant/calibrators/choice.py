"""Cross-fitting without a separate validation set, and the choice of a calibrator by a proper score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_folds
from calibrant.calibrators.table import CALIBRATORS, calibrator_class
from calibrant.errors import CalibrantError, InvalidInputError, NotConvergedError
from calibrant.predictions import Predictions

PROPER_SCORES = ("nll", "brier")
N_STANDARD_ERRORS = 1.0  # a simpler calibrator whose score is worse by no more is chosen


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The result of `cross_fit`.

    Args:
        predictions: Every row, calibrated by a fit to the other folds.
        calibrator: The calibrator fitted to all rows, for new rows.
        fold: (n,) int64, the fold of each row.
    """

    predictions: Predictions
    calibrator: Calibrator
    fold: Tensor


@dataclass(frozen=True)
class Candidate:
    """The cross-validated score of a calibrator, or why it has none.

    Args:
        calibrator: Its name.
        score: Mean over rows.
        standard_error: Of the score.
        difference: To the best score.
        difference_error: Standard error of the difference, paired by rows.
        chosen: Whether it is the one that `choose` fitted.
        failure: Why the calibrator cannot be fitted.
    """

    calibrator: str
    score: float | None = None
    standard_error: float | None = None
    difference: float | None = None
    difference_error: float | None = None
    chosen: bool = False
    failure: str | None = None


def cross_fit(
    predictions: Predictions,
    calibrator: str = "temperature",
    *,
    folds: int = 5,
    cluster: str | None = None,
    **options: Any,
) -> CrossFit:
    """Calibrate each fold by a fit to the others: no separate validation set is needed.

    The folds depend on the rows, not on their order. Equal rows share a fold.

    Args:
        predictions: Labelled rows that the model was not trained on.
        calibrator: A name in `CALIBRATORS`.
        folds: Number of folds.
        cluster: A column; rows that share its value (a patient, a camera) share a fold.
        options: Keyword arguments of the calibrator's `fit`.

    Returns:
        The calibrated rows, and the calibrator fitted to all of them.

    Raises:
        InvalidInputError: There are fewer rows, or clusters, than folds, or an option is not one of the calibrator.
        UnknownNameError: There is no such calibrator or column.
        NotConvergedError: A fold cannot be fitted.
    """
    cls = calibrator_class(calibrator, options)
    check_validation(predictions, of_confidence=cls.of_confidence)
    fold = row_folds(predictions, folds, cluster)
    logits = torch.empty_like(predictions.logits)
    for f in range(folds):
        fitted = cls.fit(predictions[fold != f], **options)
        logits[fold == f] = fitted.calibrate(predictions[fold == f]).logits
    record = {"name": calibrator, "cross_fit": folds}
    calibrated = replace(predictions, logits=logits, metadata={**predictions.metadata, "calibrator": record})
    return CrossFit(calibrated, cls.fit(predictions, **options), fold)


@checked
def choose(
    validation: Predictions,
    candidates: Sequence[str] | None = None,
    *,
    score: str = "nll",
    folds: int = 5,
    cluster: str | None = None,
) -> tuple[Calibrator, list[Candidate]]:
    """Fit the simplest calibrator whose cross-validated proper score is as good as the best.

    As good is a difference of at most 1 standard error, paired by rows. The best score alone misleads: of ten
    candidates, one is better than the others by chance. Simpler calibrators stand first in `CALIBRATORS`.

    Args:
        validation: Labelled rows that the model was not trained on.
        candidates: Names in `CALIBRATORS`; by default the classes with ``default_candidate`` that suit the rows.
        score: "nll" or "brier". A calibration error is not a proper score: it is 0 for a model that always predicts
            the class frequencies.
        folds: Number of folds of the cross-validation.
        cluster: A column; rows that share its value (a patient, a camera) share a fold and are not independent.

    Returns:
        The calibrator fitted to all rows, and the candidates, best score first; one is ``chosen``. Those that cannot be
        fitted are last.

    Raises:
        NotConvergedError: No candidate can be fitted.
        UnknownNameError: There is no such candidate, score or column.
        InvalidInputError: There are no candidates, or fewer rows or clusters than folds.
    """
    check_validation(validation, of_confidence=True)
    check_choice("proper score", score, PROPER_SCORES)
    if candidates is None:
        fits = [cls for cls in CALIBRATORS.values() if validation.n_classes == 2 or not cls.two_classes_only]
        fits = [cls for cls in fits if cls.of_confidence or not validation.top_label]
        candidates = [cls.name for cls in fits if cls.default_candidate]
    names = [check_choice("calibrator", name, CALIBRATORS) for name in candidates]
    if not names:
        raise InvalidInputError("candidates must not be empty")
    row_folds(validation, folds, cluster)  # raises an error before a candidate can fail
    scores: dict[str, Tensor] = {}
    failures: dict[str, str] = {}
    for name in names:
        try:
            scores[name] = row_scores(cross_fit(validation, name, folds=folds, cluster=cluster).predictions, score)
        except CalibrantError as error:
            failures[name] = str(error)
    if not scores:
        raise NotConvergedError(f"no candidate could be fitted: {'; '.join(f'{n}: {f}' for n, f in failures.items())}")
    groups = torch.arange(len(validation)) if cluster is None else torch.from_numpy(validation.groups(cluster)[0])
    best = min(scores.values(), key=lambda values: float(values.mean()))
    table = {name: _candidate(name, values, best, groups) for name, values in scores.items()}
    chosen = next(name for name in CALIBRATORS if name in table and _as_good_as_the_best(table[name]))
    table[chosen] = replace(table[chosen], chosen=True)
    ranked = sorted(table.values(), key=lambda row: row.difference or 0.0)
    ranked += [Candidate(name, failure=failure) for name, failure in failures.items()]
    return CALIBRATORS[chosen].fit(validation), ranked


def _candidate(name: str, scores: Tensor, best: Tensor, groups: Tensor) -> Candidate:
    score, standard_error = mean_and_error(scores, groups)
    difference, difference_error = mean_and_error(torch.where(scores == best, 0.0, scores - best), groups)
    return Candidate(name, score, standard_error, difference, difference_error)


def _as_good_as_the_best(row: Candidate) -> bool:
    assert row.difference is not None
    assert row.difference_error is not None
    return row.difference <= N_STANDARD_ERRORS * row.difference_error < math.inf


def mean_and_error(values: Tensor, groups: Tensor) -> tuple[float, float]:
    """The mean over rows, and its standard error where only the groups of rows, numbered from 0, are independent.

    >>> mean_and_error(torch.tensor([1.0, 1.0, 3.0, 3.0]), torch.tensor([0, 0, 1, 1]))  # as of two rows, 1 and 3
    (2.0, 1.0)
    """
    mean = values.mean()
    if mean == math.inf:
        return math.inf, math.inf
    sums = torch.zeros(int(groups.max()) + 1, dtype=values.dtype).index_add_(0, groups, values - mean)
    variance = float(sums @ sums) * len(sums) / (len(sums) - 1)
    return float(mean), math.sqrt(variance) / len(values)


def row_scores(predictions: Predictions, score: str) -> Tensor:
    """The NLL or the Brier score of each row, float64."""
    if score == "nll":
        return torch.nn.functional.cross_entropy(predictions.logits.double(), predictions.labels, reduction="none")
    probs = predictions.logits.double().softmax(1)
    label = probs.gather(1, predictions.labels.unsqueeze(1)).squeeze(1)
    return probs.square().sum(1) - 2 * label + 1


def row_folds(predictions: Predictions, folds: int, cluster: str | None) -> Tensor:
    """The fold of each row, about as many rows in each: rows, or clusters of them, ordered by their hashes."""
    check_folds(folds, len(predictions))
    hashes = predictions.row_hashes[0]
    if cluster is None:
        _, unit = np.unique(hashes, return_inverse=True)
    else:
        number, values = predictions.groups(cluster)
        keys = np.zeros(len(values), dtype=np.uint64)
        np.add.at(keys, number, hashes)  # of all rows of the cluster, whatever their order
        unit = np.argsort(np.argsort(keys, kind="stable"))[number]
    sizes = np.bincount(unit)
    if len(sizes) < folds:
        what = "different rows" if cluster is None else f"values of {cluster!r}"
        raise InvalidInputError(f"folds must be at most the {len(sizes)} {what}, got {folds}")
    return torch.from_numpy(_assign_folds(sizes, folds)[unit])


def _assign_folds(sizes: NDArray[np.int64], folds: int) -> NDArray[np.int64]:
    """The fold of each unit, in order, folds hold about equally many rows and none is empty."""
    inner = np.arange(1, folds)
    ends = np.searchsorted(np.cumsum(sizes), inner * sizes.sum() / folds) + 1  # the first unit of the next fold
    ends = np.maximum.accumulate(ends - inner) + inner  # each fold has at least one unit,
    ends = np.minimum(ends, len(sizes) - folds + inner)  # also the last ones
    return np.searchsorted(ends, np.arange(len(sizes)), side="right")
