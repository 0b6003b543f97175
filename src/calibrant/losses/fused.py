"""Weighted sums of a curve and a moment penalty over a batch, by automatic differentiation or fused.

Both paths compute Σ_i w_i (curve(log p_i) + penalty_i) for integer labels. The fused path computes the gradient in
closed form during the forward pass and needs at most two copies of the logits.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.losses.curves import Curve
from calibrant.losses.functional import expected_curve
from calibrant.losses.penalties import MomentPenalty

MIN_SOFTMAX_CLASSES = 32  # torch's softmax of fewer is slower than exponentials and their sums


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Autocast switched off, where it is on: products of matrices would otherwise run in half precision."""
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def is_traced() -> bool:
    """Whether a compiler or a transform of torch.func is at work; these need plain operations."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def weighted_sum(
    logits: Tensor, labels: Tensor, weights: Tensor, curve: Curve, penalty: MomentPenalty | None
) -> Tensor:
    """The definition: Σ_i w_i (curve + penalty), differentiable any number of times."""
    log_probs = F.log_softmax(logits, dim=1)
    value = expected_curve(log_probs, labels, curve)
    if penalty is not None:
        value = value + penalty(log_probs.exp(), labels, labels)
    return (value * weights).sum()


def value_and_gradient(
    logits: Tensor, labels: Tensor, weights: Tensor, curve: Curve, penalty: MomentPenalty | None, *, bounded: bool
) -> tuple[Tensor, Tensor]:
    r"""The same sum and its gradient in the logits, in closed form.

    With :math:`a` the slope of the curve in :math:`\log p_y`, :math:`E = \sum_k p_k f_k` and :math:`b` the slope of the
    penalty in E, the gradient is :math:`p_k (b\cdot f_k - b\cdot E - a) + a\,[k = y]`. ``bounded`` means that
    the exponentials of the logits neither overflow nor vanish.
    """
    label = labels.unsqueeze(1)
    probs, log_p = _probabilities(logits, label, bounded)
    value, a = curve(log_p)
    a_weighted = (a * weights).unsqueeze(1)
    if penalty is None:
        gradient = probs.mul_(a_weighted.neg())
    else:
        features = penalty.features.to(probs.dtype)
        moments = [probs.mv(feature) for feature in features.unbind()]
        cost, b = penalty.value_and_slopes(moments, labels)
        value, pull = value + cost, a
        for moment, slope in zip(moments, b, strict=True):
            pull = torch.addcmul(pull, moment, slope)
        slopes = [(slope * weights).unsqueeze(1) for slope in b]
        gradient = slopes[0] * features[0] if len(slopes) == 1 else torch.cat(slopes, dim=1) @ features
        gradient.sub_((pull * weights).unsqueeze(1)).mul_(probs)
    gradient.scatter_add_(1, label, a_weighted)
    return (value * weights).sum(), gradient


def _probabilities(logits: Tensor, label: Tensor, bounded: bool) -> tuple[Tensor, Tensor]:
    """The probabilities (n, k), and the log-probability (n,) of the label (n, 1)."""
    if not bounded:
        exp = logits - logits.amax(1, keepdim=True)
        log_p = exp.gather(1, label).squeeze(1)
        total = exp.exp_().sum(1, keepdim=True)
        return exp.div_(total), log_p.sub_(total.squeeze(1).log())
    if logits.shape[1] < MIN_SOFTMAX_CLASSES:
        exp = logits.exp()
        probs = exp.div_(exp.sum(1, keepdim=True))
    else:
        probs = logits.softmax(1)
    return probs, probs.gather(1, label).squeeze(1).log_().clamp_max_(0)


class _FusedSum(torch.autograd.Function):
    """:func:`value_and_gradient` as a node of the graph; twice differentiable by way of :func:`weighted_sum`."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        weights: Tensor,
        curve: Curve,
        penalty: MomentPenalty | None,
        bounded: bool,
    ) -> Tensor:
        value, gradient = value_and_gradient(logits, labels, weights, curve, penalty, bounded=bounded)
        ctx.save_for_backward(gradient, logits, labels, weights)
        ctx.curve, ctx.penalty = curve, penalty
        return value

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        gradient, logits, labels, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            with full_precision(logits.device.type):
                total = weighted_sum(logits, labels, weights, ctx.curve, ctx.penalty)
                (gradient,) = torch.autograd.grad(total, logits, create_graph=True)
        return gradient * grad_output, None, None, None, None, None


def fused_sum(
    logits: Tensor, labels: Tensor, weights: Tensor, curve: Curve, penalty: MomentPenalty | None, *, bounded: bool
) -> Tensor:
    """:func:`weighted_sum` with the gradient in closed form."""
    value: Tensor = _FusedSum.apply(logits, labels, weights, curve, penalty, bounded)  # type: ignore[no-untyped-call]
    return value
