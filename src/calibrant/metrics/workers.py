"""Scorecards of files: in this process, in local processes or on a Ray cluster, with the same result to the last bit.

The rows come in parts (the row groups of the files); each part is scored on its own, and the scorecards are added in
the order of the parts, wherever they were made.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from calibrant._checks import check_choice, check_whole
from calibrant._parquet import Part
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError
from calibrant.metrics.scorecard import NO_ROWS, Scorecard
from calibrant.metrics.scoring import Groups, score_batch
from calibrant.scan import Scan

_job: "_Job"  # of a local process that was started for it
Report = Callable[[float], None]  # called with the number of bytes that have been scored since it was called


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

    def __call__(self, part: Part, report: Report = lambda _: None) -> list[Any] | None:
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
    report: Report = lambda _: None,
) -> FileScores:
    """Score files with this many local processes, or on the Ray cluster at this address ("auto", or "local")."""
    check_whole("jobs", jobs, 1)
    job = _Job(scan, tuple(by), None if metrics is None else tuple(metrics), n_bins, weights)
    for name in job.columns():
        check_choice("column", name, scan.column_names)
    run = _on_ray(ray) if ray is not None else _in_processes(jobs) if jobs > 1 else _in_process
    total: list[Any] | None = None
    for part, cards in zip(scan.parts, run(job, scan.parts, report), strict=True):
        if total is not None and cards is not None and cards[0].n_classes != total[0].n_classes:
            got = f"{cards[0].n_classes} classes, the files before it have {total[0].n_classes}"
            raise CorruptFileError(f"{part.url} has {got}")
        total = _added(total, cards)
    if total is None:
        raise InvalidInputError(NO_ROWS)
    return FileScores(total[0], dict(zip(job.by, total[1:], strict=True)))


Run = Callable[[_Job, list[Part], Report], Iterator[list[Any] | None]]


def _in_process(job: _Job, parts: list[Part], report: Report) -> Iterator[list[Any] | None]:
    with one_thread():  # as in the workers: another number adds in another order
        for part in parts:
            yield job(part, report)


@contextmanager
def one_thread() -> Iterator[None]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _in_processes(jobs: int) -> Run:
    def run(job: _Job, parts: list[Part], report: Report) -> Iterator[list[Any] | None]:
        # Started afresh: a fork of a process that has torch's threads can hang.
        with ProcessPoolExecutor(jobs, get_context("spawn"), _start, (job,)) as pool:
            results = _in_order(parts, lambda part: pool.submit(_work, part), lambda future: future.result(), 2 * jobs)
            yield from _reported(results, parts, report)

    return run


def _start(job: _Job) -> None:
    """Give a local process its job once, not with every part."""
    global _job
    torch.set_num_threads(1)
    _job = job


def _work(part: Part) -> list[Any] | None:
    return _job(part)


def _on_ray(address: str) -> Run:
    def run(job: _Job, parts: list[Part], report: Report) -> Iterator[list[Any] | None]:
        try:
            import ray
        except ImportError:
            raise NoDataError("--ray needs Ray: pip install 'calibrant[ray]'") from None
        started = not ray.is_initialized()
        if started:
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise NoDataError(f"there is no Ray cluster at {address}: {str(error).splitlines()[0]}") from None
        try:
            shared, score_part = ray.put(job), ray.remote(_score_part)
            n_cpus = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
            window = 2 * max(1, int(n_cpus))
            results = _in_order(parts, lambda part: score_part.remote(shared, part), _result, window)
            yield from _reported(results, parts, report)
        finally:
            if started:
                ray.shutdown()

    return run


def _score_part(job: _Job, part: Part) -> list[Any] | None:
    torch.set_num_threads(1)
    return job(part)


def _result(reference: Any) -> list[Any] | None:
    """What Ray's task gave; its own error instead of a report of it."""
    import ray

    try:
        return ray.get(reference)  # type: ignore[no-any-return]
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, CalibrantError) else error from None


def _reported(results: Iterator[list[Any] | None], parts: list[Part], report: Report) -> Iterator[list[Any] | None]:
    """The results of parts that were scored elsewhere, each reported as it comes."""
    for part, result in zip(parts, results, strict=True):
        report(part.n_bytes)
        yield result


def _in_order(
    parts: list[Part], submit: Callable[[Part], Any], wait: Callable[[Any], Any], window: int
) -> Iterator[list[Any] | None]:
    """The results in the order of the parts, with no more than this many under way: finished ones take memory."""
    under_way: deque[Any] = deque()
    for part in parts:
        under_way.append(submit(part))
        if len(under_way) >= window:
            yield wait(under_way.popleft())
    while under_way:
        yield wait(under_way.popleft())
