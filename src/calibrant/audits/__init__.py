"""Audits of predictions: one value that holds the findings; terminal, JSON and page are views of it.

The package is called audits because `calibrant.audit` is the function; a package of that name would replace it as soon
as one of its modules is imported.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from calibrant._checks import (
    MAX_JOBS,
    check_integer,
    check_level,
    check_n_bins,
    check_same_class_names,
    check_same_kind,
)
from calibrant._signatures import checked
from calibrant.audits.advice import Advice, advise
from calibrant.audits.classes import ClassRow, class_rows
from calibrant.audits.curves import high_confidence_accuracy
from calibrant.audits.deciding import DecisionFindings, HandedOver, decision_findings
from calibrant.audits.gates import Gate
from calibrant.audits.groups import Group, GroupFindings, group_findings
from calibrant.audits.record import audit_record
from calibrant.audits.set_sizes import SetSize
from calibrant.audits.statistics import RowStatistics, collect_statistics, column_names, id_columns
from calibrant.audits.temperature import MetricChange, TemperatureEffect, temperature_effect
from calibrant.audits.verdict import Verdict, calibration_verdict, decision_level
from calibrant.errors import InvalidInputError, without_secrets
from calibrant.metrics.compare import Difference, compare
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS, check_metrics, metric_names
from calibrant.parallel import BytesDone, one_thread
from calibrant.predictions import LABEL_PROBS, Paths, Predictions
from calibrant.scan import Scan

__all__ = [
    "Advice",
    "Audit",
    "ClassRow",
    "DecisionFindings",
    "Gate",
    "Group",
    "GroupFindings",
    "HandedOver",
    "MetricChange",
    "SetSize",
    "TemperatureEffect",
    "Verdict",
    "audit",
    "calibration_verdict",
]

SHIFT_COLUMN = "corruption"  # of predictions on shifted data


@dataclass(frozen=True, eq=False)
class Audit:
    """The findings of an audit, as `audit` returns them.

    Args:
        files: The audited files, without passwords and signatures; empty for predictions in memory.
        other_files: The files of the model compared with.
        columns: The columns of the predictions besides labels and logits.
        weights: The column of row weights.
        cluster: The column of clusters, whose rows are not independent.
        level: Confidence level of the intervals.
        seed: Seed of the draws and of the sample.
        statistics: What one pass over the rows kept.
        verdict: Whether all rows together are calibrated.
        groups: Findings by column.
        classes: Findings by class, the largest classwise ECE first.
        temperature: The effect of temperature scaling.
        decision: Which rows to accept, and which sets hold the label.
        advice: Recommendations, the most important first.
        comparison: Differences between this model and the other, by column; by None where no column was given.
        gates: The conditions that were checked.
        failed: Those that are true.
    """

    files: tuple[str, ...]
    other_files: tuple[str, ...]
    columns: tuple[str, ...]
    weights: str | None
    cluster: str | None
    level: float
    seed: int
    statistics: RowStatistics
    verdict: Verdict
    groups: Mapping[str, GroupFindings]
    classes: tuple[ClassRow, ...]
    temperature: TemperatureEffect
    decision: DecisionFindings
    advice: tuple[Advice, ...]
    comparison: Mapping[str | None, Sequence[Difference]]
    gates: tuple[Gate, ...]
    failed: tuple[Gate, ...]

    @property
    def scorecard(self) -> Scorecard:
        """The scorecard of all rows with a label and a positive weight."""
        return self.statistics.card

    @property
    def top_label(self) -> bool:
        """Whether only the confidence of the predicted class is known."""
        return self.statistics.top_label

    @property
    def n_zero_weight(self) -> int:
        """Number of rows of weight 0, which are left out."""
        return self.statistics.n_rows - self.n_unlabelled - self.scorecard.n_rows

    @property
    def n_unlabelled(self) -> int:
        """Number of rows without a label, which are left out."""
        return self.statistics.unlabelled.n

    @property
    def constant_class(self) -> str | None:
        """The class that is predicted for every row, where the labels have several; else None."""
        index = self.statistics.constant_class
        return None if index is None else self.statistics.class_name(index)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that identify a row, judged by their names."""
        return id_columns(self.columns, self.weights)

    @property
    def repeated_ids(self) -> dict[str, int]:
        """Columns that identify something of which several rows come, such as a patient: their numbers of values.

        Judged by their names, and by whether their values repeat. The rows of one value may not be independent. Columns
        whose groups are audited are left out, and so are those with more values than the clusters have.
        """
        values = self.statistics.values
        most = values[self.cluster].n_values - 1 if self.cluster in values else math.inf
        named = (*self.groups, self.cluster)
        repeated = {name: found.n_values for name, found in values.items() if found.repeats and name not in named}
        return {name: n_values for name, n_values in repeated.items() if n_values <= most}

    @property
    def pooled_shifts(self) -> bool:
        """Whether the files are several shifted tests, which may contain the same images, and no column tells."""
        return self.cluster is None and len(self.files) > 1 and SHIFT_COLUMN in self.columns

    def names(self, metrics: Iterable[str] | None = None) -> tuple[str, ...]:
        """The metrics to show.

        Args:
            metrics: Names of metrics; by default all.

        Returns:
            The names, in the order of METRICS.

        Raises:
            UnknownNameError: There is no such metric.
            InvalidInputError: A metric does not suit the number of classes.
        """
        return check_metrics(metrics, self.scorecard.n_classes, top_label=self.top_label)

    def differences(self, names: Sequence[str]) -> list[tuple[str | None, Difference]]:
        """The differences between this model and the other, this − other.

        Args:
            names: Metrics.

        Returns:
            Pairs of a column and a difference: those of all rows with None, then those of the groups of each column.
        """
        wanted = metric_names(names)
        found = [(by, row) for by, rows in self.comparison.items() for row in rows if row.metric in wanted]
        first = next(iter(self.comparison), None)
        overall = [(None, row) for by, row in found if row.overall and by == first]
        return [*overall, *((by, row) for by, row in found if not row.overall)]

    def to_dict(self, metrics: Iterable[str] | None = None) -> dict[str, Any]:
        """The audit as JSON: dicts, lists, numbers and text. `docs/audit.md` states the schema.

        Args:
            metrics: Names of metrics to show, by default all. The verdict uses all that it needs.

        Returns:
            The record.
        """
        return audit_record(self, self.names(metrics))

    @checked
    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        metrics: Iterable[str] | None = None,
        command: Sequence[str] = (),
        now: datetime | None = None,
    ) -> None:
        """Write the audit as a page: one HTML file that loads nothing from a network.

        Args:
            path: A file ending in .html, which is replaced atomically.
            metrics: Names of metrics to show, by default all.
            command: The command line to show.
            now: The time to show, by default the current one.

        Raises:
            InvalidInputError: The path is not an .html file.
            ResourceError: The folder does not exist, or the file cannot be written.
            MissingExtraError: The extra report is not installed.
        """
        from calibrant.report.audit import write_audit

        write_audit(path, self, self.names(metrics), command=command, now=now)


@checked
def audit(
    source: Predictions | Scan | Paths,
    *,
    by: str | Sequence[str] = (),
    weights: str | None = None,
    cluster: str | None = None,
    other: Predictions | Scan | Paths | None = None,
    compare_metrics: str | Iterable[str] | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
    gates: str | Iterable[Gate | str] = (),
    match_names: bool = False,
    jobs: int = 1,
    ray: str | None = None,
    progress: BytesDone = lambda n_bytes: None,
) -> Audit:
    """Audit predictions in memory, or in files, which are read once and in bounded memory.

    Args:
        source: Predictions, a scan of files, or what `Predictions.scan` takes. Rows without a label are left out, and
            counted.
        by: Columns whose groups are audited too.
        weights: A column of row weights. Soft labels (the column `label_probs`) count by their probabilities, times
            these, and the labels of a row are a cluster.
        cluster: A column; rows that share its value (a patient, an image) are not independent. Every interval, noise
            floor and test then follows the variance between clusters. By default the first ID column where the files
            are several shifted tests, which contain the same images.
        other: Predictions of another model for the same rows in the same order. Both are then held in memory.
        compare_metrics: With ``other``: the metrics to compare, by default all, which is slow for many rows.
        n_bins: Number of bins of the binned metrics.
        level: Confidence level of the intervals. Below 95 % it narrows them and changes no decision.
        seed: Seed of the draws behind the intervals, and of the sample for the temperature.
        gates: Conditions such as "ece > 0.05" under which the audit fails.
        match_names: Whether to reorder the classes of files that have the same class names in another order.
        jobs: Number of local processes that read files. The result has the same bits for any number.
        ray: Address of a Ray cluster to use instead ("auto", "local", host:port or ray://…).
        progress: Called with the number of bytes read since the last call.

    Returns:
        The findings; `to_dict` and `save_html` are views of them.

    Raises:
        InvalidInputError: No row has a label, the class names of files differ, or an argument is invalid.
        UnknownNameError: There is no such column or metric.
        CorruptFileError: A file cannot be parsed.
        NoDataError: There is no such file.

    >>> found = audit(Predictions.from_logits([[2.0, 0.0], [1.0, 0.0]], [0, 1]), gates=["accuracy < 0.9"])
    >>> found.verdict.kind, [str(gate) for gate in found.failed]
    ('too_few_rows', ['accuracy < 0.9'])
    """
    check_level(level)
    check_integer("seed", seed, 0)
    check_n_bins(n_bins)
    parsed_gates = tuple(
        gate if isinstance(gate, Gate) else Gate.parse(gate) for gate in ([gates] if isinstance(gates, str) else gates)
    )
    columns = (by,) if isinstance(by, str) else tuple(by)
    compare_metrics = None if compare_metrics is None else metric_names(compare_metrics)
    check_integer("jobs", jobs, 1, MAX_JOBS)
    rows, other_rows = _open_source(source, match_names), None
    if other is not None:
        other_rows = _open_source(other, match_names)
        if match_names and set(rows.class_names or ()) == set(other_rows.class_names or ()):
            other_rows = other_rows.match_names(rows.class_names)
        check_same_kind("source", rows, "other", other_rows)
        names = [next(iter(_file_names(opened)), "predictions") for opened in (rows, other_rows)]
        check_same_class_names(names[0], rows.class_names, names[1], other_rows.class_names)
    if cluster is None and _several_shifts(rows):
        cluster = next(iter(id_columns(column_names(rows), weights)), None)
    common: dict[str, Any] = {"weights": weights, "cluster": cluster, "n_bins": n_bins, "seed": seed}
    statistics = collect_statistics(rows, by=columns, jobs=jobs, ray=ray, progress=progress, **common)
    weights, cluster = statistics.weights, statistics.cluster  # those of soft labels, where the labels are soft
    with one_thread():  # thousands of small steps, which several threads would slow down
        comparison = {}
        if other_rows is not None:
            comparison = _compare_models(rows, other_rows, columns, compare_metrics, level=level, **common)
        verdict = calibration_verdict(statistics.card, level=level, seed=seed)
        groups = {cards.by: group_findings(cards, level=level, seed=seed) for cards in statistics.groups}
        classes = class_rows(statistics)
        effect = temperature_effect(
            statistics.sample.predictions(),
            statistics.card.n_rows,
            weighted=weights is not None,
            clustered=cluster is not None,
            n_bins=n_bins,
            level=level,
            seed=seed,
            top_label=statistics.top_label,
        )
    high_confidence = high_confidence_accuracy(
        statistics.effective_histogram(decision_level(level)), decision_level(level)
    )
    return Audit(
        files=_file_names(rows),
        other_files=_file_names(other_rows),
        columns=tuple(column_names(rows)),
        weights=weights,
        cluster=cluster,
        level=level,
        seed=seed,
        statistics=statistics,
        verdict=verdict,
        groups=groups,
        classes=classes,
        temperature=effect,
        decision=decision_findings(statistics, level),
        advice=advise(
            verdict,
            effect,
            list(groups.values()),
            classes,
            high_confidence,
            cluster,
            constant=statistics.constant,
            top_label=statistics.top_label,
        ),
        comparison=comparison,
        gates=parsed_gates,
        failed=tuple(gate for gate in parsed_gates if gate.fails(statistics.card)),
    )


def _open_source(source: Predictions | Scan | Paths, match_names: bool) -> Predictions | Scan:
    if isinstance(source, Predictions):
        return source
    return source if isinstance(source, Scan) else Predictions.scan(source, match_names=match_names)


def _several_shifts(source: Predictions | Scan) -> bool:
    return isinstance(source, Scan) and len(source.files) > 1 and SHIFT_COLUMN in source.column_names


def _file_names(source: Predictions | Scan | None) -> tuple[str, ...]:
    return tuple(map(without_secrets, source.files)) if isinstance(source, Scan) else ()


def _needed_rows(source: Predictions | Scan, columns: Sequence[str]) -> Predictions:
    """The rows with these columns, and soft labels."""
    soft = [LABEL_PROBS] if LABEL_PROBS in column_names(source) else []
    wanted = list(dict.fromkeys([*columns, *soft]))
    return source.read(wanted) if isinstance(source, Scan) else source.select(wanted)


def _compare_models(
    first: Predictions | Scan,
    second: Predictions | Scan,
    columns: Sequence[str],
    metrics: Iterable[str] | None,
    **options: Any,
) -> dict[str | None, list[Difference]]:
    names = None if metrics is None else tuple(name for name in metrics if not METRICS[name].binary)
    if names == ():
        raise InvalidInputError("metrics of P(y = 1) are not compared: a comparison is of the top label only")
    needed = [*columns, *(name for name in (options["weights"], options["cluster"]) if name is not None)]
    a, b = _needed_rows(first, needed), _needed_rows(second, [])
    return {column: compare(a, b, metrics=names, by=column, **options) for column in columns or (None,)}
