"""The stream that a monitor follows: files and late labels, each row of which is counted once."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.lib.recfunctions import repack_fields

from calibrant._arrays import UNKNOWN, check_distinct, id_text
from calibrant._checks import check_all_classes, check_same_class_names
from calibrant._paths import absolute_url, filesystem_of
from calibrant._signatures import checked
from calibrant.calibrators import Calibrator
from calibrant.errors import InvalidInputError, without_secrets
from calibrant.monitors.gates import WindowGate
from calibrant.monitors.labels import join_labels
from calibrant.monitors.questions import Evidence, fitting_rows
from calibrant.monitors.record import monitor_record
from calibrant.monitors.rows import (
    ROW,
    WAITING,
    FeatureScale,
    Rows,
    by_window,
    first_rows,
    labelled_units,
    parse_every,
    row_times,
    score_rows,
    unit_means,
)
from calibrant.monitors.windows import Describe, Window, bare
from calibrant.predictions import Predictions
from calibrant.reading.late_labels import read_labels
from calibrant.reading.tables import open_table

MAX_OPEN = 32  # windows whose samples are in memory
MAX_WINDOWS = 100_000
HEAD_BYTES, TAIL_BYTES = 2**12, 2**14  # of a file that tell it from others: data, and statistics of the columns


@dataclass(eq=False)
class Monitor:
    """What is known of a stream of predictions so far, made by `monitor`.

    Args:
        settings: Time, every, id, cluster, alpha, and the fingerprints of the reference and the calibrator.
        evidence: The evidence on the questions.
        feature_scale: How distances of features are measured, where the reference has features.
        windows: By number.
        files: The name of each file that was counted, by its digest.
        alarms: One for each question that was answered, in order.
        waiting: The rows with an id, of which a label may come, or be contradicted.
        n_rows: The number of rows.
        n_dropped: The number of rows that waited too long for a label.
        n_unmatched: The number of labels that no row waited for.
        reference: The reference, calibrated.
        calibrator: What calibrates every row.
        describe: Label-free estimates and shift tests of a sample of rows.
        max_waiting: The largest number of rows that wait.
        gates: Conditions on the last window.
    """

    settings: dict[str, Any]
    evidence: Evidence
    feature_scale: FeatureScale | None
    windows: dict[int, Window] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    waiting: Rows = field(default_factory=lambda: np.zeros(0, WAITING))
    n_rows: int = 0
    n_dropped: int = 0
    n_unmatched: int = 0
    reference: Predictions = field(kw_only=True)
    calibrator: Calibrator | None = field(kw_only=True)
    describe: Describe = field(kw_only=True)
    max_waiting: int = field(kw_only=True)
    gates: tuple[WindowGate, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        self.every, self.by_time = parse_every(self.settings["every"])
        self.updated: set[int] = set()  # windows with new rows or labels
        self.clustered = self.settings["cluster"] is not None

    @classmethod
    def start(cls, settings: dict[str, Any], reference: Predictions, **options: Any) -> Self:
        """The stream before its first row."""
        rows, scale = score_rows(reference, None, settings["cluster"], "0"), None
        clustered = settings["cluster"] is not None
        confidence, correct = labelled_units(rows[rows["label"] != UNKNOWN], clustered)
        if reference.features is not None:
            unit = np.unique(first_rows(rows, clustered), return_inverse=True)[1]
            fitted = fitting_rows(len(rows))[unit]
            scale = FeatureScale.fit(reference.features[fitted])
            rows["distance"] = scale.distance(reference.features)
            rows = rows[~fitted]
        scores = _scores(rows, scale, clustered)
        evidence = Evidence.from_reference(confidence, correct, scores, settings["alpha"])
        return cls(settings, evidence, scale, reference=reference, **options)

    def to_dict(self) -> dict[str, Any]:
        """The monitor as JSON: dicts, lists, numbers and text. `docs/monitor.md` states the schema.

        Returns:
            The record.
        """
        return monitor_record(self)

    @checked
    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        command: Sequence[str] = (),
        now: datetime | None = None,
        refresh: int | None = None,
    ) -> None:
        """Write the monitor as a page: one HTML file that loads nothing from a network.

        Args:
            path: A file ending in .html, which is replaced atomically.
            command: The command line to show.
            now: The time to show, by default the current one.
            refresh: Seconds after which a browser reloads the page, while a program writes it again and again.

        Raises:
            InvalidInputError: The path is not an .html file.
            ResourceError: The folder does not exist, or the file cannot be written.
            MissingExtraError: The extra report is not installed.
        """
        from calibrant.report.monitor import write_monitor

        write_monitor(path, self.to_dict(), command=command, now=now, refresh=refresh)

    @property
    def failed(self) -> tuple[str, ...]:
        """The gates whose condition is true, with the value of their figure."""
        return tuple(f"{gate['gate']} ({gate['value']:.6g})" for gate in self.to_dict()["gates"] if gate["failed"])

    def state(self) -> dict[str, Any]:
        """What a state file holds: with the reference it makes the same monitor."""
        given = ("reference", "calibrator", "describe", "max_waiting", "gates")
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in given}

    def new_files(self, urls: Iterable[str]) -> dict[str, str]:
        """Those that were not counted yet, by digest. Raises: InvalidInputError where one has changed since."""
        found: dict[str, str] = {}
        for url in urls:
            digest, name = file_digest(url), _file_name(url)
            if digest not in self.files and name in self.files.values():
                raise InvalidInputError(f"{url} has changed since it was counted: write further rows to a new file")
            if digest not in self.files:
                found.setdefault(digest, url)
        return found

    def add_predictions(self, predictions: Predictions) -> None:
        """Count predictions in memory, unless they were counted before."""
        check_all_classes("source", predictions, "monitor them")
        check_same_class_names("the reference", self.reference.class_names, "source", predictions.class_names)
        if predictions.fingerprint not in self.files:
            self.add_file("predictions", predictions.fingerprint, [predictions])

    def add_file(self, url: str, digest: str, batches: Iterable[Predictions]) -> None:
        """Count the rows of a file."""
        kept, ids = [np.zeros(0, ROW)], []
        for batch in batches:
            rows = self._count(batch, digest)
            if not self.clustered:
                self._bet(rows)
            if self.settings["id"] is not None:
                ids += batch.column(self.settings["id"]).chunks
            if self.clustered or ids:
                kept.append(rows)
        rows = np.concatenate(kept)
        if self.clustered:  # a cluster is complete at the end of its file
            self._bet(rows)
            for number, chosen in by_window(rows["window"]):
                sizes = np.unique(rows["unit"][chosen], return_counts=True)[1]
                self.windows[number].squares += float((sizes**2).sum())
        if ids:
            self._wait(url, rows, pa.chunked_array(ids))
        self.files[digest] = _file_name(url)

    def _count(self, batch: Predictions, digest: str) -> Rows:
        """Add rows to the sums of their windows."""
        calibrated = batch if self.calibrator is None else self.calibrator.calibrate(batch)
        rows = score_rows(calibrated, self.feature_scale, self.settings["cluster"], digest)
        times = None if self.settings["time"] is None else row_times(batch, self.settings["time"])
        rows["window"] = self.n_rows + np.arange(len(rows)) if times is None or not self.by_time else times
        rows["window"] //= self.every
        lean = bare(calibrated)
        for number, chosen in by_window(rows["window"]):
            self._window(number).add(rows[chosen], lean[chosen], None if times is None else times[chosen])
        self.n_rows += len(rows)
        return rows

    def _window(self, number: int) -> Window:
        self.updated.add(number)
        if number not in self.windows:
            if len(self.windows) == MAX_WINDOWS:
                got = f"more than {MAX_WINDOWS:,} windows of {self.settings['every']}"
                raise InvalidInputError(f"every must be longer, got {got}")
            self.windows[number] = Window(np.zeros(self.reference.n_classes, np.int64), sample=bare(self.reference[:0]))
            self.close_windows(MAX_OPEN)
        return self.windows[number]

    def close_windows(self, n_open: int) -> None:
        """Drop the samples of all windows but the newest, after what needs them."""
        for number in sorted(n for n, window in self.windows.items() if window.sample is not None)[:-n_open]:
            self.windows[number].describe(self.describe)
            self.windows[number].close()

    def finish(self) -> None:
        """Describe every window with new rows or labels; only the newest stays open for further rows."""
        self.close_windows(1)
        for window in self.windows.values():
            window.describe(self.describe)

    def _bet(self, rows: Rows) -> None:
        """Add rows to the evidence, window by window."""
        for number, chosen in by_window(rows["window"][first_rows(rows, self.clustered)]):
            self.evidence.add_rows(_scores(rows[chosen], self.feature_scale, self.clustered))
            self._note(number, "shifted")
            self._bet_labels(rows[chosen])

    def _bet_labels(self, rows: Rows) -> None:
        rows = rows[rows["label"] != UNKNOWN]
        for number, chosen in by_window(rows["window"][first_rows(rows, self.clustered)]):
            self.evidence.add_labelled(*labelled_units(rows[chosen], self.clustered))
            self._note(number, "miscalibrated", "changed")

    def _note(self, number: int, *questions: str) -> None:
        """The evidence after rows of a window, and an alarm that they raised."""
        for question in questions:
            if (process := self.evidence.processes.get(question)) is None:
                continue
            self.windows[number].log_e[question] = process.log_e
            if process.alarm is not None and all(alarm["question"] != question for alarm in self.alarms):
                component = self.evidence.component_name(question, process.alarm.component)
                found = {"question": question, "window": number, "n_rows": process.alarm.n_rows}
                self.alarms.append(found | {"where": component, "higher": process.alarm.sign > 0})

    def _wait(self, url: str, rows: Rows, ids: pa.ChunkedArray) -> None:
        rows["id"] = check_distinct(url, self.settings["id"], ids)
        twice = np.flatnonzero(np.isin(rows["id"], self.waiting["id"], kind="sort"))
        if len(twice):
            raise InvalidInputError(f"{url} repeats an id of an earlier file: {id_text(ids, twice[0])}")
        waiting = np.concatenate([self.waiting, repack_fields(rows[list(WAITING.names or ())])])
        start = max(0, len(waiting) - self.max_waiting)
        self.n_dropped += int((waiting["label"][:start] == UNKNOWN).sum())
        self.waiting = waiting[start:]

    def add_labels(self, url: str, label: str | None = None) -> None:
        """Give waiting rows their labels: in the order of the rows, for that of the labels may depend on them."""
        digest = file_digest(url)
        if digest in self.files:
            return
        reference = self.reference
        labels = read_labels(open_table(url), self.settings["id"], label, reference.n_classes, reference.class_names)
        units = self.waiting["unit"][self.waiting["label"] != UNKNOWN]
        chosen, n_unmatched = join_labels(self.waiting, labels)
        rows = self.waiting[chosen]
        for number, own in by_window(rows["window"]):
            self._window(number).add_labelled(rows[own])
        # A cluster bets once: with the first of its labels.
        self._bet_labels(rows[~np.isin(rows["unit"], units, kind="sort")] if self.clustered else rows)
        self.n_unmatched += n_unmatched
        self.files[digest] = _file_name(url)


def _scores(rows: Rows, scale: FeatureScale | None, clustered: bool) -> dict[str, Any]:
    """The nonconformity of rows, or the means over the rows of each cluster."""
    names = ["entropy"] if scale is None else ["entropy", "distance"]
    columns = [rows[name] for name in names]
    return dict(zip(names, unit_means(rows["unit"], *columns) if clustered else columns, strict=True))


def file_digest(url: str) -> str:
    """Of the size, and of both ends of a file."""
    filesystem, path = filesystem_of(url)
    size = int(filesystem.size(path))
    ends = filesystem.cat_file(path, 0, HEAD_BYTES), filesystem.cat_file(path, max(0, size - TAIL_BYTES), size)
    return blake2b(b"".join([str(size).encode(), *ends]), digest_size=16).hexdigest()


def _file_name(url: str) -> str:
    return without_secrets(absolute_url(os.fspath(url)))
