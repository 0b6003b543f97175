"""Multi-label predictions: one sigmoid per class, each class a question of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from calibrant._checks import check_class_names
from calibrant.metrics.bin_sums import BinSums
from calibrant.metrics.checks import check_multilabel
from calibrant.metrics.events import Events
from calibrant.metrics.means import Means
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.scoring import Groups, merge
from calibrant.predictions import Predictions


def score_multilabel(
    logits: Tensor,
    labels: Tensor,
    *,
    class_names: Sequence[str] | None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
) -> Groups:
    """A scorecard for each class: is it there (``ece_positive``), and is the likelier answer right (``ece``).

    logits (n, k) go through a sigmoid each; labels (n, k) are 0 or 1. ``overall`` pools all n·k answers; its classwise
    ECE is the mean over classes of the ECE of P(class is there). The answers of one row may depend on each other, so
    its intervals count rows, not answers.

    >>> scores = score_multilabel(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 1]]), class_names=["cat", "dog"])
    >>> scores["cat"].ece_positive
    0.5
    """
    logits, labels = check_multilabel(logits, labels)
    n_classes = logits.shape[1]
    names: Sequence[object] = check_class_names(class_names, n_classes) or range(n_classes)
    wanted = None if metrics is None else tuple(metrics)
    cards = {}
    for number, name in enumerate(names):
        column = logits[:, number]
        answers = Predictions.from_logits(torch.stack([torch.zeros_like(column), column], dim=1), labels[:, number])
        cards[name] = Scorecard.of(answers, metrics=wanted, n_bins=n_bins)
    pooled = _dependent(merge(cards.values()), n_classes)
    if pooled.classes is not None:
        by_class = [card.classes[1] for card in cards.values() if card.classes is not None]
        pooled = replace(
            pooled,
            multilabel=True,
            classes=BinSums(*(torch.stack([getattr(c, n) for c in by_class]) for n in BinSums.__slots__)),
        )
    return Groups("class", cards, pooled)


def _dependent(card: Scorecard, together: int) -> Scorecard:
    """The card with as many independent rows as if answers came in equal groups of this size."""
    positive = None if card.positive is None else _dependent_events(card.positive, together)
    spread = torch.tensor([1.0, together, together], dtype=torch.float64)
    scaled = None
    if card.means is not None:
        scaled = Means(card.means.count, card.means.weight, card.means.squared * together, card.means.sums * spread)
    return replace(card, means=scaled, top=_dependent_events(card.top, together), positive=positive)


def _dependent_events(events: Events, together: int) -> Events:
    bins = None if events.bins is None else replace(events.bins, squared=events.bins.squared * together)
    cells = events.cells
    if cells is not None:
        cells = replace(cells, sums=replace(cells.sums, squared=cells.sums.squared * together))
    return Events(bins, cells)
