"""Conformity scores of prediction sets, by name in SET_METHODS: a set holds the classes of scores up to a threshold."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from calibrant._arrays import as_float32, blocks, uniforms
from calibrant._checks import check_integer, check_number
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.calibrators.modules import BufferModule
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

PENALTY, K_REG = 0.01, 5  # of RAPS: those of the paper's examples on ImageNet
MAX_SEED = 2**63 - 1


def lac(probs: Tensor, u: Tensor, penalty: float, k_reg: int) -> Tensor:
    """1 − p: the smallest sets on average, if the probabilities are right (Sadinle et al., JASA 2019)."""
    return 1.0 - probs


def aps(probs: Tensor, u: Tensor, penalty: float, k_reg: int) -> Tensor:
    r"""The mass of the classes before y, and of y itself the share 1 − u (Romano et al., NeurIPS 2020, Eq. 7).

    .. math:: s_y = \sum_{j \le y} p_j - u p_y

    With u = 1, which is what is used without randomization, the most probable class has the score 0.
    """
    return probs.cumsum(1) - u * probs


def raps(probs: Tensor, u: Tensor, penalty: float, k_reg: int) -> Tensor:
    r"""APS with a penalty for classes beyond the first k_reg (Angelopoulos et al., ICLR 2021, Eq. 4).

    .. math:: s_y = \sum_{j \le y} p_j - u p_y + \lambda (o_y - k_{\mathrm{reg}})^+

    with the rank o of the class, from 1.
    """
    rank = torch.arange(1, probs.shape[1] + 1, dtype=probs.dtype, device=probs.device)
    return aps(probs, u, penalty, k_reg) + penalty * (rank - k_reg).clamp(min=0)


@dataclass(frozen=True)
class SetMethod:
    """A conformity score.

    Args:
        score: Of probabilities (n, k), the most probable class first, a number u (n, 1), the penalty and k_reg: the
            scores (n, k). It scripts.
        has_u: Whether the score depends on u, which may then be random.
        has_penalty: Whether it depends on the penalty and k_reg.
    """

    score: Callable[[Tensor, Tensor, float, int], Tensor]
    has_u: bool = False
    has_penalty: bool = False


SET_METHODS = {
    "lac": SetMethod(lac),
    "aps": SetMethod(aps, has_u=True),
    "raps": SetMethod(raps, has_u=True, has_penalty=True),
}


@checked
@dataclass(frozen=True)
class ConformityScore:
    """A method with its options; a function of the logits of a row in float32, as files hold them.

    Args:
        method: A name in `SET_METHODS`.
        randomized: Whether u is a random number of the row.
        seed: Of these random numbers.
        penalty: λ of RAPS.
        k_reg: The number of classes that RAPS does not penalize.

    Raises:
        UnknownNameError: There is no such method.
        InvalidInputError: The method has no such option.
    """

    method: str
    randomized: bool = False
    seed: int = 0
    penalty: float | None = None
    k_reg: int | None = None

    def __post_init__(self) -> None:
        chosen = SET_METHODS[check_choice("method", self.method, SET_METHODS)]
        check_integer("seed", self.seed, 0, MAX_SEED)
        if self.randomized and not chosen.has_u:
            others = ", ".join(name for name, method in SET_METHODS.items() if method.has_u)
            raise InvalidInputError(f"randomized (--randomized) is for {others}, not for {self.method}")
        for name in ("penalty", "k_reg"):
            if getattr(self, name) is not None and not chosen.has_penalty:
                option = name.replace("_", "-")
                raise InvalidInputError(f"{name} (--{option}) is for raps, not for {self.method}")
        if self.penalty is not None:
            check_number("penalty", self.penalty, minimum=0.0, maximum=1e6)
        if self.k_reg is not None:
            check_integer("k_reg", self.k_reg, 0)

    @classmethod
    def of(
        cls,
        method: str,
        *,
        randomized: bool = False,
        seed: int = 0,
        penalty: float | None = None,
        k_reg: int | None = None,
    ) -> Self:
        """With the options that the method has by default."""
        found = cls(method, randomized, seed, penalty, k_reg)
        if not SET_METHODS[method].has_penalty:
            return found
        return cls(method, randomized, seed, PENALTY if penalty is None else penalty, K_REG if k_reg is None else k_reg)

    def blocks(self, predictions: Predictions) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Blocks of rows, each with the scores (m, k) of its classes, the most probable first, and these (m, k)."""
        u = torch.ones(len(predictions), dtype=torch.float64)
        if self.randomized:
            u = uniforms(predictions.row_hashes[0], self.seed)
        for rows in blocks(*predictions.logits.shape):
            logits = as_float32(predictions.logits[rows])
            order = descending_order(logits)
            probs = logits.gather(1, order).double().softmax(1)
            yield rows, self(probs, u[rows].unsqueeze(1)), order

    def __call__(self, sorted_probs: Tensor, u: Tensor) -> Tensor:
        return SET_METHODS[self.method].score(sorted_probs, u, self.penalty or 0.0, self.k_reg or 0)

    def of_labels(self, predictions: Predictions) -> Tensor:
        """(n,) float64, the score of the label of each row."""
        found = torch.empty(len(predictions), dtype=torch.float64)
        for rows, scores, order in self.blocks(predictions):
            found[rows] = scores[order == predictions.labels[rows].unsqueeze(1)]
        return found


def descending_order(logits: Tensor) -> Tensor:
    """(n, k) the classes of each row of float32 logits, the largest first; of equal ones the first class first.

    The bits of a float32 with the class below them are one integer, which numpy sorts several times faster than
    torch sorts pairs.
    """
    bits = (logits + 0.0).contiguous().numpy().view(np.int32)  # + 0.0: −0 becomes 0
    ascending = bits ^ (bits >> 31 & 0x7FFFFFFF)  # as integers; those of negative numbers descend
    keys = (~ascending).astype(np.int64)
    keys <<= 32
    keys |= np.arange(keys.shape[1])
    keys.sort(axis=1)
    return torch.from_numpy(keys & 0xFFFFFFFF)


class SetModule(BufferModule):
    """A boolean mask (n, k) of the classes in the set of each row of logits (n, k)."""

    thresholds: Tensor  # (1,), or (k,) by class

    def __init__(self, score: ConformityScore, thresholds: Tensor, n_classes: int) -> None:
        super().__init__(thresholds=thresholds)
        self.score, self.n_classes = SET_METHODS[score.method].score, n_classes
        self.penalty, self.k_reg = float(score.penalty or 0.0), int(score.k_reg or 0)

    def forward(self, logits: Tensor) -> Tensor:
        if logits.dim() != 2 or logits.shape[1] != self.n_classes:
            raise InvalidInputError(f"logits must be of shape (n, {self.n_classes}), got {list(logits.shape)}")
        top = logits.amax(1, keepdim=True)
        beyond = top.isfinite() & ~top.float().isfinite()  # rows too large for float32 are shifted
        ordered, order = torch.where(beyond, logits - top, logits).float().sort(dim=1, descending=True, stable=True)
        probs = ordered.to(self.thresholds.dtype).softmax(1)
        scores = self.score(probs, torch.ones_like(probs[:, :1]), self.penalty, self.k_reg)
        inside = scores <= (self.thresholds if self.thresholds.shape[0] == 1 else self.thresholds[order])
        return torch.zeros_like(inside).scatter(1, order, inside)
