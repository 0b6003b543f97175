"""Class proportions of an unlabelled target, with intervals, and a test whether they alone have changed.

Label shift: the target has the rows of each class that validation has, in other proportions. Both estimators are roots
of sums over rows of target and of validation. What each row adds to them, its influence, gives their variance.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from calibrant._checks import check_all_classes, check_instance, check_level, check_same_class_names
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.base import check_validation
from calibrant.calibrators.maps import MIN_SET_ROWS, floor_logits
from calibrant.calibrators.scaling import BiasCorrectedTemperature, fit_bias_corrected
from calibrant.calibrators.temperature import mixture_weights
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

FloatArray = NDArray[np.float64]
METHODS = ("em", "bbse", "bbse_hard")
MIN_CLASS_ROWS = 2  # of validation: one row has no variance
MAX_CONDITION = 1e8  # of a confusion matrix that is inverted
CONFIDENCE_BINS = 5
SIGNIFICANT = 0.05
NO_ROW = 1e-3  # rows of the target: a class of fewer has none
NO_VARIANCE = 1e-9  # relative to the largest of all directions


@dataclass(frozen=True)
class ClassProportions:
    """Class proportions of a target, as far as label shift explains it.

    Args:
        method: How they were estimated: em, bbse or bbse_hard.
        level: The level of the intervals.
        proportions: The estimated proportion of each class; they sum to 1.
        intervals: A confidence interval of each, for independent rows of the target and of validation.
        validation: The proportion of each class in validation.
        p_value: Of the hypothesis that nothing but the proportions has changed. Under it, a p-value of at most 0.05
            comes up in 5 % of the targets.
    """

    method: str
    level: float
    proportions: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    validation: tuple[float, ...]
    p_value: float

    @property
    def warning(self) -> str | None:
        """Why the proportions are not to be believed, or None."""
        if self.p_value > SIGNIFICANT:
            return None
        return (
            f"more than the class proportions has changed (p-value {self.p_value:.2g}): the confidences of the target "
            "are not those of validation in any proportions, so do not believe the estimated ones"
        )


class _Estimate(NamedTuple):
    """A root of sums over rows: the mean influence of a row is 0, its variance that of the estimate."""

    proportions: FloatArray  # (k,) on the simplex
    free: FloatArray  # (k,) without the bounds 0 and 1: about normal
    of_target: FloatArray  # (m, k) influence of each row of target
    of_validation: FloatArray  # (n, k)

    def covariance(self) -> FloatArray:
        return _covariance(self.of_target, self.of_validation)


class LabelShiftProblem:
    """The rows of validation and of target, in the forms that the estimators need.

    Args:
        validation: Labelled rows.
        target: Rows whose labels are not used.
    """

    def __init__(self, validation: Predictions, target: Predictions) -> None:
        _check_rows(validation, target)
        self.labels: NDArray[np.int64] = validation.labels.numpy()
        self.known, self.new = (_shifted_logits(rows) for rows in (validation, target))
        self.n_classes = validation.n_classes
        self.class_names = validation.class_names or tuple(map(str, range(self.n_classes)))
        self.counts = np.bincount(self.labels, minlength=self.n_classes)
        self.prior: FloatArray = self.counts / len(self.labels)

    @cached_property
    def probs(self) -> tuple[FloatArray, FloatArray]:
        """(n, k) and (m, k) predicted probabilities."""
        return _softmax(self.known), _softmax(self.new)

    @property
    def predicted(self) -> tuple[FloatArray, FloatArray]:
        """(n, k) and (m, k) 1 for the predicted class, else 0."""
        return np.eye(self.n_classes)[self.known.argmax(1)], np.eye(self.n_classes)[self.new.argmax(1)]

    def class_means(self, of_validation: FloatArray) -> FloatArray:
        """(d, k) means of values (n, d) over the rows of each class of validation."""
        sums = torch.zeros(self.n_classes, of_validation.shape[1], dtype=torch.float64)
        sums.index_add_(0, torch.from_numpy(self.labels), torch.from_numpy(of_validation))
        return sums.numpy().T / self.counts

    def class_residuals(self, of_validation: FloatArray, means: FloatArray, proportions: FloatArray) -> FloatArray:
        """(n, d) what each row of validation adds to Σ_c q_c · mean of class c, times n."""
        count = self.counts
        factor = proportions * len(self.labels) / np.sqrt(count * (count - 1.0))  # variances divide by count − 1
        return (of_validation - means.T[self.labels]) * factor[self.labels, None]

    def bbse(self, *, hard: bool) -> _Estimate:
        """The proportions q with C q = mean score of target, C the mean scores of each class (Lipton et al. 2018)."""
        known, new = self.predicted if hard else self.probs
        confusion = self.class_means(known)
        inverse, mean = self._inverse(confusion), new.mean(0)
        free = inverse @ mean
        from scipy.optimize import nnls

        proportions, _ = nnls(confusion, mean)
        of_validation = -self.class_residuals(known, confusion, free) @ inverse.T
        return _Estimate(proportions / proportions.sum(), free, (new - mean) @ inverse.T, of_validation)

    def _inverse(self, confusion: FloatArray) -> FloatArray:
        _, singular, axes = np.linalg.svd(confusion)
        if singular[-1] * MAX_CONDITION < singular[0]:
            raise NotConvergedError(self._not_told_apart(axes[-1]))
        return np.asarray(np.linalg.inv(confusion), dtype=np.float64)

    def _not_told_apart(self, direction: FloatArray) -> str:
        """The classes of which more of one and less of the other changes nothing."""
        first, second = sorted(np.argsort(-np.abs(direction), kind="stable")[:2].tolist())
        pair = f"class {self.class_names[first]} from class {self.class_names[second]}"
        return f"the predictions do not tell {pair}, so their proportions cannot be estimated"

    def em(self, fit: BiasCorrectedTemperature, level: float) -> tuple[_Estimate, FloatArray]:
        r"""The likeliest proportions (Saerens et al. 2002) for calibrated probabilities (Alexandari et al. 2020).

        With :math:`s_c = \frac{p_c}{\pi_c} / \sum_d q_d \frac{p_d}{\pi_d}` of a row, q maximizes the mean of
        :math:`\log \sum_c q_c p_c / \pi_c`, whose gradient is the mean of s.

        Returns:
            The estimate; and upper limits (k,) of the classes that the target clearly does not hold, else 0.
        """
        ratios = fit.scale * self.new + (fit.bias - np.log(self.prior))
        ratios = np.exp(ratios - ratios.max(1, keepdims=True))
        q = mixture_weights(torch.from_numpy(ratios)).numpy()
        q = np.where(q * len(ratios) < NO_ROW, 0.0, q)
        q /= q.sum()
        s = ratios / (ratios @ q)[:, None]
        mean = s.mean(0)
        z = float(ndtri((1 + level) / 2))
        absent = (q == 0) & (mean + z * s.std(0) / math.sqrt(len(s)) < 1)
        solve = self._solve(s.T @ s / len(s), ~absent)
        centred = self.new - (s * q * self.new).sum(1, keepdims=True)
        of_bias = np.diag(mean) - s.T @ (s * q) / len(s)
        of_scale = (s * centred).mean(0)
        moved = fit.influence[:, 1:] - (np.eye(self.n_classes)[self.labels] - self.prior) / self.prior
        of_validation = (moved @ of_bias.T + fit.influence[:, :1] * of_scale) @ solve
        upper = np.array([_upper_limit(s[:, c], z) if absent[c] else 0.0 for c in range(self.n_classes)])
        return _Estimate(q, q + solve @ mean, (s - mean) @ solve, of_validation), upper

    def _solve(self, information: FloatArray, present: NDArray[np.bool_]) -> FloatArray:
        """(k, k) inverse of the information among the directions of sum 0 of the present classes."""
        axes = np.zeros((self.n_classes, present.sum() - 1))
        axes[present] = np.linalg.svd(np.ones((1, int(present.sum()))))[2][1:].T
        values, directions = np.linalg.eigh(axes.T @ information @ axes)
        if len(values) and values[0] * MAX_CONDITION**2 < values[-1]:
            raise NotConvergedError(self._not_told_apart(axes @ directions[:, 0]))
        axes = axes @ directions
        inverse: FloatArray = (axes / values) @ axes.T
        return inverse

    def p_value(self) -> float:
        """Of the hypothesis that the target's confidences are those of the classes of validation, in some proportions.

        The share of the rows in bins of confidence is compared with what the proportions by BBSE predict. These are
        right under label shift whether or not the model is calibrated.
        """
        estimate = self.bbse(hard=False)
        known, new = (probs.max(1) for probs in self.probs)
        edges = np.unique(np.quantile(np.concatenate([known, new]), np.arange(1, CONFIDENCE_BINS) / CONFIDENCE_BINS))
        above, above_new = ((values[:, None] > edges).astype(np.float64) for values in (known, new))
        means = self.class_means(above)
        gap = above_new.mean(0) - means @ estimate.free
        of_target = above_new - above_new.mean(0) - estimate.of_target @ means.T
        of_validation = -self.class_residuals(above, means, estimate.free) - estimate.of_validation @ means.T
        statistic, freedom = _wald(gap, _covariance(of_target, of_validation))
        return float(chdtrc(freedom, statistic)) if freedom else 1.0

    def difference(self) -> tuple[float, int]:
        """χ² of the mean predictions of target and validation (Hotelling's T²), and its degrees of freedom."""
        known, new = self.probs
        gap = new.mean(0) - known.mean(0)
        return _wald(gap, _covariance(new - new.mean(0), known - known.mean(0)))


@checked
@one_thread()
def class_proportions(
    target: Predictions, validation: Predictions, *, method: str = "em", level: float = 0.9
) -> ClassProportions:
    """Estimate the class proportions of rows without labels, under label shift.

    Label shift means that the rows of each class are like those of validation and only the proportions differ. The
    result says whether that can be: see `warning`.

    Args:
        target: At least 20 rows. Labels are not used.
        validation: Labelled rows that the model was not trained on, at least two of every class.
        method: "em" takes the likeliest proportions for probabilities that a temperature and a bias for each class
            calibrate (Saerens et al. 2002, Alexandari et al. 2020); it has the narrowest intervals. "bbse" solves for
            the mean predicted probabilities, "bbse_hard" for the predicted classes (Lipton et al. 2018); they do not
            need a calibrated model.
        level: The level of the intervals. They include the sampling of target and of validation.

    Returns:
        The proportions, with intervals and the test of label shift.

    Raises:
        InvalidInputError: There are too few rows, or the two differ in their classes.
        NotConvergedError: The predictions do not tell two classes apart.

    >>> sure, unsure = [0.9, 0.1], [0.4, 0.6]
    >>> validation = Predictions.from_probs([sure, unsure] * 20, [0, 0, 0, 1] * 10)
    >>> target = Predictions.from_probs([unsure] * 15 + [sure] * 5)
    >>> found = class_proportions(target, validation, method="bbse")
    >>> [round(share, 2) for share in found.proportions]
    [0.38, 0.62]
    """
    check_choice("method", method, METHODS)
    check_level(level)
    problem = LabelShiftProblem(validation, target)
    fit = fit_bias_corrected(validation) if method == "em" else None
    return estimate_proportions(problem, fit, hard=method == "bbse_hard", level=level)


def estimate_proportions(
    problem: LabelShiftProblem, fit: BiasCorrectedTemperature | None, *, level: float, hard: bool = False
) -> ClassProportions:
    """By EM with the fit, or by BBSE without one."""
    p_value = problem.p_value()
    if fit is None:
        estimate, upper = problem.bbse(hard=hard), np.zeros(problem.n_classes)
    else:
        estimate, upper = problem.em(fit, level)
    margin = float(ndtri((1 + level) / 2)) * np.sqrt(np.diag(estimate.covariance()))
    low = np.minimum((estimate.free - margin).clip(0.0, 1.0), estimate.proportions)
    high = np.maximum(np.maximum((estimate.free + margin).clip(0.0, 1.0), estimate.proportions), upper)
    return ClassProportions(
        method="em" if fit else "bbse_hard" if hard else "bbse",
        level=level,
        proportions=tuple(estimate.proportions.tolist()),
        intervals=tuple(zip(low.tolist(), high.tolist(), strict=True)),
        validation=tuple(problem.prior.tolist()),
        p_value=p_value,
    )


def _check_rows(validation: Predictions, target: Predictions) -> None:
    check_validation(validation, purpose="estimate class proportions")
    check_instance("target", target, Predictions)
    check_all_classes("target", target, "estimate class proportions")
    k = validation.n_classes
    if target.n_classes != k:
        raise InvalidInputError(f"target must have the {k} classes of validation, got {target.n_classes}")
    check_same_class_names("validation", validation.class_names, "target", target.class_names)
    if len(target) < MIN_SET_ROWS:
        raise InvalidInputError(f"target must have at least {MIN_SET_ROWS} rows, got {len(target)}")
    counts = torch.bincount(validation.labels, minlength=k)
    if int(counts.min()) < MIN_CLASS_ROWS:
        rare = int(counts.argmin())
        rule = f"at least {MIN_CLASS_ROWS} rows of every class"
        raise InvalidInputError(f"validation must have {rule}, got {int(counts[rare])} of class {rare}")


def _shifted_logits(predictions: Predictions) -> FloatArray:
    """(n, k) logits minus the largest of each row."""
    logits = floor_logits(predictions.logits.double())
    return (logits - logits.amax(1, keepdim=True)).numpy()


def _softmax(shifted: FloatArray) -> FloatArray:
    mass: FloatArray = np.exp(shifted)
    mass /= mass.sum(1, keepdims=True)
    return mass


def _upper_limit(s: FloatArray, z: float) -> float:
    """The share t of a class at which the likelihood of (1 − t) q + t e_c is z²/2 less than that of q; at most 1."""
    from scipy.optimize import brentq

    def excess(t: float) -> float:
        return 2 * float(np.log1p(t * (s - 1)).sum()) + z * z

    return float(brentq(excess, 0.0, 1 - 1e-12)) if excess(1 - 1e-12) < 0 else 1.0


def _covariance(of_target: FloatArray, of_validation: FloatArray) -> FloatArray:
    of_both: FloatArray = of_target.T @ of_target / len(of_target) ** 2
    of_both += of_validation.T @ of_validation / len(of_validation) ** 2
    return of_both


def _wald(gap: FloatArray, covariance: FloatArray) -> tuple[float, int]:
    """Gap² relative to its variance, summed over all directions that vary; and their number."""
    values, directions = np.linalg.eigh(covariance)
    varies = values > NO_VARIANCE * max(values[-1], 1e-300)
    return float(((directions.T @ gap)[varies] ** 2 / values[varies]).sum()), int(varies.sum())
