"""Histogram binning and Bayesian binning: a step function of the probability of each class."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor, nn

from calibrant._checks import check_integer
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_in_range, check_increasing, check_shape
from calibrant.calibrators.modules import ProbabilityModule
from calibrant.predictions import Predictions

FloatArray = NDArray[np.float64]
StepFunction = tuple[FloatArray, FloatArray]  # m edges, and the m + 1 values between them
BBQ_SPAN = 10.0  # the numbers of bins run from n^(1/3) / 10 to 10 n^(1/3) (Naeini et al. 2015)
BBQ_PRIOR = 2.0  # N′ of Naeini et al., the rows that the prior of all bins is worth
NEGLIGIBLE = 1e-6  # share of the posterior below which a binning is left out


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StepCalibrator(Calibrator):
    """A step function of the probability of each class; then the probabilities of a row are scaled to sum 1."""

    keeps_argmax: ClassVar[bool] = False

    edges: Tensor  # (k, m) sorted; a value holds up to its right edge
    values: Tensor  # (k, m + 1)

    def __post_init__(self) -> None:
        check_shape("edges", self.edges, (self.n_classes, None))
        check_shape("values", self.values, (self.n_classes, self.edges.shape[1] + 1))
        check_increasing("edges", self.edges)
        check_in_range("values", self.values, 0.0, 1.0)

    @classmethod
    def from_step_functions(cls, validation: Predictions, steps: list[StepFunction]) -> Self:
        """The calibrator of one step function for each class, padded to one length."""
        most = max(1, *(len(edges) for edges, _ in steps))
        edges = [np.pad(e, (0, most - len(e)), constant_values=2.0) for e, _ in steps]  # no probability is above 1
        values = [np.pad(v, (0, most + 1 - len(v)), mode="edge") for _, v in steps]
        return cls.from_parameters(
            validation, edges=torch.from_numpy(np.stack(edges)), values=torch.from_numpy(np.stack(values))
        )

    def module(self) -> nn.Module:
        return ProbabilityModule(self.edges, self.values, linear=False)


@final
class HistogramBinning(StepCalibrator):
    """The frequency of a class among the validation rows of the same bin (Zadrozny and Elkan 2001)."""

    name: ClassVar[str] = "histogram"
    default_candidate: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions, *, n_bins: int = 15, equal_width: bool = False) -> Self:
        """Bins of equal mass, or of equal width; each counts one more row, of probability 1/K: none says never.

        A bin of equal width that no row is in keeps its middle.
        """
        check_validation(validation)
        check_integer("n_bins", n_bins, 1)
        prior = 1 / validation.n_classes

        def step(probs: FloatArray, happened: FloatArray) -> StepFunction:
            edges = np.arange(1, n_bins) / n_bins if equal_width else equal_mass_edges(probs, n_bins)
            rows, counts = bin_counts(probs, cumulative(happened), edges)
            return edges, np.where(rows > 0, (counts + prior) / (rows + 1), bin_centers(edges))

        return cls.from_step_functions(validation, [step(*pair) for pair in class_probs(validation)])


@final
class BayesianBinning(StepCalibrator):
    """BBQ: the average of many binnings, weighted by how likely each makes the labels (Naeini et al. 2015)."""

    name: ClassVar[str] = "bbq"

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Equal-mass binnings with n^(1/3)/10 to 10 n^(1/3) bins, each bin with a Beta prior around its middle."""
        check_validation(validation)
        return cls.from_step_functions(validation, [_average_binnings(*pair) for pair in class_probs(validation)])


def class_probs(predictions: Predictions) -> list[tuple[FloatArray, FloatArray]]:
    """For each class its probabilities, sorted, and whether it was the label."""
    probs = predictions.logits.double().softmax(1)
    ordered, order = probs.sort(dim=0)
    happened = predictions.labels[order] == torch.arange(predictions.n_classes)
    return list(zip(ordered.T.contiguous().numpy(), happened.T.double().contiguous().numpy(), strict=True))


def equal_mass_edges(probs: FloatArray, n_bins: int) -> FloatArray:
    """Edges halfway between sorted values, so that bins hold equally many rows; equal values share a bin."""
    wanted = np.arange(1, n_bins) * len(probs) // n_bins
    left, right = np.searchsorted(probs, probs[wanted], "left"), np.searchsorted(probs, probs[wanted], "right")
    cuts = np.unique(np.where(wanted - left <= right - wanted, left, right))  # the nearer end of a tie
    cuts = cuts[(cuts > 0) & (cuts < len(probs))]
    edges = (probs[cuts] + probs[cuts - 1]) / 2
    inside: FloatArray = edges[(edges > probs[0]) & (edges < probs[-1])]
    return inside


def cumulative(happened: FloatArray) -> FloatArray:
    """(n + 1,) sums of the first 0, 1, … rows."""
    return np.concatenate([[0.0], happened.cumsum()])


def bin_counts(probs: FloatArray, totals: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows of each bin, and those whose label is the class; probabilities sorted, labels cumulative."""
    ends = np.concatenate([[0], np.searchsorted(probs, edges, side="right"), [len(probs)]])
    return np.diff(ends).astype(float), np.diff(totals[ends])


def bin_centers(edges: FloatArray) -> FloatArray:
    """Of the bins between the edges, within (0, 1)."""
    ends = np.concatenate([[0.0], edges, [1.0]])
    within: FloatArray = np.clip((ends[:-1] + ends[1:]) / 2, 1e-12, 1 - 1e-12)
    return within


def _average_binnings(probs: FloatArray, happened: FloatArray) -> StepFunction:
    """The posterior mean over binnings: a step function with the edges of all of them."""
    n = len(probs)
    root = n ** (1 / 3)
    sizes = range(max(1, int(root / BBQ_SPAN)), min(n, int(root * BBQ_SPAN)) + 1)
    totals = cumulative(happened)
    models: list[StepFunction] = []
    evidence = []
    for edges in {e.tobytes(): e for e in (equal_mass_edges(probs, size) for size in sizes)}.values():
        value, log_evidence = _beta_bins(probs, totals, edges)
        models.append((edges, value))
        evidence.append(log_evidence)
    weights = np.exp(np.array(evidence) - max(evidence))
    kept = weights > NEGLIGIBLE * weights.sum()
    weights = weights[kept] / weights[kept].sum()
    chosen = [model for model, keep in zip(models, kept, strict=True) if keep]
    union = np.unique(np.concatenate([edges for edges, _ in chosen]))
    places = np.append(union, 2.0)  # the right end of each interval of the union
    values = sum(w * v[np.searchsorted(e, places)] for w, (e, v) in zip(weights, chosen, strict=True))
    return union, np.asarray(values)


def _beta_bins(probs: FloatArray, totals: FloatArray, edges: FloatArray) -> tuple[FloatArray, float]:
    """The posterior mean of each bin, and the logarithm of the binning's evidence."""
    rows, counts = bin_counts(probs, totals, edges)
    worth = BBQ_PRIOR / len(rows)
    alpha = worth * bin_centers(edges)
    beta = worth - alpha
    log_evidence = (
        gammaln(worth)
        - gammaln(rows + worth)
        + gammaln(counts + alpha)
        - gammaln(alpha)
        + gammaln(rows - counts + beta)
        - gammaln(beta)
    )
    return (counts + alpha) / (rows + worth), float(log_evidence.sum())
