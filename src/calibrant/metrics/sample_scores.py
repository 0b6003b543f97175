"""From logits and labels to what every metric needs, in one pass: scores of each row, and the bins of every class."""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from calibrant._arrays import blocks
from calibrant._checks import check_memory, check_probabilities
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.checks import check_labelled
from calibrant.predictions import Predictions

SOFTMAX_BLOCK = 2**17  # numbers at a time: they stay in the cache, where a whole matrix of temporaries would not
LANES = 32  # rows come in multiples of the vector width: the last bit of a row does not depend on its position
PENDING = 2**20  # probabilities that are counted together
TRANSPOSED_CLASSES = 32  # with fewer classes, reductions run faster over the first dimension of a transposed block


@dataclass(frozen=True, slots=True)
class SampleScores:
    """One value for each row, in the type of the logits."""

    confidence: Tensor  # the largest probability
    complement: Tensor  # 1 − confidence, which keeps its digits where the confidence rounds to 1
    correct: Tensor  # bool: whether the first class of the largest probability is the label
    nll: Tensor  # −log of the label's probability
    brier: Tensor  # Σ_k (1[k = label] − p_k)²
    entropy: Tensor  # −Σ_k p_k log p_k
    expected_nll: Tensor  # part of the expected NLL, by the row's own probabilities, from labels other than the top
    expected_brier: Tensor  # the same of the Brier score


def top_class(values: Tensor) -> Tensor:
    """The first class of the largest value in each row, (n,)."""
    return torch.from_numpy(values.numpy().argmax(1))  # several times as fast as torch's


def by_class(values: Tensor) -> Tensor:
    """A copy (k, n) of (n, k)."""
    return torch.from_numpy(np.ascontiguousarray(values.numpy().T))  # twice as fast as torch's


def softmax_rounding(dtype: torch.dtype) -> float:
    """Largest rounding error of a probability after a softmax."""
    return 16 * torch.finfo(dtype).eps


def sample_scores(
    logits: Tensor,
    labels: Tensor,
    *,
    n_bins: int | None = None,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
) -> tuple[SampleScores, BinSums | None]:
    """The scores of logits (n, k) with labels (n,), and the sums (k, n_bins) of every class's probability.

    With ``groups``, the number of each row's group in ascending order, the sums are (groups · k, n_bins).
    """
    n, n_classes = logits.shape
    columns = {
        f.name: logits.new_empty(n, dtype=torch.bool if f.name == "correct" else None) for f in fields(SampleScores)
    }
    classes = None if n_bins is None else _ClassBins(n_classes, n_bins, labels, weights, groups)
    step = max(LANES, SOFTMAX_BLOCK // n_classes // LANES * LANES)
    for rows in blocks(n, 1, size=step):
        shares = _score_block({name: column[rows] for name, column in columns.items()}, logits[rows], labels[rows])
        if classes is not None:
            classes.add(shares, rows)
    return SampleScores(**columns), None if classes is None else classes.finish()


def _score_block(out: dict[str, Tensor], logits: Tensor, labels: Tensor) -> Tensor:
    """Write the scores of a block; return its probabilities, (k, rows) where the classes are few, else (rows, k)."""
    n, dim = len(logits), 0 if logits.shape[1] < TRANSPOSED_CLASSES else 1
    if n % LANES:
        padded = {name: column.new_empty(n + -n % LANES) for name, column in out.items()}
        padding = (logits[-1:].expand(-n % LANES, -1), labels[-1:].expand(-n % LANES))
        shares = _score_block(padded, torch.cat([logits, padding[0]]), torch.cat([labels, padding[1]]))
        for name, column in out.items():
            column.copy_(padded[name][:n])
        return shares.narrow(1 - dim, 0, n).contiguous()
    top = top_class(logits)
    highest = logits.gather(1, top.unsqueeze(1)).squeeze(1)
    label_logit = logits.gather(1, labels.unsqueeze(1)).squeeze(1) - highest
    below = (by_class(logits) if dim == 0 else logits) - highest.unsqueeze(dim)
    below.clamp_(min=-1000.0)  # e^-1000 is 0, and 0 · -1000 is no NaN as 0 · -inf would be
    share = below.exp()
    others = share.scatter_(dim, top.unsqueeze(dim), 0.0).sum(
        dim
    )  # without the 1 of the top, which would round them off
    total = 1 + others
    squares = torch.linalg.vecdot(share, share, dim=dim).div_(total * total)
    entropy_part = (share * below).sum(dim)
    share.scatter_(dim, top.unsqueeze(dim), 1.0).div_(total.unsqueeze(dim))
    torch.reciprocal(total, out=out["confidence"])
    torch.div(others, total, out=out["complement"])
    torch.eq(top, labels, out=out["correct"])
    log_total = others.log1p()
    torch.sub(log_total, label_logit, out=out["nll"])
    torch.sub(log_total, entropy_part.div_(total), out=out["entropy"])
    confidence, complement = out["confidence"], out["complement"]
    torch.sub(complement * log_total, entropy_part, out=out["expected_nll"])
    torch.sub(complement * (1 + confidence**2 + squares), 2 * squares, out=out["expected_brier"])
    # (1 − p_y)² is (1 − r)² for a correct row; for an incorrect one r² is added and p_y² replaced by (1 − p_y)².
    incorrect = confidence**2 + 1 - 2 * label_logit.exp() / total
    torch.add(squares, torch.where(out["correct"], complement**2, incorrect), out=out["brier"])
    return share


def score_rows(
    predictions: Predictions,
    *,
    n_bins: int | None = None,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
) -> tuple[SampleScores, BinSums | None]:
    """The scores of labelled predictions; of those with ``top_label``, confidence and correctness are of class 1."""
    options = {"weights": weights, "groups": groups}
    scores, classes = sample_scores(predictions.logits, predictions.labels, n_bins=n_bins, **options)
    if not predictions.top_label:
        return scores, classes
    confidence, complement, correct = positive_class(scores, predictions.labels == 1)
    return replace(scores, confidence=confidence, complement=complement, correct=correct), None


def positive_class(rows: SampleScores, is_positive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of two classes: the probability of class 1, of class 0, and whether the label is 1."""
    predicted = rows.correct == is_positive
    return (
        torch.where(predicted, rows.confidence, rows.complement),
        torch.where(predicted, rows.complement, rows.confidence),
        is_positive,
    )


def predicted_class(predictions: Predictions) -> Tensor:
    """(n,) the class of each row; of equal logits the first. With ``top_label`` it is 1."""
    return torch.ones_like(predictions.labels) if predictions.top_label else top_class(predictions.logits)


def top_label(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence and correctness of each row of probabilities; of equal probabilities the first class is predicted.

    Args:
        probs: (n, k) probabilities.
        labels: (n,) classes.

    Returns:
        The largest probability of each row, (n,), and whether its class is the label, (n,).

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.

    >>> top_label(torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1]))
    (tensor([0.7500, 0.5000]), tensor([ True, False]))
    """
    probs, labels = check_labelled("probs", probs, labels)
    confidence, correct = probs.new_empty(len(probs)), torch.empty_like(labels, dtype=torch.bool)
    find = _top_of_few if probs.shape[1] < TRANSPOSED_CLASSES else _top_of_many
    for rows in blocks(*probs.shape, size=4 * SOFTMAX_BLOCK):
        confidence[rows], correct[rows] = find(probs[rows], labels[rows], rows.start)
    return confidence, correct


def _top_of_many(probs: Tensor, labels: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    check_probabilities("probs", probs, first_row, total=1.0)
    top = top_class(probs)
    return probs.gather(1, top.unsqueeze(1)).squeeze(1), top == labels


def _top_of_few(probs: Tensor, labels: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
    """The same from a copy whose columns lie together in memory: the label's probability against the others'."""
    columns = by_class(probs).t()
    check_probabilities("probs", columns, first_row, total=1.0)
    label = labels.unsqueeze(1)
    of_label = probs.gather(1, label).squeeze(1)
    of_others = columns.scatter_(1, label, -1.0).amax(1)
    correct = of_label > of_others
    tied = (of_label == of_others).nonzero().squeeze(1)
    correct[tied] = top_class(probs[tied]) == labels[tied]
    return torch.maximum(of_label, of_others), correct


class _ClassBins:
    """Collects the sums of the bins of every class's probability, of all rows or of each group of rows.

    Most of n·k probabilities are in the first bin. Only the others are counted one by one; the first bin is the total
    minus these.
    """

    def __init__(
        self, n_classes: int, n_bins: int, labels: Tensor, weights: Tensor | None, groups: Tensor | None
    ) -> None:
        self.labels, self.weights, self.groups = labels, weights, groups
        self.n_bins, self.n_classes = n_bins, n_classes
        self.n_groups = 1 if groups is None else int(groups[-1]) + 1
        size = self.n_groups * n_classes * n_bins
        of_groups = "" if groups is None else f" in {self.n_groups:,} groups"
        check_memory(f"{n_bins:,} bins of {n_classes:,} classes{of_groups}", 2 * 48 * size)  # and a copy, to be added
        self.count = torch.zeros(2 * size, dtype=torch.int64)
        self.sums = torch.zeros(size, dtype=torch.float64)
        if weights is not None:
            self.weight, self.squared = torch.zeros(2 * size, dtype=torch.float64), torch.zeros_like(self.sums)
        self.pending: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []  # slots, cells, values, weights
        self.n_pending = 0
        self.pending_groups = 0, 1  # the first, and the end
        self.all_probs = torch.zeros(self.n_groups, n_classes, dtype=torch.float64)

    def add(self, probs: Tensor, rows: slice) -> None:
        transposed = self.n_classes < TRANSPOSED_CLASSES
        slack = softmax_rounding(probs.dtype)
        large = np.flatnonzero((probs > 1 / self.n_bins + slack).numpy()).astype(np.int32)
        first = large // np.int32(probs.shape[1])  # numpy divides by one number fast
        row, label = (torch.from_numpy(x).long() for x in (large - first * np.int32(probs.shape[1]), first))
        row, label = (row, label) if transposed else (label, row)
        values = probs.view(-1)[torch.from_numpy(large)]
        correct, of_class = self.labels[rows][row] == label, label
        if self.groups is not None:
            of_class = self.groups[rows][row] * self.n_classes + label
            start = self.pending_groups[0] if self.pending else int(self.groups[rows][0])
            self.pending_groups = start, int(self.groups[rows][-1]) + 1
        cell = of_class * self.n_bins + bin_numbers(values, self.n_bins, slack)
        slot = 2 * cell + correct
        weights = None if self.weights is None else self.weights[rows]
        self._add_totals(probs if transposed else probs.t(), rows, weights)
        self.pending.append((slot, cell, values, None if weights is None else weights[row]))
        self.n_pending += len(slot)
        if self.n_pending >= PENDING:
            self._count()

    def _add_totals(self, probs: Tensor, rows: slice, weights: Tensor | None) -> None:
        """Add the sums of all probabilities (k, rows)."""
        if self.groups is None:
            self.all_probs += probs.sum(1, dtype=torch.float64) if weights is None else (probs * weights).sum(1)
            return
        groups = self.groups[rows].numpy()
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        values = (probs.double() if weights is None else probs * weights).numpy()
        self.all_probs[groups[starts]] += torch.from_numpy(np.add.reduceat(values, starts, axis=1).T)

    def _count(self) -> None:
        """Add up what is pending: at once, since each count takes time proportional to the bins of these groups."""
        slot, cell, values = (torch.cat([part[i] for part in self.pending]) for i in range(3))  # type: ignore[misc]
        first, end = (group * self.n_classes * self.n_bins for group in self.pending_groups)
        cell, slot = (cell - first, slot - 2 * first) if first else (cell, slot)
        self.count[2 * first : 2 * end] += torch.bincount(slot, minlength=2 * (end - first))
        if self.weights is None:
            self.sums[first:end] += torch.bincount(cell, weights=values.double(), minlength=end - first)
        else:
            weights = torch.cat([part[3] for part in self.pending if part[3] is not None])
            self.sums[first:end] += torch.bincount(cell, weights=values * weights, minlength=end - first)
            self.weight[2 * first : 2 * end] += torch.bincount(slot, weights=weights, minlength=2 * (end - first))
            self.squared[first:end] += torch.bincount(cell, weights=weights**2, minlength=end - first)
        self.pending, self.n_pending = [], 0

    def finish(self) -> BinSums:
        if self.pending:
            self._count()
        shape = (self.n_groups * self.n_classes, self.n_bins)
        groups = torch.zeros_like(self.labels) if self.groups is None else self.groups
        of_class = groups * self.n_classes + self.labels

        def per_group(weights: Tensor | None) -> Tensor:
            """The rows of the group of each class, or their weight."""
            return torch.bincount(groups, weights).repeat_interleave(self.n_classes)

        count, sums = self.count.view(*shape, 2), self.sums.view(shape)
        _add_rest(count, per_group(None), torch.bincount(of_class, minlength=shape[0]))
        sums[:, 0] += self.all_probs.view(-1) - sums.sum(1)
        if self.weights is None:
            return BinSums(count, count.double(), sums, count.sum(-1).double())
        weight, squared = self.weight.view(*shape, 2), self.squared.view(shape)
        _add_rest(weight, per_group(self.weights), torch.bincount(of_class, self.weights, shape[0]))
        squared[:, 0] += per_group(self.weights.square()) - squared.sum(1)
        return BinSums(count, weight, sums, squared)


def _add_rest(bins: Tensor, rows: Tensor, labelled: Tensor) -> None:
    """Add what is missing to the first bin of (k, n_bins, 2): of all rows, and of those with the class's label."""
    seen = bins.sum(1)
    bins[:, 0, 1] += labelled - seen[:, 1]
    bins[:, 0, 0] += rows - labelled - seen[:, 0]
