"""Histogram binning, Bayesian binning and isotonic regression: functions of the probability of each class."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor, nn

from calibrant._checks import check_n_bins
from calibrant._signatures import checked
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_in_range, check_increasing, check_shape
from calibrant.calibrators.modules import ProbabilityModule
from calibrant.predictions import Predictions

FloatVector = NDArray[np.float64]
StepFunction = tuple[FloatVector, FloatVector]  # m edges, and the m + 1 values between them
BBQ_RANGE = 10.0  # the numbers of bins run from n^(1/3) / 10 to 10 n^(1/3) (Naeini et al. 2015)
BBQ_PRIOR = 2.0  # N′ of Naeini et al.: the prior of all bins counts as this many rows
MIN_POSTERIOR = 1e-6  # binnings with a smaller share of the posterior are left out
MIN_SLOPE = 1e-6  # added to a function of all classes: it increases strictly


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProbabilityCalibrator(Calibrator):
    """A function of the probability of each class, or one for all classes; then each row is normalized to sum 1."""

    keeps_argmax: ClassVar[bool] = False
    linear: ClassVar[bool] = False  # increasing and piecewise linear; otherwise a step function

    knots: Tensor  # (k, m) sorted, or (1, m) for one function of all classes
    values: Tensor  # (k, m) at the knots; or (k, m + 1) between them, each up to its right knot

    def __post_init__(self) -> None:
        n_functions = 1 if self.keeps_argmax else self.n_classes
        check_shape("knots", self.knots, (n_functions, None))
        check_shape("values", self.values, (n_functions, self.knots.shape[1] + (not self.linear)))
        check_increasing("knots", self.knots)
        if self.linear:
            check_increasing("values", self.values)
        check_in_range("values", self.values, 0.0, 1.0 + MIN_SLOPE * self.linear)

    @classmethod
    def from_functions(cls, validation: Predictions, functions: list[tuple[FloatVector, FloatVector]]) -> Self:
        """The calibrator of these functions, padded to one length; steps are padded beyond all probabilities."""
        length = max(1 + cls.linear, *(len(x) for x, _ in functions))
        knots = [np.append(x, np.full(length - len(x), x[-1] if cls.linear else 2.0)) for x, _ in functions]
        values = [np.pad(y, (0, length + (not cls.linear) - len(y)), mode="edge") for _, y in functions]
        stacked_knots, stacked_values = torch.from_numpy(np.stack(knots)), torch.from_numpy(np.stack(values))
        return cls.from_parameters(validation, knots=stacked_knots, values=stacked_values)

    def row_module(self) -> nn.Module:
        return ProbabilityModule(self.knots, self.values, linear=self.linear, keeps_argmax=self.keeps_argmax)


@final
class HistogramBinning(ProbabilityCalibrator):
    """The frequency of a class among the validation rows of the same bin (Zadrozny and Elkan 2001)."""

    name: ClassVar[str] = "histogram"
    of_confidence: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True

    @classmethod
    @checked
    def fit(cls, validation: Predictions, *, n_bins: int = 15, equal_width: bool = False) -> Self:
        """Count each bin, with one more row of probability 1/K: no bin gets probability 0 or 1.

        An empty bin of equal width keeps its center.

        Args:
            n_bins: Number of bins.
            equal_width: Bins of equal width instead of equal mass.
        """
        check_validation(validation, of_confidence=cls.of_confidence)
        check_n_bins(n_bins)
        prior = 1 / validation.n_classes

        def step(probs: FloatVector, is_label: FloatVector) -> StepFunction:
            edges = np.arange(1, n_bins) / n_bins if equal_width else equal_mass_edges(probs, n_bins)
            rows, counts = bin_counts(probs, cumulative(is_label), edges)
            return edges, np.where(rows > 0, (counts + prior) / (rows + 1), bin_centers(edges))

        return cls.from_functions(validation, [step(*pair) for pair in class_probs(validation)])


@final
class BayesianBinning(ProbabilityCalibrator):
    """BBQ: the average of many binnings, weighted by their marginal likelihood (Naeini et al. 2015)."""

    name: ClassVar[str] = "bbq"
    of_confidence: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Average equal-mass binnings with n^(1/3)/10 to 10 n^(1/3) bins, each bin with a Beta prior at its center."""
        check_validation(validation, of_confidence=cls.of_confidence)
        return cls.from_functions(validation, [_average_binnings(*pair) for pair in class_probs(validation)])


@final
class IsotonicCalibration(ProbabilityCalibrator):
    """One increasing function for each class against the rest (Zadrozny and Elkan 2002)."""

    name: ClassVar[str] = "isotonic"
    of_confidence: ClassVar[bool] = True
    linear: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Least squares for each class; two added rows keep probabilities from 0 and 1 (see `fit_isotonic`)."""
        check_validation(validation, of_confidence=cls.of_confidence)
        return cls.from_functions(validation, [fit_isotonic(*pair) for pair in class_probs(validation)])


@final
class MulticlassIsotonic(ProbabilityCalibrator):
    """One increasing function for all classes, which keeps their order (IRM of Zhang et al. 2020)."""

    name: ClassVar[str] = "isotonic_multiclass"
    keeps_argmax: ClassVar[bool] = True
    linear: ClassVar[bool] = True
    default_candidate: ClassVar[bool] = True

    @classmethod
    def fit(cls, validation: Predictions) -> Self:
        """Least squares over the probabilities of all classes and rows, with the two rows of `fit_isotonic`."""
        check_validation(validation)
        probs, is_label = (np.concatenate(arrays) for arrays in zip(*class_probs(validation), strict=True))
        order = np.argsort(probs, kind="stable")
        knots, values = fit_isotonic(probs[order], is_label[order])
        return cls.from_functions(validation, [(knots, values + MIN_SLOPE * knots)])


def class_probs(predictions: Predictions) -> list[tuple[FloatVector, FloatVector]]:
    """For each class its probabilities, sorted, and whether it is the label."""
    probs = predictions.logits.double().softmax(1)
    ordered, order = probs.sort(dim=0)
    is_label = predictions.labels[order] == torch.arange(predictions.n_classes)
    return list(zip(ordered.T.contiguous().numpy(), is_label.T.double().contiguous().numpy(), strict=True))


def fit_isotonic(probs: FloatVector, is_label: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Knots and values of the isotonic regression of sorted probabilities.

    A row with the label is added at the least probability, and one without it at the greatest.
    """
    from sklearn.isotonic import IsotonicRegression

    x = np.concatenate([probs[:1], probs, probs[-1:]])
    y = np.concatenate([[1.0], is_label, [0.0]])
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
    return model.X_thresholds_.astype(float), model.y_thresholds_.astype(float)


def equal_mass_edges(probs: FloatVector, n_bins: int) -> FloatVector:
    """Edges halfway between sorted values: bins hold about equally many rows, and equal values share a bin."""
    wanted = np.arange(1, n_bins) * len(probs) // n_bins
    left, right = np.searchsorted(probs, probs[wanted], "left"), np.searchsorted(probs, probs[wanted], "right")
    cuts = np.unique(np.where(wanted - left <= right - wanted, left, right))  # the nearer end of a tie
    cuts = cuts[(cuts > 0) & (cuts < len(probs))]
    edges = (probs[cuts] + probs[cuts - 1]) / 2
    inside: FloatVector = edges[(edges > probs[0]) & (edges < probs[-1])]
    return inside


def cumulative(values: FloatVector) -> FloatVector:
    """(n + 1,) sums of the first 0, 1, … values."""
    return np.concatenate([[0.0], values.cumsum()])


def bin_counts(probs: FloatVector, totals: FloatVector, edges: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Rows of each bin, and those whose label is the class; sorted probabilities, cumulative labels."""
    ends = np.concatenate([[0], np.searchsorted(probs, edges, side="right"), [len(probs)]])
    return np.diff(ends).astype(float), np.diff(totals[ends])


def bin_centers(edges: FloatVector) -> FloatVector:
    """Of the bins between the edges, strictly within (0, 1)."""
    ends = np.concatenate([[0.0], edges, [1.0]])
    centers: FloatVector = np.clip((ends[:-1] + ends[1:]) / 2, 1e-12, 1 - 1e-12)
    return centers


def _average_binnings(probs: FloatVector, is_label: FloatVector) -> StepFunction:
    """The posterior mean over binnings: a step function with the edges of all of them."""
    root = len(probs) ** (1 / 3)
    sizes = range(max(1, int(root / BBQ_RANGE)), min(len(probs), int(root * BBQ_RANGE)) + 1)
    totals = cumulative(is_label)
    binnings = list({e.tobytes(): e for e in (equal_mass_edges(probs, size) for size in sizes)}.values())
    fits = [_beta_bins(probs, totals, edges) for edges in binnings]
    evidence = np.array([log_evidence for _, log_evidence in fits])
    weights = np.exp(evidence - evidence.max())
    kept = np.flatnonzero(weights > MIN_POSTERIOR * weights.sum())
    weights = weights / weights[kept].sum()
    union = np.unique(np.concatenate([binnings[i] for i in kept]))
    right_ends = np.append(union, 2.0)
    values = sum(weights[i] * fits[i][0][np.searchsorted(binnings[i], right_ends)] for i in kept)
    return union, np.asarray(values)


def _beta_bins(probs: FloatVector, totals: FloatVector, edges: FloatVector) -> tuple[FloatVector, float]:
    """The posterior mean of each bin, and the log marginal likelihood of the binning."""
    rows, counts = bin_counts(probs, totals, edges)
    strength = BBQ_PRIOR / len(rows)
    alpha = strength * bin_centers(edges)
    beta = strength - alpha
    log_evidence = gammaln(strength) - gammaln(rows + strength) + gammaln(counts + alpha) - gammaln(alpha)
    log_evidence += gammaln(rows - counts + beta)
    log_evidence -= gammaln(beta)
    return (counts + alpha) / (rows + strength), float(log_evidence.sum())
