"""Platt scaling and beta calibration: two classes, an affine map of log-probabilities to log-odds, by likelihood."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn

from calibrant._checks import check_number, check_positive, first_position, first_true
from calibrant.calibrators.base import Calibrator, check_validation
from calibrant.calibrators.checks import check_likely_labels, check_two_classes
from calibrant.calibrators.fitting import prepare_rows
from calibrant.calibrators.likelihood import natural_scale
from calibrant.calibrators.modules import MIN_LOG_PROB, LogOddsModule
from calibrant.errors import InvalidInputError, NotConvergedError
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions

MAX_LOGISTIC_STEPS = 200
MAX_DECREMENT = 1e-12  # of the mean penalized NLL, relative to one plus its value


class BinaryCalibrator(Calibrator):
    """Log-odds of class 1 from its log-probabilities; a Gaussian prior of variance 1 around the best temperature."""

    keeps_argmax: ClassVar[bool] = False
    likelihood_fitted: ClassVar[bool] = True
    two_classes_only: ClassVar[bool] = True
    of_confidence: ClassVar[bool] = True

    @classmethod
    def log_probs(cls, validation: Predictions, strength: float) -> tuple[Tensor, Tensor, float]:
        """Check the rows; log p₀, log p₁ and the scale at which the prior is centered."""
        check_validation(validation, of_confidence=cls.of_confidence)
        check_positive("strength", strength)
        check_two_classes(cls.name, validation.n_classes)
        if validation.top_label:
            check_likely_outcomes(cls.name, validation)
        check_likely_labels(validation.logits, validation.labels)
        log_probs = validation.logits.double().log_softmax(1).clamp(min=MIN_LOG_PROB)
        return log_probs[:, 0], log_probs[:, 1], natural_scale(log_probs, validation.labels)


def check_likely_outcomes(calibrator: str, validation: Predictions) -> None:
    """No incorrect prediction of confidence 1, and no correct one of confidence 0."""
    impossible = validation.logits.gather(1, validation.labels.unsqueeze(1)).squeeze(1) == -torch.inf
    if impossible.any():
        which = (
            "correct one of confidence 0" if int(validation.labels[first_true(impossible)]) else "error of confidence 1"
        )
        others = "isotonic, histogram, bbq, spline and venn_abers allow them"
        raise InvalidInputError(
            f"validation must have no {which} for {calibrator}, got one at {first_position(impossible)}: {others}"
        )


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlattScaling(BinaryCalibrator):
    """The log-odds s of class 1 become a s + b (Platt 1999)."""

    name: ClassVar[str] = "platt"

    a: float
    b: float

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, strength: float = 1.0, clip: float | None = None) -> Self:
        """Maximize the likelihood times a Gaussian prior around temperature scaling.

        Args:
            strength: Scale of the prior's precision; at 1 the prior counts as much as a few rows.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        log_p0, log_p1, scale = cls.log_probs(validation, strength)
        features = torch.stack([scale * (log_p1 - log_p0), torch.ones_like(log_p0)], dim=1)
        a, b = fit_logistic(features, validation.labels == 1, (1.0, 0.0), strength, n_nonnegative=0)
        return cls.from_parameters(validation, a=scale * a, b=b)

    def row_module(self) -> nn.Module:
        return LogOddsModule(self.a, self.a, self.b)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BetaCalibration(BinaryCalibrator):
    """The log-odds of class 1 become a log p₁ − b log p₀ + c, with a, b ≥ 0 (Kull et al. 2017)."""

    name: ClassVar[str] = "beta"
    default_candidate: ClassVar[bool] = True

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        check_number("a", self.a, minimum=0.0)
        check_number("b", self.b, minimum=0.0)

    @classmethod
    @prepare_rows
    @one_thread()
    def fit(cls, validation: Predictions, *, strength: float = 1.0, clip: float | None = None) -> Self:
        """Maximize the likelihood times a Gaussian prior around temperature scaling.

        Args:
            strength: Scale of the prior's precision; at 1 the prior counts as much as a few rows.
            clip: Probabilities below it are raised to it, also wherever the calibrator is applied.
        """
        log_p0, log_p1, scale = cls.log_probs(validation, strength)
        features = torch.stack([scale * log_p1, -scale * log_p0, torch.ones_like(log_p0)], dim=1)
        a, b, c = fit_logistic(features, validation.labels == 1, (1.0, 1.0, 0.0), strength, n_nonnegative=2)
        return cls.from_parameters(validation, a=scale * a, b=scale * b, c=c)

    def row_module(self) -> nn.Module:
        return LogOddsModule(self.a, self.b, self.c)


def fit_logistic(
    features: Tensor, is_positive: Tensor, identity: Sequence[float], strength: float, *, n_nonnegative: int
) -> list[float]:
    """Coefficients of features (n, d), the first few not negative, by penalized likelihood.

    The problem is convex: the best feasible optimum over all choices of coefficients fixed at 0 is the optimum.
    """
    centre = torch.tensor(identity, dtype=torch.float64)
    found = []
    for fixed in product((False, True), repeat=n_nonnegative):
        free = torch.tensor([not zero for zero in fixed] + [True] * (len(identity) - n_nonnegative))
        value, theta = _newton(features, is_positive, centre, strength, free)
        if bool((theta[:n_nonnegative] >= 0).all()):
            found.append((value, theta.tolist()))
            if not any(fixed):
                break
    return min(found)[1]


def _newton(
    features: Tensor, is_positive: Tensor, centre: Tensor, strength: float, free: Tensor
) -> tuple[float, Tensor]:
    """The minimum and minimizer of the penalized NLL over the free coefficients, the others 0: damped Newton."""
    n = len(features)
    sign = torch.where(is_positive, 1.0, -1.0).double()

    def objective(theta: Tensor) -> float:
        nll = nn.functional.softplus(-sign * (features @ theta), threshold=50.0).mean()
        return float(nll + 0.5 * strength / n * (theta - centre).square().sum())

    theta = torch.where(free, centre, torch.zeros_like(centre))
    value = objective(theta)
    for _ in range(MAX_LOGISTIC_STEPS):
        wrong = torch.sigmoid(-sign * (features @ theta))
        gradient = (-(sign * wrong) @ features / n + strength / n * (theta - centre))[free]
        hessian = features.T @ ((wrong * (1 - wrong)).unsqueeze(1) * features) / n
        hessian = (hessian + strength / n * torch.eye(len(theta), dtype=torch.float64))[free][:, free]
        step = torch.zeros_like(theta)
        step[free] = -torch.linalg.solve(hessian, gradient)
        decrement = -float(gradient @ step[free])
        if decrement <= MAX_DECREMENT * (1 + value):
            return value, theta
        share = 1.0
        while (after := objective(theta + share * step)) > value - 1e-4 * share * decrement and share > 1e-12:
            share /= 2
        theta, value = theta + share * step, after
    raise NotConvergedError(f"the coefficients did not converge: the NLL is about {decrement:.1e} too large")
