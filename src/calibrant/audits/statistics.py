"""The statistics that an audit keeps of its rows, from one pass in bounded memory.

Parts of files are read in this process, in local processes or on Ray, and their statistics are added in the order of
the parts: the result has the same bits for any number of workers. Within a part, sums by class and by confidence are
made row by row, which makes them independent of the batch size. Rows of weight 0, and those without a label, only count
for the fingerprint.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import python_values, sum_of
from calibrant._names import check_choice
from calibrant._parquet import FilePart
from calibrant.audits.repeats import ValueCounts
from calibrant.audits.sample import Sample
from calibrant.audits.set_sizes import ProbabilityCounts
from calibrant.errors import CorruptFileError, InvalidInputError, without_secrets
from calibrant.metrics.bin_sums import BinSums, Float64Array
from calibrant.metrics.bins import bin_numbers
from calibrant.metrics.checks import MAX_AUDITED_GROUPS, check_group_count
from calibrant.metrics.clusters import MAX_CLUSTER_GROUPS, ClusterSums, cluster_keys, sum_by_cluster
from calibrant.metrics.histogram import MAX_HISTOGRAM_BINS
from calibrant.metrics.sample_scores import SampleScores, predicted_class, score_rows, softmax_rounding
from calibrant.metrics.scorecard import Scorecard, row_weights
from calibrant.metrics.scoring import Groups, Unlabelled, no_labels, no_rows, score_batch
from calibrant.metrics.soft_labels import expand_soft_labels
from calibrant.parallel import BytesDone, map_parts, one_thread
from calibrant.predictions import LABEL_PROBS, LABEL_ROW, LABEL_WEIGHT, Predictions
from calibrant.scan import Scan

N_ERRORS = 25  # most confident errors that are kept
N_HISTOGRAM_BINS = 50
SAME_CONFIDENCE = 1e-3  # confidences of a range below this are all the same
ID_COLUMNS = ("id", "path", "file", "image", "name")
MAX_ID_COLUMNS, MAX_ID_CHARACTERS = 3, 80

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row whose predicted class is not its label."""

    file: str  # empty for predictions in memory
    row: int  # in its file, from 0
    ids: tuple[str, ...]  # its values of the ID columns
    label: int
    predicted: int
    complement: float  # 1 − confidence, which keeps its digits where the confidence rounds to 1


class RowStatistics:
    """Statistics of the rows read so far; ``a + b`` are those of the rows of a, then of b."""

    def __init__(
        self,
        n_classes: int,
        *,
        stream: bool,
        by: Sequence[str],
        ids: Sequence[str],
        weights: str | None,
        cluster: str | None,
        soft: bool,
        n_bins: int,
        seed: int,
    ) -> None:
        self.stream, self.by, self.ids, self.n_bins, self.seed = stream, by, ids, n_bins, seed
        self.given = weights, cluster  # of rows with soft labels, before they are expanded
        self.weights, self.cluster = (LABEL_WEIGHT, cluster or LABEL_ROW) if soft else (weights, cluster)
        self.n_rows = 0  # with those of weight 0 and those without a label
        self.unlabelled = Unlabelled(by)
        self.hashes = np.zeros(2, np.uint64)  # sums of the row hashes, modulo 2^64
        self.class_names: tuple[str, ...] | None = None
        self.top_label = False  # whether only the confidence of the predicted class is known
        self.scores: tuple[Any, ...] = ()  # the scorecard, then the groups of each column; empty where no row counts
        self.labelled = _empty_sums(n_classes)  # rows by label
        self.predicted = _empty_sums(n_classes)  # rows by predicted class
        self.predicted_clusters: ClusterSums | None = None  # the same by groups of clusters
        self.histogram = _empty_sums(N_HISTOGRAM_BINS)  # rows by confidence
        self.probabilities = ProbabilityCounts.empty()  # only of rows that count alike and are independent
        self.values: dict[str, ValueCounts] = {}  # of the ID columns and of the cluster
        self.errors: tuple[ErrorRow, ...] = ()  # the most confident first
        self.sample = Sample.empty(n_classes)

    @property
    def card(self) -> Scorecard:
        card: Scorecard = self.unlabelled.noted(self.scores[0])
        return card

    @property
    def groups(self) -> tuple[Groups, ...]:
        return tuple(map(self.unlabelled.noted, self.scores[1:]))

    @property
    def fingerprint(self) -> str:
        """That of `Predictions.fingerprint`: of all rows, in any order."""
        low, high = self.hashes.tolist()
        return f"{self.n_rows:010x}{low:016x}{high:016x}"

    @property
    def constant_class(self) -> int | None:
        """The class that is predicted for every row, where the labels have several; else None."""
        if self.top_label:
            return None
        predicted, labelled = (sums.count.sum(1).nonzero() for sums in (self.predicted, self.labelled))
        return int(predicted) if len(predicted) == 1 < len(labelled) else None

    @property
    def constant(self) -> bool:
        """Whether all rows have the same predicted class, unlike their labels, and about the same confidence."""
        confidence = self.card.top_histogram.mean_confidence
        return self.constant_class is not None and float(confidence.max() - confidence.min()) < SAME_CONFIDENCE

    def effective_histogram(self, level: float) -> BinSums:
        """The histogram with the number of independent rows, for intervals of this level."""
        ratio = sum_of(self.card.effective_histogram(level).squared) / sum_of(self.card.top_histogram.squared)
        return replace(self.histogram, squared=self.histogram.squared * ratio)

    def class_name(self, index: int) -> str:
        """The name of a class; its index where the files give no names."""
        return str(index) if self.class_names is None else self.class_names[index]

    def __add__(self, other: Self) -> Self:
        total = copy(self)
        for name in ("n_rows", "unlabelled", "hashes", "labelled", "predicted", "histogram", "probabilities", "sample"):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        total.scores = _sum_scores(self.scores, other.scores)
        total.predicted_clusters = _sum(self.predicted_clusters, other.predicted_clusters)
        total.values = _sum_values(self.values, other.values)
        total.errors = _most_confident((*self.errors, *other.errors))
        return total

    def update(self, rows: Predictions, file: str = "", first_row: int = 0) -> None:
        """Add a batch: the rows of a file from ``first_row`` on."""
        self.n_rows += len(rows)
        self.hashes += np.array([hashes.sum(dtype=np.uint64) for hashes in rows.row_hashes])
        self.class_names, self.top_label = rows.class_names, rows.top_label
        number = np.arange(first_row, first_row + len(rows))
        if rows.has_soft_labels:
            rows, *_ = expand_soft_labels(rows, *self.given, first_row=first_row)
            number = rows.column(LABEL_ROW).to_numpy()
        elif (known := self.unlabelled.count(rows)) is not None:
            rows, number = rows[known], number[known]
        keys = rows.row_hashes[1]
        weight = None
        if self.weights is not None:
            weight = row_weights(rows, self.weights).numpy()
            counts = weight > 0
            rows, weight, number, keys = rows[counts], weight[counts], number[counts], keys[counts]
        if len(rows) == 0:
            return
        weights = None if weight is None else torch.from_numpy(weight)
        scored = score_rows(rows, n_bins=self.n_bins, weights=weights)
        self._add_scores(rows, scored)
        wrong = np.flatnonzero(~scored[0].correct.numpy())
        predicted = rows.labels.numpy().copy()
        predicted[wrong] = predicted_class(rows[wrong]).numpy()
        self._add_sums(rows.labels.numpy(), predicted, scored[0], weight)
        if weights is None and self.cluster is None and not rows.top_label:
            classes = rows.labels, torch.from_numpy(predicted)
            self.probabilities += ProbabilityCounts.of(rows.logits, *classes, scored[0].complement)
        clusters = self._add_clusters(rows, torch.from_numpy(predicted), scored[0], weights)
        complement = scored[0].complement.numpy()
        if len(wrong) > N_ERRORS:  # few of them are sorted
            wrong = wrong[complement[wrong] <= np.partition(complement[wrong], N_ERRORS)[N_ERRORS]]
        kept = wrong[np.argsort(complement[wrong], kind="stable")[:N_ERRORS]]
        self._add_errors(rows[kept], file, number[kept], predicted[kept], complement[kept])
        weight = np.ones(len(rows)) if weight is None else weight
        self.sample += Sample.from_rows(rows, weight, clusters, keys, self.seed)

    def _add_scores(self, rows: Predictions, scored: tuple[SampleScores, BinSums | None]) -> None:
        options: dict[str, Any] = {"n_bins": self.n_bins, "weights": self.weights, "cluster": self.cluster}
        max_bins = MAX_HISTOGRAM_BINS if self.stream else None
        card = Scorecard.of(rows, max_histogram_bins=max_bins, scored=scored, **options)
        groups = [score_batch(rows, by=by, metrics=None, stream=self.stream, overall=card, **options) for by in self.by]
        self.scores = _sum_scores(self.scores, (card, *groups))

    def _add_clusters(
        self, rows: Predictions, predicted: Tensor, scored: SampleScores, weights: Tensor | None
    ) -> Int64Array:
        """The hash of the cluster of each row; 0 without clusters."""
        names = dict.fromkeys([*self.ids, *([] if self.cluster is None else [self.cluster])])
        self.values = _sum_values(self.values, {name: ValueCounts.of(name, rows.column(name)) for name in names})
        if self.cluster is None:
            return np.zeros(len(rows), np.int64)
        keys = cluster_keys(rows, self.cluster)
        w = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights
        residual = scored.confidence.double() - scored.correct.double()
        part = {"predicted": (predicted, rows.n_classes, residual)}
        found = sum_by_cluster(keys, MAX_CLUSTER_GROUPS, part, w)
        self.predicted_clusters = _sum(self.predicted_clusters, found)
        return keys.numpy()

    def _add_sums(
        self, labels: Int64Array, predicted: Int64Array, scored: SampleScores, weight: Float64Array | None
    ) -> None:
        confidence, correct = scored.confidence.double().numpy(), scored.correct.numpy()
        bins = bin_numbers(scored.confidence, N_HISTOGRAM_BINS, softmax_rounding(scored.confidence.dtype)).numpy()
        for sums, index in ((self.labelled, labels), (self.predicted, predicted), (self.histogram, bins)):
            slots = 2 * index + correct
            count = torch.from_numpy(np.bincount(slots, minlength=2 * len(sums.count))).view(-1, 2)
            sums.count.add_(count)
            if weight is None:
                sums.weight.add_(count)
                sums.squared.add_(count.sum(1))
                np.add.at(sums.confidence.numpy(), index, confidence)
            else:
                np.add.at(sums.weight.numpy().reshape(-1), slots, weight)
                np.add.at(sums.squared.numpy(), index, weight * weight)
                np.add.at(sums.confidence.numpy(), index, weight * confidence)

    def _add_errors(
        self, rows: Predictions, file: str, number: Int64Array, predicted: Int64Array, complement: NDArray[np.floating]
    ) -> None:
        columns = [map(_shorten, python_values(name, rows.column(name))) for name in self.ids]
        ids = list(zip(*columns, strict=True)) or [()] * len(rows)
        errors = [
            ErrorRow(
                file=file,
                row=int(n),
                ids=values,
                label=label,
                predicted=int(k),
                complement=float(d),
            )
            for n, values, label, k, d in zip(number, ids, rows.labels.tolist(), predicted, complement, strict=True)
        ]
        self.errors = _most_confident((*self.errors, *errors))


def _sum_scores(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    total = tuple(x + y for x, y in zip(a, b, strict=True)) if a and b else a or b
    for groups in total[1:]:
        check_group_count(groups.by, len(groups), 1, MAX_AUDITED_GROUPS)
    return total


def _sum(a: ClusterSums | None, b: ClusterSums | None) -> ClusterSums | None:
    return a + b if a is not None and b is not None else a or b


def _sum_values(a: dict[str, ValueCounts], b: dict[str, ValueCounts]) -> dict[str, ValueCounts]:
    return {name: a[name] + b[name] for name in a} if a and b else a or b


def _most_confident(errors: Sequence[ErrorRow]) -> tuple[ErrorRow, ...]:
    """Of equally confident ones the first."""
    return tuple(sorted(errors, key=lambda row: row.complement)[:N_ERRORS])


def _empty_sums(n_bins: int) -> BinSums:
    count, weight = torch.zeros(n_bins, 2, dtype=torch.int64), torch.zeros(n_bins, 2, dtype=torch.float64)
    return BinSums(count, weight, *torch.zeros(2, n_bins, dtype=torch.float64))


def _shorten(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= MAX_ID_CHARACTERS else f"{text[: MAX_ID_CHARACTERS - 1]}…"


def collect_statistics(
    source: Scan | Predictions,
    *,
    by: Sequence[str] = (),
    weights: str | None = None,
    cluster: str | None = None,
    n_bins: int = 15,
    seed: int = 0,
    jobs: int = 1,
    ray: str | None = None,
    progress: BytesDone = lambda n_bytes: None,
) -> RowStatistics:
    """Read all rows once; arguments as of `audit`.

    Raises:
        InvalidInputError: No row has a label, or no row counts.
        CorruptFileError: A file cannot be read to its end.
    """
    soft = LABEL_PROBS in column_names(source)
    if isinstance(source, Scan) and not (source.has_labels or soft):
        raise no_labels(source)
    columns = list(dict.fromkeys([*by, *(name for name in (weights, cluster) if name is not None)]))
    for name in columns:
        _check_column(source, name)
    ids = id_columns(column_names(source), weights)
    columns += [LABEL_PROBS] if soft else []
    options: dict[str, Any] = {"by": tuple(by), "ids": ids, "weights": weights, "cluster": cluster, "soft": soft}
    options |= {"n_bins": n_bins, "seed": seed}
    total: RowStatistics | None = None
    if isinstance(source, Predictions):
        total = RowStatistics(source.n_classes, stream=False, **options)
        with one_thread():
            total.update(source)
    else:
        read = partial(_read_part, source, list(dict.fromkeys([*columns, *ids])), options)
        results = map_parts(read, source.parts, jobs=jobs, ray=ray, progress=progress)
        for part, found in zip(source.parts, results, strict=True):
            total = _checked_sum(total, found, part)
    if total is None or not total.scores:
        raise no_rows(source, Unlabelled(()) if total is None else total.unlabelled)
    return total


def column_names(source: Scan | Predictions) -> list[str]:
    """The columns besides labels and predictions."""
    return source.column_names if isinstance(source, Scan) else source.columns.column_names


def _check_column(source: Scan | Predictions, name: str) -> None:
    """A column that only some files have is not unknown: the error names the first file without it."""
    present = [name in each.column_names for each in source.sources] if isinstance(source, Scan) else []
    if any(present) and not all(present):
        file = source.files[present.index(False)]  # type: ignore[union-attr]
        raise InvalidInputError(f"{file} has no column {name}; other files have it")
    check_choice("column", name, column_names(source))


def id_columns(names: Sequence[str], weights: str | None = None) -> tuple[str, ...]:
    """The columns whose names suggest that they identify a row: at most three, and never the weights.

    >>> id_columns(["site", "Patient_ID", "path"])
    ('Patient_ID', 'path')
    """
    found = [name for name in names if name.lower() in ID_COLUMNS or name.lower().endswith("_id")]
    return tuple(name for name in found if name != weights)[:MAX_ID_COLUMNS]


def _read_part(
    scan: Scan, columns: list[str], options: dict[str, Any], part: FilePart, progress: BytesDone
) -> RowStatistics | None:
    """The statistics of a part, computed by a worker; None where it has no rows."""
    statistics: RowStatistics | None = None
    first_row = part.first_row
    for batch in scan.read_part(part, columns, progress=progress):
        statistics = statistics or RowStatistics(batch.n_classes, stream=True, **options)
        try:
            statistics.update(batch, without_secrets(part.url), first_row)
        except InvalidInputError as error:
            where = f", counting rows from {first_row}" if first_row else ""
            raise InvalidInputError(f"{part.url}{where}: {error}") from None
        first_row += len(batch)
    if statistics is not None:
        statistics.sample = statistics.sample.truncate()
    return statistics


def _checked_sum(total: RowStatistics | None, found: RowStatistics | None, part: FilePart) -> RowStatistics | None:
    if total is None or found is None:
        return total or found
    n_classes, expected = len(found.predicted.total), len(total.predicted.total)
    if n_classes != expected:
        raise CorruptFileError(f"{part.url} has {n_classes} classes, the files before it have {expected}")
    return total + found
