"""Multi-label predictions: one sigmoid per class, each class a binary problem."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from calibrant._checks import check_class_names
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.checks import check_multilabel
from calibrant.metrics.clusters import inflate
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups, merge
from calibrant.metrics.table import metric_names
from calibrant.predictions import Predictions


def score_multilabel(
    logits: Tensor,
    labels: Tensor,
    *,
    class_names: Sequence[str] | None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
) -> Groups:
    """A scorecard for each class of a multi-label model.

    ``ece_positive`` measures P(class is present), ``ece`` the likelier of present and absent. ``overall`` pools the
    n·k binary predictions; its classwise ECE is the mean over classes of ``ece_positive``. The binary predictions of
    one row may depend on each other: the intervals of ``overall`` count rows.

    Args:
        logits: (n, k), the argument of one sigmoid per class.
        labels: (n, k), 1 where the class is present, else 0.
        class_names: The keys of the result; 0, …, k − 1 by default.
        metrics: Names in `METRICS`; all of them by default.
        n_bins: The number of bins of the binned calibration errors.

    Returns:
        The scorecards by class.

    Raises:
        InvalidInputError: An argument has a wrong shape, type or value.
        UnknownNameError: A metric does not exist.

    >>> scores = score_multilabel(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 1]]), class_names=["cat", "dog"])
    >>> scores["cat"].ece_positive
    0.5
    """
    logits, labels = check_multilabel(logits, labels)
    n_classes = logits.shape[1]
    names: Sequence[object] = check_class_names(class_names, n_classes) or range(n_classes)
    wanted = None if metrics is None else metric_names(metrics)
    cards: dict[object, Scorecard] = {}
    for number, name in enumerate(names):
        column = logits[:, number]
        binary = Predictions.from_logits(torch.stack([torch.zeros_like(column), column], dim=1), labels[:, number])
        cards[name] = Scorecard.of(binary, metrics=wanted, n_bins=n_bins)
    pooled: Scorecard = merge(cards.values())
    sums = {part: inflate(part_sums, n_classes) for part, part_sums in pooled.sums.items()}
    if "classes" in sums:
        by_class = [card.class_bins[1] for card in cards.values()]
        sums["classes"] = BinSums(*(torch.stack([getattr(c, n) for c in by_class]) for n in BinSums.__slots__))
    return Groups("class", cards, replace(pooled, sums=sums, multilabel=True))
