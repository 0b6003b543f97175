"""A window of rows: sums of fixed size, and a sample of its rows for what needs rows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant._arrays import UNKNOWN
from calibrant._checks import check_columns
from calibrant.metrics.bin_sums import BinSums, bin_sums
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.clusters import inflate
from calibrant.metrics.exact import clopper_pearson
from calibrant.metrics.sample_scores import softmax_rounding
from calibrant.metrics.scorecard import Scorecard
from calibrant.monitors.questions import N_BINS
from calibrant.monitors.rows import Rows
from calibrant.predictions import Predictions

MAX_SAMPLE_ROWS, MIN_SAMPLE_ROWS, MAX_SAMPLE_NUMBERS = 2_000, 200, 2**20
LEVEL = 0.95  # of the intervals of a window
Describe: TypeAlias = Callable[[Predictions], dict[str, Any]]  # of a sample of rows, as JSON


@dataclass(eq=False)
class Window:
    """The rows of one window.

    Args:
        class_counts: (classes,) how often each class was predicted.
        n_rows: The number of rows.
        confidence: The sum of their confidences.
        squares: The sum of the squared sizes of their clusters, where they have clusters.
        counts: (bins, 2) labelled rows by bin of the confidence: incorrect, correct.
        confidences: (bins,) the sums of their confidences.
        log_e: By question, the evidence after the rows of this window.
        times: The first and the last time of the rows, in microseconds.
        described: Label-free estimates and shift tests on the sample; None where rows came since.
        measured: Accuracy, confidence − accuracy and ECE of the labelled rows; None where labels came since.
        sample: The rows of the least hashes; None once the window is closed.
        keys: Their hashes, in order.
    """

    class_counts: NDArray[np.int64]
    n_rows: int = 0
    confidence: float = 0.0
    squares: float = 0.0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((N_BINS, 2), np.int64))
    confidences: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N_BINS))
    log_e: dict[str, float] = field(default_factory=dict)
    times: list[int] | None = None
    described: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    sample: Predictions | None = None
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def n_labelled(self) -> int:
        return int(self.counts.sum())

    def add(self, rows: Rows, predictions: Predictions, times: NDArray[np.int64] | None) -> None:
        """Count rows, and keep those of the least hashes while the window is open."""
        self.n_rows += len(rows)
        self.class_counts += np.bincount(rows["predicted"], minlength=len(self.class_counts))
        self.confidence += float(rows["confidence"].sum())
        self.add_labelled(rows[rows["label"] != UNKNOWN])
        if times is not None:
            seen = [*(self.times or ()), int(times.min()), int(times.max())]
            self.times = [min(seen), max(seen)]
        if self.sample is not None:
            self._sample(predictions)
            self.described = None

    def _sample(self, predictions: Predictions) -> None:
        assert self.sample is not None
        size = predictions.n_classes + (0 if predictions.features is None else predictions.features.shape[1])
        limit = min(MAX_SAMPLE_ROWS, max(MIN_SAMPLE_ROWS, MAX_SAMPLE_NUMBERS // size))
        keys = predictions.row_hashes[0]
        new = np.flatnonzero(keys < self.keys[-1]) if len(self.keys) == limit else np.arange(len(keys))
        all_keys = np.concatenate([self.keys, keys[new]])
        order = np.argsort(all_keys, kind="stable")[:limit]
        self.keys, self.sample = all_keys[order], Predictions.concat([self.sample, predictions[new]])[order]

    def add_labelled(self, rows: Rows) -> None:
        """Count rows whose label is known by now."""
        if len(rows):
            sums = _bin_sums(rows["confidence"], rows["predicted"] == rows["label"])
            self.counts += sums.count.numpy()
            self.confidences += sums.confidence.numpy()
            self.measured = None

    def describe(self, describe: Describe) -> None:
        """Compute again what new rows or labels have changed."""
        if self.sample is not None and self.described is None:
            self.described = describe(self.sample)
        if self.measured is None:
            self.measured = self._measure()

    def close(self) -> None:
        """Drop the sample."""
        self.sample, self.keys = None, self.keys[:0]

    def _measure(self) -> dict[str, Any]:
        """Accuracy, confidence − accuracy and ECE of the labelled rows, with intervals; None where there are none.

        Rows of one cluster count as one row: the intervals are wide enough for rows of a cluster that are all equal.
        """
        n = self.n_labelled
        if n == 0:
            return {"accuracy": None, "gap": None, "ece": None}
        effect = max(1.0, self.squares / self.n_rows)
        count = torch.from_numpy(self.counts)
        weight = count.double()
        bins: BinSums = inflate(BinSums(count, weight, torch.from_numpy(self.confidences), weight.sum(1)), effect)
        card = Scorecard(("ece",), n, len(self.class_counts), N_BINS, {"bins": bins})
        correct, confidence = int(self.counts[:, 1].sum()), float(self.confidences.sum()) / n
        low, high = clopper_pearson(correct / effect, n / effect, LEVEL)
        ece_low, ece_high = card.interval("ece", level=LEVEL)
        return {
            "accuracy": {"value": correct / n, "low": low, "high": high},
            "gap": {"value": confidence - correct / n, "low": confidence - high, "high": confidence - low},
            "ece": {"value": card.ece, "low": ece_low, "high": ece_high, "noise_floor": card.noise_floor("ece")},
        }


def _bin_sums(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> BinSums:
    tensor = torch.from_numpy(np.ascontiguousarray(confidence))
    number = bin_numbers(tensor, N_BINS, softmax_rounding(torch.float32))
    return bin_sums(number, N_BINS, tensor, torch.from_numpy(correct), None)


def bare(predictions: Predictions) -> Predictions:
    """The same rows without labels, columns and metadata."""
    n = len(predictions)
    labels = torch.full((n,), UNKNOWN)
    return replace(predictions, labels=labels, columns=check_columns(None, n, ()), metadata={})


def window_name(number: int, every: int, by_time: bool) -> str:
    """The start of a window: a time in UTC, or the number of its first row.

    >>> window_name(20000, 86_400_000_000, True), window_name(2, 1000, False)
    ('2024-10-04', 'row 2,000')
    """
    if not by_time:
        return f"row {number * every:,}"
    text = time_text(number * every)
    return text.removesuffix("T00:00:00Z") if every % 86_400_000_000 == 0 else text


def time_text(microseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.replace(tzinfo=None).isoformat(timespec="auto") + "Z"
