"""The classes of an audit: how often each is found, and how far it can be believed where it is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from calibrant.audits.gather import Gathered
from calibrant.audits.groups import RELEVANT
from calibrant.audits.verdict import alpha, gap_p_value
from calibrant.metrics.exact import holm
from calibrant.metrics.scorecard import Scorecard


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class; what has no rows to be measured on is None."""

    name: str
    labelled: int  # rows
    predicted: int
    recall: float | None  # share of the rows labelled with it that are predicted to be it
    precision: float | None  # share of the rows predicted to be it that are labelled with it
    confidence: float | None  # mean of the rows predicted to be it
    ece: float  # of its probability, over all rows: the classwise ECE, whose mean is `cece`
    p_holm: float  # of confidence and precision being one, corrected for the number of classes

    @property
    def gap(self) -> float | None:
        """Confidence − accuracy where it is predicted."""
        if self.confidence is None or self.precision is None:
            return None
        return self.confidence - self.precision


def class_rows(gathered: Gathered) -> tuple[ClassRow, ...]:
    """Worst first, by the classwise ECE."""
    n_classes = gathered.card.n_classes
    labelled, predicted = ([tally[k] for k in range(n_classes)] for tally in (gathered.labelled, gathered.predicted))
    p_holm = holm([gap_p_value(rows) if rows.total > 0 else 1.0 for rows in predicted])
    errors = _errors(gathered.card)
    found = [
        ClassRow(
            gathered.class_name(k),
            int(labelled[k].count.sum()),
            int(predicted[k].count.sum()),
            _known(labelled[k].accuracy),
            _known(predicted[k].accuracy),
            _known(predicted[k].mean_confidence),
            errors[k],
            p_holm[k],
        )
        for k in range(n_classes)
    ]
    return tuple(sorted(found, key=lambda row: -row.ece))


def _errors(card: Scorecard) -> list[float]:
    """The ECE of each class's probability."""
    bins = card.class_bins
    errors: list[float] = ((bins.weight[..., 1] - bins.confidence).abs().sum(-1) / bins.total.sum(-1)).tolist()
    return errors


def _known(share: Tensor) -> float | None:
    """NaN is that of no rows."""
    return None if share.isnan() else float(share)


def opposed_classes(classes: Sequence[ClassRow], level: float) -> tuple[ClassRow, ClassRow] | None:
    """The most overconfident and the most underconfident class, where both are so beyond chance and not by a trifle."""
    known = [(row.gap, row.name, row) for row in classes if row.gap is not None and row.p_holm <= alpha(level)]
    if not known:
        return None
    (most, _, over), (least, _, under) = max(known), min(known)
    return (over, under) if most >= RELEVANT and least <= -RELEVANT else None
