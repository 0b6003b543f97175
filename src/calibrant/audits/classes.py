"""The classes of an audit: precision, recall and calibration of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from calibrant.audits.groups import MIN_RELEVANT_GAP
from calibrant.audits.statistics import RowStatistics
from calibrant.audits.verdict import significance_level
from calibrant.metrics.clusters import column_effects, inflate
from calibrant.metrics.exact import gap_p_value, holm


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class. A share without rows is None.

    Args:
        name: The name of the class, or its index.
        labelled: Number of rows with this label.
        predicted: Number of rows predicted to be this class.
        recall: Share of the labelled rows that are predicted to be this class.
        precision: Share of the predicted rows with this label.
        confidence: Mean confidence of the predicted rows.
        ece: ECE of the probability of this class over all rows; the mean over the classes is `cece`.
        p_holm: P-value of ``gap``, corrected for the number of classes (Holm).
    """

    name: str
    labelled: int
    predicted: int
    recall: float | None
    precision: float | None
    confidence: float | None
    ece: float
    p_holm: float

    @property
    def gap(self) -> float | None:
        """Confidence − precision."""
        if self.confidence is None or self.precision is None:
            return None
        return self.confidence - self.precision


def class_rows(statistics: RowStatistics) -> tuple[ClassRow, ...]:
    """The classes, the largest classwise ECE first; none where only the confidence is known."""
    if statistics.top_label:
        return ()
    bins = statistics.card.class_bins
    classwise_ece = ((bins.weight[..., 1] - bins.confidence).abs().sum(-1) / bins.total.sum(-1)).tolist()
    labelled, predicted = (
        [sums[k] for k in range(len(classwise_ece))] for sums in (statistics.labelled, statistics.predicted)
    )
    p_holm = holm(_p_values(statistics))
    rows = [
        ClassRow(
            name=statistics.class_name(k),
            labelled=int(labelled[k].count.sum()),
            predicted=int(predicted[k].count.sum()),
            recall=_share(labelled[k].accuracy),
            precision=_share(predicted[k].accuracy),
            confidence=_share(predicted[k].mean_confidence),
            ece=ece,
            p_holm=p_holm[k],
        )
        for k, ece in enumerate(classwise_ece)
    ]
    return tuple(sorted(rows, key=lambda row: -row.ece))


def _p_values(statistics: RowStatistics) -> list[float]:
    """Of confidence − precision of each class."""
    predicted, freedom = statistics.predicted, [math.inf] * len(statistics.predicted.total)
    if statistics.predicted_clusters is not None:
        effects, freedom = column_effects(statistics.predicted_clusters, "predicted", predicted)
        predicted = inflate(predicted, effects)
    return [
        gap_p_value(predicted[k : k + 1], freedom[k]) if total > 0 else 1.0
        for k, total in enumerate(predicted.total.tolist())
    ]


def _share(value: Tensor) -> float | None:
    """None for NaN, the share of no rows."""
    return None if value.isnan() else float(value)


def opposite_classes(classes: Sequence[ClassRow], level: float) -> tuple[ClassRow, ClassRow] | None:
    """The most overconfident and the most underconfident class, if both gaps are significant and relevant."""
    known = [
        (row.gap, row.name, row) for row in classes if row.gap is not None and row.p_holm <= significance_level(level)
    ]
    if not known:
        return None
    (largest, _, over), (smallest, _, under) = max(known), min(known)
    return (over, under) if largest >= MIN_RELEVANT_GAP and smallest <= -MIN_RELEVANT_GAP else None
