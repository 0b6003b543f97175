"""The classes of an audit: how often each is found, and how far it can be believed where it is predicted."""

from dataclasses import dataclass

import numpy as np

from calibrant.metrics.exact import holm, share_p_value
from calibrant.metrics.tally import Tally
from calibrant.report.audit.reading import Reading


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class; what has no rows to be measured on is None."""

    name: str
    labelled: int  # rows
    predicted: int
    recall: float | None  # share of the rows labelled with it that are predicted to be it
    precision: float | None  # share of the rows predicted to be it that are labelled with it
    confidence: float | None  # mean of the rows predicted to be it
    ece: float | None  # of its probability, over all rows
    p_holm: float  # of confidence and precision being one, corrected for the number of classes

    @property
    def gap(self) -> float | None:
        """Confidence less accuracy where it is predicted."""
        if self.confidence is None or self.precision is None:
            return None
        return self.confidence - self.precision


def class_rows(reading: Reading, classes: Tally | None) -> tuple[ClassRow, ...]:
    """Worst first: by the classwise error, or, of a scorecard that has none, by the weight of the gap."""
    found = reading.classes
    n_classes = len(found.weight)
    effective = np.divide(found.weight**2, found.squared, out=np.zeros(n_classes), where=found.squared > 0)
    chances = [1.0] * n_classes
    for k in np.flatnonzero(found.weight):
        right, confidence = found.right[k] / found.weight[k], found.confidence[k] / found.weight[k]
        chances[k] = share_p_value(right * effective[k], effective[k], min(confidence, 1.0))
    errors = [None] * n_classes if classes is None else class_errors(classes)
    rows = [
        ClassRow(
            reading.class_name(k),
            int(found.labelled[k]),
            int(found.predicted[k]),
            _ratio(found.right[k], found.labelled_weight[k]),
            _ratio(found.right[k], found.weight[k]),
            _ratio(found.confidence[k], found.weight[k]),
            errors[k],
            p_holm,
        )
        for k, p_holm in enumerate(holm(chances))
    ]
    gaps = np.abs(found.confidence - found.right)
    order = sorted(range(n_classes), key=lambda k: -gaps[k] if (error := errors[k]) is None else -error)
    return tuple(rows[k] for k in order)


def class_errors(classes: Tally) -> list[float | None]:
    """The ECE of each class's probability, whose mean is `cece`."""
    gaps = (classes.weight[..., 1] - classes.confidence).abs().sum(-1)
    return (gaps / classes.total.sum(-1)).tolist()


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
