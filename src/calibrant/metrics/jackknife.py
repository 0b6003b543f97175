"""Delete-a-group jackknife: every metric without each twentieth of the rows, for the noise that the rows cause."""

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from calibrant._checks import check_instance, check_level
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError
from calibrant.metrics.bin_sums import Float64Array
from calibrant.metrics.influence import BinnedResiduals, ScoredPredictions
from calibrant.metrics.murphy import TERMS, BrierDecomposition
from calibrant.metrics.sample_scores import score_rows
from calibrant.metrics.scorecard import NO_ROWS, Scorecard
from calibrant.metrics.scoring import merge
from calibrant.metrics.table import METRICS
from calibrant.predictions import Predictions

N_GROUPS = 20


def jackknife_groups(predictions: Predictions, cluster: str | None = None) -> NDArray[np.int64]:
    """The group of each row: a random twentieth of the rows, or of the values of a column.

    The groups depend on the number of rows alone. Row i is in the same group in every corruption of a test set and
    for every model, so a group that is left out is the same images everywhere.

    Args:
        predictions: The rows.
        cluster: A column; rows that share its value are in the same group.

    Returns:
        (n,) numbers from 0; fewer than 20 groups where there are fewer rows or values.
    """
    number = np.arange(len(predictions)) if cluster is None else predictions.groups(cluster)[0]
    order = np.random.default_rng(0).permutation(int(number.max()) + 1)
    return np.asarray(order[number] % N_GROUPS)


def jackknife(predictions: Predictions, card: Scorecard, groups: NDArray[np.int64]) -> dict[str, Float64Array]:
    r"""Every metric of a scorecard without the rows of each group.

    The variance of a metric, of a difference of metrics on the same rows, or of a mean of either, is

    .. math:: \frac{J - 1}{J} \sum_j (m_j - \overline{m})^2

    where :math:`m_j` is its value without group j of J. Means and the ECE are exact; of the other metrics, the
    bins and the weights of the rows stay those of all rows, and the debiased error, which has none where it is 0, is
    linearized.

    Args:
        predictions: Labelled predictions.
        card: Their scorecard.
        groups: (n,) the group of each row, from 0.

    Returns:
        (J,) values for each metric that is finite and that `calibrant.compare` compares; none with one group.
    """
    n, n_groups = len(predictions), int(groups.max()) + 1
    if n_groups == 1:
        return {}
    remaining = n - np.bincount(groups)
    scores, _ = score_rows(predictions)
    rows = ScoredPredictions(predictions, scores, torch.ones(n, dtype=torch.float64))
    found = {}
    for name, value in card.values().items():
        metric = METRICS[name]
        if value is None or not math.isfinite(value):
            continue
        if metric.gaps is not None:
            changes, norm = _norm_changes(metric.gaps(rows, card.n_bins), groups, remaining)
            if not metric.debiased:
                found[name] = value + changes
            elif value > 0:
                found[name] = value + changes * norm / value
        elif metric.influence is not None:
            influence = metric.influence(rows, card).numpy()
            found[name] = value - np.bincount(groups, influence, n_groups) / remaining
    return found


def _norm_changes(
    gaps: BinnedResiduals, groups: NDArray[np.int64], remaining: NDArray[np.int64]
) -> tuple[Float64Array, float]:
    """The change of a norm of gaps without each group, and the norm."""
    cells = groups * gaps.n_bins + gaps.number.numpy()
    sums = np.bincount(cells, gaps.residual.numpy(), len(remaining) * gaps.n_bins).reshape(len(remaining), -1)
    total = sums.sum(0)
    without = gaps.norm(gaps.linear((total - sums) * (len(groups) / remaining[:, None])))
    norm = float(gaps.norm(gaps.linear(total)))
    return gaps.response * (without - norm), norm


@checked
def brier_decomposition(
    predictions: Predictions, *, n_bins: int = 15, cluster: str | None = None, level: float = 0.95
) -> BrierDecomposition:
    """The Brier score as reliability − resolution + uncertainty + what differs within bins, with intervals.

    The intervals are those of a jackknife over twenty groups of rows. Those of a calibrated model are too wide: the
    jackknife counts the noise of a squared gap twice.

    Args:
        predictions: Labelled predictions.
        n_bins: The number of bins of the probability of each class.
        cluster: A column; rows that share its value are not independent.
        level: Confidence level of the intervals.

    Returns:
        The terms, with `intervals`.

    Raises:
        InvalidInputError: There are fewer than two rows or clusters, a row has no label, or an argument is invalid.
        UnknownNameError: There is no such column.
    """
    check_level(level)
    check_instance("predictions", predictions, Predictions)
    if len(predictions) == 0:
        raise InvalidInputError(NO_ROWS)
    groups = jackknife_groups(predictions, cluster)
    n_groups = int(groups.max()) + 1
    if n_groups == 1:
        raise InvalidInputError(f"predictions must have at least 2 {'rows' if cluster is None else 'clusters'}, got 1")
    cards = [Scorecard.of(predictions[groups == j], metrics=("cece", "brier"), n_bins=n_bins) for j in range(n_groups)]
    found, *without = (_brier_terms(cards[:j] + cards[j + 1 :]) for j in (n_groups, *range(n_groups)))
    noise = np.std([[getattr(each, term) for term in TERMS] for each in without], axis=0) * math.sqrt(n_groups - 1)
    limits = {}
    for term, half in zip(TERMS, float(stdtrit(n_groups - 1, (1 + level) / 2)) * noise, strict=True):
        value = getattr(found, term)
        limits[term] = value - float(half), value + float(half)
    return replace(found, intervals=limits)


def _brier_terms(cards: list[Scorecard]) -> BrierDecomposition:
    total: Scorecard = merge(cards)
    return total.brier_decomposition()
