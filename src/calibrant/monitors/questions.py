"""The three questions of a monitor, each with its evidence, against a reference of finite size."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calibrant.monitors.evidence import EProcess, Floats, Integers, conformal_p_values, uniforms

QUESTIONS = {
    "miscalibrated": "the accuracy differs from the confidence",
    "changed": "the accuracy at a given confidence differs from that of the reference",
    "shifted": "the predictions differ from those of the reference; no labels are used",
}
N_BINS = 15  # of the confidence
GAP_CELLS = 64  # of correct − confidence, from −1 to 1
SCORE_CELLS, CELLS_PER_OCTAVE, LEAST_OCTAVE = 1024, 32, -24  # of a positive score; a cell is 2.2 % wide
TAIL = 0.1  # the share of the rows of the reference with the largest, or least, scores
SCORE_BETS = ("", "largest ", "least ")  # all rows, and those of either tail


@dataclass
class Evidence:
    """The evidence on each of `QUESTIONS`, as rows come.

    Together the three alarms are wrong with a probability of at most alpha: each has a third of it.

    Args:
        processes: By question; "changed" is missing where the reference has no labels.
        gap_counts: (bins, cells) rows of the reference and after it, by their correct − confidence.
        error_share: (bins,) the share of errors in the fitting rows of the reference.
        score_counts: By score, (cells,) rows of the reference and after it.
    """

    processes: dict[str, EProcess]
    gap_counts: Integers
    error_share: Floats
    score_counts: dict[str, Integers] = field(default_factory=dict)

    @classmethod
    def from_reference(cls, confidence: Floats, correct: Floats, scores: Mapping[str, Floats], alpha: float) -> Self:
        """Evidence before the first row.

        Args:
            confidence: (n,) of the labelled rows of the reference; none where it has no labels.
            correct: (n,) whether they are correct, or of clusters the share of correct rows.
            scores: By name, positive scores of rows of the reference that they were not fitted to.
            alpha: The probability that any alarm is ever false.

        Returns:
            The evidence.
        """
        limit = math.log(len(QUESTIONS) / alpha)
        by_bin = np.append(0.5, np.full(N_BINS, 0.5 / N_BINS))
        processes = {"miscalibrated": EProcess(by_bin, limit)}
        if len(confidence):
            processes["changed"] = EProcess(by_bin, limit)
        n_bets = len(SCORE_BETS) * len(scores)
        processes["shifted"] = EProcess(np.full(n_bets, 1 / n_bets), limit)
        bins, gap, fitted = confidence_bins(confidence), correct - confidence, fitting_rows(len(confidence))
        n_fitted, errors = (np.bincount(bins[rows], minlength=N_BINS) for rows in (fitted, fitted & (gap < 0)))
        cells = (bins * GAP_CELLS + _gap_cells(gap))[~fitted]
        return cls(
            processes,
            np.bincount(cells, minlength=N_BINS * GAP_CELLS).reshape(N_BINS, GAP_CELLS),
            (errors + 1) / (n_fitted + 2),  # strictly between 0 and 1
            {name: np.bincount(_score_cells(score), minlength=SCORE_CELLS) for name, score in scores.items()},
        )

    def add_rows(self, scores: Mapping[str, Floats]) -> None:
        """Count rows without labels, by their positive scores."""
        process, bets = self.processes["shifted"], []
        for number, (name, counts) in enumerate(self.score_counts.items()):
            drawn = uniforms(number, process.n_rows, len(scores[name]))
            p = conformal_p_values(counts, _score_cells(scores[name]), drawn)
            bets += [2 * p - 1, (p > 1 - TAIL) - TAIL, (p < TAIL) - TAIL]
        z = np.stack(bets, axis=1)
        process.add(np.broadcast_to(np.arange(z.shape[1]), z.shape), z)

    def add_labelled(self, confidence: Floats, correct: Floats) -> None:
        """Count labelled rows, in an order that does not depend on the labels."""
        bins, gap = confidence_bins(confidence), correct - confidence
        component = np.stack([np.zeros_like(bins), bins + 1], axis=1)  # all rows, and those of the bin
        self.processes["miscalibrated"].add(component, gap[:, None])
        if (process := self.processes.get("changed")) is None:
            return
        # Where a row errs, p is about at most the share of errors; where nothing changed, p is uniform, however small
        # the reference: z is correct − its accuracy, with the mean 0 that an estimated accuracy would not give.
        z, cells = np.empty(len(gap)), _gap_cells(gap)
        drawn = uniforms(len(QUESTIONS), process.n_rows, len(gap))
        for number in np.unique(bins):
            rows, share = np.flatnonzero(bins == number), self.error_share[number]
            z[rows] = share - (conformal_p_values(self.gap_counts[number], cells[rows], drawn[rows]) <= share)
        process.add(component, z[:, None])

    def component_name(self, question: str, component: int) -> str:
        """What a component of a question's evidence counts, in words."""
        if question == "shifted":
            score, bet = divmod(component, len(SCORE_BETS))
            return f"{SCORE_BETS[bet]}{list(self.score_counts)[score]}"
        if component == 0:
            return "all confidences"
        return f"confidence {(component - 1) / N_BINS:.2f} to {component / N_BINS:.2f}"


def fitting_rows(n: int) -> NDArray[np.bool_]:
    """Every fifth row of a reference: what is fitted to these does not make them different from later rows in rank."""
    found: NDArray[np.bool_] = np.arange(n) % 5 == 0
    return found


def confidence_bins(confidence: Floats) -> Integers:
    """Equal-width bins (low, high], as those of the ECE."""
    found: Integers = np.clip(np.ceil(confidence * N_BINS).astype(np.int64) - 1, 0, N_BINS - 1)
    return found


def _gap_cells(gap: Floats) -> Integers:
    found: Integers = np.clip(np.floor((gap + 1) * (GAP_CELLS / 2)).astype(np.int64), 0, GAP_CELLS - 1)
    return found


def _score_cells(score: Floats) -> Integers:
    """Cells with fixed edges: edges at the quantiles of the reference would make its rows different from the others."""
    octave = np.log2(np.maximum(score, 2.0**LEAST_OCTAVE)) - LEAST_OCTAVE
    found: Integers = np.minimum((octave * CELLS_PER_OCTAVE).astype(np.int64), SCORE_CELLS - 1)
    return found
