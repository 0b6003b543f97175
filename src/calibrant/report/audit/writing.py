"""Writing the page of an audit, from predictions or from what the verb has already scored."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path, PurePath

import calibrant
from calibrant._checks import check_level, check_path, check_whole
from calibrant._files import replacing, without_secrets
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.metrics.compare import Difference, compare
from calibrant.metrics.scoring import score
from calibrant.metrics.workers import FileScores, score_files
from calibrant.parallel import one_thread
from calibrant.predictions import Predictions
from calibrant.report.audit.numbers import Gate, Provenance, audit_numbers
from calibrant.report.audit.reading import read
from calibrant.report.page import EXTRA, write_page
from calibrant.scan import Scan

NEEDED = ("altair", "jinja2", "vl_convert")
SUFFIXES = (".html", ".htm")


class _UntouchedError(Exception):
    """Leaves the file as it is."""


def check_report(path: str | os.PathLike[str]) -> None:
    """That a page can be written there, before minutes of reading. Raises: InvalidInputError, NoDataError."""
    name = check_path("report", path)
    if PurePath(name).suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"report must be a file of {', '.join(SUFFIXES)}, got {name}")
    if not all(map(find_spec, NEEDED)):
        raise NoDataError(EXTRA)
    if Path(name).is_dir():
        raise InvalidInputError(f"{name} cannot be written: it is a folder")
    try:
        with replacing(name):
            raise _UntouchedError
    except _UntouchedError:
        pass


def write_audit(
    path: str | os.PathLike[str],
    predictions: Scan | Predictions,
    *,
    by: Iterable[str] = (),
    other: Predictions | None = None,
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> None:
    """Write the page of an audit: what `calibrant audit --report` writes.

    by: columns to split by. other: the same rows, in the same order, as predicted by another model. weights: a column
    of row weights. A scan is read twice in bounded memory, and once more, whole, where there is another model.

    Raises: NoDataError where the page cannot be written; what `score` and `compare` raise.
    """
    check_report(path)
    check_level(level)
    check_whole("seed", seed, 0)
    columns = (by,) if isinstance(by, str) else tuple(by)
    names = (metrics,) if isinstance(metrics, str) else None if metrics is None else tuple(metrics)
    scores = _scores(predictions, columns, names, n_bins, weights)
    differences: dict[str | None, list[Difference]] = {}
    if other is not None:
        rows = predictions.read() if isinstance(predictions, Scan) else predictions
        for column in columns or (None,):
            differences[column] = compare(
                rows, other, metrics=names, by=column, weights=weights, n_bins=n_bins, level=level, seed=seed
            )
    write_scored(path, predictions, scores, differences=differences, weights=weights, level=level, seed=seed)


def _scores(
    predictions: Scan | Predictions, by: Sequence[str], metrics: Sequence[str] | None, n_bins: int, weights: str | None
) -> FileScores:
    if isinstance(predictions, Scan):
        return score_files(predictions, by=by, metrics=metrics, n_bins=n_bins, weights=weights)
    overall = score(predictions, metrics=metrics, n_bins=n_bins, weights=weights)
    groups = {name: score(predictions, by=name, metrics=metrics, n_bins=n_bins, weights=weights) for name in by}
    return FileScores(overall, groups)


def write_scored(
    path: str | os.PathLike[str],
    predictions: Scan | Predictions,
    scores: FileScores,
    *,
    differences: Mapping[str | None, Sequence[Difference]] | None = None,
    gates: Sequence[Gate] = (),
    weights: str | None = None,
    level: float = 0.95,
    seed: int = 0,
    command: Sequence[str] = (),
    other_files: Sequence[str] = (),
    now: datetime | None = None,
    report: Callable[[float], None] = lambda _: None,
) -> None:
    """The same where the rows have been scored: they are read once more. report: as of `score_files`.

    command: the arguments that made it.
    """
    from calibrant.report.audit.content import content

    provenance = Provenance(
        files=tuple(predictions.files) if isinstance(predictions, Scan) else (),
        columns=tuple(predictions.column_names if isinstance(predictions, Scan) else predictions.columns.column_names),
        weights=weights,
        seed=seed,
        version=calibrant.__version__,
        time=(now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(map(without_secrets, command)),
        other_files=tuple(other_files),
    )
    with one_thread():  # of thousands of small steps: threads would wait for each other most of the time
        reading = read(predictions, weights=weights, seed=seed, report=report)
        numbers = audit_numbers(scores, reading, provenance, level=level, differences=differences, gates=gates)
    write_page(path, "audit.html.j2", **content(numbers))
