"""MaxEnt Loss: focal loss plus constraints on the moments of each prediction, with multipliers from the class prior."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._checks import check_flag
from calibrant._names import check_choice
from calibrant.errors import InvalidInputError
from calibrant.losses import batchwise
from calibrant.losses.checks import check_class_weights, check_shapes, check_train_labels, two_classes
from calibrant.losses.curves import FOCAL_GAMMA, focal, make_curve
from calibrant.losses.functional import expected_curve
from calibrant.losses.fused import full_precision
from calibrant.losses.modules import IGNORE_INDEX, Batch, CurveLoss, LossOptions
from calibrant.losses.penalties import PENALTIES, MomentPenalty, OneHotPenalty, Penalty
from calibrant.maxent import constraints
from calibrant.maxent.checks import check_counts, check_no_class_values, check_prior
from calibrant.maxent.solver import choose_gibbs, one_hot_multipliers, solve_constraints


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The effect of the constraints on a batch; the lists have one entry per constraint.

    Attributes:
        active_fraction: Share of (sample, constraint) pairs where the constraint has a gradient.
        moments: Mean over the batch of E f_n.
        global_moments: Mean over the batch of c_n^G.
        local_moments: Mean over the batch of c_n^L.
        gradient_share: ‖∇ constraints‖ / (‖∇ constraints‖ + ‖∇ focal‖), gradients of the batch in the logits.
    """

    active_fraction: float
    moments: list[float]
    global_moments: list[float]
    local_moments: list[float]
    gradient_share: float


class MaxEntLoss(CurveLoss):
    r"""Focal loss with constraints on the moments of each prediction, Eq. (3)-(5) of the paper.

    .. math:: L = -(1-p_y)^\gamma \log p_y + \sum_n \lambda_{y,n} [ (E_p f_n - c_n^G) + (E_p f_n - c_n^L) ]

    For a soft label the multipliers are those of its largest entry and the local moments are its own.

    Args:
        prior: The class prior of the training set; see also :meth:`from_labels` and :meth:`from_counts`.
        form: The features f: "mean" (class values), "variance" (their squares), "mean_variance" (both, the second
            centered), or "prior" (one-hot, which does not depend on the order of the classes; not in the paper).
        gamma: That of the focal loss.
        penalty: The cost of a gap: "absolute" as in the published code, weighted by :math:`|\lambda|`; "signed" as in
            the equations; "squared", :math:`(\lambda\,gap)^2`, without a dead zone (not in the paper).
        gibbs: The Gibbs distribution of the multipliers, see :func:`calibrant.solve`: by default "paper", and
            "normalized" for the form "prior", which hardly trains with the other.
        local: False leaves the local terms out, as the paper's ablation does.
        class_values: The values of ordinal classes, by default 0, 1, …
        features: A matrix (n_classes, n_features) in place of the features of the form.
        options: Those of :class:`calibrant.losses.Loss`.

    Raises:
        InvalidInputError: An argument breaks its rule.
        NotConvergedError: The prior admits no multipliers.

    >>> criterion = MaxEntLoss([0.5, 0.5], form="mean")
    >>> criterion.multipliers.flatten()  # exp(-1 - λ) = 0.25 and 0.75
    tensor([ 0.3863, -0.7123])
    """

    constraint: Penalty

    def __init__(
        self,
        prior: Sequence[float] | Tensor,
        form: str = "mean",
        *,
        gamma: float = FOCAL_GAMMA,
        penalty: str = "absolute",
        gibbs: str | None = None,
        local: bool = True,
        class_values: Sequence[float] | Tensor | None = None,
        features: Tensor | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(make_curve(focal, gamma=gamma), **options)
        gibbs = choose_gibbs(gibbs, form, features)
        check_choice("penalty", penalty, PENALTIES)
        if penalty == "signed" and gibbs == "paper":
            raise InvalidInputError(
                'penalty "signed" with gibbs "paper" rewards a lower moment whatever the label, where the multiplier '
                'is positive: use gibbs "normalized", or penalty "signed_as_printed" to have the printed equations'
            )
        check_flag("local", local)
        prior = check_prior(prior)
        if self.class_weights is not None:
            check_class_weights(self.class_weights, len(prior))
        smoothing = self.label_smoothing
        if form == "prior" and features is None:
            check_no_class_values(class_values)
            tables = one_hot_multipliers(prior, gibbs, local=local, label_smoothing=smoothing)
            self.constraint = OneHotPenalty(prior, tables, penalty, local=local)
        else:
            moments = constraints(
                prior, form, class_values=class_values, features=features, local=local, label_smoothing=smoothing
            )
            self.constraint = MomentPenalty(moments, solve_constraints(moments, gibbs), penalty)
        self.n_classes = len(prior)
        self.form = form if features is None else "features"

    def extra_repr(self) -> str:
        return f"form={self.form!r}, penalty={self.constraint.name!r}, {super().extra_repr()}"

    @classmethod
    def from_labels(cls, labels: Sequence[int] | Tensor, n_classes: int, form: str = "mean", **options: object) -> Self:
        """The loss for the class prior of a training set.

        Args:
            labels: Its integer labels, in any shape; those equal to ``ignore_index`` are left out. Or soft labels,
                (n, n_classes).
            n_classes: The number of classes.
            form: See :class:`MaxEntLoss`, also for the options.
            options: Keyword arguments of :class:`MaxEntLoss`.

        Returns:
            The loss.

        Raises:
            InvalidInputError: A label is no class, or fewer than two classes occur.
        """
        ignore_index = options.get("ignore_index", IGNORE_INDEX)
        return cls(check_train_labels(labels, n_classes, ignore_index), form, **options)  # type: ignore[arg-type]

    @classmethod
    def from_counts(cls, counts: Sequence[float] | Tensor, form: str = "mean", **options: object) -> Self:
        """The loss for a training set with this many samples of each class.

        Args:
            counts: One number for each class.
            form: See :class:`MaxEntLoss`, also for the options.
            options: Keyword arguments of :class:`MaxEntLoss`.

        Returns:
            The loss.

        Raises:
            InvalidInputError: A count is negative, or fewer than two are positive.
        """
        return cls(check_counts(counts), form, **options)  # type: ignore[arg-type]

    def batch(self, logits: Tensor, labels: Tensor) -> Batch:
        logits, labels = two_classes(logits, labels)
        if logits.ndim > 1 and logits.shape[1] != self.n_classes:
            raise InvalidInputError(
                f"logits must have the {self.n_classes} classes of the prior, got {logits.shape[1]}"
            )
        return super().batch(logits, labels)

    def per_sample(self, batch: Batch) -> Tensor:
        log_probs = F.log_softmax(batch.logits, dim=1)
        cost: Tensor = self.constraint(log_probs.exp(), batch.labels, batch.classes)
        return expected_curve(log_probs, batch.labels, self.curve) + cost

    def penalty(self) -> MomentPenalty | None:
        return self.constraint if isinstance(self.constraint, MomentPenalty) else None

    def can_fuse(self, batch: Batch) -> bool:
        return isinstance(self.constraint, MomentPenalty) and super().can_fuse(batch)

    @property
    def multipliers(self) -> Tensor:
        """The Lagrange multipliers in float32, (n_classes, n_constraints), one row per class of the label."""
        return self.constraint.multipliers

    def telemetry(self, logits: Tensor, labels: Tensor) -> Telemetry:
        """How many constraints act on a batch, its moments, and the constraints' share of the gradient.

        Args:
            logits: As for a call of the loss.
            labels: As for a call of the loss.

        Returns:
            Numbers over the samples that count.

        Raises:
            InvalidInputError: No sample counts, or the batch breaks a rule.
        """
        logits, labels = two_classes(logits, labels)
        check_shapes(logits, labels)
        with full_precision(logits.device.type), torch.inference_mode(False), torch.enable_grad():
            batch = self.batch(logits.detach().clone().requires_grad_(), labels.clone())
            shares = batchwise.normalized_weights(batch.logits, batch.weights)
            if not shares.any():
                raise InvalidInputError("telemetry needs at least one sample that counts")
            log_probs = F.log_softmax(batch.logits, dim=1)
            compared = self.constraint.moments(log_probs.exp(), batch.labels, batch.classes)
            costs, slopes = self.constraint.costs(*compared)
            values = expected_curve(log_probs, batch.labels, self.curve)
            norms = [
                torch.autograd.grad((part * shares).sum(), batch.logits, retain_graph=True)[0].norm()
                for part in (costs.sum(1), values)
            ]
            means = [(shares @ moments + self.constraint.origin).tolist() for moments in compared[:3]]
        return Telemetry(
            active_fraction=float(shares @ (slopes != 0).to(shares.dtype).mean(1)),
            moments=means[0],
            global_moments=means[1],
            local_moments=means[2],
            gradient_share=float(norms[0] / (norms[0] + norms[1]).clamp_min(torch.finfo(shares.dtype).tiny)),
        )
