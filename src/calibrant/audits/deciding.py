"""What an audit says to those who must decide: a certified threshold, which groups it hands over, sizes of sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calibrant._signatures import checked
from calibrant.audits.set_sizes import SetSize
from calibrant.audits.statistics import RowStatistics
from calibrant.audits.verdict import decision_level
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.histogram import FIXED_DROPPED, FineHistogram, upper_edge
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.selection import fixed_sequence, rows_needed

MAX_ERROR = 0.05  # of accepted rows, as `calibrant certify` has it by default
ALL_ACCEPTED = -1  # below all keys

VoidReason = Literal["weights", "cluster"]


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The rows of a group, and which of them the threshold accepts.

    Args:
        value: The value of the group's column; None for missing ones, and for all rows.
        n_rows: Number of rows.
        n_accepted: How many of them are accepted.
        n_errors: How many of these are wrong.
    """

    value: Any
    n_rows: int
    n_accepted: int
    n_errors: int

    @property
    def share(self) -> float:
        """The share of rows that are handed over."""
        return 1 - self.n_accepted / self.n_rows

    @property
    def error(self) -> float | None:
        """The error of accepted rows; None without any."""
        return self.n_errors / self.n_accepted if self.n_accepted else None

    @checked
    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Clopper and Pearson's interval of the error of accepted rows; it takes the threshold as given.

        Args:
            level: Its level.

        Returns:
            The limits.
        """
        return clopper_pearson(self.n_errors, self.n_accepted, level)


@dataclass(frozen=True)
class DecisionFindings:
    """Which rows to accept so that few of them are wrong, and which sets of classes hold the label.

    Args:
        max_error: The largest error of accepted rows.
        confidence: The probability, over draws of the rows, that the threshold keeps it.
        void: Why nothing is certified: rows have "weights", or those of one "cluster" are not independent; else None.
        threshold: The smallest confidence that is accepted, 0 for all rows; None where nothing is certified.
        overall: All rows.
        rows_needed: Where no threshold is certified: about how many rows it takes at the error of the most confident
            ones; None where these are wrong too often, or too few to tell.
        groups: By column the groups, the one with the largest share of rows handed over first; empty without a
            threshold.
        sets: Sizes of sets by coverage, as far as there are enough rows; empty if void.
    """

    max_error: float
    confidence: float
    void: VoidReason | None
    threshold: float | None
    overall: HandedOver
    rows_needed: int | None
    groups: Mapping[str, tuple[HandedOver, ...]]
    sets: tuple[SetSize, ...]


def decision_findings(statistics: RowStatistics, level: float) -> DecisionFindings:
    """The lowest threshold that is certified by fixed-sequence testing, and what it and sets would do to these rows.

    The test is exact for any score, if rows of one value are accepted together. The score is the number of a bin of the
    confidence; bins depend neither on the rows nor on whether they were read in parts.
    """
    confidence = decision_level(level)
    chance = 1 - confidence
    void: VoidReason | None = (
        "weights" if statistics.weights is not None else "cluster" if statistics.cluster is not None else None
    )
    bins = _fixed_bins(statistics.card)
    counts = bins.sums.count.flip(0).numpy()
    errors, rows = counts[:, 0], counts.sum(1)
    accepted = 0 if void else fixed_sequence(rows, errors, MAX_ERROR, chance)
    last_key = int(bins.key[-1 - accepted]) if accepted < len(rows) else ALL_ACCEPTED
    threshold = None
    if accepted:
        threshold = 0.0 if last_key == ALL_ACCEPTED else upper_edge(last_key, FIXED_DROPPED)
    groups = {
        found.by: [_handed_over(value, _fixed_bins(card), last_key) for value, card in found.items()]
        for found in (statistics.groups if accepted else ())
    }
    return DecisionFindings(
        max_error=MAX_ERROR,
        confidence=confidence,
        void=void,
        threshold=threshold,
        overall=_handed_over(None, bins, last_key),
        rows_needed=None if void or accepted else rows_needed(rows, errors, MAX_ERROR, chance),
        groups={by: tuple(sorted(found, key=lambda row: -row.share)) for by, found in groups.items()},
        sets=statistics.probabilities.set_sizes(),
    )


def _fixed_bins(card: Scorecard) -> FineHistogram:
    histogram: FineHistogram = card.sums["histogram"]
    return histogram.coarsen(FIXED_DROPPED)


def _handed_over(value: Any, bins: FineHistogram, last_key: int) -> HandedOver:
    """The rows of a histogram, of which the bin of this key is the last one that is handed over."""
    n_errors, n_correct = bins.sums.count[bins.key > last_key].sum(0).tolist()
    return HandedOver(value, int(bins.sums.count.sum()), n_errors + n_correct, n_errors)
