"""Paired comparison of two models on the same rows: differences with intervals and p-values.

Every metric is, near its value, a mean over rows, so the variance of a difference is that of a mean of paired terms;
rows of one cluster (a patient, a camera, a seed) are summed first. Norms of gaps are not differentiable at 0: for them
the gaps of both models are drawn together from their joint normal law, and the spread of the norms is measured. Noise
adds more to the norm of one model than to that of the other; the interval holds the difference with and without that.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from scipy.special import ndtr, ndtri, stdtr, stdtrit
from torch import Tensor

from calibrant._arrays import UNKNOWN
from calibrant._checks import (
    check_all_labelled,
    check_choice,
    check_counting,
    check_level,
    check_same_rows,
    check_whole,
)
from calibrant.errors import InvalidInputError
from calibrant.metrics import intervals
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.cells import TIE_BITS, equal_mass_numbers, keys_of, strata_numbers
from calibrant.metrics.exact import holm
from calibrant.metrics.means import COLUMNS
from calibrant.metrics.outcomes import Outcomes, outcomes, rounding
from calibrant.metrics.ranking import aurc_influence
from calibrant.metrics.scorecard import Scorecard, row_weights
from calibrant.metrics.smooth import Floats, smooth
from calibrant.metrics.table import METRICS, check_metrics
from calibrant.metrics.tally import Tally, tally
from calibrant.predictions import Predictions

N_DRAWS = 2000
CLUSTERS_AT_A_TIME = 2048


@dataclass(frozen=True)
class Difference:
    """One metric of one group of rows: model a less model b."""

    metric: str
    group: object  # the value of the column compared by; None for all rows
    whole: bool  # whether it is all rows: a group of rows without a value is None too
    n_rows: int
    a: float
    b: float
    difference: float
    interval: tuple[float, float]
    standard_error: float
    p_value: float  # of the difference being 0
    p_holm: float  # the same, corrected for the number of groups compared


@dataclass(frozen=True)
class _Model:
    """The rows of one model."""

    predictions: Predictions
    rows: Outcomes
    weights: Tensor

    def __getitem__(self, index: Tensor) -> "_Model":
        rows = Outcomes(*(getattr(self.rows, name)[index] for name in Outcomes.__slots__))
        return _Model(self.predictions[index], rows, self.weights[index])


def compare(
    a: Predictions,
    b: Predictions,
    *,
    metrics: Iterable[str] | None = None,
    by: str | None = None,
    cluster: str | None = None,
    weights: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
) -> list[Difference]:
    """Metric by metric, model a less model b on the same rows in the same order.

    by: a column of a; each of its values is compared too, the p-values corrected for their number (Holm). cluster: a
    column of a; rows that share its value are not independent. weights: a column of a. metrics: by default all of the
    table but those of P(y = 1), and but those that are infinite for either model.

    >>> a = Predictions.from_positive_probs([0.9, 0.2, 0.8, 0.7], [1, 0, 1, 0])
    >>> b = Predictions.from_positive_probs([0.6, 0.4, 0.6, 0.6], [1, 0, 1, 0])
    >>> [row] = compare(a, b, metrics=["brier"])
    >>> round(row.difference, 4)
    -0.13
    """
    check_same_rows(a.labels, b.labels, a.n_classes, b.n_classes)
    check_whole("n_bins", n_bins, 1)
    check_level(level)
    check_whole("seed", seed, 0)
    check_all_labelled(a.labels == UNKNOWN)
    comparable = [name for name in METRICS if not METRICS[name].binary]
    names = check_metrics(comparable if metrics is None else metrics, a.n_classes)
    for name in names:
        check_choice("metric that can be compared", name, comparable)
    if weights is not None:
        counts = check_counting(row_weights(a, weights))
        a, b = a[counts], b[counts]
        b = replace(b, columns=pa.table({weights: a.column(weights)}))
    models = [_model(predictions, weights) for predictions in (a, b)]
    clusters = torch.arange(len(a)) if cluster is None else torch.from_numpy(a.groups(cluster)[0])
    groups: list[tuple[object, Tensor]] = [(None, torch.arange(len(a)))]
    if by is not None:
        number, distinct = a.groups(by)
        groups += [(value, torch.from_numpy(np.flatnonzero(number == i))) for i, value in enumerate(distinct)]
    found = []
    for group, index in groups:
        pair = [model[index] for model in models]
        cards = [Scorecard.of(model.predictions, metrics=names, n_bins=n_bins, weights=weights) for model in pair]
        for name in names:
            values = [value for card in cards if (value := card.get(name)) is not None]
            if len(values) < 2 or (metrics is None and not all(map(math.isfinite, values))):
                continue
            evidence = _evidence(name, pair, cards, clusters[index], seed)
            found.append(_difference(name, group, len(index), values[0], values[1], evidence, level))
    return [row for name in names for row in _holm([row for row in found if row.metric == name])]


def _model(predictions: Predictions, weights: str | None) -> _Model:
    rows, _ = outcomes(predictions.logits, predictions.labels)
    ones = torch.ones(len(predictions), dtype=torch.float64)
    return _Model(predictions, rows, ones if weights is None else row_weights(predictions, weights))


@dataclass(frozen=True)
class _Evidence:
    """What is known of a difference beside its value."""

    error: float  # its standard error
    freedom: float  # the degrees of freedom of that
    noise: float = 0.0  # at most so much of it is what noise adds to one norm more than to the other


def _difference(
    name: str, group: object, n_rows: int, a: float, b: float, evidence: _Evidence, level: float
) -> Difference:
    difference, error, freedom = a - b, evidence.error, evidence.freedom
    if not math.isfinite(difference):
        raise InvalidInputError(f"{name} cannot be compared: it is {a:g} and {b:g}")
    if freedom < 1:  # a single cluster says nothing of how clusters differ
        return Difference(name, group, False, n_rows, a, b, difference, (-math.inf, math.inf), math.inf, 1.0, 1.0)
    low, high = sorted((difference, difference - evidence.noise))
    reach = error * float(ndtri((1 + level) / 2) if math.isinf(freedom) else stdtrit(freedom, (1 + level) / 2))
    nearest = max(low, -high, 0.0)  # how far 0 is from what the difference may be
    p_value = float(nearest == 0)
    if error > 0:
        z = -nearest / error
        p_value = 2 * float(ndtr(z) if math.isinf(freedom) else stdtr(freedom, z))
    return Difference(
        name, group, False, n_rows, a, b, difference, (low - reach, high + reach), error, p_value, p_value
    )


def _holm(rows: list[Difference]) -> list[Difference]:
    """The p-values of the groups corrected; that of all rows stays."""
    corrected = holm([row.p_value for row in rows[1:]])
    groups = [replace(row, p_holm=p_holm) for row, p_holm in zip(rows[1:], corrected, strict=True)]
    return [replace(row, whole=True) for row in rows[:1]] + groups


def _evidence(name: str, pair: list[_Model], cards: list[Scorecard], clusters: Tensor, seed: int) -> _Evidence:
    _, cluster = clusters.unique(return_inverse=True)
    n_clusters = int(cluster.max()) + 1
    if n_clusters == 1:
        return _Evidence(math.inf, 0.0)
    correction = n_clusters / (n_clusters - 1)
    if name in _GAPS:
        sides = [_GAPS[name](model, card) for model, card in zip(pair, cards, strict=True)]
        return _spread_of_norms(sides, _joint_covariance(sides, cluster) * correction, seed)
    weights = pair[0].weights
    terms = [weights * _influence(name, model, card) for model, card in zip(pair, cards, strict=True)]
    summed = torch.zeros(n_clusters, dtype=torch.float64).index_add_(0, cluster, terms[0] - terms[1])
    error = math.sqrt(float(summed @ summed) * correction) / float(weights.sum())
    noise = [intervals.classwise_noise(card.classes) for card in cards if card.classes is not None and name == "cece"]
    return _Evidence(error, n_clusters - 1.0, noise[0] - noise[1] if noise else 0.0)


def _influence(name: str, model: _Model, card: Scorecard) -> Tensor:
    """What each row contributes to n times a metric that is smooth in its rows, less the metric's value."""
    value = card[name]
    if name == "aurc":
        cell, cells = _exact(model)
        right, wrong = aurc_influence(cells)
        return torch.where(model.rows.correct, right[cell], wrong[cell])
    if name == "cece":
        return _classwise_influence(model, card)
    column = {"accuracy": "correct"}.get(name, name.removesuffix("_on_errors"))
    assert column in COLUMNS
    deviation: Tensor = getattr(model.rows, column).double() - value
    if not name.endswith("_on_errors"):
        return deviation
    wrong = (~model.rows.correct).double()
    return wrong * deviation * model.weights.sum() / (model.weights @ wrong)


def _classwise_influence(model: _Model, card: Scorecard) -> Tensor:
    assert card.classes is not None
    sign = (card.classes.weight[..., 1] - card.classes.confidence).sign().flatten()
    n, k = model.predictions.logits.shape
    found = torch.empty(n, dtype=torch.float64)
    step = max(1, 2**20 // k)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        probs = model.predictions.logits[rows].softmax(1)
        cell = bin_numbers(probs, card.n_bins, rounding(probs.dtype)) + torch.arange(k) * card.n_bins
        residual = -probs.double()
        residual[torch.arange(len(probs)), model.predictions.labels[rows]] += 1
        found[rows] = (sign[cell] * residual).sum(1) / k
    return found - model.weights @ found / model.weights.sum()


@dataclass(frozen=True)
class _Gaps:
    """A model's gaps: the cell and the residual of each row, and the metric as a function of the gaps."""

    cell: Tensor  # (n,)
    residual: Tensor  # (n,) weighted: correct less confidence
    n_cells: int
    total: float  # of the weights
    linear: Callable[[Floats], Floats]  # of the gaps
    norm: intervals.Norm  # of that: the metric
    share: float = 1.0  # of a change of the norm that is left where the metric's own width follows

    @property
    def gap(self) -> Floats:
        return np.bincount(self.cell.numpy(), self.residual.numpy(), self.n_cells) / self.total

    def metric(self, gap: Floats) -> Floats:
        return self.share * self.norm(self.linear(gap))

    def added_by(self, noise: Floats) -> float:
        """What noise adds to the metric where gaps that are no more than noise are taken for none."""
        gap, drawn = self.linear(self.gap), self.linear(noise)
        base = np.where(np.abs(gap) > intervals.SIGNIFICANT * drawn.std(0), gap, 0.0)
        return float(self.norm(base + drawn).mean() - self.norm(base))


def _exact(model: _Model) -> tuple[Tensor, Tally]:
    """The exact cell of each row, and their tally."""
    rows = model.rows
    keys, cell = keys_of(rows.confidence, rows.doubt, TIE_BITS[rows.confidence.dtype]).unique(return_inverse=True)
    return cell, tally(cell, len(keys), rows.confidence, rows.correct, model.weights)


def _with(model: _Model, cell: Tensor, n_cells: int, linear: Callable[[Floats], Floats], norm: intervals.Norm) -> _Gaps:
    residual = model.weights * (model.rows.correct.double() - model.rows.confidence.double())
    return _Gaps(cell, residual, n_cells, float(model.weights.sum()), linear, norm)


def _over_bins(norm: intervals.Norm, power: float) -> Callable[[_Model, Scorecard], _Gaps]:
    def gaps(model: _Model, card: Scorecard) -> _Gaps:
        confidence = model.rows.confidence
        cell = bin_numbers(confidence, card.n_bins, rounding(confidence.dtype))
        mass = torch.bincount(cell, model.weights, card.n_bins).numpy() / float(model.weights.sum())
        scale = np.where(mass > 0, np.maximum(mass, 1e-300) ** power, np.inf)
        return _with(model, cell, card.n_bins, lambda gap: gap / scale, norm)

    return gaps


def _over_mass_bins(norm: intervals.Norm, power: float) -> Callable[[_Model, Scorecard], _Gaps]:
    def gaps(model: _Model, card: Scorecard) -> _Gaps:
        cell, cells = _exact(model)
        numbers = equal_mass_numbers(cells, card.n_bins)
        mass = np.maximum(cells.merged(numbers, card.n_bins).mass.numpy(), 1e-300)
        return _with(model, numbers[cell], card.n_bins, lambda gap: gap / mass**power, norm)

    return gaps


def _over_strata(model: _Model, card: Scorecard) -> tuple[Tensor, Tally, Tally]:
    """The stratum of each row, the strata, and the cells."""
    cell, cells = _exact(model)
    _, numbers = strata_numbers(cells, intervals.N_STRATA).unique(return_inverse=True)
    return numbers[cell], cells.merged(numbers, int(numbers.max()) + 1), cells


def _ks_gaps(model: _Model, card: Scorecard) -> _Gaps:
    cell, groups, _ = _over_strata(model, card)
    return _with(model, cell, len(groups.total), lambda gap: np.cumsum(gap, -1), intervals.largest)


def _smooth_gaps(model: _Model, card: Scorecard) -> _Gaps:
    cell, groups, cells = _over_strata(model, card)
    width = float(smooth(cells))
    if width == 0:
        return _with(model, cell, len(groups.total), lambda gap: gap, intervals.absolute_sum)
    kernel, share = intervals.kernel(groups, width), intervals.share_of_width(cells, width)
    return replace(_with(model, cell, len(groups.total), lambda gap: gap @ kernel, intervals.absolute_sum), share=share)


_GAPS: dict[str, Callable[[_Model, Scorecard], _Gaps]] = {
    "ece": _over_bins(intervals.absolute_sum, 0.0),
    "mce": _over_bins(intervals.largest, 1.0),
    "rmsce": _over_bins(intervals.root_sum, 0.5),
    "overconfidence": _over_bins(intervals.negative_sum, 0.0),
    "underconfidence": _over_bins(intervals.positive_sum, 0.0),
    "adaece": _over_mass_bins(intervals.absolute_sum, 0.0),
    "l2ce": _over_mass_bins(intervals.root_sum, 0.5),
    "kse": _ks_gaps,
    "smece": _smooth_gaps,
}


def _joint_covariance(sides: list[_Gaps], cluster: Tensor) -> Floats:
    """Covariance of the summed residuals of both models' cells, clusters being independent."""
    first, second = sides
    size = first.n_cells + second.n_cells
    total = torch.zeros(size, size, dtype=torch.float64)
    order = cluster.argsort(stable=True)
    cell = torch.stack([first.cell, second.cell + first.n_cells], dim=1)[order]
    residual = torch.stack([first.residual, second.residual], dim=1)[order]
    number = cluster[order]
    edges = torch.searchsorted(number, torch.arange(0, int(number[-1]) + 1 + CLUSTERS_AT_A_TIME, CLUSTERS_AT_A_TIME))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        local = number[start:end] - number[start]
        sums = torch.zeros(CLUSTERS_AT_A_TIME * size, dtype=torch.float64)
        sums.index_add_(0, (local.unsqueeze(1) * size + cell[start:end]).flatten(), residual[start:end].flatten())
        sums = sums.view(-1, size)
        total += sums.T @ sums
    return total.numpy()


def _spread_of_norms(sides: list[_Gaps], covariance: Floats, seed: int) -> _Evidence:
    """Standard deviation of metric(a) − metric(b) when the gaps of both are drawn from their joint normal law."""
    first, second = sides
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    noise = np.random.default_rng(seed).standard_normal((N_DRAWS, len(root))) @ root.T / first.total
    noises = noise[:, : first.n_cells], noise[:, first.n_cells :]
    drawn = first.metric(first.gap + noises[0]) - second.metric(second.gap + noises[1])
    added = [side.added_by(own) for side, own in zip(sides, noises, strict=True)]
    return _Evidence(float(drawn.std(ddof=1)), math.inf, added[0] - added[1])
