"""Scorecards of files: in this process, in local processes or on a Ray cluster, with the same result to the last bit.

The rows come in parts (the row groups of the files); each part is scored on its own, and the scorecards are added in
the order of the parts, wherever they were made.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from calibrant._checks import check_choice
from calibrant._parquet import Part
from calibrant.errors import CorruptFileError, InvalidInputError
from calibrant.metrics.scorecard import NO_ROWS, Scorecard
from calibrant.metrics.scoring import Groups, score_batch
from calibrant.parallel import BytesDone, map_parts
from calibrant.scan import Scan


@dataclass(frozen=True)
class FileScores:
    """The scorecard of all rows, and for each column asked for that of every group."""

    overall: Scorecard
    groups: dict[str, Groups]


@dataclass(frozen=True)
class _Job:
    """What a worker needs to score a part."""

    scan: Scan
    by: tuple[str, ...]
    metrics: tuple[str, ...] | None
    n_bins: int
    weights: str | None

    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.by, *([] if self.weights is None else [self.weights])]))

    def __call__(self, part: Part, report: BytesDone) -> list[Any] | None:
        """The scorecard of a part, then its groups by each column; None where no row counts."""
        options = (self.metrics, self.n_bins, self.weights)
        total: list[Any] | None = None
        first_row = part.first_row
        for batch in self.scan.read_part(part, self.columns()):
            try:
                overall = score_batch(batch, None, *options, stream=True)
                cards = [overall, *(score_batch(batch, by, *options, stream=True, overall=overall) for by in self.by)]
            except InvalidInputError as error:
                where = f", counting rows from {first_row}" if first_row else ""
                raise InvalidInputError(f"{part.url}{where}: {error}") from None
            total = _added(total, cards)
            first_row += len(batch)
            report(part.n_bytes * len(batch) / part.n_rows)
        return total


def _added(total: list[Any] | None, cards: list[Any] | None) -> list[Any] | None:
    if cards is None or cards[0] is None:
        return total
    return cards if total is None else [a + b for a, b in zip(total, cards, strict=True)]


def score_files(
    scan: Scan,
    *,
    by: Iterable[str] = (),
    metrics: Iterable[str] | None = None,
    n_bins: int = 15,
    weights: str | None = None,
    jobs: int = 1,
    ray: str | None = None,
    report: BytesDone = lambda n_bytes: None,
) -> FileScores:
    """Score files with this many local processes, or on the Ray cluster at this address ("auto", or "local")."""
    job = _Job(scan, tuple(by), None if metrics is None else tuple(metrics), n_bins, weights)
    for name in job.columns():
        check_choice("column", name, scan.column_names)
    total: list[Any] | None = None
    results = map_parts(job, scan.parts, jobs=jobs, ray=ray, report=report)
    for part, cards in zip(scan.parts, results, strict=True):
        if total is not None and cards is not None and cards[0].n_classes != total[0].n_classes:
            got = f"{cards[0].n_classes} classes, the files before it have {total[0].n_classes}"
            raise CorruptFileError(f"{part.url} has {got}")
        total = _added(total, cards)
    if total is None:
        raise InvalidInputError(NO_ROWS)
    return FileScores(total[0], dict(zip(job.by, total[1:], strict=True)))
