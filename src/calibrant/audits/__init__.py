"""Audits: what predictions are worth, as one value that the terminal, JSON and a page are views of.

The package is named audits because `calibrant.audit` is the function: a package of that name would take its place as
soon as one of its modules is imported.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from calibrant._checks import check_integer, check_level
from calibrant._files import without_secrets
from calibrant._names import check_choice
from calibrant.audits.advice import Advice, advise
from calibrant.audits.classes import ClassRow, class_rows
from calibrant.audits.curves import sure_rows
from calibrant.audits.gates import Gate
from calibrant.audits.gather import Gathered, column_names, gather_rows, id_columns
from calibrant.audits.groups import GroupFindings, find_groups
from calibrant.audits.record import audit_record
from calibrant.audits.temperature import TemperatureEffect, temperature_effect
from calibrant.audits.verdict import Verdict, assess, strict
from calibrant.errors import InvalidInputError
from calibrant.metrics.compare import Difference, compare
from calibrant.metrics.scorecard import Scorecard
from calibrant.metrics.table import METRICS, check_metrics
from calibrant.parallel import BytesDone, one_thread
from calibrant.predictions import Paths, Predictions
from calibrant.scan import Scan

__all__ = ["Advice", "Audit", "Gate", "Verdict", "assess", "audit"]

SHIFT = "corruption"  # the column of predictions under shift


@dataclass(frozen=True, eq=False)
class Audit:
    """What predictions are worth: numbers with their evidence, a verdict, and what to do."""

    files: tuple[str, ...]  # without passwords and signatures; none of predictions in memory
    other_files: tuple[str, ...]
    columns: tuple[str, ...]  # the user's
    weights: str | None
    level: float
    seed: int
    rows: Gathered
    verdict: Verdict
    groups: Mapping[str, GroupFindings]  # by column
    classes: tuple[ClassRow, ...]  # worst first
    temperature: TemperatureEffect
    advice: tuple[Advice, ...]
    comparison: Mapping[str | None, Sequence[Difference]]  # this model − the other, by each column or of all rows only
    gates: tuple[Gate, ...]
    failed: tuple[Gate, ...]

    @property
    def scorecard(self) -> Scorecard:
        """Of all rows that count."""
        return self.rows.card

    @property
    def n_left_out(self) -> int:
        """Rows of weight 0."""
        return self.rows.n_rows - self.scorecard.n_rows

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that seem to say which row it is."""
        return id_columns(self.columns, self.weights)

    @property
    def pooled_shifts(self) -> bool:
        """Whether the files are of several shifts, which may show the same images."""
        return len(self.files) > 1 and SHIFT in self.columns

    def names(self, metrics: Iterable[str] | None = None) -> tuple[str, ...]:
        """The metrics to show: these, in the order of the table, or all. Raises: UnknownNameError."""
        return check_metrics(metrics, self.scorecard.n_classes)

    def to_dict(self, metrics: Iterable[str] | None = None) -> dict[str, Any]:
        """The audit as JSON has it: dicts, lists, numbers, text. `docs/audit.md` states the schema.

        Args:
            metrics: Names of metrics to show, by default all; the verdict rests on all.
        """
        return audit_record(self, self.names(metrics))

    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        metrics: Iterable[str] | None = None,
        command: Sequence[str] = (),
        now: datetime | None = None,
    ) -> None:
        """Write the audit as a page: one HTML file that fetches nothing.

        Args:
            path: A file of .html, which is replaced whole.
            metrics: Names of metrics to show, by default all.
            command: The arguments that made the audit, to be shown.
            now: The time that the page names.

        Raises:
            NoDataError: Where the page cannot be written, or the extra report is missing.
        """
        from calibrant.report.audit import write_audit

        write_audit(path, self, self.names(metrics), command=command, now=now)


def audit(
    source: Predictions | Scan | Paths,
    *,
    by: str | Iterable[str] = (),
    weights: str | None = None,
    other: Predictions | Scan | Paths | None = None,
    cluster: str | None = None,
    compared: Iterable[str] | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
    gates: Iterable[Gate | str] = (),
    jobs: int = 1,
    ray: str | None = None,
    report: BytesDone = lambda n_bytes: None,
) -> Audit:
    """Audit predictions: in memory, or in files that are read once and in bounded memory.

    Args:
        source: Predictions, a scan of files, or what `Predictions.scan` takes.
        by: Columns to split by.
        weights: A column of row weights.
        other: The same rows, in the same order, as predicted by another model. Both are then held in memory.
        cluster: With ``other``: a column whose equal values mark rows that are not independent.
        compared: With ``other``: the metrics to compare, by default all; of many rows that takes a while.
        n_bins: Bins of the binned metrics.
        level: Confidence level of the intervals. A low one decides nothing.
        seed: Seed of the draws behind the intervals, and of the sample for the temperature.
        gates: Conditions such as "ece > 0.05" under which the audit fails.
        jobs: Local processes that read files; 1 reads in this one. The result has the same bits for any number.
        ray: Address of a Ray cluster that reads them instead ("auto", "local", host:port or ray://…).
        report: Called with bytes as they are read.

    Returns:
        An `Audit`, whose `to_dict` and `save_html` are its views.

    Raises:
        InvalidInputError: Where rows lack labels, or an argument is none of the above.
        UnknownNameError: Where there is no such column or metric.
        CorruptFileError, NoDataError: Where files cannot be read.

    >>> found = audit(Predictions.from_logits([[2.0, 0.0], [1.0, 0.0]], [0, 1]), gates=["accuracy < 0.9"])
    >>> found.verdict.kind, [str(gate) for gate in found.failed]
    ('few', ['accuracy < 0.9'])
    """
    check_level(level)
    check_integer("seed", seed, 0)
    check_integer("n_bins", n_bins, 1)
    if cluster is not None and other is None:
        raise InvalidInputError("cluster needs another model: the intervals of one model take rows as independent")
    conditions = tuple(gate if isinstance(gate, Gate) else Gate.parse(gate) for gate in gates)
    columns = (by,) if isinstance(by, str) else tuple(by)
    this, rival = _opened(source), None if other is None else _opened(other)
    common: dict[str, Any] = {"weights": weights, "n_bins": n_bins, "seed": seed}
    rows = gather_rows(this, by=columns, jobs=jobs, ray=ray, report=report, **common)
    with one_thread():  # of thousands of small steps: threads would wait for each other most of the time
        comparison = {}
        if rival is not None:
            comparison = _compared(this, rival, columns, compared, cluster=cluster, level=level, **common)
        verdict = assess(rows.card, level=level, seed=seed)
        groups = {found.by: find_groups(found, level=level, seed=seed) for found in rows.groups}
        classes = class_rows(rows)
        effect = temperature_effect(
            rows.sample.predictions(weighted=weights is not None),
            rows.card.n_rows,
            weighted=weights is not None,
            n_bins=n_bins,
            level=level,
            seed=seed,
        )
    sure = sure_rows(rows.histogram, strict(level))
    return Audit(
        files=_files(this),
        other_files=_files(rival),
        columns=tuple(column_names(this)),
        weights=weights,
        level=level,
        seed=seed,
        rows=rows,
        verdict=verdict,
        groups=groups,
        classes=classes,
        temperature=effect,
        advice=advise(verdict, effect, list(groups.values()), classes, sure),
        comparison=comparison,
        gates=conditions,
        failed=tuple(gate for gate in conditions if gate.fails(rows.card)),
    )


def _opened(source: Predictions | Scan | Paths) -> Predictions | Scan:
    return source if isinstance(source, Predictions | Scan) else Predictions.scan(source)


def _files(source: Predictions | Scan | None) -> tuple[str, ...]:
    return tuple(map(without_secrets, source.files)) if isinstance(source, Scan) else ()


def _compared(
    first: Predictions | Scan,
    second: Predictions | Scan,
    columns: Sequence[str],
    metrics: Iterable[str] | None,
    **options: Any,
) -> dict[str | None, list[Difference]]:
    """The differences of two models, by each column or of all rows only."""
    names = None if metrics is None else tuple(metrics)
    if names is not None:
        names = tuple(name for name in names if check_choice("metric", name, METRICS) and not METRICS[name].binary)
        if not names:
            raise InvalidInputError("metrics of P(y = 1) are not compared: a comparison is of the top label only")
    a, b = (source.read() if isinstance(source, Scan) else source for source in (first, second))
    return {column: compare(a, b, metrics=names, by=column, **options) for column in columns or (None,)}
