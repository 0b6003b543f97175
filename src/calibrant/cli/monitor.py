"""`calibrant monitor`: follow a deployed model in its files of predictions, with alarms, for a job that runs again."""

import sys
import time as clock
from dataclasses import replace
from typing import TYPE_CHECKING

from calibrant._paths import check_exists
from calibrant.cli.audit import GATE_FAILED
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Integer, Json, Switch, Words
from calibrant.cli.output import Notes, counting_bar, print_json
from calibrant.errors import InvalidInputError, printable

if TYPE_CHECKING:
    from calibrant.monitors import Monitor


def monitor(
    *paths: File,
    reference: Files,
    every: str,
    time: str | None = None,
    labels: Files = (),
    id: str | None = None,
    cluster: str | None = None,
    calibrator: File | None = None,
    alpha: float = 0.05,
    max_waiting: Integer = 1_000_000,
    state: File | None = None,
    metrics_file: File | None = None,
    report: File | None = None,
    watch: Integer | None = None,
    fail_if: Words = (),
    match_names: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
) -> None:
    """Follow a deployed model in its files of predictions, window by window, and raise alarms.

    Three questions gather evidence: is the model miscalibrated, has it changed since the reference (both from labels),
    have its predictions shifted (without labels)? The probability that any alarm is ever false is at most alpha,
    however often one looks. With --state, a job that runs again reads only new files, and a killed run loses nothing.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of predictions, with labels or without, in the order of time.
    reference
        Predictions of the same model on other rows than it was trained on, with labels as far as they are known.
    every
        The length of a window: 1d, 12h, 30min, or a number of rows.
    time
        The column of times, in UTC where it has no time zone.
    labels
        Files with the column --id and one of labels, which --label then names, for rows that came without; they may
        repeat older labels.
    id
        The column that identifies a row.
    cluster
        A column; rows of one file that share its value are not independent, and count as one.
    calibrator
        A JSON file of `calibrant fit`, which calibrates every row; it must not be fitted on the reference.
    alpha
        The probability that any alarm is ever false.
    max_waiting
        How many rows may wait for a label; the oldest are dropped, and counted.
    state
        The JSON file that says what was counted; made where there is none, and replaced whole.
    metrics_file
        A file to write the latest figures to, as text for Prometheus.
    report
        An .html file to write: the monitor as a page, with the verdict, charts over time and a table of windows.
    watch
        Look again after this many seconds, until Ctrl-C or until a condition of --fail-if is true; needs --state. The
        page reloads itself.
    fail_if
        Conditions on the latest figures such as "alarms > 0" or "accuracy < 0.8"; if one is true, the exit code is 3.
    match_names
        Reorder the classes of files that have the same class names as the reference in another order.
    as_json
        Print JSON with full precision instead of a line for each window with new rows or labels.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    check_exists(*reference, *paths, *labels, calibrator, columns.columns)
    from calibrant import monitors
    from calibrant._checks import check_integer
    from calibrant._files import atomic_write, check_output
    from calibrant.monitors.record import metrics_text
    from calibrant.report.page import check_report

    if watch is not None:
        check_integer("watch", watch, 1)
        if state is None:
            raise InvalidInputError("watch needs a state: --state monitor.json")
    if report is not None:
        check_report(report)
    if metrics_file is not None:
        check_output(metrics_file, "a metrics file")
    flags = replace(columns, label=None) if labels else columns
    is_first, say = True, Notes()
    while True:
        known, scan = flags.scans(reference, paths, match_names=match_names, id=id, say=say)
        with counting_bar("monitoring", len(scan.files)) as done:
            found = monitors.monitor(
                scan,
                known,
                every=every,
                time=time,
                labels=labels,
                label=columns.label,
                id=id,
                cluster=cluster,
                calibrator=calibrator,
                alpha=alpha,
                max_waiting=max_waiting,
                state=state,
                gates=fail_if,
                match_names=match_names,
                progress=done,
            )
        if is_first or found.updated:
            if metrics_file is not None:
                with atomic_write(metrics_file, "a metrics file") as file:
                    file.write(metrics_text(found.to_dict()).encode())
            if report is not None:
                found.save_html(report, command=["calibrant", *sys.argv[1:]], refresh=None if found.failed else watch)
            _print(found, report if is_first else None, as_json=as_json)
        if watch is None or found.failed:
            break
        is_first = False
        clock.sleep(watch)
    for gate in found.failed:
        print(f"failed: {gate}", file=sys.stderr)
    if found.failed:
        sys.exit(GATE_FAILED)


def _print(found: "Monitor", report: File | None, *, as_json: bool) -> None:
    """The record as JSON, or a line for each window with new rows or labels and the verdict; and what to open."""
    from calibrant.monitors.record import window_line

    record = found.to_dict()
    if as_json:
        print_json(record)
    else:
        for number, window in enumerate(record["windows"]):
            if window["updated"]:
                print(printable(window_line(record, number)))
        print(printable(record["verdict"]))
    if report is not None:
        print(printable(f"open {report}"), file=sys.stderr if as_json else sys.stdout)
    sys.stdout.flush()  # a log is read while the command watches
