"""Losses as functions: one value per sample, from logits (n, k, …) and labels, integer (n, …) or soft (n, k, …).

One logit z for each sample, (n,) or (n, 1), is the logits [0, z] of two classes: P(y = 1) = sigmoid(z). Its labels are
0 and 1 of any type, or probabilities of class 1, (n,) or (n, 1).

The value of a soft label is the expectation over its classes. All functions use log-softmax, which keeps the full
gradient of a confident error.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._checks import check_label_range, check_number
from calibrant.errors import InvalidInputError
from calibrant.losses import curves
from calibrant.losses.checks import check_batch
from calibrant.losses.curves import Curve, make_curve

DUAL_FOCAL_GAMMA = 5.0
MARGIN, MARGIN_WEIGHT = 10.0, 0.1


def on_curve(logits: Tensor, labels: Tensor, curve: Curve) -> Tensor:
    """The curve at the label's log-probability, in expectation over a soft label."""
    return expected_curve(F.log_softmax(logits, dim=1), labels, curve)


def _checked(logits: Tensor, labels: Tensor, curve: Curve) -> Tensor:
    logits, labels = check_batch(logits, labels)
    return _check_labels(partial(on_curve, curve=curve), logits, labels)


def _check_labels(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Tensor:
    """The loss; a label that is no class is looked for only where gather met one."""
    try:
        return loss(logits, labels)
    except RuntimeError:
        with suppress(RuntimeError):  # of labels that cannot be read, such as those of torch.func.vmap
            check_label_range(labels, logits.shape[1], None)
        raise


def _check_setting(
    argument: str, value: float | Tensor, shape: Sequence[int], minimum: float = -math.inf
) -> float | Tensor:
    """A number, or a tensor of them that broadcasts to the shape."""
    if not isinstance(value, Tensor):
        return check_number(argument, value, minimum=minimum)
    try:
        value.expand(shape)
    except RuntimeError:
        rule = f"be a number, or broadcast to shape {tuple(shape)}"
        raise InvalidInputError(f"{argument} must {rule}, got shape {tuple(value.shape)}") from None
    return value


def expected_curve(log_probs: Tensor, labels: Tensor, curve: Curve) -> Tensor:
    """:func:`on_curve` from log-probabilities."""
    return _expectation(lambda log_p: curve(log_p)[0], log_probs, labels)


def _expectation(value: Callable[[Tensor], Tensor], log_probs: Tensor, labels: Tensor) -> Tensor:
    if labels.is_floating_point():
        return (labels * value(log_probs)).sum(1)
    return value(log_probs.gather(1, labels[:, None]))[:, 0]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r""":math:`-\log p_y`.

    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([2])).exp()
    tensor([4.])
    """
    return _checked(logits, labels, make_curve(curves.cross_entropy))


def focal(logits: Tensor, labels: Tensor, *, gamma: float = curves.FOCAL_GAMMA) -> Tensor:
    r""":math:`-(1-p_y)^\gamma \log p_y` (Lin et al. 2017)."""
    return _checked(logits, labels, make_curve(curves.focal, gamma=gamma))


def inverse_focal(logits: Tensor, labels: Tensor, *, gamma: float = curves.INVERSE_FOCAL_GAMMA) -> Tensor:
    r""":math:`-(1+p_y)^\gamma \log p_y` (Wang et al. 2021)."""
    return _checked(logits, labels, make_curve(curves.inverse_focal, gamma=gamma))


def poly(logits: Tensor, labels: Tensor, *, epsilon: float = curves.POLY_EPSILON) -> Tensor:
    r""":math:`-\log p_y + \epsilon (1-p_y)` (Leng et al. 2022).

    The MaxEnt paper prints ε = −1. Its published code flips the sign: its tables have ε = +1, our default.
    """
    return _checked(logits, labels, make_curve(curves.poly, epsilon=epsilon))


def flsd(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma_low: float = curves.GAMMA_LOW,
    gamma_high: float = curves.GAMMA_HIGH,
    threshold: float = curves.GAMMA_THRESHOLD,
) -> Tensor:
    r"""Sample-dependent focal loss: γ = 5 where :math:`p_y < 0.2`, else 3 (Mukhoti et al. 2020)."""
    curve = make_curve(curves.flsd, gamma_low=gamma_low, gamma_high=gamma_high, threshold=threshold)
    return _checked(logits, labels, curve)


def label_relaxation(logits: Tensor, labels: Tensor, *, alpha: float = curves.RELAXATION_ALPHA) -> Tensor:
    r"""0 where :math:`p_y \ge 1-\alpha`, else :math:`KL((1-\alpha, \alpha) \| (p_y, 1-p_y))` (Lienen et al. 2021)."""
    return _checked(logits, labels, make_curve(curves.label_relaxation, alpha=alpha))


def dual_focal(logits: Tensor, labels: Tensor, *, gamma: float | Tensor = DUAL_FOCAL_GAMMA) -> Tensor:
    r""":math:`-(1-p_y+p_j)^\gamma \log p_y`, :math:`p_j` the largest probability below it (Tao et al. 2023).

    The logits are (n, k). A tensor gamma has one number, or is (n, 1).
    """
    logits, labels = check_batch(logits, labels)
    if logits.ndim != 2:
        raise InvalidInputError(f"logits must be (n, k), got shape {tuple(logits.shape)}")
    shape = labels.shape if labels.is_floating_point() else (len(labels), 1)
    gamma = _check_setting("gamma", gamma, shape, minimum=0)
    return _check_labels(partial(_dual_focal, gamma=gamma), logits, labels)


def _dual_focal(logits: Tensor, labels: Tensor, gamma: float | Tensor) -> Tensor:
    """:func:`dual_focal` of arguments that were checked."""
    log_probs = F.log_softmax(logits, dim=1)
    probs = log_probs.exp()
    ascending = F.pad(probs.sort(dim=1).values, (1, 0))  # a 0 in front: nothing lies below the smallest
    wanted = probs if labels.is_floating_point() else probs.gather(1, labels[:, None])
    rank = torch.searchsorted(ascending[:, 1:].detach().contiguous(), wanted.detach())
    below = ascending.gather(1, rank)
    rest = (1 - wanted + below).clamp_min(torch.finfo(probs.dtype).tiny)  # a power below 1 has no slope at 0
    return _expectation(lambda log_p: -(rest**gamma) * log_p, log_probs, labels)


def margin_smoothing(
    logits: Tensor, labels: Tensor, *, margin: float | Tensor = MARGIN, weight: float | Tensor = MARGIN_WEIGHT
) -> Tensor:
    r"""Cross-entropy plus :math:`w \cdot \frac1K \sum_k \max(0, \max_j z_j - z_k - m)` (MbLS, Liu et al. 2022).

    A tensor margin broadcasts to the logits, a tensor weight to the samples.
    """
    logits, labels = check_batch(logits, labels)
    margin = _check_setting("margin", margin, logits.shape)
    weight = _check_setting("weight", weight, (len(logits), *logits.shape[2:]))
    return _check_labels(partial(_margin_smoothing, margin=margin, weight=weight), logits, labels)


def _margin_smoothing(logits: Tensor, labels: Tensor, margin: float | Tensor, weight: float | Tensor) -> Tensor:
    """:func:`margin_smoothing` of arguments that were checked."""
    excess = F.relu(logits.amax(1, keepdim=True) - logits - margin)
    return on_curve(logits, labels, make_curve(curves.cross_entropy)) + weight * excess.mean(1)
