"""Monitors of deployed models: windows of predictions, late labels, and alarms that may be looked at any time.

The package is called monitors because `calibrant.monitor` is the function.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrant._checks import check_all_classes, check_integer, check_number, check_same_class_names
from calibrant._files import check_output, hold_lock
from calibrant._names import check_choice
from calibrant._paths import check_path, filesystem_of, find_files
from calibrant._signatures import checked
from calibrant.audits import SHIFT_COLUMN
from calibrant.calibrators import Calibrator, load_calibrator
from calibrant.calibrators.domains import clean_rows
from calibrant.errors import InvalidInputError
from calibrant.monitors.describing import describer
from calibrant.monitors.gates import WindowGate
from calibrant.monitors.rows import parse_every
from calibrant.monitors.state import read_state, write_state
from calibrant.monitors.stream import Monitor
from calibrant.parallel import one_thread
from calibrant.predictions import Paths, Predictions
from calibrant.reading.opening import open_scans
from calibrant.scan import Scan

__all__ = ["Monitor", "monitor"]


@checked
def monitor(
    source: Predictions | Scan | Paths,
    reference: Predictions | Scan | Paths,
    *,
    every: str | int,
    time: str | None = None,
    labels: Paths = (),
    label: str | None = None,
    id: str | None = None,
    cluster: str | None = None,
    calibrator: Calibrator | str | os.PathLike[str] | None = None,
    alpha: float = 0.05,
    max_waiting: int = 1_000_000,
    state: str | os.PathLike[str] | None = None,
    gates: str | Iterable[str] = (),
    match_names: bool = False,
    progress: Callable[[float], None] = lambda n_files: None,
) -> Monitor:
    """Follow predictions in files, window by window, with alarms that are ever false with a probability of alpha.

    Each of three questions gathers evidence: is the model miscalibrated, has it changed since the reference (both from
    labels), and have its predictions shifted (without labels)? The evidence may be looked at after any file. Files are
    read once and in bounded memory, in the given order.

    Args:
        source: Predictions, a scan, or files, folders, globs or URLs of them, with labels or without.
        reference: Predictions of the same model on rows that it was not trained on; with labels, as far as known. Rows
            with a corruption, in a column of that name, are for the estimates alone.
        every: The length of a window: "1d", "12h", "30min", or a number of rows.
        time: A column of times, which a length of time needs.
        labels: Files of any format that `calibrant.read` knows, with the column ``id`` and one of labels, for rows that
            came without; they may repeat older labels.
        label: The column of the labels in these files; by default the one whose name says so.
        id: A column that identifies a row, in the predictions and in ``labels``.
        cluster: A column; rows of one file that share its value are not independent, and count as one.
        calibrator: What calibrates every row, also those of the reference, on which it must not be fitted.
        alpha: The probability that any alarm is ever false.
        max_waiting: The number of rows that may wait for a label; the oldest are dropped, and counted.
        state: A JSON file: what was counted before is not counted again. It is replaced whole at the end.
        gates: Conditions on the last window such as "accuracy < 0.8" or "alarms > 0".
        match_names: Whether to reorder the classes of files that have those of the reference in another order.
        progress: Called with the number of files that are done since the last call.

    Returns:
        What is known of all files so far; `Monitor.to_dict` is its record.

    Raises:
        InvalidInputError: An argument is invalid, the state is of other settings, a file has changed since it was
            counted, an id occurs twice, or two labels of a row contradict each other.
        UnknownNameError: There is no such column or figure.
        CorruptFileError: A file cannot be parsed.
        NoDataError: There is no such file.
        ResourceError: Another process uses the state.
    """
    check_number("alpha", alpha, minimum=1e-12, maximum=0.5)
    check_integer("max_waiting", max_waiting, 1)
    by_time = parse_every(every)[1]
    if by_time and time is None:
        raise InvalidInputError(f"time must name a column for windows of {every}")
    urls = _files(source)
    named = [labels] if isinstance(labels, str | os.PathLike) else list(labels)
    late = find_files(named) if named else []
    if late and id is None:
        raise InvalidInputError("id must name a column that labels are joined on")
    if not isinstance(reference, Predictions):
        reference = (reference if isinstance(reference, Scan) else Predictions.scan(reference)).read()
    known = reference
    check_all_classes("reference", known, "monitor them")
    fitted = calibrator if calibrator is None or isinstance(calibrator, Calibrator) else load_calibrator(calibrator)
    if fitted is not None and not fitted.row_by_row:
        raise InvalidInputError(f"calibrator must calibrate row by row, got {fitted.name}")
    settings = {"time": time, "every": str(every), "id": id, "cluster": cluster, "alpha": alpha}
    settings["reference"] = known.fingerprint
    settings["calibrator"] = None if fitted is None else f"{fitted.name} {fitted.fitted.fingerprint}"
    calibrated = known if fitted is None else fitted(known)
    clean = calibrated
    if SHIFT_COLUMN in known.columns.column_names:
        clean = calibrated[clean_rows(calibrated, SHIFT_COLUMN)]
    if len(clean) == 0:
        raise InvalidInputError("reference must have at least one row that is not corrupted")
    options: dict[str, Any] = {
        "reference": clean,
        "calibrator": fitted,
        "describe": describer(calibrated, clean),
        "max_waiting": max_waiting,
        "gates": tuple(map(WindowGate.parse, [gates] if isinstance(gates, str) else gates)),
    }
    with nullcontext() if state is None else _state_lock(state), one_thread():
        found = _open(state, settings, options)
        if isinstance(source, Predictions):
            found.add_predictions(source.match_names(known.class_names) if match_names else source)
        _read(found, source if isinstance(source, Scan) else None, urls, match_names, progress)
        for url in late:
            found.add_labels(url, label)
        found.finish()
        if state is not None:
            write_state(state, found)
    return found


def _state_lock(state: str | os.PathLike[str]) -> Any:
    path = check_path("state", state)
    check_output(path, "a monitor")
    if "://" in path:
        return nullcontext()
    return hold_lock(Path(f"{path}.lock"), f"{path} is in use by another process")


def _open(state: str | os.PathLike[str] | None, settings: dict[str, Any], options: dict[str, Any]) -> Monitor:
    """The monitor of a state, where there is one. Raises: InvalidInputError where its settings are others."""
    filesystem, path = filesystem_of(os.fspath(state)) if state is not None else (None, "")
    if filesystem is None or not filesystem.isfile(path) or not filesystem.size(path):
        return Monitor.start(settings, **options)
    record = read_state(os.fspath(state))  # type: ignore[arg-type]
    for name, value in settings.items():
        if record["settings"].get(name) != value:
            got = f"{record['settings'].get(name)}, not of {value}"
            raise InvalidInputError(f"{os.fspath(state)} is the state of a monitor with {name} = {got}")  # type: ignore[arg-type]
    return Monitor(**record, **options)


def _files(source: Predictions | Scan | Paths) -> list[str]:
    if isinstance(source, Predictions):
        return []
    return source.files if isinstance(source, Scan) else find_files(source)


def _read(
    found: Monitor, scan: Scan | None, urls: Sequence[str], match_names: bool, progress: Callable[[float], None]
) -> None:
    """Count the files that were not counted before; they are opened if no scan has them."""
    new = found.new_files(urls)
    progress(len(urls) - len(new))
    if not new:
        return
    if scan is None:
        ids = [] if found.settings["id"] is None else [found.settings["id"]]
        (scan,) = open_scans([list(new.values())], ids=ids, match_names=match_names)
    check_all_classes(scan.files[0], scan, "monitor them")
    sources = {source.url: source for source in scan.sources}
    names = found.reference.class_names
    scan = scan.match_names(names) if match_names else scan
    check_same_class_names("the reference", names, scan.files[0], scan.class_names)
    wanted = [name for name in (found.settings[key] for key in ("time", "id", "cluster")) if name is not None]
    for name in wanted:
        check_choice("column", name, scan.column_names)
    columns = wanted if found.feature_scale is None and found.calibrator is None else None
    for digest, url in new.items():
        file = replace(scan, sources=(sources[url],))
        found.add_file(url, digest, file.batches(columns))
        progress(1)
