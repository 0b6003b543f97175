"""Losses as modules with one contract: `criterion(logits, labels)` in place of `torch.nn.CrossEntropyLoss`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn

from calibrant._checks import (
    check_flag,
    check_fraction,
    check_integer,
    check_label_range,
    check_number,
    check_positive,
    check_tensor,
)
from calibrant._names import check_choice
from calibrant.losses import avuc, batchwise, curves, functional
from calibrant.losses.checks import check_class_weights, check_logits, check_shapes, check_soft_labels, two_classes
from calibrant.losses.curves import Curve, make_curve
from calibrant.losses.fused import full_precision, fused_sum, is_traced
from calibrant.losses.penalties import HALF, FixedPrecisionModule, MomentPenalty

IGNORE_INDEX = -100  # torch's
REDUCTIONS = ("mean", "sum", "none")
BOUNDED = 32.0  # the exponentials of logits within ±32, and their sums, are far from overflow and underflow


class LossOptions(TypedDict, total=False):
    """What every loss takes; see :class:`Loss`."""

    label_smoothing: float
    class_weights: Sequence[float] | Tensor | None
    ignore_index: int
    reduction: str
    validate: bool | None


@dataclass(frozen=True, slots=True)
class Batch:
    """A checked batch, one row per sample."""

    logits: Tensor  # (n, k), float32 or float64
    labels: Tensor  # (n,) integer, or (n, k) where soft or smoothed
    classes: Tensor  # (n,) integer: the label, or the largest entry of a soft one; 0 where it is to be ignored
    weights: Tensor | None  # (n,) how much each sample counts; None where all count 1
    bounded: bool  # whether the logits are known to be small

    def statistics(self) -> batchwise.BatchStatistics:
        return batchwise.batch_statistics(self.logits, self.classes, self.weights)

    def on_curve(self, curve: Curve, statistics: batchwise.BatchStatistics) -> Tensor:
        """The curve of each sample; for integer labels its log-probability is known already."""
        if self.labels is self.classes:
            return curve(statistics.log_p)[0]
        return functional.on_curve(self.logits, self.labels, curve)


class Loss(FixedPrecisionModule, ABC):
    """Base of every loss.

    ``logits`` are (n, k), or (n, k, d1, …) for dense prediction, in any floating type; the arithmetic runs in float32
    at least. ``labels`` are integers (n, …) or soft, (n, k, …). A batch without any sample that counts has the loss 0
    and a zero gradient.

    One logit z for each sample, (n,) or (n, 1, …), is the logits [0, z] of two classes: P(y = 1) = sigmoid(z). Its
    labels are integers or booleans, or floats as for `torch.nn.BCEWithLogitsLoss`, of either shape.

    Args:
        label_smoothing: α: the label vector t becomes (1 − α)·t + α/k.
        class_weights: The weight of the samples of each class, (k,). The mean is the weighted mean.
        ignore_index: Integer labels of this value do not count.
        reduction: "mean", "sum" or "none".
        validate: Whether to check for NaN, infinity and labels out of range. None checks tensors on the CPU only,
            where it costs little, and never while a compiler traces.

    Raises:
        InvalidInputError: An option, or on a call the logits or labels, break their rule.
        UnknownNameError: There is no such reduction.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | Tensor | None = None,
        ignore_index: int = IGNORE_INDEX,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__()
        self.label_smoothing = check_fraction("label_smoothing", label_smoothing)
        self.ignore_index = check_integer("ignore_index", ignore_index, -(2**63), 2**63 - 1)
        self.reduction = check_choice("reduction", reduction, REDUCTIONS)
        self.validate = None if validate is None else check_flag("validate", validate)
        weights = None if class_weights is None else check_class_weights(class_weights)
        if weights is not None and not (isinstance(class_weights, Tensor) and class_weights.dtype == torch.float64):
            weights = weights.float()
        self.register_buffer("class_weights", weights)

    def extra_repr(self) -> str:
        return f"label_smoothing={self.label_smoothing}, ignore_index={self.ignore_index}, reduction={self.reduction!r}"

    @abstractmethod
    def per_sample(self, batch: Batch) -> Tensor:
        """One value per sample, (n,); a loss of the batch as a whole adds its term to the value of every sample."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch: one number, or with reduction "none" one for each label."""
        check_tensor("logits", logits)
        with full_precision(logits.device.type):
            batch = self.batch(logits, labels)
            if self.reduction != "none":
                return self.reduce(batch)
            values = self.per_sample(batch) if len(batch.logits) else batch.logits.sum(1)
            values = values if batch.weights is None else values * batch.weights
            return values.reshape(len(logits), *logits.shape[2:])

    def reduce(self, batch: Batch) -> Tensor:
        """Mean or sum over the batch."""
        if len(batch.logits) == 0:
            return batch.logits.sum()
        values = self.per_sample(batch)
        if batch.weights is None:
            return values.mean() if self.reduction == "mean" else values.sum()
        return (values * self.sample_weights(batch)).sum()

    def sample_weights(self, batch: Batch) -> Tensor:
        """The factor of each sample in the sum: its weight, divided by the total for a mean."""
        if self.reduction == "mean":
            return batchwise.normalized_weights(batch.logits, batch.weights)
        return batch.logits.new_ones(len(batch.logits)) if batch.weights is None else batch.weights

    def batch(self, logits: Tensor, labels: Tensor) -> Batch:
        """Check, flatten to one row per sample, convert half precision, weigh and smooth."""
        logits, labels = two_classes(logits, labels)
        soft = check_shapes(logits, labels)
        labels = labels if soft else labels.long()  # before any comparison: -100 and 156 are the same uint8
        bounded, all_count = self._check_values(logits, labels, soft)
        if logits.ndim > 2:
            logits = logits.movedim(1, -1).flatten(0, -2)
            labels = labels.movedim(1, -1).flatten(0, -2) if soft else labels.flatten()
        if logits.dtype in HALF:
            logits = logits.float()
        class_weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        if soft:
            labels = labels.to(logits.dtype)
            classes, weights = labels.argmax(1), None if class_weights is None else labels @ class_weights
        elif all_count and class_weights is None:
            classes, weights = labels, None
        else:
            counts = labels != self.ignore_index
            classes, weights = torch.where(counts, labels, 0), counts.to(logits.dtype)
            weights = weights if class_weights is None else weights * class_weights[classes]
            logits = logits if all_count else torch.where(counts.unsqueeze(1), logits, 0.0)  # they may be NaN
        return Batch(logits, self._smooth(labels if soft else classes, logits), classes, weights, bounded)

    def _check_values(self, logits: Tensor, labels: Tensor, soft: bool) -> tuple[bool, bool]:
        """Whether the logits are known to be small, and whether every sample is known to count."""
        if self.class_weights is not None and len(self.class_weights) != logits.shape[1]:
            check_class_weights(self.class_weights, logits.shape[1])
        if is_traced() or not (logits.is_cpu if self.validate is None else self.validate):
            return False, False
        low, high = check_logits(logits, None if soft else labels, self.ignore_index)
        bounded = low > -BOUNDED and high < BOUNDED
        if soft:
            check_soft_labels(labels)
            return bounded, True
        return bounded, check_label_range(labels, logits.shape[1], self.ignore_index)

    def _smooth(self, labels: Tensor, logits: Tensor) -> Tensor:
        if self.label_smoothing == 0:
            return labels
        n_classes = logits.shape[1]
        if not labels.is_floating_point():
            labels = nn.functional.one_hot(labels, n_classes).to(logits.dtype)
        return (1 - self.label_smoothing) * labels + self.label_smoothing / n_classes


class CurveLoss(Loss):
    """A loss along a curve of the label's log-probability, fused where labels are integers and not smoothed."""

    def __init__(self, curve: Curve, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.curve = curve

    def extra_repr(self) -> str:
        settings = [f"{name}={value}" for name, value in self.curve.keywords.items()]
        return ", ".join([*settings, super().extra_repr()])

    def per_sample(self, batch: Batch) -> Tensor:
        return functional.on_curve(batch.logits, batch.labels, self.curve)

    def penalty(self) -> MomentPenalty | None:
        """What is added to the curve."""
        return None

    def reduce(self, batch: Batch) -> Tensor:
        if not self.can_fuse(batch):
            return super().reduce(batch)
        weights = self.sample_weights(batch)
        return fused_sum(batch.logits, batch.classes, weights, self.curve, self.penalty(), bounded=batch.bounded)

    def can_fuse(self, batch: Batch) -> bool:
        """Whether there is a gradient to fuse; a compiler fuses better than we do."""
        plain = batch.labels is batch.classes and len(batch.classes) > 0
        return plain and batch.logits.requires_grad and torch.is_grad_enabled() and not is_traced()


class CrossEntropyLoss(CurveLoss):
    r""":math:`-\log p_y`."""

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__(make_curve(curves.cross_entropy), **options)


class FocalLoss(CurveLoss):
    r""":math:`-(1-p_y)^\gamma \log p_y` (Lin et al. 2017).

    Args:
        gamma: 0 is cross-entropy.
        options: Those of :class:`Loss`.
    """

    def __init__(self, gamma: float = curves.FOCAL_GAMMA, **options: Unpack[LossOptions]) -> None:
        super().__init__(make_curve(curves.focal, gamma=gamma), **options)


class InverseFocalLoss(CurveLoss):
    r""":math:`-(1+p_y)^\gamma \log p_y` (Wang et al. 2021).

    Args:
        gamma: 0 is cross-entropy.
        options: Those of :class:`Loss`.
    """

    def __init__(self, gamma: float = curves.INVERSE_FOCAL_GAMMA, **options: Unpack[LossOptions]) -> None:
        super().__init__(make_curve(curves.inverse_focal, gamma=gamma), **options)


class PolyLoss(CurveLoss):
    r""":math:`-\log p_y + \epsilon (1-p_y)` (Leng et al. 2022).

    Args:
        epsilon: 1 as in the tables of the MaxEnt paper, which prints −1.
        options: Those of :class:`Loss`.
    """

    def __init__(self, epsilon: float = curves.POLY_EPSILON, **options: Unpack[LossOptions]) -> None:
        super().__init__(make_curve(curves.poly, epsilon=epsilon), **options)


class FLSDLoss(CurveLoss):
    r"""Sample-dependent focal loss, by default FLSD-53 (Mukhoti et al. 2020).

    Args:
        gamma_low: γ where :math:`p_y` is below the threshold.
        gamma_high: γ elsewhere.
        threshold: A probability.
        options: Those of :class:`Loss`.
    """

    def __init__(
        self,
        gamma_low: float = curves.GAMMA_LOW,
        gamma_high: float = curves.GAMMA_HIGH,
        threshold: float = curves.GAMMA_THRESHOLD,
        **options: Unpack[LossOptions],
    ) -> None:
        settings = {"gamma_low": gamma_low, "gamma_high": gamma_high, "threshold": threshold}
        super().__init__(make_curve(curves.flsd, **settings), **options)


class LabelRelaxationLoss(CurveLoss):
    r"""0 where :math:`p_y \ge 1-\alpha`, else a divergence from :math:`(1-\alpha, \alpha)` (Lienen et al. 2021).

    Args:
        alpha: In (0, 1).
        options: Those of :class:`Loss`.
    """

    def __init__(self, alpha: float = curves.RELAXATION_ALPHA, **options: Unpack[LossOptions]) -> None:
        super().__init__(make_curve(curves.label_relaxation, alpha=alpha), **options)


class DualFocalLoss(Loss):
    r""":math:`-(1-p_y+p_j)^\gamma \log p_y`, :math:`p_j` the largest probability below it (Tao et al. 2023).

    Args:
        gamma: 0 is cross-entropy.
        options: Those of :class:`Loss`.
    """

    def __init__(self, gamma: float = functional.DUAL_FOCAL_GAMMA, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.gamma = check_number("gamma", gamma, minimum=0)

    def per_sample(self, batch: Batch) -> Tensor:
        return functional._dual_focal(batch.logits, batch.labels, self.gamma)


class MarginSmoothingLoss(Loss):
    """Cross-entropy plus a penalty on logits further than a margin below the largest (MbLS, Liu et al. 2022).

    Args:
        margin: Distances of logits up to this cost nothing.
        weight: The factor of the penalty.
        options: Those of :class:`Loss`.
    """

    def __init__(
        self,
        margin: float = functional.MARGIN,
        weight: float = functional.MARGIN_WEIGHT,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(**options)
        self.margin = check_number("margin", margin, minimum=0)
        self.weight = check_number("weight", weight, minimum=0)

    def per_sample(self, batch: Batch) -> Tensor:
        return functional._margin_smoothing(batch.logits, batch.labels, self.margin, self.weight)


class AvUCLoss(Loss):
    """Cross-entropy plus β times the accuracy-versus-uncertainty term of the batch (Krishnan & Tickoo 2020).

    The paper trains with cross-entropy alone for the first 20 epochs: set ``criterion.beta = 0`` for these.

    Args:
        beta: The factor of the term.
        threshold: An entropy in nats. None takes the area over 21 thresholds.
        options: Those of :class:`Loss`.
    """

    def __init__(self, beta: float = 3.0, threshold: float | None = None, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.beta = check_number("beta", beta, minimum=0)
        self.threshold = None if threshold is None else check_number("threshold", threshold, minimum=0)
        self.curve = make_curve(curves.cross_entropy)

    def per_sample(self, batch: Batch) -> Tensor:
        if self.beta == 0:
            return functional.on_curve(batch.logits, batch.labels, self.curve)
        statistics = batch.statistics()
        return batch.on_curve(self.curve, statistics) + self.beta * avuc.avuc(statistics, threshold=self.threshold)


class SoftAvUCLoss(Loss):
    """Focal loss plus β times the soft accuracy-versus-uncertainty term of the batch (Karandikar et al. 2021).

    Args:
        beta: The factor of the term.
        temperature: How soft the step from certain to uncertain is.
        kappa: The relative entropy, in (0, 1), at that step.
        gamma: That of the focal loss.
        options: Those of :class:`Loss`.
    """

    def __init__(
        self,
        beta: float = 1.0,
        temperature: float = 0.01,
        kappa: float = 0.1,
        gamma: float = curves.FOCAL_GAMMA,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(**options)
        self.beta = check_number("beta", beta, minimum=0)
        self.temperature = check_positive("temperature", temperature)
        self.kappa = check_positive("kappa", check_fraction("kappa", kappa))
        self.curve = make_curve(curves.focal, gamma=gamma)

    def per_sample(self, batch: Batch) -> Tensor:
        statistics, n_classes = batch.statistics(), batch.logits.shape[1]
        term = avuc.soft_avuc(statistics, n_classes, temperature=self.temperature, kappa=self.kappa)
        return batch.on_curve(self.curve, statistics) + self.beta * term


class MMCELoss(Loss):
    """Cross-entropy plus a weight times the kernel calibration error of the batch (Kumar et al. 2018).

    Args:
        weight: The factor of the error.
        width: That of the Laplace kernel, at least 0.02.
        options: Those of :class:`Loss`.
    """

    def __init__(self, weight: float = 2.0, width: float = 0.4, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.weight = check_number("weight", weight, minimum=0)
        self.width = check_number("width", width, minimum=0.02)  # below, exp(confidence / width) overflows
        self.curve = make_curve(curves.cross_entropy)

    def per_sample(self, batch: Batch) -> Tensor:
        statistics = batch.statistics()
        return batch.on_curve(self.curve, statistics) + self.weight * batchwise.mmce(statistics, width=self.width)


class MDCALoss(Loss):
    """Focal loss plus the mean over the classes of |confidence − frequency| (MDCA, Hebbalaguppe et al. 2022).

    Args:
        weight: The factor of the mean.
        gamma: That of the focal loss; 0 is cross-entropy.
        options: Those of :class:`Loss`.
    """

    def __init__(self, weight: float = 1.0, gamma: float = 0.0, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.weight = check_number("weight", weight, minimum=0)
        self.curve = make_curve(curves.focal, gamma=gamma)

    def per_sample(self, batch: Batch) -> Tensor:
        term = batchwise.mdca(batch.logits, batch.labels, batch.weights)
        return functional.on_curve(batch.logits, batch.labels, self.curve) + self.weight * term
